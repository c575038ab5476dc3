"""Measuring ops: timing on the device or the host, problems made ready, peers, and results on file."""
