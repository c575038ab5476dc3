// block_filter   the filter of a convolution whose rows are blocks of outputs, one of each phase: to[group][phase][output][tap of
//                the block's window][channels, with zeros up to a pitch], and zeros where an output has no tap there.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <class T> BARACUDA_D void conv_block_filter(const ConvBlockFilterParams& p) {
  constexpr int N = 16 / static_cast<int>(sizeof(T));
  const i64 index = thread_index(), pieces = p.pitch / N;
  if (index >= p.groups * p.phases * p.cols * p.taps * pieces) return;
  u64 piece, at[3], phase[3], output;
  u64 rest = divmod(static_cast<u64>(index), static_cast<u64>(pieces), piece);
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) rest = divmod(rest, static_cast<u64>(p.window[axis]), at[axis]);
  rest = divmod(rest, static_cast<u64>(p.cols), output);
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) rest = divmod(rest, static_cast<u64>(p.apart[axis]), phase[axis]);
  bool there = true;
  i64 from = p.start + static_cast<i64>(rest) * p.steps[0] + static_cast<i64>(output) * p.steps[1];
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    // Where the block's window has this place, in the spread input, and the tap that the output has there.
    const i64 place = (static_cast<i64>(at[axis]) * p.window_dilation[axis] - p.window_padding[axis]) * p.spread[axis];
    const i64 shift = place + p.padding[axis] - static_cast<i64>(phase[axis]) * p.stride[axis];
    u64 between;
    const i64 tap =
        static_cast<i64>(divmod(static_cast<u64>(max<i64>(shift, 0)), static_cast<u64>(p.dilation[axis]), between));
    there = there && shift >= 0 && between == 0 && tap < p.kernel[axis];
    from += tap * p.steps[3 + axis];
  }
  const i64 c = static_cast<i64>(piece) * N, left = there ? p.channels - c : 0;
  const T* const w = static_cast<const T*>(p.w) + from + c * p.steps[2];
  store(static_cast<T*>(p.to) + index * N, load_strided<T, N>(w, p.steps[2], left));
}

}  // namespace baracuda
