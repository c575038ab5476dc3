// gru_cell_backward   the slopes of h' = (1 - z) n + z h, r, z = sigmoid(gates + gates_h), n = tanh(gates + r gates_h)
//
// A thread has a unit of an item, whose gates it makes anew.
#include "recurrence/gru_cell.cuh"

namespace baracuda {

template <class T> BARACUDA_D void gru_cell_backward(const GruCellBackwardParams& p) {
  using A = acc_t<T>;
  const cell::Unit u(p);
  if (!u.mine) return;
  const auto s = cell::gru_state<T>(p, u, cell::get<T>(p.h, u.at(p.h_strides)));
  const A dh = cell::get<T>(p.dh_next, u.at(p.dh_next_strides));
  A slopes[3];
  s.slopes(dh, slopes);
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    cell::put<T>(p.dgates, u.gate(p, p.places[k], p.dgates_strides), slopes[k]);
    cell::put<T>(p.dgates_h, u.gate(p, p.places[k], p.dgates_h_strides), k == 2 ? slopes[2] * s.r : slopes[k]);
  }
  cell::put<T>(p.dh, u.at(p.dh_strides), dh * s.z);
}

}  // namespace baracuda
