#pragma once
// best_few   all that may be among the few largest of a source, listed by one block of 1024 threads.
//
// Each thread keeps its four largest; those of at least the width-th largest of the threads' largest are all that can
// matter. Where a thread may have had more of them, or too many are equal, the block's share is read again: bit by bit for
// the key of the width-th largest, and for the place where its ties end.
#include "random/candidates.cuh"

namespace baracuda::sampling {

// Lists all that may be among the `width` largest of a source; their number, at most `short_list`.
template <class K, class S> BARACUDA_D int list_best(const S& from, int width, ShortList<K>& list, u32& listed) {
  Held<K> held{};
  from.template each<4>([&](K key, u32 at) { held.add(key, at); });
  K least = max<K>(nth_largest(held.key[0], width), 1);
  u32 last = 0xffffffffu;  // of those equal to `least` the last one
  if (threadIdx.x == 0) listed = 0;
  const auto put = [&](K key, u32 at) {
    if (key < least || (key == least && at > last)) return;
    const u32 slot = atomicAdd(&listed, 1u);
    if (slot < short_list) list.key[slot] = key, list.col[slot] = at;
  };
  const bool unsure = __syncthreads_or(held.key[3] >= least);
  if (!unsure) {
#pragma unroll
    for (int i = 0; i < 4; ++i) put(held.key[i], held.col[i]);
  }
  __syncthreads();
  if (const bool again = unsure || listed > short_list; again) {
    __syncthreads();
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
    // How many have keys above `key`, or equal to it and no place behind `place`.
    const auto before = [&](K key, u32 place) {
      i64 n = 0;
      from.template each<1>([&](K k, u32 at) { n += k > key || (k == key && k != 0 && at <= place) ? 1 : 0; });
      return block_reduce<Sum, 1024>(n);
    };
    if (before(least, last) > short_list) {
      least = 0;
#pragma unroll 1
      for (int bit = 8 * sizeof(K) - 1; bit >= 0; --bit) {
        const K probe = least | K(1) << bit;
        if (before(probe, 0xffffffffu) >= width) least = probe;
      }
      last = 0;
#pragma unroll 1
      for (int bit = 31; bit >= 0; --bit) {  // the first place up to which there are enough
        if (before(least, last | ((1u << bit) - 1)) < width) last |= 1u << bit;
      }
    }
    from.template each<1>(put);
  }
  __syncthreads();
  return static_cast<int>(listed);
}

}  // namespace baracuda::sampling
