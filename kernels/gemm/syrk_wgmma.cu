// syrk_wgmma y = alpha · a aᵀ + beta · c on sm_90a, of f16 or bf16: tiles on and below the diagonal.
//
// The tiles, ring and order of sums are those of gemm/wgmma.cuh: one chain in the order of k. The producer warp finds the
// tiles (gemm/syrk.cuh) and sends them. Both operands are a, read along k or ACROSS. A warp whose 16 rows are all above
// the diagonal has nothing to store.
#include "gemm/syrk.cuh"
#include "gemm/wgmma_sent.cuh"

namespace baracuda {
namespace gemm {

template <class T, class U, int COLUMNS, bool ACROSS>
using LowerTiles =
    Product<FloatMma<T, ACROSS, ACROSS>, U, COLUMNS, false, default_stages<COLUMNS>, 2, SyrkWgmmaParams, void, 1>;

template <class T, class U, int COLUMNS, bool ACROSS>
struct LowerProduct : SentProduct<LowerTiles<T, U, COLUMNS, ACROSS>> {
  using Tiles = LowerTiles<T, U, COLUMNS, ACROSS>;
  using Base = SentProduct<Tiles>;
  using Base::p, Base::memory, Base::Base;

  BARACUDA_D void produce() const {
    const bool sends = lane_id() == 0;
    if (sends) this->prefetch();
    Stage<Base::Ring::stages> at;
    for (u32 number = blockIdx.x; number < static_cast<u32>(p.total); number += gridDim.x) {
      const u32 tiles = static_cast<u32>(p.tiles);
      const LowerTile<tile_rows, COLUMNS> tile(p, number % tiles);
      if (sends) {
        this->send(at, {static_cast<int>(number / tiles), tile.m * tile_rows, tile.n * COLUMNS, static_cast<int>(p.n),
                        0, this->slices});
      }
    }
    if (sends) this->send_end(at);
  }

  // The warp's 16 rows from m on, 64 columns at a time by way of its staging: along the rows, then down the columns, both
  // in vectors of eight.
  BARACUDA_D void finish_both(typename Base::Accumulator& acc, const SentTile& tile, int m, int consumer) const {
    const SyrkResult<U, float, SyrkWgmmaParams> result(p, SyrkOffsets(p, tile.batch));
    float* const staging = reinterpret_cast<float*>(memory.staging(consumer));
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 64) {
      const int n0 = tile.n + c;
      if (n0 < p.n && n0 < m + 16) {
        __syncwarp();
        Tiles::put(staging, reinterpret_cast<const float(&)[8][4]>(acc[0]));
        __syncwarp();
        // Store below the diagonal; what is stored goes back into the staging.
#pragma unroll 1
        for (int e = lane_id(); e < 16 * 8; e += warp_size) {
          const int row = e / 8, octet = e % 8;
          const i64 i = m + row, j = n0 + 8 * octet;
          if (i >= p.n || j > i) continue;
          const auto x = result.of(i, j, p.n - j, Tiles::get(staging, row, octet));
          result.below(i, j, p.n - j, x);
          *reinterpret_cast<float4*>(staging + Tiles::place(row, 2 * octet)) = make_float4(x[0], x[1], x[2], x[3]);
          *reinterpret_cast<float4*>(staging + Tiles::place(row, 2 * octet + 1)) = make_float4(x[4], x[5], x[6], x[7]);
        }
        __syncwarp();
        // Store above the diagonal.
#pragma unroll 1
        for (int e = lane_id(); e < 64 * 2; e += warp_size) {
          const int col = e / 2, row = e % 2 * 8;
          const i64 i = m + row, j = n0 + col;
          if (i >= p.n || j >= p.n || j >= i + 7) continue;
          Vec<float, 8> x;
#pragma unroll
          for (int k = 0; k < 8; ++k) x[k] = staging[Tiles::place(row + k, col / 4) + col % 4];
          result.above(i, j, p.n - i, x);
        }
      }
      Base::template shift<8>(acc);
    }
  }
  BARACUDA_D void consume(int consumer) const {
    this->receive(consumer, [&](const SentTile& tile, typename Base::Accumulator& acc) {
      const int m = this->row_of_warp(tile, consumer);
      if (m < p.n && tile.n < m + 16) finish_both(acc, tile, m, consumer);
    });
  }
  BARACUDA_D void run() const {
    Base::template run<40, 232>([&] { produce(); }, [&](int consumer) { consume(consumer); });
  }
};

}  // namespace gemm

template <class T, class U, int COLUMNS, bool ACROSS> BARACUDA_D void syrk_wgmma(const SyrkWgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::LowerProduct<T, U, COLUMNS, ACROSS>(p, shared, p.alpha() != 0.0).run();
}

}  // namespace baracuda
