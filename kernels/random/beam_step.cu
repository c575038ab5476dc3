// beam_step   the `width` largest of score[k] + logprob[k, v] over all beams k and tokens v of a batch item, in their
//             order, with the beam and the token of each; of equal ones the lower k V + v first.
//
// A block for each item. Each thread keeps its four largest; those of at least the width-th largest of the threads'
// largest are all that can matter. Where a thread may have had more of them, or too many are equal, the item is read
// again: bit by bit for the key of the width-th largest, and for the place where its ties end.
#include "random/candidates.cuh"

namespace baracuda {

template <class T> BARACUDA_D void beam_step(const BeamStepParams& p) {
  using namespace sampling;
  using A = acc_t<T>;
  using K = typename Keys<A>::type;
  __shared__ ShortList<K> list;
  __shared__ u32 listed;
  const i64 item = blockIdx.x;
  const i64 count = static_cast<i64>(p.beams) * p.cols;
  const auto key_at = [&](i64 i) {
    const i64 k = i / p.cols, v = i - k * p.cols;
    const T* const x = static_cast<const T*>(p.logprobs) + item * p.strides[0] + k * p.strides[1] + v * p.strides[2];
    return Keys<A>::of(static_cast<const A*>(p.scores)[item * p.score_strides[0] + k * p.score_strides[1]] +
                       to_acc(*x));
  };
  Held<K> held{};
  for (i64 i = threadIdx.x; i < count; i += 1024) held.add(key_at(i), static_cast<u32>(i));
  K least = max<K>(nth_largest(held.key[0], p.width), 1);
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
    const auto matching = [&](const auto& f) {
      i64 n = 0;
      for (i64 i = threadIdx.x; i < count; i += 1024) n += f(key_at(i), static_cast<u32>(i)) ? 1 : 0;
      return block_reduce<Sum, 1024>(n);
    };
    if (matching([&](K key, u32) { return key >= least; }) > short_list) {
      least = 0;
#pragma unroll 1
      for (int bit = 8 * sizeof(K) - 1; bit >= 0; --bit) {
        const K probe = least | K(1) << bit;
        if (matching([&](K key, u32) { return key >= probe; }) >= p.width) least = probe;
      }
      const i64 ties = p.width - matching([&](K key, u32) { return key > least; });
      last = 0;
#pragma unroll 1
      for (int bit = 31; bit >= 0; --bit) {  // the first place up to which there are so many
        const u32 probe = last | ((1u << bit) - 1);
        if (matching([&](K key, u32 at) { return key == least && at <= probe; }) < ties) last |= 1u << bit;
      }
    }
    for (i64 i = threadIdx.x; i < count; i += 1024) put(key_at(i), static_cast<u32>(i));
  }
  __syncthreads();
  const int n = static_cast<int>(listed), t = threadIdx.x;
  if (t >= n) return;
  const K key = list.key[t];
  const u32 at = list.col[t];
  const int rank = rank_of(list, n, key, at);
  if (rank >= p.width) return;
  const i64 beam = at / p.cols, token = at - beam * p.cols;
  const i64 place = item * p.out_strides[0] + rank * p.out_strides[1];
  static_cast<A*>(p.next_scores)[place] = Keys<A>::value(key);
  static_cast<i32*>(p.parents)[item * p.parent_strides[0] + rank * p.parent_strides[1]] = static_cast<i32>(beam);
  const i64 out = item * p.token_strides[0] + rank * p.token_strides[1];
  if (p.wide) static_cast<i64*>(p.tokens)[out] = token;
  else static_cast<i32*>(p.tokens)[out] = static_cast<i32>(token);
}

}  // namespace baracuda
