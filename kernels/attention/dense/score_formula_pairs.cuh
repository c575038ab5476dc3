#pragma once
// score_formula_pairs    weights of pairs under a formula, for the backward without tensor cores
//                        (flash_sdpa_backward_simt.cuh).
#include "attention/dense/flash_sdpa_backward_simt.cuh"
#include "attention/score_formula.cuh"

namespace baracuda::attention {

template <class A, class P> struct Pairs<3, A, P> : FormulaTerms<A, P> {
  enum : bool { adds_to_product = false };  // a formula's numbers are not told from it
  using Base = FormulaTerms<A, P>;
  A scale, sign;

  BARACUDA_D explicit Pairs(const P& p) : Base(p, p.query_len, p.key_len, p.shift) {
    scale = static_cast<A>(p.signed_scale), sign = static_cast<A>(p.sign);
  }
  BARACUDA_D A before(A& through, A x, int i, int j) const {
    x *= sign;
    if (this->capped()) x = this->squash(x);
    through = Base::through(x);
    through *= this->change(x, i, j);
    return x;
  }
  BARACUDA_D A score(A x, int i, int j) const {
    A through;
    const A found = before(through, x, i, j);
    return this->sees(i, j) ? biased(*this, found, i, j) : -numeric<A>::infinity();
  }
  BARACUDA_D A weight(A& of_ds, A& through, A x, int i, int j, const RowBase<A>& row) const {
    const A found = weight_of(*this, this->p, of_ds, through, x, i, j, row);
    if (!this->sees(i, j)) {
      through = A(1);
      return of_ds = A(-0.0);
    }
    if (!is_hidden(of_ds) && of_ds * through == A(0)) through = A(0);  // -0 would say that the pair is hidden
    return found;
  }
};

}  // namespace baracuda::attention
