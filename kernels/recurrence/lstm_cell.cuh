#pragma once
// lstm_cell   c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'), i, f, g, o of gates + gates_h. The gates of a unit.
#include "recurrence/recurrent_cell.cuh"

namespace baracuda {

namespace cell {

template <class T> struct Lstm {
  using A = acc_t<T>;
  A i, f, g, o, before, after;
  template <class P> BARACUDA_D Lstm(const P& p, const Unit& u) {
    const auto gate = [&](int which) {
      A x = get<T>(p.gates, u.gate(p, p.places[which], p.gates_strides));
      if (p.gates_h != nullptr) x += get<T>(p.gates_h, u.gate(p, p.places[which], p.gates_h_strides));
      return x;
    };
    i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = math::tanh(gate(2)), o = sigmoid(gate(3));
    before = get<T>(p.c, u.at(p.c_strides));
    after = math::fma(f, before, i * g);
  }
};

}  // namespace cell

}  // namespace baracuda
