// linear_scan  h[t] = a[t] h[t - 1] + b[t], and its gradient by the same recurrence backwards; schedule scan.
//
// What fixes the order of merges stands in baracuda/scan_axis.cuh: the length of a row, and the size of its elements.
#include "scan/recurrence.cuh"
