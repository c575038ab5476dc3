// linear_cross_entropy    of logits l = cap tanh((x W^T + b) / cap) that lie in the workspace, a chunk of rows at a time:
//                         loss = (1 - eps) w[t] (lse - l[t]) + eps / C sum_c w[c] (lse - l[c]) + zeta lse^2
//                         dl[c] = p[c] (g ((1 - eps) w[t] + eps / C W + 2 zeta lse) + dlse)
//                                 - [c = t] (g (1 - eps) w[t] - dtarget) - g eps / C w[c]
//
// linear_cross_entropy_rows: a block for each row. Maximum and sum online, unless the backward has an lse that holds
// enough digits of them; for the gradient the row again, its first slabs from shared memory, the others from L2, the newest first. A chunk's
// elements are added as a tree, a thread's chunks in order, threads as a tree; losses are finished and added in double.
#include "loss/cross_entropy_common.cuh"

namespace baracuda {

// From here on an lse has so many digits before the point that those of the sum are found again.
template <class A> constexpr A full_lse = A(0x1p10);

struct LinearLoss {
  double loss, weight;
};

// Logits of one row of a chunk, made of what the product left. L: its element.
template <class L, class T> struct LogitRow {
  using A = acc_t<L>;
  static constexpr int V = row_vec<L>;
  const LinearCrossEntropyParams& p;
  A cap;

  BARACUDA_D explicit LogitRow(const LinearCrossEntropyParams& p) : p(p), cap(static_cast<A>(p.softcap)) {}

  BARACUDA_D A bias(i64 col) const {
    return p.bias == nullptr ? A(0) : static_cast<A>(to_acc(static_cast<const T*>(p.bias)[col * p.bias_step]));
  }
  BARACUDA_D A one(A z) const { return cap > A(0) ? cap * math::tanh(z / cap) : z; }
  // Columns col … of the row; -inf beyond its end.
  BARACUDA_D Vec<A, V> values(const RowChunk<L>& raw, i64 col) const {
    auto z = unpack_chunk(raw);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (col + k < p.cols) z[k] = one(z[k] + bias(col + k));
      else z[k] = -numeric<A>::infinity();
    }
    return z;
  }
};

template <class L> BARACUDA_D RowChunk<L> read_logits(const L* row, i64 col, i64 cols) {
  RowChunk<L> out;
  read_chunk<group_wide>(out, row, 1, col, cols, cast<L>(0.0f));
  return out;
}

// What the gradient of a row is made of; p[c] = exp(l[c] - base) * share.
template <class A> struct LogitGradient {
  A base, share, spread, hit, smooth;
};

// A row's coefficients: of the loss, whose upstream gradient is p.dloss or 1, and of what is given for its outputs.
template <class T, class A, class P>
BARACUDA_D LogitGradient<A> logit_gradient(const P& p, i64 row, i64 target, A own, A base, A share, A lse) {
  A up = A(0), dlse = A(0), dtarget = A(0);
  if (target != no_class) {
    up =
        p.dloss == nullptr ? A(p.backward ? 0 : 1) : static_cast<const A*>(p.dloss)[p.per_row ? row * p.dloss_step : 0];
    if (p.mean) {
      up /= p.total_weight == nullptr ? static_cast<A>(target_weight(p)) : *static_cast<const A*>(p.total_weight);
    }
    if (p.dtarget != nullptr) dtarget = static_cast<const A*>(p.dtarget)[row * p.dtarget_step];
  }
  if (p.dlse != nullptr) dlse = static_cast<const A*>(p.dlse)[row * p.dlse_step];
  const double weights = p.smoothing == 0 ? 0.0 : all_weights(p);
  const auto loss = row_gradient(static_cast<A>(p.smoothing), p.cols, weights, own, up);
  const A zeta = A(2) * static_cast<A>(p.z_loss) * lse * up;
  return {base, share, loss.spread + zeta + dlse, loss.hit - dtarget, loss.smooth};
}

template <class T, class L> BARACUDA_D void linear_cross_entropy_rows(const LinearCrossEntropyParams& p) {
  using A = acc_t<L>;
  constexpr int G = long_group, K = 2, V = row_vec<L>;
  BARACUDA_DYNAMIC_SMEM(RowChunk<L>, held);
  const LogitRow<L, T> logits(p);
  const int lane = threadIdx.x, stage = p.stage;
  const i64 cols = p.cols, row = p.first + blockIdx.x;
  const int slabs = static_cast<int>(div_up<i64>(cols, G * V));
  const L* z = static_cast<const L*>(p.logits) + blockIdx.x * p.pitch;
  auto column = [&](int slab) { return (static_cast<i64>(slab) * G + lane) * V; };

  i64 target = read_target(p, row * p.targets_step);
  if (target != p.ignore) target -= p.class_start;
  else target = no_class;
  if (target < 0 || target >= cols) {
    if (p.status != nullptr && !p.part && read_target(p, row * p.targets_step) != p.ignore) atomicOr(p.status, 1u);
    target = no_class;
  }
  const bool counts = target != no_class;
  const A logit = counts ? logits.one(to_acc(z[target]) + logits.bias(target)) : A(0);
  const A own = counts ? class_weight<T>(p, target) : A(0), from = math::isfinite(logit) ? logit : A(0);
  A max = A(0), sum = A(1), spread = A(0);
  const bool wanted = counts || p.lse_out != nullptr || p.dlse != nullptr;
  const A saved = p.backward && wanted ? static_cast<const A*>(p.lse)[row * p.lse_step] : A(0);
  const bool summed = wanted && (!p.backward || math::abs(saved) >= full_lse<A>);
  if (summed) {
    MaxSum<A> state{-numeric<A>::infinity(), A(0)};
#pragma unroll 1
    for (int start = 0; start < slabs; start += K) {
      RowChunk<L> raw[K];
      Vec<A, V> v[K];
#pragma unroll
      for (int j = 0; j < K; ++j) raw[j] = read_logits(z, column(start + j), cols);
      A top = state.max;
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (!p.backward && start + j < stage) copy_chunk(held[(start + j) * G + lane], raw[j]);
        v[j] = logits.values(raw[j], column(start + j));
        top = math::maximum(top, tree_reduce<Max>(v[j]));
      }
      const A base = top == -numeric<A>::infinity() ? A(0) : top;
      A added = state.sum * row_exp<T>(static_cast<acc_t<T>>(state.max - base));
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (p.smoothing != 0) {
          Vec<A, V> w;
#pragma unroll
          for (int k = 0; k < V; ++k) {
            const i64 col = column(start + j) + k;
            w[k] = col < cols ? (v[j][k] - from) * class_weight<T>(p, col) : A(0);
          }
          spread += tree_reduce<Sum>(w);
        }
#pragma unroll
        for (int k = 0; k < V; ++k) v[j][k] = row_exp<T>(v[j][k] - base);
        added += tree_reduce<Sum>(v[j]);
      }
      state = {top, added};
    }
    const MaxSum<A> all = block_reduce<LogSumExp, G>(state);
    max = all.max, sum = all.max == -numeric<A>::infinity() ? numeric<A>::nan() : all.sum;
    if (p.smoothing != 0) spread = block_reduce<Sum, G>(spread);
  }
  const double log_sum = math::log(static_cast<double>(sum));
  const A lse = p.backward ? saved : static_cast<A>(static_cast<double>(max) + log_sum);
  if (lane == 0 && !p.backward) {
    LinearLoss out{0, 0};
    if (counts) {
      const double high = max;
      out = {(1 - p.smoothing) * own * (log_sum + (high - logit)), static_cast<double>(own)};
      if (p.smoothing != 0) {
        out.loss += p.smoothing / static_cast<double>(cols) * (all_weights(p) * (log_sum + (high - from)) - spread);
      }
      out.loss += p.z_loss * (high + log_sum) * (high + log_sum);
    }
    if (p.per_row) static_cast<A*>(p.loss)[row * p.loss_step] = static_cast<A>(out.loss);
    if (p.lse_out != nullptr) static_cast<A*>(p.lse_out)[row * p.lse_step] = lse;
    if (p.target_logit != nullptr) static_cast<A*>(p.target_logit)[row * p.target_step] = logit;
    if (p.keep_sums) static_cast<LinearLoss*>(p.sums)[row] = out;
  }
  if (p.grad == nullptr) return;

  __syncthreads();  // every thread has read the target's logit: the gradient may overwrite it
  T* const out = static_cast<T*>(p.grad) + blockIdx.x * p.grad_pitch;
  const auto made = p.backward && !summed ? logit_gradient<T>(p, row, target, own, lse, A(1), lse)
                                          : logit_gradient<T>(p, row, target, own, max, A(1) / sum, lse);
#pragma unroll 1
  for (int slab = slabs - 1; slab >= 0; --slab) {
    const i64 col = column(slab);
    if (col >= cols) continue;
    Vec<A, V> g;
    if (counts || p.dlse != nullptr) {  // else it is 0 whatever the logits: those of a left-out row may be NaN
      RowChunk<L> raw;
      if (!p.backward && slab < stage) copy_chunk(raw, held[slab * G + lane]);
      else raw = read_logits(z, col, cols);
      const auto l = logits.values(raw, col);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        g[k] = row_exp<T>(l[k] - made.base) * made.share * made.spread;
        if (col + k == target) g[k] -= made.hit;
        if (made.smooth != A(0) && col + k < cols) g[k] -= made.smooth * class_weight<T>(p, col + k);
        if (logits.cap > A(0)) g[k] *= A(1) - (l[k] / logits.cap) * (l[k] / logits.cap);
      }
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) g[k] = A(0);
    }
    const i64 left = cols - col;
    if (left >= V) store(out + col, from_acc<T>(g));
    else store_strided<T, V>(out + col, 1, from_acc<T>(g), left);
  }
}

}  // namespace baracuda
