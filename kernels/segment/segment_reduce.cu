// segment_reduce   y[s, :] = the tokens x[t, :] of segment s combined, in their order
//
// bounds        the places of every segment (places.cuh), after a stable counting sort of ids that are not sorted.
// combine       chunks of 32 tokens of every segment, then `merge` those of longer ones (combine.cuh). The order of a
//               segment's sum is fixed by its number of tokens alone.
#include "segment/combine.cuh"
#include "segment/functors.cuh"

namespace baracuda {

template <class T> using ReduceSum = SegmentSum;
template <class T> using ReduceMean = SegmentSum;
template <class T> using ReduceProd = SegmentProd;
template <class T> using ReduceMax = SegmentMax<T>;
template <class T> using ReduceMin = SegmentMin<T>;
template <class T> using ReduceLogsumexp = SegmentLogsumexp;

}  // namespace baracuda
