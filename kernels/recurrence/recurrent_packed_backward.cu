// recurrent_packed_backward   a step back of a recurrent layer: dh = dy + slopes of the later step · weight, and from it the
//                             slopes of this step's gates; or of rows that begin with the later step, the slope of h0.
//
// A block has 32 rows of the batch and 16 units; launches follow one another, a step each. What else goes back to a
// state, LSTM's c f and GRU's dh z, is kept in acc_t in the workspace. The order of every sum is that of
// recurrent_product.cuh: it depends on the number of units alone.
#include "recurrence/gru_cell.cuh"
#include "recurrence/lstm_cell.cuh"
#include "recurrence/recurrent_product.cuh"
#include "recurrence/recurrent_states.cuh"

namespace baracuda {

template <class T, class CELL, bool WIDE>
BARACUDA_D void recurrent_packed_backward(const RecurrentPackedBackwardParams& p) {
  using A = acc_t<T>;
  constexpr int G = CELL::gates, ROWS = backward_rows;
  constexpr bool lstm = is_same<CELL, cell::Lstm_>, gru = is_same<CELL, cell::Gru_>;
  using Product = RecurrentProduct<T, ROWS, 1, backward_line, WIDE>;
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const i64 at = p.start + p.turn * p.advance, before = p.before + p.turn * p.advance;
  const i64 later = p.later + p.turn * p.advance, row0 = static_cast<i64>(blockIdx.y) * ROWS;
  const int unit0 = static_cast<int>(blockIdx.x) * Product::units, hidden = p.hidden;
  const auto slope = [&](int r) {
    const bool there = row0 + r < p.later_rows;
    const T* const from = static_cast<const T*>(p.slopes);
    return ProductRow<T>{there ? from + (later + row0 + r) * p.slopes_strides[0] : from, p.slopes_strides[1], there};
  };
  const auto weights = [&](int, int unit, bool there) {
    there = there && unit0 + unit < hidden;
    return ProductRow<T>{static_cast<const T*>(p.weight) + (there ? unit0 + unit : 0) * p.weight_strides[1],
                         p.weight_strides[0], there};
  };
  const int left = static_cast<int>(max<i64>(0, min<i64>(ROWS, p.later_rows - row0)));
  const Product product(shared, left > 0 ? G * hidden : 0, left, slope, weights);
  product.start();
  // While copies are under way: the gates of this step.
  const i64 row = row0 + product.row;
  const int unit = unit0 + product.unit;
  const bool there = row < max(p.rows, p.later_rows) && unit < hidden, here = there && row < p.rows;
  const cell::Unit own(here ? at + row : 0, here ? unit : 0, here);
  const auto state_of = [&](const void* states, const i64(&strides)[2], const void* first, const i64(&firsts)[2]) {
    return row < p.known ? cell::get<T>(states, (before + row) * strides[0] + unit * strides[1])
                         : cell::get<T>(first, row * firsts[0] + unit * firsts[1]);
  };
  A* const carry = static_cast<A*>(p.carry) + row * hidden + unit;
  const bool carried = there && row < p.later_rows;
  A dh = here ? cell::get<T>(p.dh, own.at(p.dh_strides)) : A(0), kept = A(0), sums[1];
  A dc = here && lstm ? cell::maybe<T>(p.dc, own.at(p.dc_strides)) : A(0);
  if ((lstm || gru) && carried) kept = *carry;
  const auto take = [&] {
    product.finish(sums);
    dh += sums[0];
  };
  const auto put_first = [&](A h) {
    if (!there || here) return;
    cell::put<T>(p.dh0, row * p.dh0_strides[0] + unit * p.dh0_strides[1], h);
    if (lstm) cell::put<T>(p.dc0, row * p.dc0_strides[0] + unit * p.dc0_strides[1], kept);
  };
  if constexpr (lstm) {
    A z[4] = {}, c = A(0), slopes[4];
    if (here) {
#pragma unroll
      for (int g = 0; g < 4; ++g) z[g] = cell::lstm_sum<T>(p, own, g);
      c = state_of(p.c, p.c_strides, p.c0, p.c0_strides);
    }
    const cell::LstmState<A> s(z, c);
    take();
    put_first(dh);
    if (!here) return;
    *carry = s.slopes(dh, dc + kept, slopes);
#pragma unroll
    for (int g = 0; g < 4; ++g) cell::put<T>(p.dgates, own.gate(p, p.places[g], p.dgates_strides), slopes[g]);
  } else if constexpr (gru) {
    A x[3] = {}, m[3] = {}, h = A(0), slopes[3];
    if (here) {
#pragma unroll
      for (int g = 0; g < 3; ++g) {
        x[g] = cell::get<T>(p.gates, own.gate(p, p.places[g], p.gates_strides));
        m[g] = cell::get<T>(p.gates_h, own.gate(p, p.places[g], p.gates_h_strides));
      }
      h = state_of(p.h, p.h_strides, p.h0, p.h0_strides);
    }
    const cell::GruState<A> s(x, m, h);
    take();
    dh += kept;
    put_first(dh);
    if (!here) return;
    s.slopes(dh, slopes);
    *carry = dh * s.z;
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      cell::put<T>(p.dgates, own.gate(p, p.places[g], p.dgates_strides), slopes[g]);
      cell::put<T>(p.dgates_h, own.gate(p, p.places[g], p.dgates_h_strides), g == 2 ? slopes[2] * s.r : slopes[g]);
    }
  } else {
    const A h = here ? cell::get<T>(p.h, own.at(p.h_strides)) : A(0);
    take();
    put_first(dh);
    if (here) cell::put<T>(p.dgates, own.at(p.dgates_strides), CELL::slope(dh, h));
  }
}

}  // namespace baracuda
