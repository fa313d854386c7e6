"""Tokens on the sphere as queries and keys: how far n of them are from infinitely many."""
