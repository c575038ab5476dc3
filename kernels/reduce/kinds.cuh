#pragma once
// kinds      the reductions: one functor each, over elements T; see baracuda/reduce_axes.cuh for what a functor has.
//
// Floats of 16 bits and float are summed in float and double in double; integers and bool in 64 bits, modulo 2^64. Kinds
// that would leave the range or lose digits that the result has (products, 2-norms, variances) carry more, as they say.
#include "reduce/bits.cuh"
#include "reduce/counts.cuh"
#include "reduce/extremes.cuh"
#include "reduce/logsumexp.cuh"
#include "reduce/norms.cuh"
#include "reduce/pairs.cuh"
#include "reduce/places.cuh"
#include "reduce/prod.cuh"
#include "reduce/spread.cuh"
#include "reduce/sums.cuh"
