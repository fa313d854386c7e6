"""Captures as files: one of tensors for each layer, and a manifest that says what they are."""
