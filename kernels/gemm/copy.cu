// copy       operands in rows that start at multiples of 16 bytes: copy_rows of gemm/products.cuh.
#include "gemm/products.cuh"
