"""Suites written by others, driven against this library; `expected.toml` records where each case stands."""
