// gru_cell   h' = (1 - z) n + z h, r, z = sigmoid(gates + gates_h), n = tanh(gates + r gates_h).
//
// A thread has a unit of an item; there are no sums but of two gates' parts.
#include "recurrence/gru_cell.cuh"

namespace baracuda {

template <class T> BARACUDA_D void gru_cell(const GruCellParams& p) {
  using A = acc_t<T>;
  const cell::Unit u(p);
  if (!u.mine) return;
  const auto s = cell::gru_state<T>(p, u, cell::get<T>(p.h, u.at(p.h_strides)));
  cell::put<T>(p.h_next, u.at(p.h_next_strides), math::fma(s.z, s.before, (A(1) - s.z) * s.n));
}

}  // namespace baracuda
