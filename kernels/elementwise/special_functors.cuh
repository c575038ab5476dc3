#pragma once
// special_functors   the functions of two to four numbers that compute in double: F<T>::value(a, b, c, d).
#include "elementwise/combinatorics.cuh"
#include "elementwise/divergence.cuh"
#include "elementwise/gamma_parameter.cuh"
#include "elementwise/hypergeometric.cuh"
#include "elementwise/hypergeometric_gauss.cuh"
#include "elementwise/incomplete.cuh"
#include "elementwise/orders.cuh"
#include "elementwise/orthogonal.cuh"
#include "elementwise/owens.cuh"
