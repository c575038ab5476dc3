// ctc_loss   loss[n] = -log of the sum over all paths that spell the labels of the product of their probabilities.
//
// alpha[t, s] = log p[t, s] + log_sum(alpha[t - 1, s], alpha[t - 1, s - 1], alpha[t - 1, s - 2] where that may be skipped)
// (Graves et al. 2006, Connectionist Temporal Classification). A block for each sequence, a thread for some states; the
// two rows in turn are in shared memory, or in the workspace where they do not fit. A thread keeps the classes of its
// first states in registers and asks for their probabilities some steps before it needs them, as a step is far shorter
// than an access of memory. A state's sum has three terms in this order, so that nothing but the sequence itself fixes
// the bits. The losses are added by the schedule reduce.
#include "loss/ctc.cuh"
#include "loss/loss_shares.cuh"

namespace baracuda {

constexpr int ctc_held = 4;   // states of a thread whose classes are in registers
constexpr int ctc_ahead = 4;  // steps whose probabilities are on their way

template <class T, class P> BARACUDA_D void ctc_alpha(const P& p) {
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, held);
  const i64 n = blockIdx.x;
  const Ctc<T, P> item(p, n);
  const A none = -numeric<A>::infinity();
  A* const rows = p.staged ? held : static_cast<A*>(p.rows) + n * 2 * p.states;
  A* const kept = p.log_alpha == nullptr ? nullptr : static_cast<A*>(p.log_alpha) + n * p.steps * p.states;
  const i64 states = item.states(), own = threadIdx.x;
  i32 of[ctc_held];
  u32 skips = 0;
  A ahead[ctc_ahead][ctc_held];
#pragma unroll
  for (int h = 0; h < ctc_held; ++h) {
    const i64 s = own + h * ctc_threads;
    const i64 label = s < states ? item.of_state(s) : -1;
    of[h] = label >= 0 && label < p.classes ? static_cast<i32>(label) : -1;
    if (s < states && item.skips(s)) skips |= 1u << h;
#pragma unroll
    for (int d = 0; d < ctc_ahead; ++d) ahead[d][h] = d < item.steps ? item.log_prob(d, of[h]) : none;
  }
#pragma unroll 1
  for (i64 start = 0; start < item.steps; start += ctc_ahead) {
#pragma unroll
    for (int d = 0; d < ctc_ahead; ++d) {
      const i64 t = start + d;
      if (t >= item.steps) break;
      const A* const before = rows + (t + 1) % 2 * p.states;
      A* const now = rows + t % 2 * p.states;
      auto advance = [&](i64 s, bool skip, A here) {
        A made = none;
        if (s < states) {
          if (t == 0) made = s < 2 ? here : none;
          else made = here + log_sum(before[s], s > 0 ? before[s - 1] : none, skip ? before[s - 2] : none);
        }
        now[s] = made;
        if (kept != nullptr) kept[t * p.states + s] = made;
      };
#pragma unroll
      for (int h = 0; h < ctc_held; ++h) {
        const i64 s = own + h * ctc_threads;
        if (s >= p.states) continue;
        const A here = ahead[d][h];
        if (t + ctc_ahead < item.steps) ahead[d][h] = item.log_prob(t + ctc_ahead, of[h]);
        advance(s, skips >> h & 1, here);
      }
      for (i64 s = own + ctc_held * ctc_threads; s < p.states; s += ctc_threads) {
        const bool real = s < states;
        advance(s, real && item.skips(s), real ? item.log_prob(t, item.of_state(s)) : none);
      }
      __syncthreads();
    }
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
