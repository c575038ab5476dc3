"""Attention of quantised queries, keys and values."""
