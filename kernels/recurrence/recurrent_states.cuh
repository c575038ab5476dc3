#pragma once
// recurrent_states   states of one unit of one item after a step. x: the input's parts of its gates; m: the products of the
//                    state before with the weights, without bias.
#include "recurrence/recurrent_cell.cuh"

namespace baracuda::cell {

struct Lstm_ {
  static constexpr int gates = 4;
  template <class A> static BARACUDA_D A step(const A (&x)[4], const A (&m)[4], const A (&bias)[4], A, A& c) {
    A z[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) z[n] = x[n] + (m[n] + bias[n]);
    c = math::fma(sigmoid(z[1]), c, sigmoid(z[0]) * math::tanh(z[2]));
    return sigmoid(z[3]) * math::tanh(c);
  }
};
struct Gru_ {
  static constexpr int gates = 3;
  template <class A> static BARACUDA_D A step(const A (&x)[3], const A (&m)[3], const A (&bias)[3], A before, A&) {
    const A r = sigmoid(x[0] + (m[0] + bias[0])), z = sigmoid(x[1] + (m[1] + bias[1]));
    const A n = math::tanh(math::fma(r, m[2] + bias[2], x[2]));
    return math::fma(z, before - n, n);
  }
};
struct RnnTanh_ {
  static constexpr int gates = 1;
  template <class A> static BARACUDA_D A step(const A (&x)[1], const A (&m)[1], const A (&bias)[1], A, A&) {
    return math::tanh(x[0] + (m[0] + bias[0]));
  }
  template <class A> static BARACUDA_D A slope(A dh, A h) { return dh * (A(1) - h * h); }
};
struct RnnRelu_ {
  static constexpr int gates = 1;
  template <class A> static BARACUDA_D A step(const A (&x)[1], const A (&m)[1], const A (&bias)[1], A, A&) {
    return math::maximum(x[0] + (m[0] + bias[0]), A(0));
  }
  template <class A> static BARACUDA_D A slope(A dh, A h) { return h > A(0) ? dh : A(0) * h; }
};

}  // namespace baracuda::cell
