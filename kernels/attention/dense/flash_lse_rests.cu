// flash_lse_rests    what a saved lse lacks: see flash_lse_rests.cuh.
#include "attention/dense/flash_lse_rests.cuh"
