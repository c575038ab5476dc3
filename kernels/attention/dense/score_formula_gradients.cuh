#pragma once
// score_formula_gradients    weights under a formula, for the tensor-core row of the backward
//                            (flash_sdpa_backward_terms.cuh).
#include "attention/dense/flash_sdpa_backward_terms.cuh"
#include "attention/score_formula.cuh"

namespace baracuda::attention {

// Turns products of 16 keys (transposed) by 8 N queries into weights: s becomes the weight times the derivative of the
// score, p16 the weight after dropout. Arguments as those of the other `weigh`.
template <class T, int N, class P, class Biases, class Far>
BARACUDA_D void weigh(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
                      const Mask& mask, const Terms<3, float, true, P>& terms, const Biases& biases, float ahead) {
  float x[N][4];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(x[n][e], s[n][e], 8 * n + e % 2, e / 2 * 8);
    }
  };
  each([&](float& to, float& slope, int i, int j) {
    to = terms.capped() ? terms.squash(slope) : slope;
    slope = terms.through(to);
    slope *= terms.change(to, biases.i + i, biases.j + j);
  });
  if (terms.sloped()) {
    each([&](float& to, float&, int i, int j) {
      to = math::fma(-terms.slope, math::abs(ahead + static_cast<float>(i - j)), to);
    });
  }
  if (terms.p.mask != nullptr) biases.template add_to<0>(x);
  if constexpr (Terms<3, float, true, P>::may_hide) {
    if (terms.may_be_hidden()) {
      each([&](float& to, float& slope, int i, int j) {
        const bool seen = terms.sees(biases.i + i, biases.j + j);
        to = seen ? to : -numeric<float>::infinity(), slope = seen ? slope : 0.0f;
      });
    }
  }
  // a formula's numbers are not told from the product: no score is taken to have been summed in another order
  far.lower(x, i0, 1.0f, [](int, int) { return 0.0f; });
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 lse = far.stats[i0 / 2 + 4 * n + lane_id() % 4].lse;
#pragma unroll
    for (int e = 0; e < 4; ++e) x[n][e] = exp2_fast(math::fma(x[n][e], terms.c, e % 2 ? -lse.y : -lse.x));
  }
  if (mask.cut) hide(x, i0, key0, mask);
  const bool spared = terms.drops() || far.any;
  each([&](float& to, float& slope, int, int) { slope = spared && rounds_to_one<T>(to) ? 0.0f : to * slope; });
  if (terms.drops()) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[n][e] = kept >> (4 * n + e) & 1 ? x[n][e] : 0.0f;
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) put_pairs<T>(p16, n, x[n]);
}

}  // namespace baracuda::attention
