// pack_runs   an operand of a convolution of few channels as its products read it: dense lines of what a window has along its last
//             axis, (tap, channel), with zeros where a tap lies outside and behind them up to a pitch.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// to[axes of shape …][places][pitch] of x, whose window at a place begins at stride · place - padding.
template <class T> BARACUDA_D void conv_pack_runs(const ConvPackRunsParams& p) {
  constexpr int N = 16 / static_cast<int>(sizeof(T));
  const i64 index = thread_index(), pieces = p.pitch / N;
  if (index >= p.count * pieces) return;
  u64 piece, place, c;
  const u64 line = divmod(static_cast<u64>(index), static_cast<u64>(pieces), piece);
  const i64 outer = static_cast<i64>(divmod(line, static_cast<u64>(p.places), place));
  const T* const x = static_cast<const T*>(p.x) + p.start + offset<i64>(outer, p.rank, p.shape, p.steps);
  const i64 first = static_cast<i64>(place) * p.stride - p.padding;
  i64 tap = static_cast<i64>(divmod(piece * N, static_cast<u64>(p.channels), c)), channel = static_cast<i64>(c);
  Vec<T, N> run{};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const i64 at = first + tap * p.dilation;
    if (tap < p.taps && at >= 0 && at < p.extent) run[k] = x[at * p.place_step + channel * p.channel_step];
    if (++channel == p.channels) channel = 0, ++tap;
  }
  store(static_cast<T*>(p.to) + index * N, run);
}

}  // namespace baracuda
