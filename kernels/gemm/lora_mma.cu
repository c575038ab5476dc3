// lora_mma   lora_matmul of many tokens on tensor cores, of f16 or bf16.
//   lora_shrink_mma  h[t] = A[i] x[t] for 64 tokens and 64 of the rank, as the sum of two 16-bit numbers, hi and lo
//   lora_expand_mma  y[t] = base[t] + scale[i] (B[i] hi[t] + B[i] lo[t]) for 64 tokens and 64 columns
//
// B_K: whether k, else the other axis, has stride 1 in the adapters' matrices. A block multiplies all its tokens by the
// matrices of each run of neighbours with one adapter, and keeps the rows of the run. gemm/mma.cuh says what fixes the
// order of sums. p.wide: a bit for each matrix whose rows in memory start 16-byte aligned.
#include "gemm/lora.cuh"
#include "gemm/mma.cuh"

namespace baracuda {

constexpr int lora_mma_tile = 64;

template <class T, bool B_K> BARACUDA_D void lora_shrink_mma(const LoraShrinkMmaParams& p) {
  using Tile = MmaTile<T, true, B_K, false, lora_mma_tile>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const i64 columns = max<i64>(1, div_up(p.rank, i64(lora_mma_tile))), index = blockIdx.x;
  const i64 r0 = index % columns * lora_mma_tile;
  const i64 pitch = round_up(p.rank, i64(lora_vec));
  const LoraTile<lora_mma_tile> tile(p, index / columns);
  const T* const x = static_cast<const T*>(p.x);
  if (p.copy != nullptr && r0 == 0) {
    const i64 pieces = div_up(p.k, i64(lora_vec));
#pragma unroll 1
    for (i64 e = threadIdx.x; e < tile.count * pieces; e += Tile::threads) {
      const i64 t = tile.first + e / pieces, k = e % pieces * lora_vec, left = p.k - k;
      T* const to = static_cast<T*>(p.copy) + t * p.copy_step[0] + k * p.copy_step[1];
      const auto piece = lora_load(x + t * p.x_step[0] + k, i64(1), left, p.wide & 1);
      if ((p.wide & 4) && left >= lora_vec) store(to, piece);
      else store_strided(to, p.copy_step[1], piece, left);
    }
  }
#pragma unroll 1
  for (int from = 0, to; from < tile.count; from = to) {
    to = tile.run(from);
    const i64 adapter = tile.adapters[from], rank = lora_rank(p, adapter);
    if (rank <= r0) continue;
    const typename Tile::Left a(x, p.x_step[0], p.x_step[1], tile.first, tile.first + tile.count, p.wide & 1);
    const T* const matrix = static_cast<const T*>(p.a) + adapter * p.a_step[0];
    typename Tile::Right b[1] = {typename Tile::Right(matrix, p.a_step[1], p.a_step[2], r0, rank, (p.wide & 2) != 0)};
    Tile product;
    product.add(ring, a, b, p.k, p.piece);
    product.finish(ring, [&](int row, int col, const auto& sum, const auto&) {
      const i64 r = r0 + col;
      if (row < from || row >= to || r >= pitch) return;
      Vec<float, lora_vec> rest = sum;
#pragma unroll
      for (int e = 0; e < lora_vec; ++e) rest[e] = r + e < rank ? sum[e] : 0.0f;
      const auto hi = from_acc<T>(rest);
#pragma unroll
      for (int e = 0; e < lora_vec; ++e) {
        const float left = rest[e] - to_acc(hi[e]);
        rest[e] = math::isfinite(left) ? left : 0.0f;  // where hi is infinite it says all
      }
      T* const at = static_cast<T*>(p.parts) + (tile.first + row) * pitch + r;
      store(at, hi);
      store(at + p.tokens * pitch, from_acc<T>(rest));
    });
    __syncthreads();  // the next run's copies write where warps may still read
  }
}

template <class T, bool B_K> BARACUDA_D void lora_expand_mma(const LoraExpandMmaParams& p) {
  using Tile = MmaTile<T, true, B_K, false, lora_mma_tile>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const i64 columns = div_up(p.n, i64(lora_mma_tile)), index = blockIdx.x, n0 = index % columns * lora_mma_tile;
  const i64 pitch = round_up(p.rank, i64(lora_vec));
  const LoraTile<lora_mma_tile> tile(p, index / columns);
#pragma unroll 1
  for (int from = 0, to; from < tile.count; from = to) {
    to = tile.run(from);
    const i64 adapter = tile.adapters[from], rank = lora_rank(p, adapter);
    Tile product;
#pragma unroll 1
    for (int part = 0; part < 2 && rank > 0; ++part) {
      const T* const h = static_cast<const T*>(p.parts) + part * p.tokens * pitch;
      const T* const matrix = static_cast<const T*>(p.b) + adapter * p.b_step[0];
      const typename Tile::Left a(h, pitch, i64(1), tile.first, tile.first + tile.count, true);
      typename Tile::Right b[1] = {typename Tile::Right(matrix, p.b_step[1], p.b_step[2], n0, p.n, (p.wide & 1) != 0)};
      product.add(ring, a, b, rank, 1 << 20);  // one piece
    }
    const float scale =
        p.scale == nullptr || adapter < 0 ? 1.0f : static_cast<const float*>(p.scale)[adapter * p.scale_step];
    product.finish(ring, [&](int row, int col, const auto& sum, const auto&) {
      const i64 t = tile.first + row, n = n0 + col, left = p.n - n;
      if (row < from || row >= to || left <= 0) return;
      Vec<float, lora_vec> y;
#pragma unroll
      for (int e = 0; e < lora_vec; ++e) y[e] = adapter < 0 ? 0.0f : scale * sum[e];
      if (p.base != nullptr) {
        const T* const at = static_cast<const T*>(p.base) + t * p.base_step[0] + n * p.base_step[1];
        const auto base = to_acc(lora_load(at, p.base_step[1], left, (p.wide & 2) != 0));
#pragma unroll
        for (int e = 0; e < lora_vec; ++e) y[e] = adapter < 0 ? base[e] : math::fma(scale, sum[e], base[e]);
      }
      T* const at = static_cast<T*>(p.y) + t * p.y_step[0] + n * p.y_step[1];
      if ((p.wide & 4) && left >= lora_vec) store(at, from_acc<T>(y));
      else store_strided(at, p.y_step[1], from_acc<T>(y), left);
    });
    __syncthreads();  // the next run's copies write where warps may still read
  }
}

}  // namespace baracuda
