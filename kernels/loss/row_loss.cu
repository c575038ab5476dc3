// row_loss         a loss of every row by the functor of a kind (loss/rows), and the sum of the losses of all rows.
// row_loss_backward  the gradients of its operands: the row's sums once more, then the slopes column by column.
//
// What fixes the order of a row's sums stands in loss/row_loss.cuh: its length and element. Losses of rows are added by
// the schedule reduce (baracuda/reduce_axes.cuh): the number of rows fixes their order.
#include "loss/row_loss.cuh"
#include "loss/row_sums.cuh"

namespace baracuda {

// Row r of a block's groups: its loss goes to p.loss in T, or to p.losses for a sum; its weight to p.weights.
template <template <class, class> class KIND, class T, int G, class P> BARACUDA_D void row_loss(const P& p) {
  using A = acc_t<T>;
  using K = KIND<T, P>;
  const i64 index = static_cast<i64>(blockIdx.x) * (row_loss_threads / G) + threadIdx.x / G;
  const bool exists = index < p.rows;
  i64 at[row_operands + 3];
  row_offsets(p, exists ? index : 0, at);
  const LossRow<T, P> row = row_of<T>(p, at, at[row_operands + 1]);
  const K kind(row);
  const auto s = row_state<G>(kind, row, exists);
  if (!exists || threadIdx.x % G != 0) return;
  const A loss = kind.loss(s);
  if (p.loss != nullptr) static_cast<T*>(p.loss)[at[row_operands + 2]] = cast<T>(loss);
  if (p.keep) static_cast<A*>(p.losses)[index] = loss;
  if (p.keep_weights) static_cast<A*>(p.weights)[index] = kind.weight();
}

template <template <class, class> class KIND, class T, int G, class P> BARACUDA_D void row_loss_backward(const P& p) {
  using A = acc_t<T>;
  using K = KIND<T, P>;
  constexpr int V = row_vec<T>;
  const i64 index = static_cast<i64>(blockIdx.x) * (row_loss_threads / G) + threadIdx.x / G;
  const bool exists = index < p.rows;
  i64 at[2 * row_operands + 3];
  row_offsets(p, exists ? index : 0, at);
  const LossRow<T, P> row = row_of<T>(p, at, at[2 * row_operands + 1]);
  K kind(row);
  kind.settle(row_state<G>(kind, row, exists));
  if (!exists) return;
  A g;
  if (p.per_row) g = to_acc(static_cast<const T*>(p.dloss)[at[2 * row_operands + 2]]);
  else g = *static_cast<const A*>(p.dloss);
  if (p.total != nullptr) g /= *static_cast<const A*>(p.total);
  else if (p.divided) g /= static_cast<A>(p.divisor);
  if (kind.weight() == A(0)) g = A(0);  // where no row counts the mean divides by 0, and 0 times that would be NaN
  void* const to[row_operands] = {p.dx, p.dother, p.dnegative};
#pragma unroll
  for (int n = 0; n < row_operands; ++n) {
    if (to[n] == nullptr) continue;
    T* const out = static_cast<T*>(to[n]) + at[row_operands + 1 + n];
    const i64 step = p.step[row_operands + 1 + n];
    Vec<T, V> made;
    walk_row<G, K::operands>(
        row, [&](i64 col, const A* x, int k) { made[k] = cast<T>(g * kind.slope(n, col, x)); },
        [&](i64 col, i64 left) {
          if (p.wide && left >= V) store(out + col, made);
          else store_strided(out + col * step, step, made, left);
        });
  }
}

}  // namespace baracuda
