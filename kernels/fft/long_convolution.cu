// long_convolution    convolutions with filters as long as the signal, a batch in one launch:
//
// spectrum     s[k] = factor S(f)[k], skip added to f[0], where S(x)[k] = sum over j of x[j] root(j (k - shift)),
//              root(a) = exp(-2 pi i a / n).
// convolve     y[t] = post[t] Re sum over k of S(x pre)[k] s[k] root(-t (k - shift)), of conj(s[k]) where `conjugate`
//              says so; twin[t] is the same with `other` in the place of `post`.
// correlate    s[k] = sum over a batch of conj(S(x pre)[k]) S(post other)[k], in the batch's order.
// taps         f[t] = factor Re sum over k of s[k] root(-t (k - shift)); twin is f[0] once more.
//
// Schedule stockham (stockham.cuh), forth and back in one launch: what is undone pass by pass finds the spectrum in the
// registers in which the last pass left it. n = `points` is a power of two. shift = 1/4 makes the ring of sums one in
// which x^n = i (right-angle convolution): what a convolution of n real numbers wraps around is imaginary then,
// and the real part is the causal convolution, without zeros behind the signal. shift = 0 is the circular convolution.
// The order of all sums of a row is its length's alone. Where `across` says that neighbouring threads have neighbouring
// rows, a row's numbers are still together in the buffer, 8 free ones behind them, so that rows begin in other banks.
#include <baracuda/vector.cuh>

#include "fft/stockham.cuh"

namespace baracuda {

template <class R> BARACUDA_D complex<R> exchanged(complex<R> z) { return {z.im, z.re}; }

// Places of operands in the launch's lists.
enum ConvolutionOperand { OUT, IN, PRE, POST, TWIN, OTHER, SPECTRUM, OPERANDS };

template <class R, class L, class P> struct Convolution : Fourier<R, L, P> {
  using Base = Fourier<R, L, P>;
  using Base::active, Base::lane, Base::p, Base::shift;
  static constexpr int passes = L::count, most = L::radix(0);
  // From one number of a butterfly of a pass to the next, and the butterflies of a thread, one of the first pass.
  static constexpr BARACUDA_HD int across(int number) { return L::points / L::radix(number); }
  static constexpr BARACUDA_HD int each(int number) { return div_up(across(number), L::lanes); }
  // Where an element is in the buffer. That of a sum of numbers without a common bit is the sum of theirs.
  static constexpr BARACUDA_HD int padded(int element) { return element + (element >> shift); }
  template <int NUMBER> using Values = complex<R>[each(NUMBER)][L::radix(NUMBER)];
  using Real = R[most];  // lane + r lanes of a row, as the first pass takes them

  complex<R>* mine;      // a row's part of the buffer
  i64 places[OPERANDS];  // elements from an operand's start to the row

  BARACUDA_D explicit Convolution(const P& p) : Base(p) {
    const int number = p.across ? this->base : this->base / L::points;
    mine = this->buffer + number * (padded(L::points) + 8);
    for (int k = 0; k < OPERANDS; ++k) places[k] = 0;
    const i64 row = static_cast<i64>(blockIdx.x) * p.many + number;
    if (active) offsets<i64, OPERANDS>(row, p.batch_rank, p.batch_shape, p.batch, places);
  }

  // A butterfly's numbers before it, and its results.
  template <int NUMBER> BARACUDA_D complex<R>* from(int j) const { return mine + padded(j); }
  template <int NUMBER> BARACUDA_D complex<R>* to(int j) const {
    const int k = j & (L::before(NUMBER) - 1);
    return mine + padded((j - k) * L::radix(NUMBER) + k);
  }
  // A butterfly's numbers by their roots. The same before a forward butterfly and after one that is undone.
  template <int NUMBER> BARACUDA_D void twist(complex<R> (&v)[L::radix(NUMBER)], int j) const {
    constexpr int before = L::before(NUMBER), whole = before * L::radix(NUMBER);
    if constexpr (NUMBER == 0) {
      if (p.causal) this->turn(v, R(-0.5) / R(whole));
    } else {
      const R k = static_cast<R>(j & (before - 1)) - (p.causal ? R(0.25) : R(0));
      this->turn(v, k * (R(2) / R(whole)));
    }
  }

  // body(v's butterfly, j) of those that a thread has.
  template <int NUMBER, class Body> BARACUDA_D void each_butterfly(const Body& body) const {
#pragma unroll
    for (int b = 0; b < each(NUMBER); ++b) {
      const int j = lane + b * L::lanes;
      if (active && j < across(NUMBER)) body(b, j);
    }
  }
  // body(v's number, number of the spectrum from the lane's on) of those that a thread has behind the last pass.
  template <class V, class Body> BARACUDA_D void each_frequency(V& v, const Body& body) const {
    constexpr int last = passes - 1;
    each_butterfly<last>([&](int b, int) {
#pragma unroll
      for (int r = 0; r < L::radix(last); ++r) body(v[b][r], b * L::lanes + r * across(last));
    });
  }

  // All passes from what a row has to its spectrum, which bottom(v) gets.
  template <class Bottom> BARACUDA_D void down(const Real& row, const Bottom& bottom) const {
    Values<0> v;
#pragma unroll
    for (int r = 0; r < most; ++r) v[0][r] = complex<R>(row[r]);
    pass_down<0>(v, bottom);
  }
  template <int NUMBER, class Bottom> BARACUDA_D void pass_down(Values<NUMBER>& v, const Bottom& bottom) const {
    each_butterfly<NUMBER>([&](int b, int j) {
      twist<NUMBER>(v[b], j);
      butterfly<L::radix(NUMBER)>(v[b]);
    });
    if constexpr (NUMBER == passes - 1) {
      bottom(v);
    } else {
      __syncthreads();  // all have what they read, of this row or the one before
      each_butterfly<NUMBER>([&](int b, int j) {
        complex<R>* const out = to<NUMBER>(j);
#pragma unroll
        for (int r = 0; r < L::radix(NUMBER); ++r) out[padded(r * L::before(NUMBER))] = v[b][r];
      });
      __syncthreads();
      constexpr int NEXT = NUMBER + 1;
      Values<NEXT> u;
      each_butterfly<NEXT>([&](int b, int j) {
        const complex<R>* const in = from<NEXT>(j);
#pragma unroll
        for (int r = 0; r < L::radix(NEXT); ++r) u[b][r] = in[padded(r * across(NEXT))];
      });
      pass_down<NEXT>(u, bottom);
    }
  }
  // All of them undone, from v as bottom has it, parts exchanged, to store(row).
  template <int NUMBER, class Store> BARACUDA_D void up(Values<NUMBER>& v, const Store& store) const {
    each_butterfly<NUMBER>([&](int b, int j) {
      butterfly<L::radix(NUMBER)>(v[b]);
      twist<NUMBER>(v[b], j);
    });
    if constexpr (NUMBER == 0) {
      Real row;
#pragma unroll
      for (int r = 0; r < most; ++r) row[r] = v[0][r].im;
      store(row);
    } else {
      if (NUMBER != passes - 1) __syncthreads();  // behind the last pass a thread writes where it alone has read
      each_butterfly<NUMBER>([&](int b, int j) {
        complex<R>* const out = from<NUMBER>(j);
#pragma unroll
        for (int r = 0; r < L::radix(NUMBER); ++r) out[padded(r * across(NUMBER))] = v[b][r];
      });
      __syncthreads();
      constexpr int BELOW = NUMBER - 1;
      Values<BELOW> u;
      each_butterfly<BELOW>([&](int b, int j) {
        const complex<R>* const in = to<BELOW>(j);
#pragma unroll
        for (int r = 0; r < L::radix(BELOW); ++r) u[b][r] = in[padded(r * L::before(BELOW))];
      });
      up<BELOW>(u, store);
    }
  }

  // body(r, where in an operand) of the row's elements that a thread has.
  template <class Body> BARACUDA_D void each_element(int operand, const Body& body) const {
    const i64 hop = p.steps[operand] * L::lanes;
    i64 place = places[operand] + p.steps[operand] * lane;
#pragma unroll
    for (int r = 0; r < most; ++r, place += hop) {
      if (active && lane + r * L::lanes < p.length) body(r, place);
    }
  }
  // A row, with zeros behind it.
  template <class T> BARACUDA_D void fetch(const void* x, int operand, Real& row) const {
#pragma unroll
    for (int r = 0; r < most; ++r) row[r] = R(0);
    each_element(operand, [&](int r, i64 place) { row[r] = to_acc(static_cast<const T*>(x)[place]); });
  }
  // Times a gate, which may be absent.
  template <class T> BARACUDA_D void gate(const void* by, int operand, Real& row) const {
    if (!by) return;
    Real factors;
    fetch<T>(by, operand, factors);
#pragma unroll
    for (int r = 0; r < most; ++r) row[r] *= factors[r];
  }
  template <class T> BARACUDA_D void put(void* y, int operand, const Real& row) const {
    each_element(operand, [&](int r, i64 place) { static_cast<T*>(y)[place] = from_acc<T>(row[r]); });
  }
  // The spectrum from the lane's first number on.
  BARACUDA_D complex<R>* spectrum() const { return static_cast<complex<R>*>(p.spectrum) + places[SPECTRUM] + lane; }
};

template <class T, class L> BARACUDA_D void spectrum(const ConvolutionParams& p) {
  using R = acc_t<T>;
  using Row = Convolution<R, L, ConvolutionParams>;
  const Row c(p);
  typename Row::Real row;
  c.template fetch<T>(p.x, IN, row);
  if (p.pre && c.active && c.lane == 0) row[0] += to_acc(static_cast<const T*>(p.pre)[c.places[PRE]]);
  const R factor = static_cast<R>(p.factor);
  c.down(row,
         [&](auto& v) { c.each_frequency(v, [s = c.spectrum(), factor](complex<R> z, int k) { s[k] = z * factor; }); });
}

template <class T, class L> BARACUDA_D void convolve(const ConvolutionParams& p) {
  using R = acc_t<T>;
  using Row = Convolution<R, L, ConvolutionParams>;
  const Row c(p);
  const R sign = p.conjugate ? R(-1) : R(1);
  typename Row::Real row;
  c.template fetch<T>(p.x, IN, row);
  c.template gate<T>(p.pre, PRE, row);
  c.down(row, [&](auto& v) {
    c.each_frequency(v, [s = c.spectrum(), sign](complex<R>& z, int k) {
      const complex<R> w = s[k];
      z = exchanged(times_root(z, complex<R>(w.re, w.im * sign)));
    });
    c.template up<L::count - 1>(v, [&](typename Row::Real& made) {
      if (p.twin) {
        typename Row::Real twin;
#pragma unroll
        for (int r = 0; r < Row::most; ++r) twin[r] = made[r];
        c.template gate<T>(p.other, OTHER, twin);
        c.template put<T>(p.twin, TWIN, twin);
      }
      c.template gate<T>(p.post, POST, made);
      c.template put<T>(p.y, OUT, made);
    });
  });
}

template <class T, class L> BARACUDA_D void correlate(const ConvolutionParams& p) {
  using R = acc_t<T>;
  using Row = Convolution<R, L, ConvolutionParams>;
  constexpr int last = L::count - 1;
  Row c(p);
  typename Row::template Values<last> sum = {}, first;
  const auto each = [](const auto& body) {
#pragma unroll
    for (int b = 0; b < Row::each(last); ++b) {
#pragma unroll
      for (int r = 0; r < L::radix(last); ++r) body(b, r);
    }
  };
#pragma unroll 1
  for (i64 item = 0; item < p.items; ++item) {
    typename Row::Real row;
    c.template fetch<T>(p.x, IN, row);
    c.template gate<T>(p.pre, PRE, row);
    c.down(row, [&](auto& v) { each([&](int b, int r) { first[b][r] = math::conj(v[b][r]); }); });
    c.template fetch<T>(p.post, POST, row);
    c.template gate<T>(p.other, OTHER, row);
    c.down(row, [&](auto& v) {
      each([&](int b, int r) {
        const complex<R> u = first[b][r], w = v[b][r];
        sum[b][r] = {math::fma(u.re, w.re, math::fma(-u.im, w.im, sum[b][r].re)),
                     math::fma(u.re, w.im, math::fma(u.im, w.re, sum[b][r].im))};
      });
    });
    for (int k = 0; k < OPERANDS; ++k) c.places[k] += p.along[k];
  }
  c.each_frequency(sum, [s = c.spectrum()](complex<R> z, int k) { s[k] = z; });
}

template <class T, class L> BARACUDA_D void taps(const ConvolutionParams& p) {
  using R = acc_t<T>;
  using Row = Convolution<R, L, ConvolutionParams>;
  const Row c(p);
  const R factor = static_cast<R>(p.factor);
  typename Row::template Values<L::count - 1> v;
  c.each_frequency(v, [s = c.spectrum()](complex<R>& z, int k) { z = exchanged(s[k]); });
  c.template up<L::count - 1>(v, [&](typename Row::Real& made) {
#pragma unroll
    for (int r = 0; r < Row::most; ++r) made[r] *= factor;
    if (p.y) c.template put<T>(p.y, OUT, made);
    if (p.twin && c.active && c.lane == 0) static_cast<T*>(p.twin)[c.places[TWIN]] = made[0];
  });
}

}  // namespace baracuda
