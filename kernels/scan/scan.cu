// scan       y = the merges of a row's elements so far, K one functor of scan/kinds.cuh; schedule scan.
//
// What fixes the order of merges stands in baracuda/scan_axis.cuh: the length of a row, and the size of its elements.
#include "scan/kinds.cuh"
