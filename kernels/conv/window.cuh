#pragma once
// window     where a convolution finds its input, and how its sums become outputs, the same in every design.
//
//   y[n, o, p] = act(bias[o] + z[n, o, p] + Σ_k Σ_c x̂[n, c, stride p - padding + dilation k] w[o, c, k])
//
// x̂ is x with input_dilation - 1 zeros between its elements and any number around them, all of which are multiplied. A
// row is a place (n, p), row-major; a group's channels and outputs are counted from 0. Arrays of steps have the strides of
// batch, group, channel and three spatial axes in elements; those of w: group, output, channel, three axes of the window.
#include "conv/tap.cuh"
#include "gemm/epilogue.cuh"

namespace baracuda {

// The batch index and the place of a row.
struct ConvRow {
  i64 batch, at[3];
  template <class P> BARACUDA_D ConvRow(const P& p, i64 row) {
    if (p.narrow) {
      u32 rest = static_cast<u32>(row), place;
#pragma unroll
      for (int axis = 2; axis >= 0; --axis) {
        rest = divmod(rest, p.dividers[axis], 0, place);
        at[axis] = static_cast<i64>(place);
      }
      batch = static_cast<i64>(rest);
      return;
    }
    u64 rest = static_cast<u64>(row), place;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      rest = divmod(rest, static_cast<u64>(p.out_extent[axis]), place);
      at[axis] = static_cast<i64>(place);
    }
    batch = static_cast<i64>(rest);
  }
  BARACUDA_D i64 offset(const i64* step) const {
    return batch * step[0] + at[0] * step[3] + at[1] * step[4] + at[2] * step[5];
  }
};

// Whether x has what a row sees at a place of its window, and where, from the batch's first element.
template <class P> BARACUDA_D bool conv_find(const P& p, const ConvRow& row, const ConvTap& tap, i64& offset) {
  offset = 0;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    i64 at = row.at[axis] * p.stride[axis] - p.padding[axis] + tap.at[axis] * p.dilation[axis];
    if (at < 0) return false;
    if (p.input_dilation[axis] != 1) {
      u64 between;
      at = static_cast<i64>(divmod(static_cast<u64>(at), static_cast<u64>(p.input_dilation[axis]), between));
      if (between != 0) return false;
    }
    if (at >= p.in_extent[axis]) return false;
    offset += at * p.x_steps[3 + axis];
  }
  return true;
}

// Finishes outputs n … n + N - 1 of a group in a row, of which those before `left` exist.
template <class T, int N, class P, class A>
BARACUDA_D void conv_put(const P& p, i64 group, i64 row, i64 n, i64 left, Vec<A, N> x) {
  const ConvRow place(p, row);
  const auto at = [&](const i64* step) { return place.offset(step) + group * step[1] + n * step[2]; };
  const auto put = [&](void* to, int which) {
    const i64* const step = p.y_steps[which];
    T* const y = static_cast<T*>(to) + at(step);
    if (p.wide >> which & 1) store_vec<T, N, true>(y, from_acc<T>(x), left);
    else store_strided(y, step[2], from_acc<T>(x), left);
  };
  if (p.bias != nullptr) {
    const T* const from = static_cast<const T*>(p.bias) + (group * p.cols + n) * p.bias_step;
    const auto bias = to_acc(load_strided<T, N>(from, p.bias_step, left));
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] += bias[k];
  }
  if (p.z != nullptr) {
    const i64* const step = p.y_steps[2];
    const auto z = to_acc(load_strided<T, N>(static_cast<const T*>(p.z) + at(step), step[2], left));
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] += z[k];
  }
  if (p.pre != nullptr) put(p.pre, 1);
  if (p.activation != 0) {
    with_activation<T, A>(p.activation, [&](const auto& act) {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = act(x[k]);
    });
  }
  put(p.y, 0);
}

// What the kernels of convolutions do with their sums; a formula has another one (conv/formula_epilogue.cuh).
template <class T> struct ConvEpilogue {
  template <int N, class P, class A>
  static BARACUDA_D void put(const P& p, i64 group, i64 row, i64 n, i64 left, const Vec<A, N>& x) {
    conv_put<T, N>(p, group, row, n, left, x);
  }
};

}  // namespace baracuda
