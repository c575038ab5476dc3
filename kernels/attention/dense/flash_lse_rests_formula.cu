// flash_lse_rests_formula    what a saved lse lacks, under a formula: see flash_lse_rests.cuh.
#include "attention/dense/flash_lse_rests.cuh"

#include "attention/dense/score_formula_pairs.cuh"
