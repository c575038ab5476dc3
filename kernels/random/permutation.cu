// permutation   the first `count` numbers of a random order of 0 … n - 1.
//
// ranks     up to 4096 numbers: number i comes at the rank of its 64-bit word among all words, of equal ones by i. Every
//           order is as likely as any other but for equal words.
// network   more: y[t] is t through a Feistel network of 10 rounds on an even number of bits, again and again until it
//           is below n (cycle walking). It is a bijection for any seed; orders differ from uniformly drawn ones by less
//           than tests can find, but are fewer than n!. An element needs no other, and no sort.
#include "random/streams.cuh"

namespace baracuda {

template <class T> BARACUDA_D void permutation_ranks(const PermutationParams& p) {
  constexpr int tile = 256;
  __shared__ u64 keys[tile];
  const u64 seed = p.seed(), offset = p.offset();
  const i64 i = static_cast<i64>(blockIdx.x) * tile + threadIdx.x;
  u64 own[1];
  random::words<1>(seed, offset, static_cast<u64>(i), own);
  i64 rank = 0;
  for (i64 begin = 0; begin < p.n; begin += tile) {
    u64 word[1];
    random::words<1>(seed, offset, static_cast<u64>(begin) + threadIdx.x, word);
    __syncthreads();
    keys[threadIdx.x] = word[0];
    __syncthreads();
    const int there = static_cast<int>(min<i64>(tile, p.n - begin));
    for (int j = 0; j < there; ++j) rank += keys[j] < own[0] || (keys[j] == own[0] && begin + j < i);
  }
  if (i < p.n && rank < p.count) static_cast<T*>(p.y)[rank * p.stride] = static_cast<T>(i);
}

template <class T> BARACUDA_D void permutation_network(const PermutationParams& p) {
  const i64 t = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= p.count) return;
  const random::Tries from{static_cast<u64>(p.seed()), static_cast<u64>(p.offset()), 0};
  const u32 half = (1u << p.bits) - 1;
  u64 at = static_cast<u64>(t);
  do {
    u32 left = static_cast<u32>(at >> p.bits), right = static_cast<u32>(at) & half;
#pragma unroll 1
    for (int round = 0; round < 10; ++round) {
      const random::Tries of{from.seed, from.offset, right};
      const u32 next = (left ^ of.block(round + 1).x) & half;
      left = right, right = next;
    }
    at = static_cast<u64>(left) << p.bits | right;
  } while (at >= static_cast<u64>(p.n));
  static_cast<T*>(p.y)[t * p.stride] = static_cast<T>(at);
}

}  // namespace baracuda
