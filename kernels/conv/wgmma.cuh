#pragma once
// wgmma      the sums of a tile of 128 rows and COLS columns of a convolution by two warpgroups (sm_90a), which copy slices of
//            128 bytes of k themselves: windows are no boxes that TMA knows.
//
// A sum is one chain over k, 32 bytes at a time, from zero; where MMA is `apart`, chains of a slice from zero are added to it
// in their order. Its bits depend on neither COLS nor the other rows.
#include "conv/tile.cuh"
#include <baracuda/wgmma.cuh>

namespace baracuda {

// Products of 16-bit elements: 32 bytes of k of 64 rows and N * 8 columns; acc = a b, plus acc where `adds`.
template <class T, bool ACROSS> struct ConvHalves {
  using Sum = float;
  static constexpr bool apart = false;
  template <int N> static BARACUDA_D void multiply(float (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma<T, ACROSS, ACROSS>(acc, a, b, adds);
  }
  // Keeps the compiler from using acc before it was waited for.
  template <int N> static BARACUDA_D void hold(float (&acc)[N][4]) { baracuda::hold(acc); }
};

// ACROSS: k are the rows of the slices, which have panels of 64 columns.
template <class T, int COLS, bool ACROSS, class MMA = ConvHalves<T, ACROSS>> struct ConvWarpgroups {
  using Sum = typename MMA::Sum;
  static constexpr int threads = conv_wgmma_threads, rows = 128, depth = 128 / static_cast<int>(sizeof(T));
  static constexpr int stages = conv_wgmma_stages;
  static constexpr int left_size = rows * depth, stage = left_size + COLS * depth, panel = 64 * depth;
  static constexpr int NT = COLS / 8, pitch = COLS + 8;  // sums of a row on its way out

  Sum acc[NT][4];

  // The sums of products over `k` of k; `a` and `b` copy their next slices. On return the ring is free.
  template <class L, class R> BARACUDA_D void add(T* ring, L& a, R& b, i64 k) {
    const i64 slices = div_up(k, static_cast<i64>(depth));
    const auto fetch = [&](int to, i64 slice) {
      if (slice < slices) {
        const int left = static_cast<int>(min<i64>(depth, k - slice * depth));
        a.copy(ring + to * stage, left), b.copy(ring + to * stage + left_size, left);
      }
      cp_async_commit();
    };
    Sum chain[MMA::apart ? NT : 1][4];
#pragma unroll
    for (int n = 0; n < NT; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = Sum(0);
    // Waits for the products of the slice before, if there is one.
    const auto finished = [&](bool any) {
      wgmma_wait<0>();
      if constexpr (MMA::apart) {
        MMA::hold(chain);
        if (any) {
#pragma unroll
          for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[n][e] += chain[n][e];
        }
      } else {
        MMA::hold(acc);
      }
    };
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) fetch(n, n);
    const u64 left = wgmma_operand(ring + warpgroup() * panel);
    const u64 right = wgmma_operand(ring + left_size, ACROSS ? panel * sizeof(T) : 16);
    int now = 0;
#pragma unroll 1
    for (i64 slice = 0; slice < slices; ++slice) {
      // Wait for the slice, and until no warpgroup reads the stage before, which takes a later one.
      cp_async_wait<stages - 2>();
      wgmma_publish();
      finished(slice != 0);
      __syncthreads();
      const u64 offset = static_cast<u64>(now * (stage * static_cast<int>(sizeof(T)) / 16));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const u64 along = offset + step * (ACROSS ? 128 : 2);
        if constexpr (MMA::apart) MMA::multiply(chain, left + along, right + along, step != 0);
        else MMA::multiply(acc, left + along, right + along, 1);
      }
      wgmma_commit();
      fetch(now == 0 ? stages - 1 : now - 1, slice + stages - 1);
      now = now + 1 == stages ? 0 : now + 1;
    }
    cp_async_wait<0>();
    finished(slices != 0);
    __syncthreads();
  }

  // Calls sink(row, column, sums) for every eight columns of the tile's rows, through the ring's memory. down: so that the
  // lanes of a warp have rows one below the other.
  template <class Sink> BARACUDA_D void finish(T* ring, bool down, const Sink& sink) const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
    Sum* const mine = reinterpret_cast<Sum*>(ring) + warp * (16 * pitch);
    Sum* const own = mine + lane / 4 * pitch + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Vec<Sum, 2> pair{{acc[n][2 * half], acc[n][2 * half + 1]}};
        store(own + 8 * half * pitch + 8 * n, pair);
      }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * NT; i += warp_size) {
      const int row = down ? i % 16 : i / NT, col = (down ? i / 16 : i % NT) * 8;
      sink(16 * warp + row, col, load<8>(mine + row * pitch + col));
    }
  }
};

// Two panels of 64 columns of a matrix whose rows are k.
template <class T, int DEPTH, int THREADS> struct PanelSlices {
  using One = Slices<T, false, 64, DEPTH, THREADS>;
  One first, second;
  BARACUDA_D PanelSlices(const T* matrix, i64 k_step, i64 start, i64 end)
      : first(matrix, 1, k_step, start, end, true),
        second(matrix, 1, k_step, start + 64 < end ? start + 64 : start, start + 64 < end ? end : start, true) {}
  BARACUDA_D void copy(T* slice, int left) { first.copy(slice, left), second.copy(slice + One::size, left); }
};

}  // namespace baracuda
