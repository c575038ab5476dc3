// cross_entropy_terms  with z = softcap tanh(scale x / softcap), or scale x, p = softmax(z) and targets q:
//                      loss = sum_c w[c] q'[c] (lse - z[c]) + z_loss lse^2,   q' = (1 - eps) q + eps / C
//                      entropy = sum_c p[c] (lse - z[c]), argmax of z
// cross_entropy_terms_backward  dx[c] = z'(x) (g (W p[c] - w[c] q'[c] + 2 z_loss lse p[c])
//                                              - h p[c] (entropy - (lse - z[c]))),   W = sum_c w[c] q'[c]
//                               dq[c] = g (1 - eps) w[c] (lse - z[c])
//
// SOFT: q are probabilities; else a class has all. Rows are walked as loss/row_loss.cuh says. All of a row's sums are made
// online, below the largest z so far, by one reading: a thread adds its elements in order, and the threads are added as a
// tree, neighbours first, once each is below the row's maximum. dx is made by a second reading.
//
// Of 16-bit logits exponentials are those of softmax/row_groups.cuh, and z is within 2 ulp: what their rounding leaves.
#include <baracuda/chunks.cuh>
#include "loss/row_loss.cuh"
#include "loss/row_sums.cuh"

namespace baracuda {

// z, and its derivative where a vector for it is given.
template <class T> struct CappedScores {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  A scale, cap, inner;
  template <class P>
  BARACUDA_D explicit CappedScores(const P& p)
      : scale(static_cast<A>(p.logit_scale)), cap(static_cast<A>(p.softcap)), inner(scale / cap) {}

  BARACUDA_D A part(A x) const {
    if constexpr (is_half<T>) return math::tanh(x * inner);
    else return math::tanh(scale * x / cap);
  }
  BARACUDA_D A operator()(A x) const { return cap > A(0) ? cap * part(x) : scale * x; }

  // tanh(u) = u + u s (c0 + c1 s + c2 s^2 + c3 s^3), s = u^2, of |u| <= 0.55 to 2 ulp (minimax).
  static BARACUDA_D A small_tanh(A u) {
    const A s = u * u;
    const A c = math::fma(math::fma(math::fma(A(0x1.1b5fa4p-6), s, A(-0x1.b360cep-5)), s, A(0x1.10f78ap-3)), s,
                          A(-0x1.555536p-2));
    return math::fma(c * s, u, u);
  }
  // Of a chunk, in place. Scores are mostly far below the cap, where a short polynomial is tanh.
  BARACUDA_D void all(Vec<A, V>& x, Vec<A, V>* slopes = nullptr) const {
    if (!(cap > A(0))) {
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] *= scale;
      if (slopes != nullptr) *slopes = baracuda::spread<A, V>(scale);
      return;
    }
    bool done = false;
    if constexpr (is_half<T>) {
      A most = 0;
#pragma unroll
      for (int k = 0; k < V; ++k) most = math::maximum(most, math::abs(x[k] * inner));
      if (most <= A(0.55)) {
#pragma unroll
        for (int k = 0; k < V; ++k) x[k] = small_tanh(x[k] * inner);
        done = true;
      }
    }
    if (!done) {
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = part(x[k]);
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (slopes != nullptr) (*slopes)[k] = scale * (A(1) - x[k] * x[k]);
      x[k] *= cap;
    }
  }
};

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
struct MergeBest {
  template <class A> static BARACUDA_D Indexed<A> merge(Indexed<A> a, Indexed<A> b) { return ArgMax::apply(a, b); }
};

template <class T, bool SOFT, int G, class P> struct TermsRow {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>, operands = SOFT ? 2 : 1;
  const LossRow<T, P> row;
  const CappedScores<T> scores;
  i64 own;              // the row's class, -1 where it is ignored or there is none
  bool counts, spread;  // whether the row has a loss, and whether it has parts of all classes
  A smoothing, each;
  A max, log_sum;  // of z, and of exp(z - max)
  A loss, weight, entropy;
  i64 best;

  BARACUDA_D TermsRow(const LossRow<T, P>& r, bool exists, bool entropies, bool largest)
      : row(r), scores(r.p), own(-1), counts(true), spread(SOFT || r.p.smoothing != 0),
        smoothing(static_cast<A>(r.p.smoothing)), each(static_cast<A>(r.p.smoothing) / static_cast<A>(r.p.cols)) {
    const A none = -numeric<A>::infinity();
    if constexpr (!SOFT) own = row.named(), counts = own >= 0;
    TermsSums<A> s{none, A(0), A(0), A(0), A(0), {none, row.p.cols}};
    if (exists) {
      chunks([&](const Vec<A, V>& z, const Vec<A, V>& q, i64 col, i64 left) {
        add(s, z, q, col, left, entropies, largest);
      });
    }
    s.lift(row_reduce<Max, G>(s.max));
    const A sum = row_reduce<Sum, G>(s.sum);
    max = s.max, log_sum = math::log(sum);
    best = largest ? merged<G>(MergeBest{}, s.best).index : 0;
    entropy = entropies ? row_reduce<Sum, G>(s.entropy) / sum + log_sum : A(0);
    weight = 0, loss = 0;
    if (spread) {
      weight = row_reduce<Sum, G>(s.weight), loss = row_reduce<Sum, G>(s.loss) + losses::weighed(weight, log_sum);
    } else if (counts && exists) {
      weight = row.class_weight(own);
      loss = losses::weighed(weight, below(scores(row.at(0, own))));
    }
  }
  BARACUDA_D A below(A z) const { return (max - z) + log_sum; }  // lse - z
  BARACUDA_D A lse() const { return max + log_sum; }

  // w q' of a chunk; what is beyond the row is not read.
  BARACUDA_D Vec<A, V> shares(Vec<A, V> q, const Vec<A, V>& w, i64 col) const {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if constexpr (!SOFT) q[k] = col + k == own ? A(1) : A(0);
      q[k] = w[k] * ((A(1) - smoothing) * q[k] + each);
    }
    return q;
  }
  BARACUDA_D Vec<A, V> weights(i64 col, i64 left) const {
    if (row.p.weight == nullptr) return baracuda::spread<A, V>(A(1));
    const i64 step = row.p.weight_step;
    return to_acc(load_strided<T, V>(static_cast<const T*>(row.p.weight) + col * step, step, left));
  }

  // f(x, q, col, left) for the thread's chunks in order; of dense rows four loads are on their way at once.
  template <class F> BARACUDA_D void chunks(const F& f) const {
    constexpr int depth = 4 / operands;
    constexpr i64 step = G * V;
    const i64 cols = row.p.cols;
    i64 col = threadIdx.x % G * V;
    if (row.p.wide) {
#pragma unroll 1
      for (; col + (depth - 1) * step + V <= cols; col += depth * step) {
        RowChunk<T> x[depth][operands];
#pragma unroll
        for (int d = 0; d < depth; ++d) {
#pragma unroll
          for (int n = 0; n < operands; ++n) x[d][n] = load<V>(row.x[n] + col + d * step);
        }
#pragma unroll
        for (int d = 0; d < depth; ++d) f(to_acc(x[d][0]), to_acc(x[d][operands - 1]), col + d * step, V);
      }
    }
#pragma unroll 1
    for (; col < cols; col += step) {
      const i64 left = cols - col;
      f(row_columns(row, 0, col, left), row_columns(row, operands - 1, col, left), col, left);
    }
  }
  BARACUDA_D void add(TermsSums<A>& s, Vec<A, V> z, const Vec<A, V>& q, i64 col, i64 left, bool entropies,
                      bool largest) const {
    const A none = -numeric<A>::infinity();
    scores.all(z);
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = k < left ? z[k] : none;
    const A top = math::maximum(s.max, tree_reduce<Max>(z));
    if (largest) {
#pragma unroll
      for (int k = 0; k < V; ++k) s.best = k < left ? ArgMax::apply(s.best, Indexed<A>{z[k], col + k}) : s.best;
    }
    s.lift(top);
    const A base = top == none ? A(0) : top;
    Vec<A, V> e;
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = base - z[k], e[k] = row_exp<T>(-z[k]), s.sum += e[k];
    if (entropies) {
#pragma unroll
      for (int k = 0; k < V; ++k) s.entropy += losses::weighed(e[k], z[k]);
    }
    if (!spread || !counts) return;
    const Vec<A, V> part = shares(q, weights(col, left), col);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (k < left) s.weight += part[k], s.loss += losses::weighed(part[k], z[k]);
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

// Columns col … of a row of operand n, of which `left` exist.
template <class T, class P> BARACUDA_D void put(const P& p, int n, T* row, i64 col, i64 left, const RowChunk<T>& x) {
  T* const to = row + col * p.step[n];
  if (p.wide && left >= row_vec<T>) store(to, x);
  else store_strided(to, p.step[n], x, left);
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
  T* const dx = static_cast<T*>(p.dlogits);
  T* const dq = static_cast<T*>(p.dprobabilities);
  row.chunks([&](Vec<A, V> z, const Vec<A, V>& q, i64 col, i64 left) {
    const Vec<A, V> w = row.weights(col, left), part = row.shares(q, w, col);
    Vec<A, V> slopes, hard;
    row.scores.all(z, &slopes);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A low = row.below(z[k]), e = row_exp<T>(-low);
      A made = counts ? g * (pull * e - part[k]) : A(0);
      if (p.dentropy != nullptr) made -= h * losses::weighed(e, row.entropy - low);
      slopes[k] *= made, hard[k] = g * (A(1) - row.smoothing) * w[k] * low;
    }
    if (dx != nullptr) put(p, outputs, dx + at[outputs], col, left, from_acc<T>(slopes));
    if (dq != nullptr) put(p, outputs + 1, dq + at[outputs + 1], col, left, from_acc<T>(hard));
  });
}

}  // namespace baracuda
