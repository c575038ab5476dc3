// rnnt_loss_backward  with a = alpha[t, u] + nll of a position, g of its sequence:
//                     dlogits[c] = g clamp(p[c] exp(a + beta[t, u]) - [c = blank] exp(a + log p[blank] + beta[t + 1, u])
//                                                                   - [c = label] exp(a + log p[label] + beta[t, u + 1]))
//                     without the first term where the logits are logarithms of probabilities themselves.
//
// rnnt_beta: beta as alpha of rnnt_loss.cu, from the last position back, a block for each sequence. rnnt_gradient: a warp
// for each position reads its logits and writes their gradients. There are no sums but those of two terms.
#include "loss/rnnt.cuh"

namespace baracuda {

template <class T> BARACUDA_D void rnnt_beta(const RnntBetaParams& p) {
  using A = acc_t<T>;
  const i64 own = threadIdx.x;
  const Rnnt<RnntBetaParams> item(p, blockIdx.x);
  if (item.steps == 0) return;
  const A none = -numeric<A>::infinity();
  const A* const steps = static_cast<const A*>(p.log_steps);
  A* const beta = static_cast<A*>(p.log_beta);
  const auto blank_of = [&](i64 t, i64 u) { return item.has(t, u) ? steps[2 * item.at(t, u)] : none; };
  const auto label_of = [&](i64 t, i64 u) { return item.has(t, u) ? steps[2 * item.at(t, u) + 1] : none; };
  const i64 last = item.steps - 1 + item.labels;
  A blank = blank_of(last - own, own), label = label_of(last - own, own);
  for (i64 d = last; d >= 0; --d) {
    for (i64 u = own; u <= item.labels; u += rnnt_threads) {
      const i64 t = d - u;
      if (!item.has(t, u)) continue;
      const A b = u == own ? blank : blank_of(t, u), l = u == own ? label : label_of(t, u);
      A made = b;
      if (d < last) {
        const A below = item.has(t + 1, u) ? beta[item.at(t + 1, u)] + b : none;
        made = log_sum(below, item.has(t, u + 1) ? beta[item.at(t, u + 1)] + l : none);
      }
      beta[item.at(t, u)] = made;
    }
    blank = blank_of(d - 1 - own, own), label = label_of(d - 1 - own, own);  // on their way meanwhile
    __syncthreads();
  }
}

template <class T, bool WIDE> BARACUDA_D void rnnt_gradient(const RnntGradientParams& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  const i64 r =
      (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * (rnnt_threads / warp_size) + threadIdx.x / warp_size;
  if (r >= p.rows) return;
  const RnntRow<RnntGradientParams> position(p, r);
  const auto& item = position.item;
  const i64 t = position.t, u = position.u;
  i64 at[2];
  row_offsets<2>(p, r, at);
  const T* const x = static_cast<const T*>(p.logits) + at[0];
  T* const out = static_cast<T*>(p.dlogits) + at[1];
  const auto put = [&](i64 c, const Vec<T, V>& y, i64 left) { store_chunk<T, WIDE>(p, 1, out, c, pack<T>(y), left); };
  if (!position.exists()) {
#pragma unroll 1
    for (i64 c = static_cast<i64>(lane_id()) * V; c < p.cols; c += warp_size * V) put(c, Vec<T, V>{}, p.cols - c);
    return;
  }
  const A* const beta = static_cast<const A*>(p.log_beta);
  const A* const steps = static_cast<const A*>(p.log_steps) + 2 * r;
  const A lse = static_cast<const A*>(p.lse)[r];
  const A a = static_cast<const A*>(p.log_alpha)[r] + static_cast<const A*>(p.nll)[item.n * p.nll_step];
  const A here = a + beta[r];
  const bool out_of_it = t + 1 == item.steps && u == item.labels;
  A by_blank = A(0), by_label = A(0);
  if (t + 1 < item.steps) by_blank = math::exp(a + steps[0] + beta[item.at(t + 1, u)]);
  else if (out_of_it) by_blank = math::exp(a + steps[0]);
  const i64 label = position.label();
  if (u < item.labels) by_label = math::exp(a + steps[1] + beta[item.at(t, u + 1)]);
  A g = p.per_item ? to_acc(static_cast<const T*>(p.dloss)[item.n * p.loss_step]) : *static_cast<const A*>(p.dloss);
  if (p.divided) g /= static_cast<A>(p.batch);
  const A most = static_cast<A>(p.clamp);
  rnnt_chunks<T, WIDE>(p, x, [&](i64 col, const Vec<A, V>& logits, i64 left) {
    Vec<T, V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      A made = p.fused ? math::exp((logits[k] - lse) + here) : A(0);
      if (col + k == p.blank) made -= by_blank;
      if (col + k == label) made -= by_label;
      if (most > A(0)) made = math::minimum(math::maximum(made, -most), most);
      y[k] = cast<T>(g * made);
    }
    put(col, y, left);
  });
}

}  // namespace baracuda
