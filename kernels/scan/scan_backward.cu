// scan_backward  gradients of the scans, themselves scans the other way; K one functor of scan/gradients.cuh; schedule scan.
//
// What fixes the order of merges stands in baracuda/scan_axis.cuh: the length of a row, and the size of its elements.
#include "scan/gradients.cuh"
