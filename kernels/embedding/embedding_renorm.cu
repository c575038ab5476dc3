// embedding_renorm   weight[v, :] *= max_norm / (|weight[v, :]| + 1e-7) of the rows that an index names and whose norm is
//                    above max_norm
//
// clear, mark   a byte a row: whether an index names it. Several write the same.
// scale         a warp a row: its norm, in a tree that the number of columns fixes, and the row anew where it is too long.
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

BARACUDA_D void renorm_clear(const EmbeddingRenormParams& p) {
  const i64 row = thread_index();
  if (row < p.rows) static_cast<u8*>(p.marks)[row] = 0;
}

BARACUDA_D void renorm_mark(const EmbeddingRenormParams& p) {
  const i64 token = thread_index();
  if (token >= p.tokens) return;
  const i64 at = offset<i64>(token, p.token_rank, p.token_shape, p.token_strides);
  const i64 row = p.indices_wide ? static_cast<const i64*>(p.indices)[at] : static_cast<const i32*>(p.indices)[at];
  if (row >= 0 && row < p.rows) static_cast<u8*>(p.marks)[row] = 1;
  else if (p.status != nullptr) atomicOr(p.status, 1u);
}

// What a column adds to the norm of order p, and what their sum, or largest, comes to.
template <class A> BARACUDA_D A renorm_term(A x, double order) {
  const A size = math::abs(x);
  if (order == 0.0) return A(size != A(0));
  if (order == 1.0 || isinf(order)) return size;
  return order == 2.0 ? size * size : math::pow(size, static_cast<A>(order));
}
template <class A> BARACUDA_D A renorm_root(A sum, double order) {
  if (order == 0.0 || order == 1.0 || isinf(order)) return sum;
  return order == 2.0 ? math::sqrt(sum) : math::pow(sum, static_cast<A>(1.0 / order));
}

template <class T> BARACUDA_D void renorm_scale(const EmbeddingRenormParams& p) {
  using A = acc_t<T>;
  const i64 row = thread_index() / warp_size;
  if (row >= p.rows || !static_cast<const u8*>(p.marks)[row]) return;
  const double order = p.norm_type();
  const bool largest = isinf(order);
  T* weight = static_cast<T*>(p.weight) + row * p.weight_row;
  A sum = A(0);
  for (i64 column = lane_id(); column < p.dim; column += warp_size) {
    const A term = renorm_term(to_acc(weight[column * p.weight_column]), order);
    sum = largest ? math::maximum(sum, term) : sum + term;
  }
  sum = largest ? warp_reduce<Max>(sum) : warp_reduce<Sum>(sum);
  const A norm = renorm_root(sum, order), limit = static_cast<A>(p.max_norm());
  if (!(norm > limit)) return;
  const A factor = limit / (norm + A(1e-7));
  for (i64 column = lane_id(); column < p.dim; column += warp_size) {
    T& x = weight[column * p.weight_column];
    x = from_acc<T>(to_acc(x) * factor);
  }
}

}  // namespace baracuda
