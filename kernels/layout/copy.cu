// copy       y = a view of x, whatever its strides; elements are moved as they are. Schedule copy. No sums.
#include <baracuda/copy.cuh>
