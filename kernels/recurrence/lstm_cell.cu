// lstm_cell   c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'), i, f, g, o of gates + gates_h.
//
// A thread has a unit of an item; there are no sums but of two gates' parts.
#include "recurrence/lstm_cell.cuh"

namespace baracuda {

template <class T> BARACUDA_D void lstm_cell(const LstmCellParams& p) {
  const cell::Unit u(p);
  if (!u.mine) return;
  const auto s = cell::lstm_state<T>(p, u, cell::get<T>(p.c, u.at(p.c_strides)));
  cell::put<T>(p.h, u.at(p.h_strides), s.o * math::tanh(s.after));
  cell::put<T>(p.c_next, u.at(p.c_next_strides), s.after);
}

}  // namespace baracuda
