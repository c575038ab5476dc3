#pragma once
// tap        one of the places of a window.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// One of the places of a window, row-major, axis 0 outermost.
struct ConvTap {
  int at[3];
  template <class P> BARACUDA_D ConvTap(const P& p, i64 tap) {
    u64 rest = static_cast<u64>(tap), place;
    rest = divmod(rest, static_cast<u64>(p.kernel[2]), place), at[2] = static_cast<int>(place);
    rest = divmod(rest, static_cast<u64>(p.kernel[1]), place), at[1] = static_cast<int>(place);
    at[0] = static_cast<int>(rest);
  }
  template <class P> BARACUDA_D void next(const P& p) {
    if (++at[2] < p.kernel[2]) return;
    at[2] = 0;
    if (++at[1] < p.kernel[1]) return;
    at[1] = 0, ++at[0];
  }
  BARACUDA_D i64 offset(const i64* step) const { return at[0] * step[3] + at[1] * step[4] + at[2] * step[5]; }
};

}  // namespace baracuda
