#pragma once
// wgmma_transposed   the way of a warp's accumulators of yᵀ = W xᵀ to y, where W is the left operand of a product of
//                    gemm/wgmma.cuh: through staging in shared memory, so that a thread has eight neighbours of a row of y.
//
// A warp has 16 rows of W, which are columns of y, by some rows of x, which are rows of y.
#include "gemm/wgmma.cuh"

namespace baracuda::gemm {

// Where the staging has 4 of the 16 rows of W, from 4 `quad` on, of a row of x: neither the scalars of a fragment nor 16
// bytes of every lane meet more than twice in a bank.
BARACUDA_D int transposed_place(int row, int quad) { return row * 16 + (quad ^ row / 2 % 4) * 4; }

// Puts the sums of 8 N rows of x there.
template <class S, int N> BARACUDA_D void put_transposed(S* staging, const S (&acc)[N][4]) {
  const int g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      staging[transposed_place(8 * i + 2 * q + e % 2, g / 4 + e / 2 * 2) + g % 4] = acc[i][e];
    }
  }
}

// The sums of 8 of the rows of W, from 8 `octet` on, of a row of x.
template <class S> BARACUDA_D Vec<S, 8> get_transposed(const S* staging, int row, int octet) {
  const auto low = *reinterpret_cast<const Four<S>*>(staging + transposed_place(row, 2 * octet));
  const auto high = *reinterpret_cast<const Four<S>*>(staging + transposed_place(row, 2 * octet + 1));
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// Adds the biases of a thread's two rows of W to N * 8 of its sums of each.
template <class S, int N> BARACUDA_D void add_transposed(S (&acc)[N][4], const S (&bias)[2]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[i][e] += bias[e / 2];
  }
}

}  // namespace baracuda::gemm
