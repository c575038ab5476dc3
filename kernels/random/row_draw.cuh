#pragma once
// row_draw   one draw from a row of nonnegative weights by one block: inverse CDF over fixed-point sums.
//
// value(i) is a weight in double. Relative to the largest it is rounded to 2^-bits; sums of integers have no order, and
// the quotient is the same in NumPy bit for bit.
#include <baracuda/philox.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda::rows {

// Inclusive sum over the lanes of a warp.
BARACUDA_D u64 warp_sums(u64 x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const u64 other = __shfl_up_sync(full_warp, x, step);
    if (lane_id() >= step) x += other;
  }
  return x;
}
BARACUDA_D double finite_weight(double x) { return x > 0.0 ? x : 0.0; }  // NaN is 0
BARACUDA_D u64 fixed(double x, double top, int bits) {
  const double part = x == top ? 1.0 : x / top;
  return __double2ull_rn(part * __longlong_as_double(static_cast<i64>(1023 + bits) << 52));
}

// The index drawn by a word of 64 bits, the first one whose sum passes word / 2^64 of the total; -1 where all are 0.
// Called by a block of 1024 threads, all of which get it.
template <class F> BARACUDA_D i64 draw_row(const F& value, i64 cols, int bits, u64 word, u64 (&sums)[32]) {
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  double top = 0.0;
  for (i64 i = threadIdx.x; i < cols; i += 1024) top = max(top, finite_weight(value(i)));
  top = block_reduce<Max, 1024>(top);
  if (!(top > 0.0)) return -1;
  u64 target = 0, before = 0;
  i64 begin = 0, end = cols;
  bool first = true;
  while (first || end - begin > warp_size) {
    const i64 segment = (end - begin + 31) / 32;
    const i64 from = min<i64>(end, begin + warp * segment), to = min<i64>(end, from + segment);
    u64 sum = 0;
    for (i64 i = from + lane; i < to; i += warp_size) sum += fixed(finite_weight(value(i)), top, bits);
    sum = warp_reduce<Sum>(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    const u64 own = sums[lane], running = before + warp_sums(own);
    __syncthreads();
    if (first) target = __umul64hi(__shfl_sync(full_warp, running, warp_size - 1), word);
    first = false;
    const int chosen = __ffs(__ballot_sync(full_warp, running > target)) - 1;
    before = __shfl_sync(full_warp, running - own, chosen);
    begin += chosen * segment;
    end = min<i64>(end, begin + segment);
  }
  const bool inside = begin + lane < end;
  const u64 running = before + warp_sums(inside ? fixed(finite_weight(value(begin + lane)), top, bits) : 0ull);
  return begin + __ffs(__ballot_sync(full_warp, running > target)) - 1;
}

}  // namespace baracuda::rows
