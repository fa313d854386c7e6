"""A cache that stays small: which keys are dropped for good, and what the others make up."""
