// block_dequantize_backward  the gradient of the scales of a stored matrix: dscale = scale · sum of dy (number - zero).
//
// 2^lane_bits lanes of a warp have one scale. They take the parts of 8 of its group, row by row, in turn, each in order;
// then their sums are added pairwise. Where columns say which group is theirs, the lanes take all parts of the rows.
#include <baracuda/reduce.cuh>
#include "quantize/format.cuh"
#include "quantize/put_float.cuh"

namespace baracuda {

// The sum over 8 columns from k on, of which those of another group count nothing.
template <class F, class T, class P>
BARACUDA_D acc_t<T> part_sum(const P& p, const Stored& w, const StoredRow& row, const T* dy, i64 k, u32 group) {
  using A = acc_t<T>;
  float x[format_part];
  F::template codes<format_part>(w, row, k, x);
  Vec<T, format_part> g;
  if (p.wide) {
    g = load<format_part>(dy + k);
  } else {
#pragma unroll
    for (int j = 0; j < format_part; ++j) g[j] = dy[(k + j) * p.dy_steps[2]];
  }
  A zero = 0;
  if (w.zeros != nullptr) zero = format_number(w.zeros, w.zero_code, row.zero + group * w.zero_steps[2]);
  A sum = 0;
#pragma unroll
  for (int j = 0; j < format_part; ++j) {
    if (w.index != nullptr && w.group_of(k + j) != group) continue;
    sum = math::fma(static_cast<A>(to_acc(g[j])), static_cast<A>(x[j]) - zero, sum);
  }
  return sum;
}

template <class F, class T> BARACUDA_D void block_dequantize_backward(const BlockDequantizeBackwardParams& p) {
  using A = acc_t<T>;
  const Stored w(p);
  const int lanes = 1 << p.lane_bits;
  const i64 item = (i64(blockIdx.x) * scale_sums_threads + threadIdx.x) >> p.lane_bits;
  A sum = 0;
  i64 to = 0;
  if (item < p.count) {
    const i64 line = item / w.groups, batch = line / p.row_groups, of = line - batch * p.row_groups;
    const u32 group = static_cast<u32>(item - line * w.groups);
    to = batch * p.to_steps[0] + of * p.to_steps[1] + group * p.to_steps[2];
    const i64 first = of * w.row_group, rows = min(static_cast<i64>(w.row_group), p.n - first);
    const i64 from = w.index == nullptr ? i64(group) * w.group : 0;
    const int parts = static_cast<int>((w.index == nullptr ? w.group : p.k) / format_part);
    int part = static_cast<int>(threadIdx.x) & (lanes - 1);
    for (i64 at = 0; at < rows; part += lanes) {
      for (; part >= parts && at < rows; part -= parts) ++at;
      if (at == rows) break;
      const StoredRow row(w, batch, first + at);
      const T* const dy = static_cast<const T*>(p.dy) + batch * p.dy_steps[0] + (first + at) * p.dy_steps[1];
      sum += part_sum<F>(p, w, row, dy, from + i64(part) * format_part, group);
    }
  }
  for (int mask = 1; mask < lanes; mask *= 2) sum += shuffle_xor(sum, mask);
  if (item >= p.count || (threadIdx.x & (lanes - 1)) != 0) return;
  affine::put_float(p.dscales, p.scale_code, to, static_cast<A>(p.scale()) * sum);
}

}  // namespace baracuda
