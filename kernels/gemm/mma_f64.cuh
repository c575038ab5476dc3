#pragma once
// mma_f64    the sums of a tile of a product of doubles by a block of four warps on tensor cores, and their way out.
//
// The tile is SIZE x 64, or with a second right matrix SIZE x 32 of both products; a warp has a quarter of it. Slices of
// 16 of k go through a ring of stages in shared memory. A sum is one chain of mma_m8n8k4 in the order of k, from zero,
// the end of k filled up with zeros: its bits depend on k alone.
#include "gemm/copy_ring.cuh"
#include "gemm/slices.cuh"
#include <baracuda/mma_f64.cuh>

namespace baracuda {

// Reads fragments of a slice of EXTENT rows of a, or columns of b: lane (g, t) has number g of eight of them, at t of
// four of k. Half a warp reads 32 bytes of each of four rows of the slice, which lie in different banks.
template <bool K_MAJOR, int EXTENT, int DEPTH> struct Doubles {
  static constexpr int BYTES = (K_MAJOR ? DEPTH : EXTENT) * 8;
  static_assert(BYTES % 128 == 0, "a line of the twist");
  u32 address;

  // start: a warp's place in the tile, a multiple of 16.
  BARACUDA_D Doubles(const double* slice, int start) {
    const int g = lane_id() / 4, t = lane_id() % 4, row = K_MAJOR ? g : t, column = K_MAJOR ? t : g;
    address = smem_address(slice) + Twist<BYTES, true>::at(row, column / 2) + column % 2 * 8;
    address = at(start, 0);
  }
  // At `x` from there, a multiple of 8, and the four of k number `step`.
  BARACUDA_D double read(int x, int step, u32 offset) const { return load_shared_f64(at(x, step) + offset); }

 private:
  BARACUDA_D u32 at(int x, int step) const {
    const int row = K_MAJOR ? x : 4 * step;
    const u32 byte = static_cast<u32>(K_MAJOR ? 4 * step : x) * 8;  // a multiple of 32, of 64 along the other axis
    return (address ^ (byte & 127)) + row * BYTES + (byte & ~127u);
  }
};

template <bool A_K, bool B_K, bool GATED, int SIZE> struct MmaTileF64 {
  static constexpr int threads = mma_f64_threads, depth = mma_f64_slice_bytes / static_cast<int>(sizeof(double)),
                       stages = SIZE == 128 ? mma_f64_stages_128 : mma_f64_stages_64, rights = GATED ? 2 : 1;
  static constexpr int rows = SIZE, cols = GATED ? 32 : 64, warp_rows = rows / 2, warp_cols = cols / 2;
  static constexpr int MT = warp_rows / 8, NT = warp_cols / 8;
  static constexpr int pitch = warp_cols + 8;  // doubles of a row on its way out

  using Left = Slices<double, A_K, rows, depth, threads>;
  using Right = Slices<double, B_K, cols, depth, threads>;
  static constexpr int stage_size = Left::size + rights * Right::size;  // elements

  double acc[rights][MT][NT][2];

  BARACUDA_D MmaTileF64() {
#pragma unroll
    for (int r = 0; r < rights; ++r)
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n) acc[r][m][n][0] = acc[r][m][n][1] = 0.0;
  }

  // The sums of products over `k` of k. On return nothing is in flight and the ring is free.
  BARACUDA_D void add(double* ring, Left a, Right (&b)[rights], i64 k) {
    const Doubles<A_K, rows, depth> left(ring, warp_row());
    const Doubles<B_K, cols, depth> right(ring + Left::size, warp_col());
    for_slices<stages>(
        static_cast<int>(div_up(k, depth)),
        [&](int stage, int s) {
          const int there = static_cast<int>(min<i64>(depth, k - static_cast<i64>(s) * depth));
          double* const start = ring + stage * stage_size;
          a.copy(start, there);
#pragma unroll
          for (int r = 0; r < rights; ++r) b[r].copy(start + Left::size + r * Right::size, there);
        },
        [&](int stage, int) {
          const u32 offset = static_cast<u32>(stage * stage_size) * 8;
#pragma unroll
          for (int step = 0; step < depth / 4; ++step) multiply(left, right, step, offset);
        });
  }

  // Calls sink(row, column, sums, sums of the second product) for every two columns of the tile's rows, through the
  // ring's memory. Each warp has its own part of it, and eight rows go out at a time.
  template <class Sink> BARACUDA_D void finish(double* ring, const Sink& sink) const {
    constexpr int pairs = warp_cols / 2;
    const int lane = lane_id();
    double* const mine = ring + static_cast<int>(threadIdx.x) / warp_size * (rights * 8 * pitch);
    double* const own = mine + lane / 4 * pitch + lane % 4 * 2;
#pragma unroll 1
    for (int block = 0; block < MT; ++block) {
      __syncwarp();
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        if (m != block) continue;
#pragma unroll
        for (int r = 0; r < rights; ++r)
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            store(own + r * 8 * pitch + 8 * n, Vec<double, 2>{{acc[r][m][n][0], acc[r][m][n][1]}});
          }
      }
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < 8 * pairs; i += warp_size) {
        const int row = i / pairs, col = i % pairs * 2;
        const double* const at = mine + row * pitch + col;
        const Vec<double, 2> sum = load<2>(at), up = GATED ? load<2>(at + 8 * pitch) : sum;
        sink(warp_row() + 8 * block + row, warp_col() + col, sum, up);
      }
    }
  }

 private:
  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / (2 * warp_size) * warp_rows; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % 2 * warp_cols; }

  // Adds the products over the four of k number `step` of the stage at byte `offset`.
  template <class L, class R> BARACUDA_D void multiply(const L& left, const R& right, int step, u32 offset) {
    double fa[MT];
#pragma unroll
    for (int m = 0; m < MT; ++m) fa[m] = left.read(8 * m, step, offset);
#pragma unroll
    for (int r = 0; r < rights; ++r)
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const double fb = right.read(8 * n, step, offset + static_cast<u32>(r * Right::size) * 8);
#pragma unroll
        for (int m = 0; m < MT; ++m) mma_m8n8k4(acc[r][m][n], fa[m], fb);
      }
  }
};

}  // namespace baracuda
