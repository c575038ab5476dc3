#pragma once
// streams    what distributions draw from: the words of the Philox stream as numbers, and blocks of an element's own.
//
// A distribution that takes a bounded number of words has those of its elements one after the other: one of 32 bits for
// element n, or, in float64, the words 2 n and 2 n + 1 as one of 64. One that tries until it accepts has blocks of its
// own, which no other element and no other distribution's first words share: block j 2^48 + n is try j of element n.
#include <baracuda/math.cuh>
#include "random/draws.cuh"

namespace baracuda::random {

// What arithmetic in A draws for an element.
template <class A> using word_t = conditional<is_same<A, double>, u64, u32>;

template <int V> BARACUDA_D void words(u64 seed, u64 offset, u64 n, u32 (&w)[V]) { draws<V>(seed, offset, n, w); }
template <int V> BARACUDA_D void words(u64 seed, u64 offset, u64 n, u64 (&w)[V]) {
  u32 halves[2 * V];
  draws<2 * V>(seed, offset, 2 * n, halves);
#pragma unroll
  for (int k = 0; k < V; ++k) w[k] = static_cast<u64>(halves[2 * k + 1]) << 32 | halves[2 * k];
}

// (w + 1/2) / 2^bits rounded once, and below 1: never 0, fine near 0, so that what tends to infinity there has a tail.
BARACUDA_D float open(u32 w) {
  return ::fminf(math::fma(static_cast<float>(w), 2.3283064365386963e-10f, 1.1641532182693481e-10f), 0.99999994f);
}
BARACUDA_D double open(u64 w) {
  return ::fmin(math::fma(static_cast<double>(w), 5.421010862427522e-20, 2.710505431213761e-20), 0.9999999999999999);
}
// The lowest bit of w as a sign, and `open` of the others.
BARACUDA_D float open_signed(u32 w, bool& negative) {
  negative = w & 1;
  return ::fminf(math::fma(static_cast<float>(w >> 1), 4.656612873077393e-10f, 2.3283064365386963e-10f), 0.99999994f);
}
BARACUDA_D double open_signed(u64 w, bool& negative) {
  negative = w & 1;
  return ::fmin(math::fma(static_cast<double>(w >> 1), 1.0842021724855044e-19, 5.421010862427522e-20),
                0.9999999999999999);
}
template <class A> BARACUDA_D A with_sign(A x, bool negative) { return negative ? -x : x; }

// ---- normal variates by pairs (Box and Muller 1958), in double ------------------------------------------------------

// The signed rest of a word without its two highest bits, in quarter turns: -1/2 <= f < 1/2.
BARACUDA_D double rest(u64 w) { return static_cast<double>(static_cast<i64>(w << 2)) * 5.421010862427522e-20; }
BARACUDA_D int quadrant(u64 w) { return static_cast<int>(w >> 62); }

// Two independent standard normal variates of two words: a radius, and an angle of four quarters.
BARACUDA_D void normal_pair(u64 w0, u64 w1, double& z0, double& z1) {
  const double r = math::sqrt(-2.0 * math::log(open(w0))), half = 0.5 * rest(w1);
  const double s = math::sinpi(half), c = math::cospi(half);
  const int q = quadrant(w1);
  const double x = q & 1 ? s : c, y = q & 1 ? c : s;
  z0 = r * (q == 1 || q == 2 ? -x : x);
  z1 = r * (q >= 2 ? -y : y);
}

// ---- blocks of an element's own -------------------------------------------------------------------------------------

struct Tries {
  u64 seed, offset, element;

  BARACUDA_D Philox4 block(int j) const { return philox_block(seed, offset, (static_cast<u64>(j) << 48) + element); }
  static BARACUDA_D double first(const Philox4& b) { return open(static_cast<u64>(b.y) << 32 | b.x); }
  static BARACUDA_D double second(const Philox4& b) { return open(static_cast<u64>(b.w) << 32 | b.z); }
  // Two normal variates of the first two words; `second` is independent of them.
  static BARACUDA_D void normals(const Philox4& b, double& z0, double& z1) {
    normal_pair(static_cast<u64>(b.x) << 32 | 0x80000000u, static_cast<u64>(b.y) << 32, z0, z1);
  }
};

}  // namespace baracuda::random
