"""What runs plans on CUDA devices: layouts prepared once, then generated straight-line code for each launch."""
