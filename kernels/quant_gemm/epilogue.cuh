#pragma once
// epilogue   what a product of integers does between its sums and y, the same in every design.
//
//   s[m, n] = Σ (a - zero_a[m]) (b - zero_b[n]) = Σ a b - zero_b[n] Σ a[m] - zero_a[m] Σ b[n] + k zero_a[m] zero_b[n]
//   sums          y = s modulo 2^32
//   scaled        y = alpha scale_a[m] scale_b[n] s + bias[m, n]
//   requantized   y = (alpha scale_a[m] scale_b[n] s + bias[m, n]) / scale_y + zero_y, to nearest even, saturating
//   grouped       y = alpha Σ over groups g of k   scale_a[m, g] scale_b[g, n] s_g[m, n]   + bias[m, n]
//
// s is exact in 64 bits. The product of two scales is exact in double, and one fused multiply-add gives the rest: scaled
// results are the exact number rounded to double, and to y. Sums of groups are chains of fused multiply-adds of float, in
// the order of k. An absent operand is a null pointer. Every operand is a matrix of the batch: [m, groups] of scale_a and
// zero_a, [groups, n] of scale_b and zero_b, [m, n] of bias, scale_y and zero_y, with strides of 0 where it broadcasts. P
// has their pointers, batch_shape, batch and strides by the numbers of int_matrix, m, n, k, group, groups, `wide`: a bit
// for each matrix whose rows start 16-byte aligned with columns of stride 1, `is_unsigned`: a bit for each of a and b,
// `out`: what y is, and in the workspace row_sums [batch, m, groups] where there is a zero_b, and column_sums [batch, n,
// groups] where there is a zero_a.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/scalar.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

namespace int_matrix {
constexpr int at(IntMatrix which) { return static_cast<int>(which); }
constexpr int a = at(IntMatrix::a), b = at(IntMatrix::b), y = at(IntMatrix::y), bias = at(IntMatrix::bias);
constexpr int scale_a = at(IntMatrix::scale_a), scale_b = at(IntMatrix::scale_b), scale_y = at(IntMatrix::scale_y);
constexpr int zero_a = at(IntMatrix::zero_a), zero_b = at(IntMatrix::zero_b), zero_y = at(IntMatrix::zero_y);
}  // namespace int_matrix
enum class IntGemm { sums, scaled, requantized, grouped };

// Where the matrices of a batch index begin, in elements.
struct IntOffsets {
  i64 batch, at[int_matrices];
  template <class P> BARACUDA_D IntOffsets(const P& p, i64 batch) : batch(batch) {
    offsets<i64, int_matrices>(batch, p.batch_rank, p.batch_shape, p.batch, at);
  }
};

template <IntGemm KIND, class P> struct IntEpilogue {
  const P& p;
  const IntOffsets begin;
  const double alpha;

  BARACUDA_D IntEpilogue(const P& p, i64 batch)
      : p(p), begin(p, batch), alpha(KIND == IntGemm::sums ? 1.0 : static_cast<double>(p.alpha())) {}

  BARACUDA_D i64 place(int which, i64 row, i64 column) const {
    return begin.at[which] + row * p.strides[which][0] + column * p.strides[which][1];
  }
  BARACUDA_D float scale_a(i64 m, i64 g) const { return scale(int_matrix::scale_a, p.scale_a, m, g); }
  BARACUDA_D float scale_b(i64 g, i64 n) const { return scale(int_matrix::scale_b, p.scale_b, g, n); }

  // Σ (a - zero_a) (b - zero_b) over group g, `terms` of k, of Σ a b.
  BARACUDA_D i64 centred(i64 sum, i64 m, i64 n, i64 g, i64 terms) const {
    const i64 left = zero(int_matrix::zero_a, p.zero_a, m, g, 0), right = zero(int_matrix::zero_b, p.zero_b, g, n, 1);
    if (right != 0) sum -= right * static_cast<const i64*>(p.row_sums)[(begin.batch * p.m + m) * p.groups + g];
    if (left != 0) sum -= left * static_cast<const i64*>(p.column_sums)[(begin.batch * p.n + n) * p.groups + g];
    return sum + terms * left * right;
  }
  BARACUDA_D bool centres() const { return p.zero_a != nullptr || p.zero_b != nullptr; }

  // Finishes columns n … n + N - 1 of row m, of which those before `left` exist.
  template <class S, int N> BARACUDA_D void row(i64 m, i64 n, i64 left, const Vec<S, N>& sum) const {
    if constexpr (KIND == IntGemm::sums) {
      Vec<int, N> y;
      if (centres()) {
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = static_cast<int>(k < left ? whole(sum[k], m, n + k) : 0);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = static_cast<int>(sum[k]);
      }
      put(m, n, left, y);
    } else if constexpr (KIND == IntGemm::grouped) {
      const float by = static_cast<float>(alpha);
      Vec<float, N> y;
#pragma unroll
      for (int k = 0; k < N; ++k) y[k] = by * sum[k];
      if (p.bias != nullptr) {
        const auto bias = biases<N>(m, n, left);
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] += bias[k];
      }
      put_floats(m, n, left, y);
    } else {
      const double by = p.scale_a == nullptr ? alpha : alpha * scale_a(m, 0);
      Vec<double, N> y = reals(sum, m, n, left), scale;
#pragma unroll
      for (int k = 0; k < N; ++k) scale[k] = by;
      if (p.scale_b != nullptr) {
        const auto of = columns<float, N>(int_matrix::scale_b, p.scale_b, 0, n, left);
#pragma unroll
        for (int k = 0; k < N; ++k) scale[k] *= of[k];
      }
      if (p.bias == nullptr) {
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] *= scale[k];
      } else {
        const auto bias = biases<N>(m, n, left);
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = math::fma(scale[k], y[k], static_cast<double>(bias[k]));
      }
      if constexpr (KIND == IntGemm::scaled) put_floats(m, n, left, y);
      else put_codes(m, n, left, y);
    }
  }

 private:
  BARACUDA_D float scale(int which, const void* matrix, i64 row, i64 column) const {
    return matrix == nullptr ? 1.0f : static_cast<const float*>(matrix)[place(which, row, column)];
  }
  BARACUDA_D i64 zero(int which, const void* matrix, i64 row, i64 column, int side) const {
    if (matrix == nullptr) return 0;
    const u8 byte = static_cast<const u8*>(matrix)[place(which, row, column)];
    return p.is_unsigned >> side & 1 ? static_cast<i64>(byte) : static_cast<i64>(static_cast<i8>(byte));
  }
  template <class S> BARACUDA_D i64 whole(S sum, i64 m, i64 n) const {
    const i64 s = static_cast<i64>(sum);
    return centres() ? centred(s, m, n, 0, p.k) : s;
  }
  // The sums in double, of columns that exist. No branch stands between columns, so that their loads and chains of
  // arithmetic overlap. An integer of 32 bits is the lower half of the fraction of 2^52 and more, which is taken off:
  // faster than a conversion, and as exact.
  template <class S, int N> BARACUDA_D Vec<double, N> reals(const Vec<S, N>& sum, i64 m, i64 n, i64 left) const {
    Vec<double, N> y;
    if (centres()) {
#pragma unroll
      for (int k = 0; k < N; ++k) y[k] = k < left ? static_cast<double>(whole(sum[k], m, n + k)) : 0.0;
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) y[k] = real(sum[k]);
    }
    return y;
  }
  static BARACUDA_D double real(int sum) {
    return __hiloint2double(0x43300000, sum ^ static_cast<int>(0x80000000u)) - 4503601774854144.0;
  }
  static BARACUDA_D double real(i64 sum) { return static_cast<double>(sum); }

  // Columns n … n + N - 1 of a row; in place of those from `left` on the last one before them.
  template <class U, int N>
  BARACUDA_D Vec<U, N> columns(int which, const void* matrix, i64 row, i64 n, i64 left) const {
    const U* const from = static_cast<const U*>(matrix) + place(which, row, n);
    const i64 step = p.strides[which][1];
    Vec<U, N> x;
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = from[min<i64>(k, left - 1) * step];
    return x;
  }
  template <int N> BARACUDA_D Vec<float, N> biases(i64 m, i64 n, i64 left) const {
    const IntOut out = static_cast<IntOut>(p.out);
    if (out == IntOut::f16) return cast_vec<float>(columns<f16, N>(int_matrix::bias, p.bias, m, n, left));
    if (out == IntOut::bf16) return cast_vec<float>(columns<bf16, N>(int_matrix::bias, p.bias, m, n, left));
    return columns<float, N>(int_matrix::bias, p.bias, m, n, left);
  }
  template <class A, int N> BARACUDA_D void put_floats(i64 m, i64 n, i64 left, const Vec<A, N>& y) const {
    const IntOut out = static_cast<IntOut>(p.out);
    if (out == IntOut::f16) put(m, n, left, cast_vec<f16>(y));
    else if (out == IntOut::bf16) put(m, n, left, cast_vec<bf16>(y));
    else put(m, n, left, cast_vec<float>(y));
  }
  template <int N> BARACUDA_D void put_codes(i64 m, i64 n, i64 left, const Vec<double, N>& y) const {
    const bool is_signed = static_cast<IntOut>(p.out) == IntOut::i8;
    const double lowest = is_signed ? -128.0 : 0.0, highest = is_signed ? 127.0 : 255.0;
    Vec<u8, N> codes;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      codes[k] = 0;
      if (k >= left) continue;
      const double by = static_cast<const float*>(p.scale_y)[place(int_matrix::scale_y, m, n + k)];
      double zero = 0.0;
      if (p.zero_y != nullptr) {
        const u8 byte = static_cast<const u8*>(p.zero_y)[place(int_matrix::zero_y, m, n + k)];
        zero = is_signed ? static_cast<double>(static_cast<i8>(byte)) : static_cast<double>(byte);
      }
      const double x = math::rint(y[k] / by) + zero;
      codes[k] = static_cast<u8>(x != x ? 0 : static_cast<int>(x < lowest ? lowest : x > highest ? highest : x));
    }
    put(m, n, left, codes);
  }
  template <class U, int N> BARACUDA_D void put(i64 m, i64 n, i64 left, const Vec<U, N>& y) const {
    U* const to = static_cast<U*>(p.y) + place(int_matrix::y, m, n);
    if (p.wide >> int_matrix::y & 1) store_vec<U, N, true>(to, y, left);
    else store_strided(to, p.strides[int_matrix::y][1], y, left);
  }
};

}  // namespace baracuda
