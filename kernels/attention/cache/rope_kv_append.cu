// rope_kv_append   y = rope(q);  k_cache[b, h, offset[b] + l] = rope(k)[b, h, l];  v_cache[b, h, offset[b] + l] = v[…]
//
// One launch covers the heads of queries, keys and values. Every element is read once and written once; the bits are
// those of rope.cu and kv_cache_append.cu.
#include "attention/rope/rope.cuh"

namespace baracuda {

template <class T, bool INTERLEAVED, bool WIDE> BARACUDA_D void rope_kv_append(const RopeKvAppendParams& p) {
  rope_rows<T, INTERLEAVED, WIDE, true>(p);
}

}  // namespace baracuda
