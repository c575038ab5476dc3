// linear_kl    divergences of p = softmax(s / T) from q = softmax(t / T), of a student's and a teacher's logits that lie in
//              the workspace, a chunk of rows at a time; times T^2:
//   forward  sum q log(q / p)      ds = T (p - q)
//   reverse  sum p log(p / q)      ds = T p (log(p / q) - sum p log(p / q))
//   jsd      b sum q log(q / m) + (1 - b) sum p log(p / m), m = b q + (1 - b) p
//                                  ds = T (1 - b) p (log(p / m) - sum p log(p / m))
//
// A block for each row, which it reads three times: the sums of both softmaxes online, the divergence, the gradient. A
// chunk's elements are added as a tree, a thread's chunks in order, threads as a tree; losses are added in double.
#include "loss/cross_entropy_common.cuh"

namespace baracuda {

struct DivergencePair {
  double loss, weight;
};

// log p and log q of a row's columns.
template <class T> struct DivergenceRow {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const LinearKlParams& p;
  const T *student, *teacher;
  A rate;
  DivergenceRule rule;
  A lows[2];  // log sum exp of either

  BARACUDA_D explicit DivergenceRow(const LinearKlParams& p)
      : p(p), student(static_cast<const T*>(p.logits) + blockIdx.x * p.pitch),
        teacher(static_cast<const T*>(p.teacher) + blockIdx.x * p.teacher_pitch), rate(static_cast<A>(p.rate)),
        rule(static_cast<DivergenceRule>(p.rule)), lows{A(0), A(0)} {}

  // Columns col … of one of the two, divided by T; -inf beyond the row's end.
  BARACUDA_D Vec<A, V> scaled(const T* row, const void* bias, i64 step, i64 col) const {
    RowChunk<T> raw;
    read_chunk<group_wide>(raw, row, 1, col, p.cols, cast<T>(0.0f));
    auto z = unpack_chunk(raw);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const bool in = col + k < p.cols;
      if (in && bias != nullptr) z[k] += to_acc(static_cast<const T*>(bias)[(col + k) * step]);
      z[k] = in ? z[k] * rate : -numeric<A>::infinity();
    }
    return z;
  }
  BARACUDA_D void logs(i64 col, Vec<A, V>& lp, Vec<A, V>& lq) const {
    lp = scaled(student, p.bias, p.bias_step, col);
    lq = scaled(teacher, p.teacher_bias, p.teacher_bias_step, col);
#pragma unroll
    for (int k = 0; k < V; ++k) lp[k] -= lows[0], lq[k] -= lows[1];
  }

  // What a column adds to the divergence, and to the sum that its gradient needs.
  BARACUDA_D void terms(A lp, A lq, A& value, A& mean) const {
    const A mine = math::exp(lp), theirs = math::exp(lq), d = lq - lp;
    if (rule == DivergenceRule::forward) {
      value = theirs > A(0) ? theirs * d : theirs;
      mean = A(0);
    } else if (rule == DivergenceRule::reverse) {
      value = mean = mine > A(0) ? -mine * d : mine;
    } else {
      const A b = static_cast<A>(p.beta);
      mean = mine > A(0) ? -mine * log_blend(d) : mine;
      value = (A(1) - b) * mean + (theirs > A(0) ? b * theirs * log_part(d) : theirs);
    }
  }
  // The gradient of s / T, given the row's sum.
  BARACUDA_D A slope(A lp, A lq, A mean) const {
    const A mine = math::exp(lp), d = lq - lp;
    if (rule == DivergenceRule::forward) return mine - math::exp(lq);
    if (!(mine > A(0))) return mine;
    if (rule == DivergenceRule::reverse) return mine * (-d - mean);
    return (A(1) - static_cast<A>(p.beta)) * mine * (-log_blend(d) - mean);
  }
  // log(m / p) = log(b exp(d) + 1 - b).
  BARACUDA_D A log_blend(A d) const {
    const A b = static_cast<A>(p.beta);
    if (d > A(0)) return d + math::log(b + (A(1) - b) * math::exp(-d));
    return math::log1p(b * math::expm1(d));
  }
  // log(q / m) = d - log_blend(d), where p may be 0 and d infinite.
  BARACUDA_D A log_part(A d) const {
    const A b = static_cast<A>(p.beta);
    if (d > A(0)) return -math::log(b + (A(1) - b) * math::exp(-d));
    return d - math::log1p(b * math::expm1(d));
  }
};

struct AddPair {
  static constexpr bool symmetric = true;
  template <class P> static BARACUDA_D P apply(P a, P b) { return {a.max + b.max, a.sum + b.sum}; }
};

template <class T> BARACUDA_D void linear_kl_rows(const LinearKlParams& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, V = row_vec<T>;
  DivergenceRow<T> row(p);
  const i64 cols = p.cols, number = p.first + blockIdx.x, start = static_cast<i64>(threadIdx.x) * V;
  const bool counts =
      p.targets == nullptr || class_of(p, read_target(p, number * p.targets_step), p.status) != no_class;
  A value = A(0), mean = A(0);
  if (counts) {
    MaxSum<A> states[2] = {{-numeric<A>::infinity(), A(0)}, {-numeric<A>::infinity(), A(0)}};
#pragma unroll 1
    for (i64 col = start; col < cols; col += G * V) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        auto z = n == 0 ? row.scaled(row.student, p.bias, p.bias_step, col)
                        : row.scaled(row.teacher, p.teacher_bias, p.teacher_bias_step, col);
        const A top = math::maximum(states[n].max, tree_reduce<Max>(z));
        const A base = top == -numeric<A>::infinity() ? A(0) : top;
#pragma unroll
        for (int k = 0; k < V; ++k) z[k] = math::exp(z[k] - base);
        states[n] = {top, states[n].sum * math::exp(states[n].max - base) + tree_reduce<Sum>(z)};
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const MaxSum<A> all = block_reduce<LogSumExp, G>(states[n]);
      row.lows[n] = all.max + math::log(all.sum);
    }
    MaxSum<A> sums{A(0), A(0)};
#pragma unroll 1
    for (i64 col = start; col < cols; col += G * V) {
      Vec<A, V> lp, lq, values, means;
      row.logs(col, lp, lq);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        values[k] = means[k] = A(0);
        if (col + k < cols) row.terms(lp[k], lq[k], values[k], means[k]);
      }
      sums.max += tree_reduce<Sum>(values);
      sums.sum += tree_reduce<Sum>(means);
    }
    sums = block_reduce<AddPair, G>(sums);
    value = sums.max / (row.rate * row.rate), mean = sums.sum;
  }
  if (threadIdx.x == 0 && !p.backward) {
    if (p.per_row) static_cast<A*>(p.loss)[number * p.loss_step] = value;
    else static_cast<DivergencePair*>(p.sums)[number] = {static_cast<double>(value), counts ? 1.0 : 0.0};
  }
  if (p.grad == nullptr) return;

  A up = A(1);
  if (p.backward) up = static_cast<const A*>(p.dloss)[p.per_row ? number * p.dloss_step : 0];
  if (p.mean) up /= p.targets == nullptr ? static_cast<A>(p.count) : static_cast<A>(target_weight(p));
  up = counts ? up / row.rate : A(0);
  T* const out = static_cast<T*>(p.grad) + blockIdx.x * p.grad_pitch;
#pragma unroll 1
  for (i64 col = start; col < cols; col += G * V) {
    Vec<A, V> g{};
    if (counts) {
      Vec<A, V> lp, lq;
      row.logs(col, lp, lq);
#pragma unroll
      for (int k = 0; k < V; ++k) g[k] = up * row.slope(lp[k], lq[k], mean);
    }
    if (cols - col >= V) store(out + col, from_acc<T>(g));
    else store_strided<T, V>(out + col, 1, from_acc<T>(g), cols - col);
  }
}

}  // namespace baracuda
