"""Linear algebra: factorisations of matrices."""
