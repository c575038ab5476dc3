// sort       y = the keys of every row in order, indices = where each stood. Schedule radix_sort, which fixes the order.
#include <baracuda/radix_sort.cuh>
