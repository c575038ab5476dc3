// cross_entropy_terms  with z = softcap tanh(scale x / softcap), or scale x, p = softmax(z) and targets q:
//                      loss = sum_c w[c] q'[c] (lse - z[c]) + z_loss lse^2,   q' = (1 - eps) q + eps / C
//                      entropy = sum_c p[c] (lse - z[c]), argmax of z
// cross_entropy_terms_backward  dx[c] = z'(x) (g (W p[c] - w[c] q'[c] + 2 z_loss lse p[c])
//                                              - h p[c] (entropy - (lse - z[c]))),   W = sum_c w[c] q'[c]
//                               dq[c] = g (1 - eps) w[c] (lse - z[c])
//
// SOFT: q are probabilities; else a class has all. Rows are walked as loss/row_loss.cuh says, which fixes the order of
// their sums: maximum and sum of exponentials online, then what depends on them, from the cache.
#include "loss/row_loss.cuh"
#include "loss/row_sums.cuh"

namespace baracuda {

template <class A> struct TermsPeak {
  MaxSum<A> online;
  Indexed<A> best;
};
template <class A> struct TermsSums {
  A loss, entropy, weight;
};
struct MergeTerms {
  template <class A> static BARACUDA_D TermsPeak<A> merge(TermsPeak<A> a, TermsPeak<A> b) {
    return {LogSumExp::apply(a.online, b.online), ArgMax::apply(a.best, b.best)};
  }
  template <class A> static BARACUDA_D TermsSums<A> merge(TermsSums<A> a, TermsSums<A> b) {
    return {a.loss + b.loss, a.entropy + b.entropy, a.weight + b.weight};
  }
};

template <class T, bool SOFT, int G, class P> struct TermsRow {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>, operands = SOFT ? 2 : 1;
  const LossRow<T, P> row;
  i64 own;      // the row's class, -1 where it is ignored or there is none
  bool counts;  // whether the row has a loss
  A scale, cap, smoothing, each;
  A max, log_sum;  // of z, and of exp(z - max)
  i64 best;
  BARACUDA_D TermsRow(const LossRow<T, P>& r, bool exists)
      : row(r), own(-1), counts(true), scale(static_cast<A>(r.p.logit_scale)), cap(static_cast<A>(r.p.softcap)),
        smoothing(static_cast<A>(r.p.smoothing)), each(static_cast<A>(r.p.smoothing) / static_cast<A>(r.p.cols)) {
    if constexpr (!SOFT) own = row.named(), counts = own >= 0;
    find_peak(exists);
  }
  BARACUDA_D A score(A x) const { return cap > A(0) ? cap * math::tanh(scale * x / cap) : scale * x; }
  BARACUDA_D A slope(A x) const {
    if (!(cap > A(0))) return scale;
    const A t = math::tanh(scale * x / cap);
    return scale * (A(1) - t * t);
  }
  BARACUDA_D A share(i64 col, const A* x) const {  // q'
    A q = col == own ? A(1) : A(0);
    if constexpr (SOFT) q = x[1];
    return (A(1) - smoothing) * q + each;
  }
  BARACUDA_D A below(A x) const { return (max - score(x)) + log_sum; }  // lse - z
  BARACUDA_D void find_peak(bool exists) {
    const A none = -numeric<A>::infinity();
    TermsPeak<A> s{{none, A(0)}, {none, row.p.cols}};
    Vec<A, V> z;
    if (exists) {
      walk_row<G, 1>(
          row,
          [&](i64 col, const A* x, int k) {
            z[k] = score(x[0]);
            s.best = ArgMax::apply(s.best, Indexed<A>{z[k], col});
          },
          [&](i64, i64 left) {
            A top = s.online.max, sum = A(0);
#pragma unroll
            for (int k = 0; k < V; ++k) top = k < left ? math::maximum(top, z[k]) : top;
            const A zero = top == none ? A(0) : top;
#pragma unroll
            for (int k = 0; k < V; ++k) sum += k < left ? math::exp(z[k] - zero) : A(0);
            s.online = {top, s.online.sum * math::exp(s.online.max - zero) + sum};
          });
    }
    s = merged<G>(MergeTerms{}, s);
    max = s.online.max, log_sum = math::log(s.online.sum), best = s.best.index;
  }
  BARACUDA_D TermsSums<A> sums(bool exists) const {
    TermsSums<A> s{};
    if (exists) {
      walk_row<G, operands>(
          row,
          [&](i64 col, const A* x, int) {
            const A low = below(x[0]), part = row.class_weight(col) * share(col, x);
            if (counts) s.loss += losses::weighed(part, low), s.weight += part;
            s.entropy += losses::weighed(math::exp(-low), low);
          },
          [](i64, i64) {});
    }
    return merged<G>(MergeTerms{}, s);
  }
  BARACUDA_D A lse() const { return max + log_sum; }
};

template <bool SOFT, class T, int G, class P> BARACUDA_D void cross_entropy_terms(const P& p) {
  using A = acc_t<T>;
  const i64 index = static_cast<i64>(blockIdx.x) * (row_loss_threads / G) + threadIdx.x / G;
  const bool exists = index < p.rows;
  i64 at[row_operands + 5];
  row_offsets(p, exists ? index : 0, at);
  const TermsRow<T, SOFT, G, P> row(row_of<T>(p, at, at[row_operands + 1]), exists);
  if constexpr (G > warp_size) __syncthreads();  // the second merge is in the first's place
  const auto s = row.sums(exists);
  if (!exists || threadIdx.x % G != 0) return;
  A loss = s.loss;
  if (row.counts && p.z_loss != 0) loss += static_cast<A>(p.z_loss) * (row.lse() * row.lse());
  if (p.loss != nullptr) static_cast<A*>(p.loss)[at[row_operands + 2]] = loss;
  if (p.entropy != nullptr) static_cast<A*>(p.entropy)[at[row_operands + 3]] = s.entropy;
  if (p.argmax != nullptr) static_cast<i64*>(p.argmax)[at[row_operands + 4]] = row.best;
  if (p.keep) static_cast<A*>(p.losses)[index] = loss;
  if (p.keep_weights) static_cast<A*>(p.weights)[index] = row.counts ? row.row.class_weight(row.own) : A(0);
}

template <bool SOFT, class T, int G, class P> BARACUDA_D void cross_entropy_terms_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, outputs = row_operands + 1;
  const i64 index = static_cast<i64>(blockIdx.x) * (row_loss_threads / G) + threadIdx.x / G;
  const bool exists = index < p.rows;
  i64 at[2 * row_operands + 4];
  row_offsets(p, exists ? index : 0, at);
  const TermsRow<T, SOFT, G, P> row(row_of<T>(p, at, at[2 * row_operands + 1]), exists);
  if constexpr (G > warp_size) __syncthreads();
  const auto s = row.sums(exists);
  if (!exists) return;
  A g = static_cast<const A*>(p.dloss)[p.per_row ? at[2 * row_operands + 2] : 0];
  if (p.total != nullptr) g /= *static_cast<const A*>(p.total);
  else if (p.divided) g /= static_cast<A>(p.divisor);
  const A h = p.dentropy == nullptr ? A(0) : static_cast<const A*>(p.dentropy)[at[2 * row_operands + 3]];
  const A pull = s.weight + A(2) * static_cast<A>(p.z_loss) * row.lse();
  const bool counts = row.counts;
  Vec<T, V> dx, dq;
  T* const to[2] = {static_cast<T*>(p.dlogits), static_cast<T*>(p.dprobabilities)};
  walk_row<G, SOFT ? 2 : 1>(
      row.row,
      [&](i64 col, const A* x, int k) {
        const A low = row.below(x[0]), e = math::exp(-low), w = row.row.class_weight(col);
        A made = counts ? g * (pull * e - w * row.share(col, x)) : A(0);
        if (p.dentropy != nullptr) made -= h * losses::weighed(e, s.entropy - low);
        dx[k] = cast<T>(made * row.slope(x[0]));
        dq[k] = cast<T>(g * (A(1) - row.smoothing) * w * low);
      },
      [&](i64 col, i64 left) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          if (to[n] == nullptr) continue;
          const i64 step = p.step[outputs + n];
          T* const out = to[n] + at[outputs + n] + col * step;
          if (p.wide && left >= V) store(out, n == 0 ? dx : dq);
          else store_strided(out, step, n == 0 ? dx : dq, left);
        }
      });
}

}  // namespace baracuda
