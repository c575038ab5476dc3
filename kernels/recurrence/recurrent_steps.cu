// recurrent_steps   all steps of an LSTM or GRU layer, h[t] = cell(gates[t], weight h[t - 1] + bias, h[t - 1]), in one launch.
//
// Eight items of the batch are walked by a block, or by a cluster of blocks that have 32 units each: a block's weights then
// stay in registers, and blocks hand one another their part of h through shared memory, a cluster barrier a step. A block
// alone has all units, and reads all weights through shared memory in every step. A dot product is two chains, k below 128
// and the others in order, which are added: the same in both.
#include <baracuda/cluster.cuh>
#include <baracuda/vector.cuh>

#include "recurrence/recurrent_states.cuh"

namespace baracuda {

namespace cell {

constexpr int rows = walk_rows, slice = 32, chain = 128, most = walk_units, walkers = walk_threads;

}  // namespace cell

template <class T, class CELL, int CLUSTER> BARACUDA_D void recurrent_steps(const RecurrentStepsParams& p) {
  using namespace cell;
  using A = acc_t<T>;
  constexpr int G = CELL::gates;
  constexpr bool together = CLUSTER > 1;
  __shared__ __align__(16) A state[most][rows];  // h before the step
  __shared__ A product[G][rows][slice];
  __shared__ A memory[together ? 1 : most][rows];  // c, of an LSTM
  __shared__ __align__(16)
      A own[together ? 2 : 1][together ? rows : 1][slice];  // this block's part of h after the step
  constexpr int staged = sizeof(T) == 8 ? 2 : 32 / static_cast<int>(sizeof(T));  // steps of k of both chains
  __shared__ T tile[together ? 1 : 2][staged][chain + 2];
  const int rank = together ? static_cast<int>(cluster_rank()) : 0, tid = static_cast<int>(threadIdx.x);
  const int hidden = p.hidden, slices = div_up(hidden, slice);
  const i64 first = static_cast<i64>(blockIdx.x / CLUSTER) * rows;  // of the batch
  // For products: a gate, a unit of the slice, and one of the two chains. For cells: an item and a unit.
  const int gate = tid % chain / slice, column = tid % slice, from = tid / chain * chain, row = tid / slice;
  const bool mine = first + row < p.batch;
  const T* const weight = static_cast<const T*>(p.weight);
  const auto weight_of = [&](int of_gate, int unit, int k) {
    if (of_gate >= G || unit >= hidden || k >= hidden) return from_acc<T>(A(0));
    return weight[(static_cast<i64>(p.places[of_gate]) * hidden + unit) * p.weight_strides[0] +
                  k * p.weight_strides[1]];
  };
  for (int i = tid; i < most * rows; i += walkers) {
    const int k = i / rows, r = i % rows;
    const bool there = k < hidden && first + r < p.batch;
    state[k][r] =
        there ? to_acc(static_cast<const T*>(p.h0)[(first + r) * p.h0_strides[0] + k * p.h0_strides[1]]) : A(0);
    if constexpr (!together) {
      memory[k][r] = there && p.c0 != nullptr
                         ? to_acc(static_cast<const T*>(p.c0)[(first + r) * p.c0_strides[0] + k * p.c0_strides[1]])
                         : A(0);
    }
  }
  A weights[together ? chain : 1], c = A(0);
  if constexpr (together) {
#pragma unroll
    for (int k = 0; k < chain; ++k) weights[k] = to_acc(weight_of(gate, rank * slice + column, from + k));
    const int unit = rank * slice + column;
    if (p.c0 != nullptr && mine && unit < hidden) {
      c = to_acc(static_cast<const T*>(p.c0)[(first + row) * p.c0_strides[0] + unit * p.c0_strides[1]]);
    }
  }
  A bias[G];
  __syncthreads();
#pragma unroll 1
  for (i64 n = 0; n < p.steps; ++n) {
    const i64 t = p.reverse ? p.steps - 1 - n : n;
#pragma unroll 1
    for (int s = rank; s < slices; s += CLUSTER) {
      const int unit = s * slice + column;
      const bool there = mine && unit < hidden;
      A x[G], m[G];
      const T* const gates =
          static_cast<const T*>(p.gates) + t * p.gates_strides[0] + (first + row) * p.gates_strides[1];
#pragma unroll
      for (int g = 0; g < G; ++g) {  // before they are needed
        const i64 at = static_cast<i64>(p.places[g]) * hidden + unit;
        x[g] = there ? to_acc(gates[at * p.gates_strides[2]]) : A(0);
        if (!together || n == 0) {
          bias[g] = there && p.bias != nullptr ? to_acc(static_cast<const T*>(p.bias)[at * p.bias_step]) : A(0);
        }
      }
      A sum[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) sum[r] = A(0);
      const auto add = [&](A w, int k) {
        const Vec<A, rows> h = load<rows>(&state[from + k][0]);
#pragma unroll
        for (int r = 0; r < rows; ++r) sum[r] = math::fma(w, h[r], sum[r]);
      };
      if constexpr (together) {
        if (gate < G && from < hidden) {
#pragma unroll
          for (int k = 0; k < chain; ++k) add(weights[k], k);
        }
      } else {
#pragma unroll 1
        for (int k0 = 0; k0 < min(chain, hidden); k0 += staged) {
          __syncthreads();
          for (int i = tid; i < 2 * staged * chain; i += walkers) {  // neighbours have the same row of weights
            const int k = i % staged, col = i / staged % chain, half = i / staged / chain;
            tile[half][k][col] = weight_of(col / slice, s * slice + col % slice, half * chain + k0 + k);
          }
          __syncthreads();
          if (gate < G && from < hidden) {
#pragma unroll
            for (int k = 0; k < staged; ++k) add(to_acc(tile[from / chain][k][tid % chain]), k0 + k);
          }
        }
      }
      if (gate < G && from > 0) {
#pragma unroll
        for (int r = 0; r < rows; ++r) product[gate][r][column] = sum[r];
      }
      __syncthreads();
      if (gate < G && from == 0) {
#pragma unroll
        for (int r = 0; r < rows; ++r) product[gate][r][column] += sum[r];
      }
      __syncthreads();
#pragma unroll
      for (int g = 0; g < G; ++g) m[g] = product[g][row][column];
      A h = A(0);
      if (there) {
        A& kept = together ? c : memory[together ? 0 : unit][row];
        const T rounded = from_acc<T>(CELL::step(x, m, bias, state[unit][row], kept));
        h = to_acc(rounded);
        static_cast<T*>(p.h)[t * p.h_strides[0] + (first + row) * p.h_strides[1] + unit * p.h_strides[2]] = rounded;
        if (p.c != nullptr) {
          const T after = from_acc<T>(kept);
          kept = to_acc(after);
          static_cast<T*>(p.c)[t * p.c_strides[0] + (first + row) * p.c_strides[1] + unit * p.c_strides[2]] = after;
        }
      }
      if constexpr (together) own[n & 1][row][column] = h;
      __syncthreads();  // products are written again
    }
    if constexpr (together) {
      if (rank >= slices) own[n & 1][row][column] = A(0);
      cluster_sync();
      for (int i = tid; i < most * rows; i += walkers) {
        const int k = i % most, r = i / most;
        if (k < slices * slice) state[k][r] = read_remote(&own[n & 1][r][k % slice], k / slice);
      }
    } else {
      for (int i = tid; i < most * rows; i += walkers) {
        const int k = i % most, r = i / most;
        if (k < hidden && first + r < p.batch) {
          state[k][r] = to_acc(
              static_cast<const T*>(p.h)[t * p.h_strides[0] + (first + r) * p.h_strides[1] + k * p.h_strides[2]]);
        }
      }
    }
    __syncthreads();
  }
  if constexpr (together) cluster_sync();  // else a block could end before others have read its part
}

}  // namespace baracuda
