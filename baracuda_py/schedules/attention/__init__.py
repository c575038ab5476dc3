"""Geometry of attention, by use; what its rooms share is here."""
