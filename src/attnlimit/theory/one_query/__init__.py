"""The exact law of one query over n keys, for every kind of key and way of drawing."""
