// lstm_cell_backward   the slopes of c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'), i, f, g, o of gates + gates_h
//
// A thread has a unit of an item, whose gates it makes anew.
#include "recurrence/lstm_cell.cuh"

namespace baracuda {

template <class T> BARACUDA_D void lstm_cell_backward(const LstmCellBackwardParams& p) {
  using A = acc_t<T>;
  const cell::Unit u(p);
  if (!u.mine) return;
  const auto s = cell::lstm_state<T>(p, u, cell::get<T>(p.c, u.at(p.c_strides)));
  A slopes[4];
  const A dc =
      s.slopes(cell::maybe<T>(p.dh, u.at(p.dh_strides)), cell::maybe<T>(p.dc_next, u.at(p.dc_next_strides)), slopes);
#pragma unroll
  for (int k = 0; k < 4; ++k) cell::put<T>(p.dgates, u.gate(p, p.places[k], p.dgates_strides), slopes[k]);
  cell::put<T>(p.dc, u.at(p.dc_strides), dc);
}

}  // namespace baracuda
