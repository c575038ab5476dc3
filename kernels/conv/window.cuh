#pragma once
// window     where a convolution finds its input, and how its sums become outputs, the same in every design.
//
//   y[n, o, p] = act(bias[o] + z[n, o, p] + Σ_k Σ_c x̂[n, c, stride p - padding + dilation k] w[o, c, k])
//
// x̂ is x with zeros around it, which are multiplied. Of an input that is spread by input_dilation a launch has one phase: the
// places whose windows find elements at the same taps, so that the zeros between are nowhere (schedules/conv_phases.py). A
// row is a place (n, p), row-major; a group's channels and outputs are counted from 0. Arrays of steps have the strides of
// batch, group, channel and three spatial axes in elements; those of w: group, output, channel, three axes of the window.
#include "conv/tap.cuh"
#include "gemm/epilogue.cuh"

namespace baracuda {

// The batch index and the place of a row.
struct ConvRow {
  i64 batch, at[3];
  BARACUDA_D ConvRow() {}
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
    const i64 at = row.at[axis] * p.stride[axis] - p.padding[axis] + tap.at[axis] * p.dilation[axis];
    if (at < 0) return false;
    if (at >= p.in_extent[axis]) return false;
    offset += at * p.x_steps[3 + axis];
  }
  return true;
}

// What the kernels of convolutions do with their sums; a formula has another one (conv/formula_epilogue.cuh).
template <class T> struct ConvEpilogue {
  // Finishes outputs n … n + N - 1, of which those before `left` exist, of a group of `cols` at a place.
  template <int N, class P, class A>
  static BARACUDA_D void put(const P& p, const ConvRow& place, i64 group, i64 n, i64 cols, i64 left, Vec<A, N> x) {
    const auto at = [&](const i64* step) { return place.offset(step) + group * step[1] + n * step[2]; };
    const auto put = [&](void* to, int which) {
      const i64* const step = p.y_steps[which];
      T* const y = static_cast<T*>(to) + at(step);
      if (p.wide >> which & 1) store_vec<T, N, true>(y, from_acc<T>(x), left);
      else store_strided(y, step[2], from_acc<T>(x), left);
    };
    if (p.bias != nullptr) {
      const T* const from = static_cast<const T*>(p.bias) + (group * cols + n) * p.bias_step;
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
};

// Finishes outputs of a group in a row by an epilogue E.
template <class E, int N, class P, class A>
BARACUDA_D void conv_put(const P& p, i64 group, i64 row, i64 n, i64 left, const Vec<A, N>& x) {
  E::template put<N>(p, ConvRow(p, row), group, n, p.cols, left, x);
}

// Likewise where rows are blocks of outputs, one of each phase, and columns outputs of phases, N of which have one phase.
template <class E, int N, class P, class A>
BARACUDA_D void conv_put_phase(const P& p, const ConvRow& block, i64 group, i64 column, i64 left, const Vec<A, N>& x) {
  u64 output, own;
  u64 phase = divmod(static_cast<u64>(column), static_cast<u64>(p.phase_cols), output);
  ConvRow place = block;
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    phase = divmod(phase, static_cast<u64>(p.apart[axis]), own);
    place.at[axis] = block.at[axis] * p.apart[axis] + static_cast<i64>(own);
    if (place.at[axis] >= p.full_extent[axis]) return;
  }
  E::template put<N>(p, place, group, static_cast<i64>(output), p.phase_cols, left, x);
}

template <class E, int N, class P, class A>
BARACUDA_D void conv_put_block(const P& p, i64 group, i64 row, i64 n, i64 left, const Vec<A, N>& x) {
  const ConvRow block(p, row);
  if (p.phase_cols % N == 0) {
    conv_put_phase<E, N>(p, block, group, n, left, x);
    return;
  }
#pragma unroll 1
  for (int k = 0; k < N && k < left; ++k) {
    A one = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) one = i == k ? x[i] : one;  // registers have no address
    conv_put_phase<E, 1>(p, block, group, n + k, 1, Vec<A, 1>{{one}});
  }
}

}  // namespace baracuda
