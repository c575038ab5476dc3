#pragma once
// score_formula_runs    score_formula.cuh for the forward's tensor-core kernels, in place of runs.cuh.
#include "attention/runs.cuh"
#include "attention/score_formula.cuh"

namespace baracuda::attention {

template <class P> struct FormulaRunTerms : FormulaTerms<float, P> {
  using Base = FormulaTerms<float, P>;
  using Base::Base;

  // add_to has added the mask; what would add it by runs is named, and never called.
  static constexpr bool common = false, dense = false;
  template <class F> BARACUDA_D void with_mask(const F&) const {}
  template <class M, int N, int W> BARACUDA_D void fetch(u32 (&words)[W], int i, int j) const;
  template <class M, int N, int W> BARACUDA_D void gather(u32 (&words)[W], int i, int j) const;
  template <class M, int N, int W, class Score>
  BARACUDA_D void add(const u32 (&words)[W], const Score& score, bool careful) const;

  // Bit k: whether dropout keeps the weight of row i and key j + k.
  template <int N> BARACUDA_D u32 kept(int i, int j) const {
    u32 bits = 0;
#pragma unroll 1
    for (int k = 0; k < N; ++k) bits |= static_cast<u32>(Base::kept(i, j + k)) << k;
    return bits;
  }
};

template <> struct RunTerms<FlashSdpaFormulaParams> : FormulaRunTerms<FlashSdpaFormulaParams> {
  using FormulaRunTerms<FlashSdpaFormulaParams>::FormulaRunTerms;
};
template <> struct RunTerms<FlashSdpaFormulaBlocksParams> : FormulaRunTerms<FlashSdpaFormulaBlocksParams> {
  using FormulaRunTerms<FlashSdpaFormulaBlocksParams>::FormulaRunTerms;
};
template <> struct RunTerms<FlashSdpaFormulaAloneParams> : FormulaRunTerms<FlashSdpaFormulaAloneParams> {
  using FormulaRunTerms<FlashSdpaFormulaAloneParams>::FormulaRunTerms;
};
template <> struct RunTerms<FlashSdpaFormulaAloneBlocksParams> : FormulaRunTerms<FlashSdpaFormulaAloneBlocksParams> {
  using FormulaRunTerms<FlashSdpaFormulaAloneBlocksParams>::FormulaRunTerms;
};

}  // namespace baracuda::attention
