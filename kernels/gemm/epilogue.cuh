#pragma once
// epilogue   what a matrix product does between its sums and its outputs, the same in every design.
//
//   x = alpha scale_a[m] scale_b[n] Σ a b + beta c[m, n] + row_bias[m] + bias[n]       stored as `pre`
//   y = act(x) + residual[m, n], or with a second product, whose x is stored as `up_pre`,
//   y = act(x) (alpha scale_a[m] scale_b[n] Σ a up + up_bias[n]) + residual[m, n]
//
// All in the accumulator's type A, in this order, rounded once to U, the element of the outputs, of c and the residual;
// `pre` and `up_pre` are rounded for themselves and act goes on from the numbers before. Vectors are in the element V of
// the biases, scales in float (gemm/with_scales.cuh). Of what scales take beyond A, act and the product of both see the
// sign and the largest number where infinity would make NaN. An absent operand is a null pointer. P has those pointers,
// batch_shape, batch, strides (of c, residual, y, pre, up_pre: gemm_matrix), vectors (strides of bias, up_bias, row_bias,
// scale_a, scale_b), m, n, activation, `wide`: a bit for each matrix whose rows start 16-byte aligned with columns of stride 1.
#include <baracuda/scalar.cuh>
#include <baracuda/vector.cuh>
#include "elementwise/unary/gelu.cuh"
#include "elementwise/unary/gelu_tanh.cuh"
#include "elementwise/unary/relu.cuh"
#include "elementwise/unary/silu.cuh"
#include "gated/gates.cuh"
#include "gemm/operands.cuh"
#include "gemm/with_scales.cuh"

namespace baracuda {

// Places of the operands in the parameters' arrays.
namespace gemm_matrix {
constexpr int at(GemmMatrix which) { return static_cast<int>(which); }
constexpr int a = at(GemmMatrix::a), b = at(GemmMatrix::b), up = at(GemmMatrix::up), c = at(GemmMatrix::c);
constexpr int residual = at(GemmMatrix::residual), y = at(GemmMatrix::y);
constexpr int pre = at(GemmMatrix::pre), up_pre = at(GemmMatrix::up_pre);
}  // namespace gemm_matrix
namespace gemm_vector {
constexpr int at(GemmVector which) { return static_cast<int>(which); }
constexpr int bias = at(GemmVector::bias), up_bias = at(GemmVector::up_bias), row_bias = at(GemmVector::row_bias);
constexpr int scale_a = at(GemmVector::scale_a), scale_b = at(GemmVector::scale_b);
}  // namespace gemm_vector

// Writes columns n … of row m of a matrix, rounded to U; in one access of 16 bytes where they lie so.
template <class U, class P, class A, int N>
BARACUDA_D void put_columns(const P& p, const BatchOffsets& begin, int which, void* matrix, i64 m, i64 n, i64 left,
                            const Vec<A, N>& x) {
  const i64* const step = p.strides[which];
  U* const to = static_cast<U*>(matrix) + begin.at[which] + m * step[0] + n * step[1];
  const auto rounded = from_acc<U>(x);
  if (p.wide >> which & 1) store_vec<U, N, true>(to, rounded, left);
  else store_strided(to, step[1], rounded, left);
}

// An activation of the page: of x, and of a gate by the number that it lets through. Where outputs have 16 bits T is
// their element, whose forms are as accurate as such an output needs, else the accumulator.
template <class F, class G> struct Activated {
  template <class A> BARACUDA_D A operator()(A x) const { return F::value(x); }
  template <class A> BARACUDA_D A operator()(A gate, A up) const { return gated<F, G>(gate, up, Coefficients<A>()); }
};
struct NotActivated {
  template <class A> BARACUDA_D A operator()(A x) const { return x; }
  template <class A> BARACUDA_D A operator()(A gate, A up) const { return gate * up; }
};

// Calls `body` with an `Activation`: its loops are inside the choice.
template <class U, class A, class Body> BARACUDA_D void with_activation(int which, const Body& body) {
  using T = conditional<is_half<U>, U, A>;
  switch (static_cast<Activation>(which)) {
    case Activation::relu: return body(Activated<Relu<T>, gradient::Relu<T>>());
    case Activation::gelu: return body(Activated<Gelu<T>, gradient::Gelu<T>>());
    case Activation::gelu_tanh: return body(Activated<GeluTanh<T>, gradient::GeluTanh<T>>());
    case Activation::silu: return body(Activated<Silu<T>, gradient::Silu<T>>());
    default: return body(NotActivated());
  }
}

// GATED: there is a second product. U: the outputs' element, V: the biases'.
template <class U, class V, class A, bool GATED, class P> struct Epilogue {
  static constexpr bool fragments = true;
  const P& p;
  const A alpha, beta;
  const BatchOffsets begin;

  BARACUDA_D Epilogue(const P& p, const BatchOffsets& begin)
      : p(p), alpha(static_cast<A>(p.alpha())), beta(p.c == nullptr ? A(0) : static_cast<A>(p.beta())), begin(begin) {}

  // Whether a and b count: alpha 0 leaves them unread, so that a NaN there does not reach y.
  BARACUDA_D bool multiplies() const { return alpha != A(0); }

  // Whether neighbours in memory are those along a column of y.
  BARACUDA_D bool down() const { return p.strides[gemm_matrix::y][1] != 1; }

  // Finishes columns n … n + N - 1 of row m, of which those before `left` exist: `sum` and `up` are the sums of products.
  template <int N> BARACUDA_D void row(i64 m, i64 n, i64 left, const Vec<A, N>& sum, const Vec<A, N>& up) const {
    put(gemm_matrix::y, p.y, m, n, left, result(m, n, left, sum, up));
  }
  // What y is of them before it is rounded; stores `pre` and `up_pre`.
  template <int N>
  BARACUDA_D Vec<A, N> result(i64 m, i64 n, i64 left, const Vec<A, N>& sum, const Vec<A, N>& up) const {
    unsigned over = 0, up_over = 0;  // a bit for each column
    Vec<A, N> x = scaled(m, n, left, sum, over);
    if (beta != A(0)) {
      const auto c = get<N>(gemm_matrix::c, p.c, m, n, left);
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = math::fma(beta, c[k], x[k]);
    }
    if (p.row_bias != nullptr) {
      const A bias = to_acc(static_cast<const V*>(p.row_bias)[m * p.vectors[gemm_vector::row_bias]]);
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] += bias;
    }
    add(x, p.bias, gemm_vector::bias, n, left);
    put(gemm_matrix::pre, p.pre, m, n, left, x);
    if constexpr (GATED) {
      Vec<A, N> factor = scaled(m, n, left, up, up_over);
      add(factor, p.up_bias, gemm_vector::up_bias, n, left);
      put(gemm_matrix::up_pre, p.up_pre, m, n, left, factor);
      with_activation<U, A>(p.activation, [&](const auto& act) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const A y = act(x[k], factor[k]);
          x[k] = y != y && (over | up_over) >> k & 1
                     ? act(within(x[k], over >> k & 1), within(factor[k], up_over >> k & 1))
                     : y;
        }
      });
    } else if (p.activation != 0) {
      with_activation<U, A>(p.activation, [&](const auto& act) {
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = act(x[k] < A(0) ? within(x[k], over >> k & 1) : x[k]);
      });
    }
    if (p.residual != nullptr) {
      const auto residual = get<N>(gemm_matrix::residual, p.residual, m, n, left);
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] += residual[k];
    }
    return x;
  }

  // What `row` makes of an accumulator's fragment (mma.cuh), rows m and m + 8, columns n + 8 k and the next, where there
  // is nothing but alpha, biases, an activation and a gate. p.pairs: a bit for each vector whose columns 2 k and 2 k + 1
  // are one access.
  template <int N> BARACUDA_D void fragment(i64 m, i64 n, A (&x)[N][4], A (&up)[N][4]) const {
    scale(x);
    if (p.row_bias != nullptr) {
      const V* const from = static_cast<const V*>(p.row_bias);
      const i64 step = p.vectors[gemm_vector::row_bias];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const A bias = m + 8 * half < p.m ? to_acc(from[(m + 8 * half) * step]) : A(0);
#pragma unroll
        for (int k = 0; k < N; ++k) x[k][2 * half] += bias, x[k][2 * half + 1] += bias;
      }
    }
    add_pairs(x, p.bias, gemm_vector::bias, n);
    if constexpr (GATED) {
      scale(up);
      add_pairs(up, p.up_bias, gemm_vector::up_bias, n);
    }
    if (GATED || p.activation != 0) {
      with_activation<U, A>(p.activation, [&](const auto& act) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
#pragma unroll
          for (int e = 0; e < 4; ++e) x[k][e] = GATED ? act(x[k][e], up[k][e]) : act(x[k][e]);
        }
      });
    }
  }

 private:
  template <int N> BARACUDA_D void scale(A (&x)[N][4]) const {
    if (alpha == A(1)) return;
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[k][e] *= alpha;
    }
  }
  template <int N> BARACUDA_D void add_pairs(A (&x)[N][4], const void* vector, int which, i64 n) const {
    if (vector == nullptr) return;
    const V* const from = static_cast<const V*>(vector);
    const i64 step = p.vectors[which];
    Vec<V, 2> bias[N] = {};
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const i64 at = n + 8 * k;
      if (p.pairs >> which & 1) {
        if (at < p.n) bias[k] = *reinterpret_cast<const Vec<V, 2>*>(from + at);
      } else {
        if (at < p.n) bias[k][0] = from[at * step];
        if (at + 1 < p.n) bias[k][1] = from[(at + 1) * step];
      }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const auto b = to_acc(bias[k]);
#pragma unroll
      for (int e = 0; e < 4; ++e) x[k][e] += b[e % 2];
    }
  }
  template <int N> BARACUDA_D Vec<A, N> scaled(i64 m, i64 n, i64 left, const Vec<A, N>& sum, unsigned& over) const {
    Vec<A, N> x;
    if (p.scale_a == nullptr && p.scale_b == nullptr) {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = sum[k] * alpha;
      return x;
    }
    A of_row = A(1);
    if (p.scale_a != nullptr) {
      of_row = static_cast<A>(static_cast<const float*>(p.scale_a)[m * p.vectors[gemm_vector::scale_a]]);
    }
    Vec<float, N> of_column;
    if (p.scale_b != nullptr) {
      const i64 step = p.vectors[gemm_vector::scale_b];
      of_column = load_strided<float, N>(static_cast<const float*>(p.scale_b) + n * step, step, left);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) of_column[k] = 1.0f;
    }
    const A factor = alpha * of_row;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      bool beyond;
      x[k] = with_scales(sum[k], factor, alpha, of_row, static_cast<A>(of_column[k]), beyond);
      over |= static_cast<unsigned>(beyond) << k;
    }
    return x;
  }
  template <int N> BARACUDA_D void add(Vec<A, N>& x, const void* vector, int which, i64 n, i64 left) const {
    if (vector == nullptr) return;
    const i64 step = p.vectors[which];
    const auto bias = to_acc(load_strided<V, N>(static_cast<const V*>(vector) + n * step, step, left));
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] += bias[k];
  }
  // The columns of a matrix; in one access of 16 bytes where they lie so (n is a multiple of N).
  template <int N> BARACUDA_D Vec<A, N> get(int which, const void* matrix, i64 m, i64 n, i64 left) const {
    const i64* const step = p.strides[which];
    const U* const from = static_cast<const U*>(matrix) + begin.at[which] + m * step[0] + n * step[1];
    return to_acc(p.wide >> which & 1 ? load_vec<U, N, true>(from, left) : load_strided<U, N>(from, step[1], left));
  }
  template <int N> BARACUDA_D void put(int which, void* matrix, i64 m, i64 n, i64 left, const Vec<A, N>& x) const {
    if (matrix != nullptr) put_columns<U>(p, begin, which, matrix, m, n, left, x);
  }
};

}  // namespace baracuda
