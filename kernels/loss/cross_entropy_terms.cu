// cross_entropy_terms  with z = softcap tanh(scale x / softcap), or scale x, p = softmax(z) and targets q:
//                      loss = sum_c w[c] q'[c] (lse - z[c]) + z_loss lse^2,   q' = (1 - eps) q + eps / C
//                      entropy = sum_c p[c] (lse - z[c]), argmax of z
// cross_entropy_terms_backward  dx[c] = z'(x) (g (W p[c] - w[c] q'[c] + 2 z_loss lse p[c])
//                                              - h p[c] (entropy - (lse - z[c]))),   W = sum_c w[c] q'[c]
//                               dq[c] = g (1 - eps) w[c] (lse - z[c])
//
// SOFT: q are probabilities; else a class has all. Rows are walked as loss/row_loss.cuh says, which fixes the order of
// their sums. All of a row's sums are made online, below the largest z so far, by one reading; dx by a second one.
#include "loss/row_loss.cuh"
#include "loss/row_sums.cuh"

namespace baracuda {

// With e[c] = exp(z[c] - max): sum of e, of e (max - z), of w q' and of w q' (max - z).
template <class A> struct TermsSums {
  A max, sum, entropy, weight, loss;
  Indexed<A> best;

  // The same below a larger maximum. Below -inf nothing was added but what is infinite already, or has no weight.
  BARACUDA_D void lift(A top) {
    if (top == max) return;
    const A by = top - max;
    const bool first = max == -numeric<A>::infinity();
    max = top;
    if (first && by == by) return;
    const A factor = math::exp(-by);
    entropy = factor * (entropy + sum * by), sum *= factor;
    loss += losses::weighed(weight, by);
  }
};
struct MergeTerms {
  template <class A> static BARACUDA_D TermsSums<A> merge(TermsSums<A> a, TermsSums<A> b) {
    const A top = math::maximum(a.max, b.max);
    a.lift(top), b.lift(top);
    return {
        top, a.sum + b.sum, a.entropy + b.entropy, a.weight + b.weight, a.loss + b.loss, ArgMax::apply(a.best, b.best)};
  }
};

template <class T, bool SOFT, int G, class P> struct TermsRow {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>, operands = SOFT ? 2 : 1;
  const LossRow<T, P> row;
  i64 own;              // the row's class, -1 where it is ignored or there is none
  bool counts, spread;  // whether the row has a loss, and whether it has parts of all classes
  A scale, cap, smoothing, each;
  A max, log_sum;  // of z, and of exp(z - max)
  A loss, weight, entropy;
  i64 best;

  BARACUDA_D TermsRow(const LossRow<T, P>& r, bool exists, bool entropies, bool largest)
      : row(r), own(-1), counts(true), spread(SOFT || r.p.smoothing != 0), scale(static_cast<A>(r.p.logit_scale)),
        cap(static_cast<A>(r.p.softcap)), smoothing(static_cast<A>(r.p.smoothing)),
        each(static_cast<A>(r.p.smoothing) / static_cast<A>(r.p.cols)) {
    if constexpr (!SOFT) own = row.named(), counts = own >= 0;
    TermsSums<A> s{-numeric<A>::infinity(), A(0), A(0), A(0), A(0), {-numeric<A>::infinity(), row.p.cols}};
    if (exists) add_all(s, entropies, largest);
    s = merged<G>(MergeTerms{}, s);
    max = s.max, log_sum = math::log(s.sum), best = s.best.index;
    entropy = s.entropy / s.sum + log_sum;
    weight = s.weight, loss = s.loss + losses::weighed(weight, log_sum);
    if (!spread && counts && exists) {
      weight = row.class_weight(own);
      loss = losses::weighed(weight, below(row.at(0, own)));
    }
  }
  BARACUDA_D A score(A x) const { return cap > A(0) ? cap * math::tanh(scale * x / cap) : scale * x; }
  BARACUDA_D A slope(A x) const {
    if (!(cap > A(0))) return scale;
    const A t = math::tanh(scale * x / cap);
    return scale * (A(1) - t * t);
  }
  BARACUDA_D A share(i64 col, A q) const {  // q'
    if constexpr (!SOFT) q = col == own ? A(1) : A(0);
    return (A(1) - smoothing) * q + each;
  }
  BARACUDA_D A below(A x) const { return (max - score(x)) + log_sum; }  // lse - z
  BARACUDA_D A lse() const { return max + log_sum; }

  // The thread's chunks in order; of dense rows two are on their way at once.
  BARACUDA_D void add_all(TermsSums<A>& s, bool entropies, bool largest) const {
    constexpr i64 step = G * V;
    const i64 cols = row.p.cols;
    i64 col = threadIdx.x % G * V;
    if (row.p.wide) {
#pragma unroll 1
      for (; col + step + V <= cols; col += 2 * step) {
        RowChunk<T> x[2][operands];
#pragma unroll
        for (int d = 0; d < 2; ++d) {
#pragma unroll
          for (int n = 0; n < operands; ++n) x[d][n] = load<V>(row.x[n] + col + d * step);
        }
        add(s, to_acc(x[0][0]), to_acc(x[0][operands - 1]), col, V, entropies, largest);
        add(s, to_acc(x[1][0]), to_acc(x[1][operands - 1]), col + step, V, entropies, largest);
      }
    }
#pragma unroll 1
    for (; col < cols; col += step) {
      const i64 left = cols - col;
      add(s, row_columns(row, 0, col, left), row_columns(row, operands - 1, col, left), col, left, entropies, largest);
    }
  }
  BARACUDA_D void add(TermsSums<A>& s, Vec<A, V> z, const Vec<A, V>& q, i64 col, i64 left, bool entropies,
                      bool largest) const {
    const A none = -numeric<A>::infinity();
    A top = s.max;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      z[k] = k < left ? score(z[k]) : none;
      top = math::maximum(top, z[k]);
    }
    if (largest) {
#pragma unroll
      for (int k = 0; k < V; ++k) s.best = k < left ? ArgMax::apply(s.best, Indexed<A>{z[k], col + k}) : s.best;
    }
    s.lift(top);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A low = z[k] == none ? numeric<A>::infinity() : top - z[k], e = math::exp(-low);
      s.sum += e;
      if (entropies) s.entropy += losses::weighed(e, low);
      if (spread && counts && k < left) {
        const A part = row.class_weight(col + k) * share(col + k, q[k]);
        s.weight += part, s.loss += losses::weighed(part, low);
      }
    }
  }
};

template <bool SOFT, class T, int G, class P> BARACUDA_D void cross_entropy_terms(const P& p) {
  using A = acc_t<T>;
  const i64 index = static_cast<i64>(blockIdx.x) * (row_loss_threads / G) + threadIdx.x / G;
  const bool exists = index < p.rows;
  i64 at[row_operands + 5];
  row_offsets(p, exists ? index : 0, at);
  // For weights alone no row is read.
  const bool reads = p.loss != nullptr || p.entropy != nullptr || p.argmax != nullptr || p.keep;
  const TermsRow<T, SOFT, G, P> row(row_of<T>(p, at, at[row_operands + 1]), exists && reads, p.entropy != nullptr,
                                    p.argmax != nullptr);
  if (!exists || threadIdx.x % G != 0) return;
  A loss = row.counts ? row.loss : A(0);
  if (row.counts && p.z_loss != 0) loss += static_cast<A>(p.z_loss) * (row.lse() * row.lse());
  if (p.loss != nullptr) static_cast<A*>(p.loss)[at[row_operands + 2]] = loss;
  if (p.entropy != nullptr) static_cast<A*>(p.entropy)[at[row_operands + 3]] = row.entropy;
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
  const TermsRow<T, SOFT, G, P> row(row_of<T>(p, at, at[2 * row_operands + 1]), exists, p.dentropy != nullptr, false);
  if (!exists) return;
  A g = static_cast<const A*>(p.dloss)[p.per_row ? at[2 * row_operands + 2] : 0];
  if (p.total != nullptr) g /= *static_cast<const A*>(p.total);
  else if (p.divided) g /= static_cast<A>(p.divisor);
  const A h = p.dentropy == nullptr ? A(0) : static_cast<const A*>(p.dentropy)[at[2 * row_operands + 3]];
  const A pull = row.weight + A(2) * static_cast<A>(p.z_loss) * row.lse();
  const bool counts = row.counts;
  Vec<T, V> dx, dq;
  T* const to[2] = {static_cast<T*>(p.dlogits), static_cast<T*>(p.dprobabilities)};
  walk_row<G, SOFT ? 2 : 1>(
      row.row,
      [&](i64 col, const A* x, int k) {
        const A low = row.below(x[0]), e = math::exp(-low), w = row.row.class_weight(col);
        A made = counts ? g * (pull * e - w * row.share(col, x[SOFT ? 1 : 0])) : A(0);
        if (p.dentropy != nullptr) made -= h * losses::weighed(e, row.entropy - low);
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
