#pragma once
// mma        the sums of a tile of a product by a block of four warps on tensor cores (mma.sync), and their way out.
//
// The tile is SIZE x SIZE, or with a second right matrix SIZE x 64 of both products; a warp has a quarter of it. Slices
// of 64 bytes of k go through a ring of stages in shared memory, and the fragments of the next 32 bytes are read while
// those before are multiplied. A sum is made of pieces of k, each one chain of mma_deep in the order of k, from zero, and
// the pieces are added in their order; the end of k is filled up with zeros. So its bits depend on k and the length of
// pieces alone: not on SIZE, m, the batch or the strides, nor on whether one block has all pieces.
#include "gemm/slices.cuh"
#include <baracuda/opaque.cuh>

namespace baracuda {

template <class T, bool A_K, bool B_K, bool GATED, int SIZE> struct MmaTile {
  static constexpr int threads = mma_threads, depth = mma_slice_bytes / sizeof(T), steps = 2,
                       stages = SIZE == 128 ? mma_stages_128 : mma_stages_64;
  static constexpr int rights = GATED ? 2 : 1;
  static constexpr int rows = SIZE, cols = GATED ? 64 : SIZE, warp_rows = rows / 2, warp_cols = cols / 2;
  static constexpr int MT = warp_rows / 16, NT = warp_cols / 8;
  static constexpr int slab = mma_slab, pitch = warp_cols + 8;  // rows that go out together, floats a row

  using Left = Slices<T, A_K, rows, depth, threads>;
  using Right = Slices<T, B_K, cols, depth, threads>;
  static constexpr int stage = Left::size + rights * Right::size;  // elements

  float acc[rights][MT][NT][4];

  BARACUDA_D MmaTile() {
    each([](int, float(&x)[4]) { x[0] = x[1] = x[2] = x[3] = 0.0f; });
  }

  // The sums of products over `k` of k, in pieces of `piece` slices. On return nothing is in flight and the ring is free.
  BARACUDA_D void add(T* ring, Left a, Right (&b)[rights], i64 k, int piece) {
    int slices = static_cast<int>(div_up(k, depth));  // that are left
    if (slices <= 0) return;
    const bool many = slices > piece;
    Vec<float, 4> memory[rights * MT * NT];  // the sum of the pieces before, as registers have no room for it
    if (many) {
      Vec<float, 4>* const zero = held(memory);
      each([&](int i, const float(&)[4]) { zero[i] = {}; });
    }
    const int last = static_cast<int>(k - static_cast<i64>(slices - 1) * depth);  // of k in the last slice
    // Issues the copies of the next slice into a stage, if any of `left` there are.
    const auto fetch = [&](int to, int left) {
      if (left > 0) {
        const int depth_left = left == 1 ? last : depth;
        T* const start = ring + to * stage;
        a.copy(start, depth_left);
#pragma unroll
        for (int r = 0; r < rights; ++r) b[r].copy(start + Left::size + r * Right::size, depth_left);
      }
      cp_async_commit();
    };
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) fetch(n, slices - n);
    cp_async_wait<stages - 2>();
    __syncthreads();

    const Fragments<T, true, A_K, rows, depth> left(ring, warp_row());
    const Fragments<T, false, B_K, cols, depth> right(ring + Left::size, warp_col());
    u32 fa[2][MT][4], fb[2][rights][NT / 2][4];
    // Reads the fragments of a step of the stage `from`.
    const auto read = [&](int to, int from, int step) {
      const u32 offset = static_cast<u32>(from * stage * sizeof(T));
#pragma unroll
      for (int m = 0; m < MT; ++m) left.read(fa[to][m], 16 * m, step, offset);
#pragma unroll
      for (int r = 0; r < rights; ++r)
#pragma unroll
        for (int n = 0; n < NT / 2; ++n) {
          right.read(fb[to][r][n], 16 * n, step, offset + static_cast<u32>(r * Right::size * sizeof(T)));
        }
    };
    int now = 0;  // the stage that is read
    read(0, now, 0);
#pragma unroll 1
    while (slices > 0) {
#pragma unroll 1
      for (int rest = min(piece, slices); rest > 0; --rest, --slices) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          const int next = (step + 1) % 2;
          // Issue the copies of a later slice into the stage before.
          if (step == 0) fetch(now == 0 ? stages - 1 : now - 1, slices - (stages - 1));
          // Read the fragments of the next step: of this stage, or of the next, for which the block waits.
          if (step + 1 < steps) {
            read(next, now, step + 1);
          } else {  // all warps are done with this stage, and the next slice is there
            cp_async_wait<stages - 2>();
            __syncthreads();
            now = now + 1 == stages ? 0 : now + 1;
            if (slices > 1) read(next, now, 0);
          }
          // Multiply this step's.
#pragma unroll
          for (int r = 0; r < rights; ++r)
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
              for (int n = 0; n < NT; ++n) {
                const u32(&pair)[4] = fb[step % 2][r][n / 2];
                const u32 of[2] = {pair[n % 2 * 2], pair[n % 2 * 2 + 1]};
                mma_deep<T>(acc[r][m][n], fa[step % 2][m], of);
              }
        }
      }
      if (many) end_piece(held(memory), slices == 0);
    }
  }

  // Calls sink(row, column, sums, sums of the second product) for every eight columns of the tile's rows, through the
  // ring's memory. Each warp has its own part of it, and 32 rows go out at a time.
  template <class Sink> BARACUDA_D void finish(T* ring, const Sink& sink) const {
    constexpr int chunks = warp_cols / 8;
    const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
    float* const mine = reinterpret_cast<float*>(ring) + warp * (rights * slab * pitch);
#pragma unroll 1
    for (int start = 0; start < warp_rows; start += slab) {
      __syncwarp();
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        if (16 * m / slab * slab != start) continue;
#pragma unroll
        for (int r = 0; r < rights; ++r) put(mine + (r * slab + 16 * m % slab) * pitch, acc[r][m]);
      }
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < slab * chunks; i += warp_size) {
        const int row = i / chunks, col = i % chunks * 8;
        const float* const at = mine + row * pitch + col;
        const Vec<float, 8> sum = load<8>(at), up = GATED ? load<8>(at + slab * pitch) : sum;
        sink(warp_row() + start + row, warp_col() + col, sum, up);
      }
    }
  }

 private:
  // Calls f(number, four sums) for all sums of a lane.
  template <class F> BARACUDA_D void each(const F& f) {
#pragma unroll
    for (int r = 0; r < rights; ++r)
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n) f((r * MT + m) * NT + n, acc[r][m][n]);
  }
  // Memory that the compiler cannot keep in registers, as it does not know the address.
  template <int N> static BARACUDA_D Vec<float, 4>* held(Vec<float, 4> (&memory)[N]) {
    return const_cast<Vec<float, 4>*>(opaque(memory));
  }
  // Adds a piece to those before, from where it goes on with the next one, or with all of them.
  BARACUDA_D void end_piece(Vec<float, 4>* before, bool last) {
    each([&](int i, float(&x)[4]) {
      Vec<float, 4> sum = before[i];
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] += x[e];
      if (!last) before[i] = sum;
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = last ? sum[e] : 0.0f;
    });
  }
  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / (2 * warp_size) * warp_rows; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % 2 * warp_cols; }

  // Sixteen rows of sums to shared memory.
  static BARACUDA_D void put(float* to, const float (&x)[NT][4]) {
    float* const own = to + lane_id() / 4 * pitch + lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Vec<float, 2> pair;
        pair[0] = x[n][2 * half], pair[1] = x[n][2 * half + 1];
        store(own + 8 * half * pitch + 8 * n, pair);
      }
  }
};

}  // namespace baracuda
