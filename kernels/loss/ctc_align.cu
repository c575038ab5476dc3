// ctc_align   the likeliest path of classes that spells a target
//
// best[t, s] = log p[t, s] + max(best[t - 1, s], best[t - 1, s - 1], best[t - 1, s - 2] where that may be skipped), the first
// of equal ones (Viterbi). A block for each sequence, a thread for some states; two rows of sums in turn, and for each step
// and state how many states back it came from, are in the workspace. Then one thread goes back from the end.
#include "loss/ctc.cuh"

namespace baracuda {

template <class P> BARACUDA_D void put_step(const P& p, void* to, i64 at, i64 value) {
  if (p.wide) static_cast<i64*>(to)[at] = value;
  else static_cast<i32*>(to)[at] = static_cast<i32>(value);
}

template <class T> BARACUDA_D void ctc_align(const CtcAlignParams& p) {
  using A = acc_t<T>;
  const i64 n = blockIdx.x;
  const Ctc<T, CtcAlignParams> item(p, n);
  const A none = -numeric<A>::infinity();
  A* const rows = static_cast<A*>(p.rows) + n * 2 * p.states;
  u8* const back = static_cast<u8*>(p.back) + n * p.steps * p.states;
  const i64 states = item.states();
  for (i64 t = 0; t < item.steps; ++t) {
    const A* const before = rows + (t + 1) % 2 * p.states;
    A* const now = rows + t % 2 * p.states;
    for (i64 s = threadIdx.x; s < states; s += ctc_threads) {
      const A here = item.log_prob(t, item.of_state(s));
      A best = t > 0 ? before[s] : s < 2 ? A(0) : none;
      u8 from = 0;
      auto consider = [&](A other, u8 distance) {
        if (other > best) best = other, from = distance;
      };
      if (t > 0) {
        consider(s > 0 ? before[s - 1] : none, 1);
        consider(item.skips(s) ? before[s - 2] : none, 2);
        back[t * p.states + s] = from;
      }
      const A sum = here + best;
      now[s] = sum == sum ? sum : none;
    }
    __syncthreads();
  }
  __shared__ i64 ends;  // whether there is a path: its last state, or -1
  if (threadIdx.x == 0) {
    A score = item.labels == 0 && item.steps == 0 ? A(0) : none;
    i64 state = -1;
    if (item.steps > 0) {
      const A* const last = rows + (item.steps - 1) % 2 * p.states;
      state = states > 1 && last[states - 2] > last[states - 1] ? states - 2 : states - 1;
      score = last[state];
    }
    if (!item.fits || !(score > none)) score = none, state = -1;
    if (p.score != nullptr) static_cast<A*>(p.score)[n * p.score_step] = score;
    ends = state;
    for (i64 t = item.steps - 1; state >= 0 && t >= 0; --t) {
      put_step(p, p.path, n * p.path_steps[0] + t * p.path_steps[1], item.of_state(state));
      if (p.labels != nullptr) {
        put_step(p, p.labels, n * p.labels_steps[0] + t * p.labels_steps[1], state & 1 ? state / 2 : -1);
      }
      if (t > 0) state -= back[t * p.states + state];
    }
  }
  __syncthreads();
  for (i64 t = (ends < 0 ? 0 : item.steps) + threadIdx.x; t < p.steps; t += ctc_threads) {
    put_step(p, p.path, n * p.path_steps[0] + t * p.path_steps[1], -1);
    if (p.labels != nullptr) put_step(p, p.labels, n * p.labels_steps[0] + t * p.labels_steps[1], -1);
  }
}

}  // namespace baracuda
