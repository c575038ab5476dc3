#pragma once
// decode     what the designs of moe_decode share: the unit between the two products, and how a token's results are added.
//
// A slot is a token's choice of an expert, t k + j. h has a row for each slot, and so has z: what a slot's expert makes of
// its token, rounded. y[t] = Σ_j weights[t, j] z[t k + j], in float for f16 and bf16, one multiplication and one addition
// at a time in the order of j.
#include <baracuda/positions.cuh>
#include "gated/swiglu_oai.cuh"
#include "gemm/epilogue.cuh"

namespace baracuda::moe {

// The expert of a slot, -1 where it names none.
template <class P> BARACUDA_D int expert_of(const P& p, int slot) {
  const i64 at = slot / p.choices * p.index_steps[0] + slot % p.choices * p.index_steps[1];
  const i64 e = p.wide_indices ? static_cast<const i64*>(p.indices)[at] : static_cast<const i32*>(p.indices)[at];
  return e >= 0 && e < p.experts ? static_cast<int>(e) : -1;
}
template <class T, class P> BARACUDA_D acc_t<T> weight_of(const P& p, int token, int choice) {
  const i64 at = token * p.weight_steps[0] + choice * p.weight_steps[1];
  return p.wide_weights ? static_cast<const acc_t<T>*>(p.weights)[at] : to_acc(static_cast<const T*>(p.weights)[at]);
}

// x += columns n … of the expert's bias, of which `left` exist.
template <class T, int N>
BARACUDA_D void add_bias(Vec<acc_t<T>, N>& x, const void* bias, const i64* steps, int expert, i64 n, i64 left) {
  if (bias == nullptr) return;
  const T* const from = static_cast<const T*>(bias) + expert * steps[0] + n * steps[1];
  const auto b = to_acc(load_strided<T, N>(from, steps[1], left));
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] += b[k];
}

// x becomes the unit of the sums with their biases: of the gate, which multiplies what `up` is, or of x alone. gpt-oss's
// is of numbers rounded to T, as moe makes it of a stored product.
template <class T, bool GATED, int N, class P>
BARACUDA_D void apply_unit(const P& p, Vec<acc_t<T>, N>& x, const Vec<acc_t<T>, N>& up) {
  using A = acc_t<T>;
  if constexpr (GATED) {
    if (p.oai) {
      const Coefficients<A> k(A(1.702), A(7));
#pragma unroll
      for (int n = 0; n < N; ++n) {
        x[n] = SwigluOai<T>::product(to_acc(from_acc<T>(x[n])), to_acc(from_acc<T>(up[n])), k);
      }
      return;
    }
  }
  with_activation<T, A>(p.activation, [&](const auto& act) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = GATED ? act(x[n], up[n]) : act(x[n]);
  });
}

}  // namespace baracuda::moe
