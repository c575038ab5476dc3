// fold       dx[e] = sum of dy over the places of a walk that meet element e; the order of the loops fixes the sum.
//
// A thread makes an element. It searches the loops from the one that moves furthest: of each only those indices are
// tried from which the loops that are left can still reach e. So it is 1 or 2 of many for windows that overlap, and all
// of a loop that repeats. `begin` is the number of the element that the walk begins at, counted along a dense x.
#include <baracuda/complex.cuh>
#include <baracuda/index.cuh>

namespace baracuda {

// The quotient rounded down, of a positive divisor.
BARACUDA_D i64 floor_divide(i64 a, i64 b) { return a / b - (a % b < 0); }

// The indices of loop d that leave `rest` within reach of the loops after it.
template <class P> BARACUDA_D void fold_bounds(const P& p, int d, i64 rest, i64& first, i64& last) {
  const i64 number = p.number[d], low = rest - p.high[d], high = rest - p.low[d];  // what index · number may be
  first = 0, last = p.extent[d] - 1;
  if (number == 0) {
    if (low > 0 || high < 0) last = -1;
  } else if (number > 0) {
    first = max(first, -floor_divide(-low, number));
    last = min(last, floor_divide(high, number));
  } else {
    first = max(first, -floor_divide(high, -number));
    last = min(last, floor_divide(-low, -number));
  }
}

template <class T, class P> BARACUDA_D void fold(const P& p) {
  using A = acc_t<T>;
  const i64 e = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.count) return;
  const T* dy = static_cast<const T*>(p.dy);
  A sum = A(0);
  i64 next[max_axes], last[max_axes], rest = e - p.begin, at = 0;
  int d = 0;
  if (p.loops == 0) {
    if (rest == 0) sum = to_acc(dy[0]);
    d = -1;
  } else {
    fold_bounds(p, 0, rest, next[0], last[0]);
  }
#pragma unroll 1
  while (d >= 0) {
    if (next[d] > last[d]) {
      if (--d < 0) break;
      rest += p.number[d] * next[d], at -= p.step[d] * next[d];
      ++next[d];
    } else if (d + 1 == p.loops) {
      sum = sum + to_acc(dy[at + p.step[d] * next[d]]);
      ++next[d];
    } else {
      rest -= p.number[d] * next[d], at += p.step[d] * next[d];
      ++d;
      fold_bounds(p, d, rest, next[d], last[d]);
    }
  }
  static_cast<T*>(p.dx)[offset(e, p.rank, p.shape, p.strides[0])] = from_acc<T>(sum);
}

}  // namespace baracuda
