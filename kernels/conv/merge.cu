// merge       the gradient of a filter, or of a bias, from the sums of the splits of rows (conv/filter.cu, conv/pairs.cu).
//
// Each of LINES threads adds every LINES-th split in order, and their sums are added in order.
#include "conv/tap.cuh"

namespace baracuda {

// dw, or with one column an output dbias, at p.w_steps, of whose channels `kept` exist. taps_first: in the parts taps stand
// before the groups, not behind the outputs. run: channels of a tap, where what stands as channels are the last axis' taps, too.
template <class T, int LINES> BARACUDA_D void conv_merge(const ConvMergeParams& p) {
  using A = acc_t<T>;
  constexpr int lanes = 256 / LINES;
  __shared__ A shared[LINES][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes, line = static_cast<int>(threadIdx.x) / lanes;
  const i64 index = static_cast<i64>(blockIdx.x) * lanes + lane, count = p.groups * p.cols * p.taps * p.channels;
  A sum = A(0);
  if (index < count) {
    const A* const parts = static_cast<const A*>(p.parts) + index;
    if (line < p.splits) sum = parts[line * count];
#pragma unroll 8
    for (i64 split = line + LINES; split < p.splits; split += LINES) sum += parts[split * count];
  }
  if constexpr (LINES > 1) {
    shared[line][lane] = sum;
    __syncthreads();
    if (line != 0) return;
#pragma unroll
    for (int k = 1; k < LINES; ++k) sum += shared[k][lane];
  }
  if (index >= count) return;
  u64 c, tap, n;
  u64 rest = static_cast<u64>(index);
  if (p.taps_first) {
    tap = divmod(rest, static_cast<u64>(count / p.taps), rest);
    rest = divmod(rest, static_cast<u64>(p.channels), c);
  } else {
    rest = divmod(rest, static_cast<u64>(p.channels), c);
    rest = divmod(rest, static_cast<u64>(p.taps), tap);
  }
  if (static_cast<i64>(c) >= p.kept) return;
  const i64 group = static_cast<i64>(divmod(rest, static_cast<u64>(p.cols), n));
  const ConvTap place(p, static_cast<i64>(tap));
  u64 channel;
  const i64 last = static_cast<i64>(divmod(c, static_cast<u64>(p.run), channel));
  const i64 at = group * p.w_steps[0] + static_cast<i64>(n) * p.w_steps[1] + static_cast<i64>(channel) * p.w_steps[2];
  static_cast<T*>(p.to)[p.w_start + at + last * p.w_steps[5] + place.offset(p.w_steps)] = from_acc<T>(sum);
}

}  // namespace baracuda
