// merge       the gradient of a filter, or of a bias, from the sums of the splits of rows (conv/filter.cu), added in order.
#include "conv/tap.cuh"

namespace baracuda {

// dw, or with one column an output dbias, at p.w_steps, of whose channels `kept` exist.
template <class T> BARACUDA_D void conv_merge(const ConvMergeParams& p) {
  using A = acc_t<T>;
  const i64 index = thread_index(), count = p.groups * p.cols * p.taps * p.channels;
  if (index >= count) return;
  const A* const parts = static_cast<const A*>(p.parts) + index;
  u64 c, tap, n;
  u64 rest = divmod(static_cast<u64>(index), static_cast<u64>(p.channels), c);
  if (static_cast<i64>(c) >= p.kept) return;
  A sum = p.splits > 0 ? parts[0] : A(0);
  for (i64 split = 1; split < p.splits; ++split) sum += parts[split * count];
  rest = divmod(rest, static_cast<u64>(p.taps), tap);
  const i64 group = static_cast<i64>(divmod(rest, static_cast<u64>(p.cols), n));
  const ConvTap place(p, static_cast<i64>(tap));
  const i64 at = group * p.w_steps[0] + static_cast<i64>(n) * p.w_steps[1] + static_cast<i64>(c) * p.w_steps[2];
  static_cast<T*>(p.to)[p.w_start + at + place.offset(p.w_steps)] = from_acc<T>(sum);
}

}  // namespace baracuda
