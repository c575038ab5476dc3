// ctc_loss   loss[n] = -log of the sum over all paths that spell the labels of the product of their probabilities.
//
// alpha[t, s] = log p[t, s] + log_sum(alpha[t - 1, s], alpha[t - 1, s - 1], alpha[t - 1, s - 2] where that may be skipped)
// (Graves et al. 2006, Connectionist Temporal Classification). A block for each sequence, a thread for some states; the
// two rows in turn are in shared memory, or in the workspace where they do not fit. A state's sum has three terms in this
// order, so that nothing but the sequence itself fixes the bits. The losses are added by the schedule reduce.
#include "loss/ctc.cuh"
#include "loss/loss_shares.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void ctc_alpha(const P& p) {
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, held);
  const i64 n = blockIdx.x;
  const Ctc<T, P> item(p, n);
  const A none = -numeric<A>::infinity();
  A* const rows = p.staged ? held : static_cast<A*>(p.rows) + n * 2 * p.states;
  A* const kept = p.log_alpha == nullptr ? nullptr : static_cast<A*>(p.log_alpha) + n * p.steps * p.states;
  const i64 states = item.states(), own = threadIdx.x;
  A ahead = own < states && item.steps > 0 ? item.log_prob(0, item.of_state(own)) : none;
  for (i64 t = 0; t < item.steps; ++t) {
    const A* const before = rows + (t + 1) % 2 * p.states;
    A* const now = rows + t % 2 * p.states;
    for (i64 s = own; s < p.states; s += ctc_threads) {
      A made = none;
      if (s < states) {
        const A here = s == own ? ahead : item.log_prob(t, item.of_state(s));
        if (t == 0) made = s < 2 ? here : none;
        else made = here + log_sum(before[s], s > 0 ? before[s - 1] : none, item.skips(s) ? before[s - 2] : none);
      }
      now[s] = made;
      if (kept != nullptr) kept[t * p.states + s] = made;
    }
    if (own < states && t + 1 < item.steps) ahead = item.log_prob(t + 1, item.of_state(own));  // on its way meanwhile
    __syncthreads();
  }
  if (kept != nullptr) {
    for (i64 k = item.steps * p.states + own; k < p.steps * p.states; k += ctc_threads) kept[k] = none;
  }
  if (own != 0) return;
  A loss = item.labels == 0 ? A(0) : numeric<A>::infinity();  // of no steps
  if (item.steps > 0) {
    const A* const last = rows + (item.steps - 1) % 2 * p.states;
    loss = -log_sum(last[states - 1], states > 1 ? last[states - 2] : none, none);
  }
  if (!item.fits) loss = numeric<A>::nan();
  if (p.nll != nullptr) static_cast<A*>(p.nll)[n * p.nll_step] = loss;
  if (p.zero_infinity && loss == numeric<A>::infinity()) loss = A(0);
  if (p.loss != nullptr) static_cast<T*>(p.loss)[n * p.loss_step] = cast<T>(loss);
  if (p.keep) static_cast<A*>(p.shares)[n] = p.by_length ? loss / static_cast<A>(max<i64>(item.labels, 1)) : loss;
}

}  // namespace baracuda
