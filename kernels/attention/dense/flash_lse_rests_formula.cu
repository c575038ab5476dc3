// flash_lse_rests    the same under a formula.
#include "attention/dense/flash_lse_rests.cuh"

#include "attention/dense/score_formula_pairs.cuh"
