"""Ops of the lightning indexer, which chooses the keys of sparse attention."""
