"""What fewer keys do to a model's output, predicted from backward passes before it is run."""
