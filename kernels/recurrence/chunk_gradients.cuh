#pragma once
// chunk_gradients    what the last passes of gradients in chunks share: how rows of gradients leave, and sums of rows.
#include "recurrence/chunk_products.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

// A warp's rows of a gradient: to an output of T, or where heads share it to a part of float32 for each state head.
template <class T, int N>
BARACUDA_D void put_gradient(void* to, bool whole, i64 stride, int steps, int cols, int row, int col,
                             float (&acc)[N][4]) {
  if (to == nullptr) return;
  const bool pairs = whole && stride % 2 == 0 && reinterpret_cast<u64>(to) % 4 == 0;
#pragma unroll
  for (int c = 0; c < N; ++c) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int i = row + lane_id() / 4 + e / 2 * 8, j = col + 8 * c + lane_id() % 4 * 2;
      if (i >= steps || j >= cols) continue;
      if (pairs && j + 1 < cols) {
        *reinterpret_cast<u32*>(static_cast<T*>(to) + i * stride + j) = pack_pair<T>(acc[c][e], acc[c][e + 1]);
        continue;
      }
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        if (j + next >= cols) break;
        if (whole) static_cast<T*>(to)[i * stride + j + next] = from_acc<T>(acc[c][e + next]);
        else static_cast<float*>(to)[i * stride + j + next] = acc[c][e + next];
      }
    }
  }
}
// Adds the lanes of a row, and writes what each of the two warps of it knows: to[warp / 4][row].
BARACUDA_D void put_rows(float (&to)[2][chunk], int row, const float (&x)[2]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = x[h] + __shfl_xor_sync(full_warp, x[h], 1);
    sum += __shfl_xor_sync(full_warp, sum, 2);
    if (lane_id() % 4 == 0) to[warp / 4][row + lane_id() / 4 + 8 * h] = sum;
  }
}
BARACUDA_D float both(const float (&x)[2][chunk], int row) { return x[0][row] + x[1][row]; }

}  // namespace chunked
}  // namespace recurrence

}  // namespace baracuda
