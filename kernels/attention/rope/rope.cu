// rope       y[2 of a pair] = (a cos t - b sin t, b cos t + a sin t) * scale,   t = (position + offset) * inv_freq[pair]
//
// Of one tensor, or of queries and keys in one launch; the gradient takes the negated angle. The schedule is in
// rope.cuh.
#include "rope.cuh"

namespace baracuda {

template <class T, bool INTERLEAVED, bool WIDE> BARACUDA_D void rope(const RopeParams& p) {
  rope_rows<T, INTERLEAVED, WIDE, false>(p);
}

}  // namespace baracuda
