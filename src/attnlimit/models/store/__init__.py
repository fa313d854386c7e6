"""Captures as files, in a folder of this machine or at an address."""
