// multinomial   ids of a row of nonnegative weights, drawn with or without replacement.
//
// with      cumulate: fixed-point sums of the row in order, one block a row. pick: a thread finds the first sum that its
//           word's part of the total falls below.
// without   race: arrival E / w of each id, E a standard exponential variate; the n first are the draw, in their order
//           (Efraimidis and Spirakis 2006). rank: how many arrive before an id, of those that may be among the n first.
//
// Weights are quotients by the largest in double, so that NumPy has the same integers.
#include "random/row_draw.cuh"
#include "random/streams.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D double weight_at(const P& p, i64 row, i64 i) {
  return rows::finite_weight(
      static_cast<double>(to_acc(static_cast<const T*>(p.probs)[row * p.strides[0] + i * p.strides[1]])));
}
template <class P> BARACUDA_D void put_id(const P& p, i64 row, i64 j, i64 id) {
  const i64 at = row * p.ids_strides[0] + j * p.ids_strides[1];
  if (p.wide) static_cast<i64*>(p.ids)[at] = id;
  else static_cast<i32*>(p.ids)[at] = static_cast<i32>(id);
}

template <class T> BARACUDA_D void multinomial_cumulate(const MultinomialParams& p) {
  __shared__ u64 scratch[32];
  const i64 row = blockIdx.x;
  u64* const sums = static_cast<u64*>(p.work) + row * p.cols;
  double top = 0.0;
  for (i64 i = threadIdx.x; i < p.cols; i += 1024) top = max(top, weight_at<T>(p, row, i));
  top = block_reduce<Max, 1024>(top);
  u64 before = 0;
  for (i64 tile = 0; tile < p.cols; tile += 1024) {
    const i64 i = tile + threadIdx.x;
    const u64 own = i < p.cols && top > 0.0 ? rows::fixed(weight_at<T>(p, row, i), top, p.bits) : 0;
    const u64 running = before + block_scan<Sum, 1024>(own, scratch);
    if (i < p.cols) sums[i] = running;
    __syncthreads();
    if (threadIdx.x == 1023) scratch[0] = running;
    __syncthreads();
    before = scratch[0];
    __syncthreads();
  }
}
template <class T> BARACUDA_D void multinomial_pick(const MultinomialParams& p) {
  const i64 e = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.rows * p.draws) return;
  const i64 row = e / p.draws;
  const u64* const sums = static_cast<const u64*>(p.work) + row * p.cols;
  u64 word[1];
  random::words<1>(p.seed(), p.offset(), static_cast<u64>(e), word);
  const u64 total = sums[p.cols - 1], target = __umul64hi(total, word[0]);
  i64 low = 0, high = p.cols - 1;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (sums[middle] > target) high = middle;
    else low = middle + 1;
  }
  put_id(p, row, e - row * p.draws, total == 0 ? -1 : low);
  if (total == 0 && p.status != nullptr) atomicOr(p.status, 1u);
}

constexpr u64 never = 0xffffffffffffffffull;  // the arrival of an id of weight 0

// Arrivals as integers of the same order, and a time before which `draws` of them are.
template <class T> BARACUDA_D void multinomial_race(const MultinomialParams& p) {
  const i64 row = blockIdx.x;
  u64* const arrivals = static_cast<u64*>(p.work) + row * (p.cols + 1);
  u64 least = never;
  for (i64 i = threadIdx.x; i < p.cols; i += 1024) {
    const double weight = weight_at<T>(p, row, i);
    u64 word[1], key = never;
    random::words<1>(p.seed(), p.offset(), static_cast<u64>(row * p.cols + i), word);
    if (weight > 0.0) key = static_cast<u64>(__double_as_longlong(-math::log(random::open(word[0])) / weight));
    arrivals[i] = key;
    least = min(least, key);
  }
  u64 bound = never;
  if (p.draws <= 1024) {  // the least one that has `draws` threads' first arrivals up to it
    bound = 0;
#pragma unroll 1
    for (int bit = 63; bit >= 0; --bit) {
      const u64 probe = bound | ((1ull << bit) - 1);
      if (__syncthreads_count(least <= probe) < p.draws) bound |= 1ull << bit;
    }
  }
  if (threadIdx.x == 0) arrivals[p.cols] = bound;
  for (i64 j = threadIdx.x; j < p.draws; j += 1024) put_id(p, row, j, -1);
}
template <class T> BARACUDA_D void multinomial_rank(const MultinomialParams& p) {
  constexpr int tile = 256;
  __shared__ u64 keys[tile];
  const i64 row = blockIdx.y, i = static_cast<i64>(blockIdx.x) * tile + threadIdx.x;
  const u64* const arrivals = static_cast<const u64*>(p.work) + row * (p.cols + 1);
  const u64 own = i < p.cols ? arrivals[i] : never, bound = arrivals[p.cols];
  const bool may = own != never && own <= bound;
  if (!__syncthreads_or(may)) return;
  i64 rank = 0;
  for (i64 begin = 0; begin < p.cols; begin += tile) {
    __syncthreads();
    if (begin + threadIdx.x < p.cols) keys[threadIdx.x] = arrivals[begin + threadIdx.x];
    __syncthreads();
    const int there = static_cast<int>(min<i64>(tile, p.cols - begin));
    for (int j = 0; may && j < there; ++j) rank += keys[j] < own || (keys[j] == own && begin + j < i);
  }
  if (may && rank < p.draws) put_id(p, row, rank, i);
}

}  // namespace baracuda
