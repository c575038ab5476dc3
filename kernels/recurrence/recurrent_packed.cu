// recurrent_packed   a step of a recurrent layer, h' = cell(gates, weight h + bias, h), of rows packed by steps.
//
// A block has 64 rows of the batch and 8 units with all their gates; launches follow one another, a step each. The order
// of every sum is that of recurrent_product.cuh: it depends on the number of units alone.
#include "recurrence/recurrent_product.cuh"
#include "recurrence/recurrent_states.cuh"

namespace baracuda {

template <class T, class CELL> BARACUDA_D void recurrent_packed(const RecurrentPackedParams& p) {
  using A = acc_t<T>;
  constexpr int G = CELL::gates, ROWS = forward_rows;
  using Product = RecurrentProduct<T, ROWS, G, forward_line>;
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const i64 at = p.start + p.turn * p.advance, before = p.before + p.turn * p.advance;
  const i64 row0 = static_cast<i64>(blockIdx.y) * ROWS;
  const int unit0 = static_cast<int>(blockIdx.x) * Product::units, hidden = p.hidden;
  // Rows that have begun are states of the step before, others are of h0.
  const auto state = [&](int r) {
    const i64 row = row0 + r;
    const bool begun = row < p.known;
    const T* const from = begun ? static_cast<const T*>(p.h) + (before + row) * p.h_strides[0]
                                : static_cast<const T*>(p.h0) + row * p.h0_strides[0];
    return ProductRow<T>{row < p.rows ? from : static_cast<const T*>(p.h0), begun ? p.h_strides[1] : p.h0_strides[1],
                         row < p.rows};
  };
  const T* const weight = static_cast<const T*>(p.weight);
  const auto weights = [&](int gate, int unit) {
    const bool there = gate < G && unit0 + unit < hidden;
    const i64 line = there ? static_cast<i64>(p.places[gate]) * hidden + unit0 + unit : 0;
    return ProductRow<T>{weight + line * p.weight_strides[0], p.weight_strides[1], there};
  };
  const Product product(shared, hidden, static_cast<int>(min<i64>(ROWS, p.rows - row0)), p.wide, state, weights);
  product.start();
  // While copies are under way: what else the cell needs.
  const i64 row = row0 + product.row;
  const int unit = unit0 + product.unit;
  const bool there = row < p.rows && unit < hidden;
  A x[G], bias[G], m[G], last = A(0), c = A(0);
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const i64 place = static_cast<i64>(p.places[g]) * hidden + unit;
    x[g] = there ? cell::get<T>(p.gates, (at + row) * p.gates_strides[0] + place * p.gates_strides[1]) : A(0);
    bias[g] = there && p.bias != nullptr ? cell::get<T>(p.bias, place * p.bias_step) : A(0);
  }
  if (there) {
    const ProductRow<T> own = state(product.row);
    last = to_acc(own.from[unit * own.step]);
    if (p.c != nullptr) {
      c = row < p.known ? cell::get<T>(p.c, (before + row) * p.c_strides[0] + unit * p.c_strides[1])
                        : cell::get<T>(p.c0, row * p.c0_strides[0] + unit * p.c0_strides[1]);
    }
  }
  product.finish(m);
  if (!there) return;
  cell::put<T>(p.h, (at + row) * p.h_strides[0] + unit * p.h_strides[1], CELL::step(x, m, bias, last, c));
  cell::put<T>(p.c, (at + row) * p.c_strides[0] + unit * p.c_strides[1], c);
}

}  // namespace baracuda
