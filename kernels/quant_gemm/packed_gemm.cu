// packed_gemm    y[m, n] = Σ_k a[m, k] b[n, k] of packed integers (quant_gemm/packed.cuh) on tensor cores, any strides.
//
// A block computes a tile of SIZE x SIZE by eight warps, over slices of 128 bytes of a's lines; tiles are taken in the
// order of gemm/raster.cuh. Sums are integers of 32 bits, the same in every order.
#include "gemm/raster.cuh"
#include "quant_gemm/byte_lines.cuh"
#include "quant_gemm/packed.cuh"
#include "quant_gemm/packed_out.cuh"

namespace baracuda {
namespace quant {

// Fragments of the columns of b from `column` on: bytes as they are, or codes of which a column has 32 bytes a slice.
template <class K, int SIZE> struct RightBytes {
  Fragments<u8, false, true, SIZE, 128> source;
  BARACUDA_D RightBytes(const u8* slice, int column) : source(slice, column) {}
  template <int NT> BARACUDA_D void read(u32 (&b)[NT][2], int step, u32 offset) const {
    read_right(b, source, step, offset);
  }
};
template <int SIZE> struct RightBytes<Ternary, SIZE> {
  const u8* lines;
  BARACUDA_D RightBytes(const u8* slice, int column) : lines(slice + (column + lane_id() / 4) * Ternary::SLICE_B) {}
  template <int NT> BARACUDA_D void read(u32 (&b)[NT][2], int step, u32 offset) const {
    const int shift = lane_id() % 4 * 8;
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const auto codes = load<2>(reinterpret_cast<const u32*>(lines + offset + 8 * n * Ternary::SLICE_B + 8 * step));
      b[n][0] = ternary_bytes(codes[0] >> shift & 0xff), b[n][1] = ternary_bytes(codes[1] >> shift & 0xff);
    }
  }
};

}  // namespace quant

template <class K, class U, int SIZE> BARACUDA_D void packed_gemm(const PackedGemmParams& p) {
  using namespace quant;
  using Warps = EightWarps<SIZE>;
  constexpr int MT = Warps::MT, NT = Warps::NT;
  using Left = Lines<u8, SIZE, 128>;
  using Right = Lines<u8, SIZE, K::SLICE_B>;
  constexpr int stage_bytes = Left::size + Right::size;
  BARACUDA_DYNAMIC_SMEM(u8, shared);
  const Raster at(blockIdx.x, div_up(p.m, SIZE), div_up(p.n, SIZE));
  const i64 m0 = at.m * SIZE, n0 = at.n * SIZE, bytes_a = K::bytes_a(p.k), bytes_b = K::bytes_b(p.k);
  Left a(LineSource(p.a, p.a_strides[0], p.a_strides[1], m0, p.m, SIZE, p.wide & 1));
  Right b(LineSource(p.b, p.b_strides[0], p.b_strides[1], n0, p.n, SIZE, p.wide & 2));
  const Fragments<u8, true, true, SIZE, 128> left(shared, Warps::warp_row());
  const RightBytes<K, SIZE> right(shared + Left::size, Warps::warp_col());
  int acc[MT][NT][4] = {};
  for_slices<stages>(
      static_cast<int>(div_up(bytes_a, 128)),
      [&](int stage, int slice) {
        a.copy(shared + stage * stage_bytes, bytes_a - static_cast<i64>(slice) * 128);
        b.copy(shared + stage * stage_bytes + Left::size, bytes_b - static_cast<i64>(slice) * K::SLICE_B);
      },
      [&](int stage, int) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const u32 offset = static_cast<u32>(stage * stage_bytes);
          u32 fb[NT][2];
          right.read(fb, step, offset);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            u32 fa[4];
            left.read(fa, 16 * m, step, offset);
#pragma unroll
            for (int n = 0; n < NT; ++n) K::multiply(acc[m][n], fa, fb[n]);
          }
        }
      });
  put_warp_tile(shared, acc, [&](int row, int column, const Vec<int, 8>& x) {
    Vec<int, 8> y;
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = K::finish(x[k], p.k);
    put_packed<U>(p, m0 + Warps::warp_row() + row, n0 + Warps::warp_col() + column, y);
  });
}

}  // namespace baracuda
