#pragma once
// gru_cell   h' = (1 - z) n + z h, r, z = sigmoid(gates + gates_h), n = tanh(gates + r gates_h). The gates of a unit.
#include "recurrence/recurrent_cell.cuh"

namespace baracuda {

namespace cell {

template <class T> struct Gru {
  using A = acc_t<T>;
  A r, z, n, hidden, before;  // hidden: the part of n that r multiplies
  template <class P> BARACUDA_D Gru(const P& p, const Unit& u) {
    const auto own = [&](int which) { return get<T>(p.gates, u.gate(p, p.places[which], p.gates_strides)); };
    const auto other = [&](int which) { return get<T>(p.gates_h, u.gate(p, p.places[which], p.gates_h_strides)); };
    r = sigmoid(own(0) + other(0)), z = sigmoid(own(1) + other(1)), hidden = other(2);
    n = math::tanh(math::fma(r, hidden, own(2)));
    before = get<T>(p.h, u.at(p.h_strides));
  }
};

}  // namespace cell

}  // namespace baracuda
