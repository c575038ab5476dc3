"""Geometry of attention by use; this level has what its sub-packages share."""
