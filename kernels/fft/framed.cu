// framed    half the spectrum of windowed frames of real signals, or its magnitudes or their squares, frame by frame:
//
// y[t, k] = result(factor sum over j of v[j] exp(-2 pi i j k / n)), v[j] = window[j - left] x[t hop + j - outside].
//
// A place outside of x is that which `PadMode` gives, and the window is 0 beyond its taps. Schedule stockham
// (stockham.cuh), a transform a frame: frames are read from the signal as they overlap, and never stand in memory.
// Between the products and the result the numbers are those that stockham_real has, in the same order.
#include <baracuda/vector.cuh>

#include "fft/halves.cuh"

namespace baracuda {

// The place in a signal of `extent` numbers, which is at most `extent` from it; below 0 where there is none.
BARACUDA_D i64 padded_place(PadMode mode, i64 place, i64 extent) {
  const bool before = place < 0;
  if (!before && place < extent) return place;
  switch (mode) {
    case PadMode::reflect: return before ? -place : 2 * (extent - 1) - place;
    case PadMode::replicate: return before ? 0 : extent - 1;
    case PadMode::circular: return before ? place + extent : place - extent;
    default: return -1;
  }
}

template <class R, class L> BARACUDA_D void stockham_framed(const FramedParams& p) {
  const Fourier<R, L, FramedParams> f(p);
  const int number = p.across ? f.base : f.base / p.points;
  const i64 frame = (static_cast<i64>(blockIdx.x) * p.many + number) % p.frames, first = frame * p.hop - p.outside;
  const i64 to = p.strides[0], by = p.strides[1], tap_by = p.tap_stride;
  const R* const x = static_cast<const R*>(p.x) + f.from[1];
  const R* const window = static_cast<const R*>(p.window);
  const R* const start = x + first * by;
  const bool inside = first >= 0 && first + p.length <= p.extent, whole = window != nullptr && p.taps == p.length;
  const u64 both = reinterpret_cast<u64>(start) | reinterpret_cast<u64>(window);
  const bool together = inside && whole && by == 1 && tap_by == 1 && both % (2 * sizeof(R)) == 0;
  const R factor = static_cast<R>(p.factor);
  const auto given = [&](int j) {
    const i64 place = inside ? first + j : padded_place(static_cast<PadMode>(p.mode), first + j, p.extent);
    const R number = place < 0 ? R(0) : x[place * by];
    const int tap = j - p.left;
    const bool seen = static_cast<u32>(tap) < static_cast<u32>(p.taps);
    return number * (!seen ? R(0) : window == nullptr ? R(1) : window[tap * tap_by]);
  };
  const auto put = [&](int k, complex<R> z, bool) {
    const i64 at = f.from[0] + k * to;
    z = z * factor;
    switch (static_cast<FrameResult>(p.result)) {
      case FrameResult::complex: static_cast<complex<R>*>(p.y)[at] = z; break;
      case FrameResult::magnitude: static_cast<R*>(p.y)[at] = math::hypot(z.re, z.im); break;
      default: static_cast<R*>(p.y)[at] = z.re * z.re + z.im * z.im;
    }
  };
  const bool pairs = halved<L>(p.length);
  f.transform(
      !pairs,
      [&](int j) {
        if (pairs && together) {
          const Vec<R, 2> numbers = load<2>(start + 2 * j), taps = load<2>(window + 2 * j);
          return complex<R>(numbers[0] * taps[0], numbers[1] * taps[1]);
        }
        return pairs ? complex<R>(given(2 * j), given(2 * j + 1)) : complex<R>(given(j));
      },
      [&](int k, complex<R> z) {
        if (2 * k < p.length) put(k, z, k == 0);
      });
  if (pairs) untangle(f, p.length, put);
}

}  // namespace baracuda
