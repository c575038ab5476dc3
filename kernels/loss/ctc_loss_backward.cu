// ctc_loss_backward  dlog_probs[t, n, c] = g (exp(log p[t, c]) - exp(log_sum of alpha + beta over the states of c + nll -
//                    log p[t, c])), or without the first term where the gradient is the derivative itself.
//
// ctc_beta: beta as alpha of ctc_loss.cu, from the last step back; and of every label the next equal one and whether it is
// the first. ctc_gradient: a block for each step of a sequence. A class's states are added one after the other by the
// thread of its first label, those of the blank as a tree: the labels alone fix the order of every sum.
#include "loss/ctc.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void ctc_beta(const P& p) {
  using A = acc_t<T>;
  const i64 n = blockIdx.x, own = threadIdx.x;
  const Ctc<T, P> item(p, n);
  const A none = -numeric<A>::infinity();
  i32* const next = static_cast<i32*>(p.next) + n * p.most;
  i32* const heads = static_cast<i32*>(p.heads) + n * p.most;
  for (i64 k = own; k < item.labels; k += ctc_threads) {
    const i64 label = item.label(k);
    i64 after = k + 1, before = k - 1;
    while (after < item.labels && item.label(after) != label) ++after;
    while (before >= 0 && item.label(before) != label) --before;
    next[k] = static_cast<i32>(after), heads[k] = before < 0;
  }
  A* const kept = static_cast<A*>(p.log_beta) + n * p.steps * p.states;
  const i64 states = item.states();
  A ahead = own < states && item.steps > 0 ? item.log_prob(item.steps - 1, item.of_state(own)) : none;
  for (i64 t = item.steps - 1; t >= 0; --t) {
    const A* const after = kept + (t + 1) * p.states;
    for (i64 s = own; s < states; s += ctc_threads) {
      const A here = s == own ? ahead : item.log_prob(t, item.of_state(s));
      A made;
      if (t == item.steps - 1) {
        made = s + 2 >= states ? here : none;
      } else {
        const A second = s + 1 < states ? after[s + 1] : none;
        made = here + log_sum(after[s], second, s + 2 < states && item.skips(s + 2) ? after[s + 2] : none);
      }
      kept[t * p.states + s] = made;
    }
    if (own < states && t > 0) ahead = item.log_prob(t - 1, item.of_state(own));
    __syncthreads();
  }
}

template <class T, class P> struct CtcGradient {
  using A = acc_t<T>;
  const Ctc<T, P>& item;
  i64 t;
  A nll, g;
  // log_sum: of alpha + beta over the states of class c.
  BARACUDA_D void write(i64 c, A log_sum) const {
    const P& p = item.p;
    const A here = item.log_prob(t, c), none = -numeric<A>::infinity();
    const A share = log_sum == none && math::isfinite(nll) ? A(0) : math::exp(log_sum + nll - here);
    const A made = g * (p.normalized ? math::exp(here) - share : -share);
    static_cast<T*>(p.dlog_probs)[t * p.dstep[0] + item.n * p.dstep[1] + c * p.dstep[2]] = cast<T>(made);
  }
};

template <class T, class P> BARACUDA_D void ctc_gradient(const P& p) {
  using A = acc_t<T>;
  const i64 n = static_cast<i64>(blockIdx.x) / p.steps, t = static_cast<i64>(blockIdx.x) % p.steps, own = threadIdx.x;
  const Ctc<T, P> item(p, n);
  const A none = -numeric<A>::infinity(), nll = static_cast<const A*>(p.nll)[n * p.nll_step];
  A g = p.per_item ? to_acc(static_cast<const T*>(p.dloss)[n * p.loss_step]) : *static_cast<const A*>(p.dloss);
  if (p.by_length) g /= static_cast<A>(p.batch) * static_cast<A>(max<i64>(item.labels, 1));
  const bool dropped = p.zero_infinity && nll == numeric<A>::infinity();
  if (t >= item.steps || dropped) {
    T* const out = static_cast<T*>(p.dlog_probs) + t * p.dstep[0] + n * p.dstep[1];
    for (i64 c = own; c < p.classes; c += ctc_threads) out[c * p.dstep[2]] = cast<T>(A(0));
    return;
  }
  const i64 at = (n * p.steps + t) * p.states, states = item.states();
  const A* const alpha = static_cast<const A*>(p.log_alpha) + at;
  const A* const beta = static_cast<const A*>(p.log_beta) + at;
  const CtcGradient<T, P> gradient{item, t, nll, g};

  A top = none, sum = A(0);  // of the blank
  for (i64 s = own; s < states; s += ctc_threads) {
    if (item.of_state(s) == p.blank) top = math::maximum(top, alpha[s] + beta[s]);
  }
  top = block_reduce<Max, ctc_threads>(top);
  for (i64 s = own; s < states && top != none; s += ctc_threads) {
    if (item.of_state(s) == p.blank) sum += math::exp(alpha[s] + beta[s] - top);
  }
  sum = block_reduce<Sum, ctc_threads>(sum);
  for (i64 c = own; c < p.classes; c += ctc_threads) {
    gradient.write(c, c == p.blank && top != none ? top + math::log(sum) : none);
  }
  __syncthreads();  // labels' own sums take the place of those of none
  const i32* const next = static_cast<const i32*>(p.next) + n * p.most;
  const i32* const heads = static_cast<const i32*>(p.heads) + n * p.most;
  for (i64 k = own; k < item.labels; k += ctc_threads) {
    const i64 c = item.label(k);
    if (!heads[k] || c == p.blank || c < 0 || c >= p.classes) continue;
    A most = none, total = A(0);
    for (i64 j = k; j < item.labels; j = next[j]) most = math::maximum(most, alpha[2 * j + 1] + beta[2 * j + 1]);
    for (i64 j = k; j < item.labels && most != none; j = next[j]) {
      total += math::exp(alpha[2 * j + 1] + beta[2 * j + 1] - most);
    }
    gradient.write(c, most == none ? none : most + math::log(total));
  }
}

}  // namespace baracuda
