#pragma once
// recurrent_cell   what the kernels of LSTM and GRU cells share: a thread has one unit of one item of the batch.
#include <baracuda/math.cuh>

namespace baracuda::cell {

struct Unit {
  i64 b, k;
  bool mine;
  BARACUDA_D Unit(i64 b, i64 k, bool mine) : b(b), k(k), mine(mine) {}
  template <class P> BARACUDA_D explicit Unit(const P& p) {
    const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    b = i / p.hidden, k = i % p.hidden, mine = b < p.batch;
  }
  // Place of gate `number` of this unit, or of the unit itself.
  BARACUDA_D i64 at(const i64 (&strides)[2]) const { return b * strides[0] + k * strides[1]; }
  template <class P> BARACUDA_D i64 gate(const P& p, int number, const i64 (&strides)[2]) const {
    return b * strides[0] + (k + number * p.hidden) * strides[1];
  }
};

template <class T> BARACUDA_D acc_t<T> get(const void* from, i64 at) { return to_acc(static_cast<const T*>(from)[at]); }
template <class T> BARACUDA_D acc_t<T> maybe(const void* from, i64 at) {
  return from == nullptr ? acc_t<T>(0) : get<T>(from, at);
}
template <class T> BARACUDA_D void put(void* to, i64 at, acc_t<T> x) {
  if (to != nullptr) static_cast<T*>(to)[at] = from_acc<T>(x);
}
template <class A> BARACUDA_D A sigmoid(A x) { return A(1) / (A(1) + math::exp(-x)); }

}  // namespace baracuda::cell
