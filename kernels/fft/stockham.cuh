#pragma once
// stockham    Fourier transforms in one launch: several of a batch in the shared memory of a block, several threads each.
//
// Passes of Stockham's sorting algorithm, radix after radix as the host lists them: the first reads the operand and the
// last writes the result, in between they exchange through one buffer, for all that a pass reads is in registers before
// anything is written. A pass whose radix is N takes v[r] = in[j + r points / N], multiplies by exp(-2 pi i r k /
// (before N)), k = j modulo the product `before` of the radices before it, and writes butterfly(v)[r] to
// out[(j - k) N + k + r before]. So a transform's sums have an order that its length alone decides.
//
// Of a power of two the radices are known when the kernel is compiled, a kernel each; `Mixed` takes any.
//
// One element of the buffer in 16 (8 of double) stays free: what neighbours write at a step of a power of two falls into
// different banks. `across`: neighbouring threads have neighbouring transforms, whose elements alternate in the buffer.
#include <baracuda/index.cuh>

#include "fft/butterflies.cuh"

namespace baracuda {

// exp(-2 pi i turns / 2), turns in half circles.
BARACUDA_D complex<float> root_of(float turns) {
  float s, c;
  ::sincospif(turns, &s, &c);
  return {c, -s};
}
BARACUDA_D complex<double> root_of(double turns) {
  double s, c;
  ::sincospi(turns, &s, &c);
  return {c, -s};
}

// The radices of a power of two in the order of their passes: the digits of BITS are their logarithms, 433 of 16 8 8.
template <int BITS> struct Powers {
  static constexpr bool known = true;
  static constexpr int count = BITS < 10 ? 1 : BITS < 100 ? 2 : BITS < 1000 ? 3 : BITS < 10000 ? 4 : 5;
  static BARACUDA_HD constexpr int radix(int number) {
    int digits = BITS;
    for (int i = number + 1; i < count; ++i) digits /= 10;
    return 1 << digits % 10;
  }
  static BARACUDA_HD constexpr int before(int number) {  // the product of those before it
    int product = 1;
    for (int i = 0; i < number; ++i) product *= radix(i);
    return product;
  }
  static constexpr int points = before(count), lanes = points / radix(0);  // of a transform, the threads that share it
};
// Any product of 2, 3, 4, 5, 7 and 8, which the host lists.
struct Mixed {
  static constexpr bool known = false;
};

template <class R, class L, class P> struct Fourier {
  static constexpr int shift = is_same<R, float> ? 4 : 3;

  const P& p;
  complex<R>* const buffer;
  int lane, base, step;  // of the thread's transform
  bool active;
  i64 from[2];  // elements from y and x to it

  BARACUDA_D explicit Fourier(const P& p) : p(p), buffer(dynamic_smem<complex<R>>()) {
    const DivMod groups{p.groups[0], p.groups[1], p.groups[2]};
    u32 minor;
    const int major = static_cast<int>(groups.divmod(threadIdx.x, minor));
    lane = p.across ? major : static_cast<int>(minor);
    const int number = p.across ? static_cast<int>(minor) : major;
    base = p.across ? number : number * p.points;
    step = p.across ? p.many : 1;
    const i64 transform = static_cast<i64>(blockIdx.x) * p.many + number;
    active = number < p.many && lane < p.lanes && transform < p.count;
    from[0] = from[1] = 0;
    if (active) offsets<i64, 2>(transform, p.batch_rank, p.batch_shape, p.batch, from);
  }

  BARACUDA_D complex<R>& at(int element) const {
    const int flat = base + element * step;
    return buffer[flat + (flat >> shift)];
  }

  // Element first + r apart: r constant steps from `first` where a multiple of 16 (8) elements, and free ones, lie between.
  template <class Apart> BARACUDA_D complex<R>& at(int first, int r, const Apart& apart) const {
    if constexpr (Apart::known != 0 && Apart::known % (1 << shift) == 0) {
      const int flat = base + first * step, jump = Apart::known * step;
      return buffer[flat + (flat >> shift) + r * (jump + (jump >> shift))];
    } else {
      return at(first + r * apart.divisor());
    }
  }

  // v[r] times the root of the pass to the power r. Powers are products of the first and the fourth.
  template <int N> BARACUDA_D void turn(complex<R> (&v)[N], R turns) const {
    const complex<R> one = root_of(turns), four = N > 4 ? root_of(R(4) * turns) : one;
    complex<R> low[4] = {one, one, one, one}, high = one;
    low[2] = times_root(one, one), low[3] = times_root(low[2], one);
#pragma unroll
    for (int a = 0; 4 * a < N; ++a) {
      if (a > 0) high = a == 1 ? four : times_root(high, four);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        if (4 * a + b >= N || a + b == 0) continue;
        v[4 * a + b] = times_root(v[4 * a + b], a == 0 ? low[b] : b == 0 ? high : times_root(high, low[b]));
      }
    }
  }

  // Half circles of exp(-2 pi i k / whole): of a power of two the product is exact, of others it is divided.
  static BARACUDA_D R turns_of(int k, int whole) {
    if constexpr (L::known) return R(2 * k) * math::power_of_two<R>(__clz(whole) - 31);
    else return R(2 * k) / R(whole);
  }

  // A product of radices, known when the kernel is compiled or not.
  template <int PRODUCT> struct Known {
    static constexpr int known = PRODUCT;
    static BARACUDA_D int divisor() { return PRODUCT; }
    static BARACUDA_D int rest(int j) { return j & (PRODUCT - 1); }
  };
  struct Told {
    static constexpr int known = 0;
    DivMod by;
    BARACUDA_D int divisor() const { return static_cast<int>(by.divisor); }
    BARACUDA_D int rest(int j) const {
      u32 rest;
      by.divmod(static_cast<u32>(j), rest);
      return static_cast<int>(rest);
    }
  };
  struct Number {
    static constexpr int known = 0;
    int value;
    BARACUDA_D int divisor() const { return value; }
  };

  // A pass of radix N, of which a thread does up to `each` butterflies. before: what divides by the product of the
  // radices before; across: from one number of a butterfly to the next.
  template <int N, int each, class Before, class Across, class Load, class Store>
  BARACUDA_D void pass(const Before& before, const Across& across, int lanes, bool first, bool last, const Load& load,
                       const Store& store) const {
    complex<R> v[each][N];
#pragma unroll
    for (int b = 0; b < each; ++b) {
      const int j = lane + b * lanes;
      if (!active || j >= across.divisor()) continue;
      if (first) {
#pragma unroll
        for (int r = 0; r < N; ++r) v[b][r] = load(j + r * across.divisor());
      } else {
#pragma unroll
        for (int r = 0; r < N; ++r) v[b][r] = at(j, r, across);
        turn(v[b], turns_of(before.rest(j), before.divisor() * N));
      }
      butterfly<N>(v[b]);
    }
    if (!first) __syncthreads();  // all have what they read
#pragma unroll
    for (int b = 0; b < each; ++b) {
      const int j = lane + b * lanes;
      if (!active || j >= across.divisor()) continue;
      const int k = before.rest(j), to = (j - k) * N + k;
      if (last) {
#pragma unroll
        for (int r = 0; r < N; ++r) store(to + r * before.divisor(), v[b][r]);
      } else {
#pragma unroll
        for (int r = 0; r < N; ++r) at(to, r, before) = v[b][r];
      }
    }
    if (!last) __syncthreads();
  }

  template <int NUMBER, class Load, class Store>
  BARACUDA_D void from_pass(bool direct, const Load& load, const Store& store) const {
    if constexpr (NUMBER < L::count) {
      constexpr int N = L::radix(NUMBER), across = L::points / N;
      pass<N, div_up(across, L::lanes)>(Known<L::before(NUMBER)>(), Known<across>(), L::lanes, NUMBER == 0,
                                        direct && NUMBER == L::count - 1, load, store);
      from_pass<NUMBER + 1>(direct, load, store);
    }
  }
  template <int N, class Load, class Store>
  BARACUDA_D void told_pass(int number, bool direct, const Load& load, const Store& store) const {
    if (p.radix[number] != N) return;
    const Told before{{p.before[number][0], p.before[number][1], p.before[number][2]}};
    pass<N, 1>(before, Number{p.butterflies[number]}, p.lanes, number == 0, direct && number == p.passes - 1, load,
               store);
  }

  // All passes. load(j): element j of what is transformed; store(k, z): of the result, which stays in the buffer where
  // it is not direct.
  template <class Load, class Store>
  BARACUDA_D void transform(bool direct, const Load& load, const Store& store) const {
    if constexpr (L::known) {
      from_pass<0>(direct, load, store);
    } else {
#pragma unroll 1
      for (int number = 0; number < p.passes; ++number) {
        told_pass<8>(number, direct, load, store);
        told_pass<7>(number, direct, load, store);
        told_pass<5>(number, direct, load, store);
        told_pass<4>(number, direct, load, store);
        told_pass<3>(number, direct, load, store);
        told_pass<2>(number, direct, load, store);
      }
    }
  }
};

}  // namespace baracuda
