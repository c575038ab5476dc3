// recurrent_packed   a step of a recurrent layer, h' = cell(gates, weight h + bias, h), of rows packed by steps.
//
// A block has 64 rows of the batch and 8 units with all their gates; launches follow one another, a step each. The order
// of every sum is that of recurrent_product.cuh: it depends on the number of units alone.
#include "recurrence/recurrent_product.cuh"
#include "recurrence/recurrent_states.cuh"

namespace baracuda {

template <class T, class CELL, bool WIDE> BARACUDA_D void recurrent_packed(const RecurrentPackedParams& p) {
  using A = acc_t<T>;
  constexpr int G = CELL::gates, ROWS = forward_rows;
  using Product = RecurrentProduct<T, ROWS, G, forward_line, WIDE>;
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const i64 at = p.start + p.turn * p.advance, before = p.before + p.turn * p.advance;
  const i64 row0 = static_cast<i64>(blockIdx.y) * ROWS;
  const int unit0 = static_cast<int>(blockIdx.x) * Product::units, hidden = p.hidden;
  // Rows that have begun are states of the step before, others are of h0.
  const T* const states = static_cast<const T*>(p.h) + before * p.h_strides[0];
  const auto state = [&](int r) {
    const i64 row = row0 + r;
    const bool begun = row < p.known, there = row < p.rows;
    const T* const from = begun ? states : static_cast<const T*>(p.h0);
    const i64 pitch = begun ? p.h_strides[0] : p.h0_strides[0];
    return ProductRow<T>{from + (there ? row : 0) * pitch, begun ? p.h_strides[1] : p.h0_strides[1], there};
  };
  const auto weights = [&](int gate, int unit, bool there) {
    there = there && unit0 + unit < hidden;
    const i64 line = there ? static_cast<i64>(p.places[gate]) * hidden + unit0 + unit : 0;
    return ProductRow<T>{static_cast<const T*>(p.weight) + line * p.weight_strides[0], p.weight_strides[1], there};
  };
  const Product product(shared, hidden, static_cast<int>(min<i64>(ROWS, p.rows - row0)), state, weights);
  product.start();
  // Load what else the cell needs while copies are under way; nothing looks at it before the products are there.
  const i64 row = row0 + product.row;
  const int unit = unit0 + product.unit;
  const bool there = row < p.rows && unit < hidden;
  const auto get = [&](const void* from, i64 place, bool valid) {
    return valid ? static_cast<const T*>(from)[place] : from_acc<T>(A(0));
  };
  T own[G], own_bias[G], own_last = from_acc<T>(A(0)), own_c = own_last;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const i64 place = static_cast<i64>(p.places[g]) * hidden + unit;
    own[g] = get(p.gates, (at + row) * p.gates_strides[0] + place * p.gates_strides[1], there);
    own_bias[g] = get(p.bias, place * p.bias_step, there && p.bias != nullptr);
  }
  if (there) {
    const ProductRow<T> own_state = state(product.row);
    own_last = own_state.from[unit * own_state.step];
    if (p.c != nullptr) {
      own_c = row < p.known ? get(p.c, (before + row) * p.c_strides[0] + unit * p.c_strides[1], true)
                            : get(p.c0, row * p.c0_strides[0] + unit * p.c0_strides[1], true);
    }
  }
  A x[G], bias[G], m[G], c;
  product.finish(m);
  if (!there) return;
#pragma unroll
  for (int g = 0; g < G; ++g) x[g] = to_acc(own[g]), bias[g] = to_acc(own_bias[g]);
  c = to_acc(own_c);
  cell::put<T>(p.h, (at + row) * p.h_strides[0] + unit * p.h_strides[1], CELL::step(x, m, bias, to_acc(own_last), c));
  cell::put<T>(p.c, (at + row) * p.c_strides[0] + unit * p.c_strides[1], c);
}

}  // namespace baracuda
