#pragma once
// score_formula_gradients    weights under a formula, for the tensor-core rows of the backward
//                            (flash_sdpa_backward_terms.cuh).
#include "attention/dense/flash_sdpa_backward_terms.cuh"
#include "attention/score_formula.cuh"

namespace baracuda::attention {

// Turns products of 16 keys (transposed) by 8 M queries, 8 FROM after the thread's first, into weights: s becomes the
// weight times the derivative of the score, p16 the weight after dropout. (i, j): query and key of the thread's first
// score; the other arguments are those of weigh_some.
template <class T, int FROM, int M, int N, class Terms, class Biases, class Far>
BARACUDA_D void weigh_by_formula(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
                                 const Mask& mask, const Terms& terms, const Biases& biases, int i, int j,
                                 float ahead) {
  float x[M][4];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int n = 0; n < M; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(x[n][e], s[FROM + n][e], 8 * (FROM + n) + e % 2, e / 2 * 8);
    }
  };
  each([&](float& to, float& slope, int r, int c) {
    to = terms.capped() ? terms.squash(slope) : slope;
    slope = terms.through(to);
    slope *= terms.change(to, i + r, j + c);
  });
  if (terms.sloped()) {
    each([&](float& to, float&, int r, int c) {
      to = math::fma(-terms.slope, math::abs(ahead + static_cast<float>(r - c)), to);
    });
  }
  if (terms.biased()) biases.template add_to<FROM>(x);
  terms.where_hidden([&](const auto& seen) {
    each([&](float& to, float& slope, int r, int c) {
      const bool some = seen(i + r, j + c);
      to = some ? to : -numeric<float>::infinity(), slope = some ? slope : 0.0f;
    });
  });
  // a formula's numbers are not told from the product: no score is taken to have been summed in another order
  far.lower(x, i0 + 8 * FROM, 1.0f, [](int, int) { return 0.0f; });
#pragma unroll
  for (int n = 0; n < M; ++n) {
    const float2 lse = far.stats[i0 / 2 + 4 * (FROM + n) + lane_id() % 4].lse;
#pragma unroll
    for (int e = 0; e < 4; ++e) x[n][e] = exp2_fast(math::fma(x[n][e], terms.c, e % 2 ? -lse.y : -lse.x));
  }
  if (mask.cut) hide(x, i0 + 8 * FROM, key0, mask);
  const bool spared = far.spares(terms.drops());
  each([&](float& to, float& slope, int, int) { slope = spared && rounds_to_one<T>(to) ? 0.0f : to * slope; });
  if (terms.drops()) {
#pragma unroll
    for (int n = 0; n < M; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[n][e] = kept >> (4 * (FROM + n) + e) & 1 ? x[n][e] : 0.0f;
    }
  }
#pragma unroll
  for (int n = 0; n < M; ++n) put_pairs<T>(p16, FROM + n, x[n]);
}

// The same for all 8 N queries, in place of the other `weigh`. mma.sync:
template <class T, int N, class P, class Biases, class Far>
BARACUDA_D void weigh(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
                      const Mask& mask, const Terms<3, float, true, P>& terms, const Biases& biases, float ahead) {
  weigh_by_formula<T, 0, N>(s, p16, kept, far, i0, key0, mask, terms, biases, biases.i, biases.j, ahead);
}

// ---- flash_sdpa_backward_wgmma, whose terms are of LEVEL 2: those with a formula stand in their place

template <class P> struct Terms<2, float, true, P> : FormulaTerms<float, P> {
  using FormulaTerms<float, P>::FormulaTerms;
};

// Biases where there is an operand of them: terms that hide pairs by the formula are `masked`, too.
template <class P, int ROWS> struct Staged<Terms<2, float, true, P>, ROWS> : Staged<FormulaTerms<float, P>, ROWS> {
  using Base = Staged<FormulaTerms<float, P>, ROWS>;
  using Base::Base;
  BARACUDA_D void fetch(int i, int j) {
    if (this->terms.biased()) Base::fetch(i, j);
  }
  BARACUDA_D void put(int i, int j) {
    if (this->terms.biased()) Base::put(i, j);
  }
};

// A block has 64 queries and 16 N keys a tile. In small parts, as what a formula computes takes registers of its own,
// unless it only hides pairs.
template <class T, int N, class P, class Biases, class Far>
BARACUDA_D void weigh(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
                      const Mask& mask, const Terms<2, float, true, P>& terms, const Biases& biases, float ahead) {
  static_assert(N == 4 || N == 8, "64 queries of one warpgroup, or of two");
  const int i = far.step.at * 64 + i0 + lane_id() % 4 * 2;
  const int j = static_cast<int>(far.key.tile) * (16 * N) + key0 + lane_id() / 4;
  constexpr int PART = FormulaTerms<float, P>::alone && !ScoreFormula<P>::changes ? 4 : 2;
  weigh_by_formula<T, 0, PART>(s, p16, kept, far, i0, key0, mask, terms, biases, i, j, ahead);
  if constexpr (PART == 2) weigh_by_formula<T, 2, 2>(s, p16, kept, far, i0, key0, mask, terms, biases, i, j, ahead);
  if constexpr (N > 4) {
    weigh_by_formula<T, 4, PART>(s, p16, kept, far, i0, key0, mask, terms, biases, i, j, ahead);
    if constexpr (PART == 2) weigh_by_formula<T, 6, 2>(s, p16, kept, far, i0, key0, mask, terms, biases, i, j, ahead);
  }
}

}  // namespace baracuda::attention
