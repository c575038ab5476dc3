"""Clouds of points: neighbours, samples, cells of a grid."""
