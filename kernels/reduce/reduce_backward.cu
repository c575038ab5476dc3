// reduce_backward   dx = what dy, and where there is one dz, says of every element of x; G is a Gradient<K>.
//
// A map over x: what belongs to a row (dy, y, statistics) broadcasts over the reduced axes by strides of 0. Statistics
// of a row come from launches of the schedule reduce before it, whose order of sums reduce_axes.cuh fixes; so no bit of
// dx depends on layout or alignment. Schedule map, strided, with VEC elements of x and dx in one access; where VEC
// neighbours belong to as many rows, a thread goes down these and keeps what it knows of them.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "reduce/gradients.cuh"

namespace baracuda {

// The operands, in the order of p.strides. `place` is no memory: its offsets are the places of elements in their row.
enum GradientOperand { at_dx, at_x, at_dy, at_y, at_dz, at_index, at_statistic, at_place, gradient_operands };

// Element `k` of a chunk along the last axis, where the operand may stay.
template <class P> BARACUDA_D i64 beside(const P& p, const i64 (&at)[gradient_operands], int operand, int k) {
  return at[operand] + (p.splat >> operand & 1 ? 0 : k);
}

template <class G, class T> using RowOf = GradientRow<acc_t<typename given_of<G, T>::type>, typename G::Statistic>;

template <class G, class T, class P>
BARACUDA_D RowOf<G, T> gradient_row(const P& p, const i64 (&at)[gradient_operands], int k) {
  using Given = typename given_of<G, T>::type;
  using Statistic = typename G::Statistic::Result;
  RowOf<G, T> row;
  row.dy = to_acc(static_cast<const Given*>(p.dy)[beside(p, at, at_dy, k)]);
  if constexpr (G::reads & reads_y) row.y = to_acc(static_cast<const Given*>(p.y)[beside(p, at, at_y, k)]);
  if constexpr (G::reads & reads_dz) row.dz = to_acc(static_cast<const Given*>(p.dz)[beside(p, at, at_dz, k)]);
  if constexpr (G::reads & reads_index) row.index = static_cast<const i64*>(p.index)[beside(p, at, at_index, k)];
  if constexpr (G::reads & reads_statistic) {
    row.statistic = static_cast<const Statistic*>(p.statistics)[beside(p, at, at_statistic, k)];
  }
  return row;
}

template <class G, class T, class L, class P> BARACUDA_D void reduce_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = L::vec, U = L::unroll;
  constexpr u32 of_row = 1u << at_dy | (G::reads & reads_y ? 1u << at_y : 0) | (G::reads & reads_dz ? 1u << at_dz : 0) |
                         (G::reads & reads_index ? 1u << at_index : 0) |
                         (G::reads & reads_statistic ? 1u << at_statistic : 0);
  const GradientFacts facts{p.reduced, p.option};
  const bool one_row = V == 1 || (p.splat & of_row) == of_row;  // a chunk belongs to one row
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * U) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 c[U], at[U][gradient_operands];
#pragma unroll
  for (int u = 0; u < U; ++u) c[u] = min<i64>(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
  Vec<T, V> x[U];
  if constexpr (G::reads & reads_x) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const T* const from = static_cast<const T*>(p.x) + at[u][at_x];
      if (V > 1 && (p.splat >> at_x & 1)) {
        const T one = *from;
#pragma unroll
        for (int k = 0; k < V; ++k) x[u][k] = one;
      } else {
        x[u] = load<V>(from);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    Vec<T, V> dx;
    const auto slope = [&](const G& g, int k) {
      A value = A(0);
      if constexpr (G::reads & reads_x) value = to_acc(x[u][k]);
      return cast<T>(g(value, beside(p, at[u], at_place, k)));
    };
    if (one_row) {
      const G g(gradient_row<G, T>(p, at[u], 0), facts);
#pragma unroll
      for (int k = 0; k < V; ++k) dx[k] = slope(g, k);
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) dx[k] = slope(G(gradient_row<G, T>(p, at[u], k), facts), k);
    }
    store(static_cast<T*>(p.dx) + at[u][at_dx], dx);
  }
}

// What a thread knows of V neighbouring rows.
template <class G, int V> struct Columns {
  G g;
  Columns<G, V - 1> rest;
  template <class F> BARACUDA_D explicit Columns(const F& made, int k = 0) : g(made(k)), rest(made, k + 1) {}
  template <class F> BARACUDA_D void each(const F& f, int k = 0) const { f(g, k), rest.each(f, k + 1); }
};
template <class G> struct Columns<G, 0> {
  template <class F> BARACUDA_D explicit Columns(const F&, int) {}
  template <class F> BARACUDA_D void each(const F&, int) const {}
};

// Block (b, g) has 256 chunks of V neighbouring rows, and of each row the elements g * each … of one reduced axis, which
// is not among the map's axes: `down` elements, dx_step and x_step apart.
template <class G, class T, int V, class P> BARACUDA_D void reduce_backward_down(const P& p) {
  using A = acc_t<T>;
  constexpr int U = sizeof(G) > 48 ? 1 : 4;
  const i64 c[1] = {static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x};
  if (c[0] >= p.chunks) return;
  i64 at[1][gradient_operands];
  map_offsets(p, c, at);
  const GradientFacts facts{p.reduced, p.option};
  const Columns<G, V> columns([&](int k) { return G(gradient_row<G, T>(p, at[0], k), facts); });
  const T* const x = static_cast<const T*>(p.x) + at[0][at_x];
  T* const dx = static_cast<T*>(p.dx) + at[0][at_dx];
  const i64 first = static_cast<i64>(blockIdx.y) * p.each, end = min<i64>(first + p.each, p.down);
#pragma unroll 1
  for (i64 r = first; r < end; r += U) {
    Vec<T, V> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u) in[u] = load<V>(x + min<i64>(r + u, end - 1) * p.x_step);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (r + u >= end) break;
      Vec<T, V> out;
      columns.each([&](const G& g, int k) { out[k] = cast<T>(g(to_acc(in[u][k]), 0)); });
      store(dx + (r + u) * p.dx_step, out);
    }
  }
}

}  // namespace baracuda
