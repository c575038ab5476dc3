#pragma once
// tile       the sums of a tile of a convolution on tensor cores: the tile of gemm/mma.cuh, whose slices are copied from
//            windows of an input that lies channels last.
//
// A sum is one chain of mma_deep over k, 32 bytes at a time, from zero: its bits depend on neither SIZE nor the other rows.
#include "conv/window.cuh"
#include "gemm/mma.cuh"

namespace baracuda {

template <class T, bool K_MAJOR, int SIZE> struct ConvTile : MmaTile<T, K_MAJOR, K_MAJOR, false, SIZE> {
  using Base = MmaTile<T, K_MAJOR, K_MAJOR, false, SIZE>;
  static constexpr int depth = Base::depth, stages = Base::stages, steps = Base::steps, MT = Base::MT, NT = Base::NT;
  static constexpr int left_size = Base::Left::size, stage = Base::stage;

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
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) fetch(n, n);
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const Fragments<T, true, K_MAJOR, SIZE, depth> left(ring, warp / 2 * Base::warp_rows);
    const Fragments<T, false, K_MAJOR, SIZE, depth> right(ring + left_size, warp % 2 * Base::warp_cols);
    int now = 0;
#pragma unroll 1
    for (i64 slice = 0; slice < slices; ++slice) {
      // Wait for the slice; all warps are done with the stage before, which takes a later one.
      cp_async_wait<stages - 2>();
      __syncthreads();
      fetch(now == 0 ? stages - 1 : now - 1, slice + stages - 1);
      const u32 offset = static_cast<u32>(now * stage * sizeof(T));
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        u32 fa[MT][4], fb[NT / 2][4];
#pragma unroll
        for (int m = 0; m < MT; ++m) left.read(fa[m], 16 * m, step, offset);
#pragma unroll
        for (int n = 0; n < NT / 2; ++n) right.read(fb[n], 16 * n, step, offset);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            const u32 of[2] = {fb[n / 2][n % 2 * 2], fb[n / 2][n % 2 * 2 + 1]};
            mma_deep<T>(this->acc[0][m][n], fa[m], of);
          }
      }
      now = now + 1 == stages ? 0 : now + 1;
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  // Calls sink(row, column, sums) for every eight columns, as `finish` does, but so that the lanes of a warp have rows one
  // below the other: for results that are neighbours in memory there.
  template <class Sink> BARACUDA_D void finish_down(T* ring, const Sink& sink) const {
    constexpr int slab = Base::slab, pitch = Base::pitch, warp_rows = Base::warp_rows, warp_cols = Base::warp_cols;
    const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
    float* const mine = reinterpret_cast<float*>(ring) + warp * (slab * pitch);
#pragma unroll 1
    for (int start = 0; start < warp_rows; start += slab) {
      __syncwarp();
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        if (16 * m / slab * slab != start) continue;
        float* const own = mine + (16 * m % slab + lane / 4) * pitch + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Vec<float, 2> pair{{this->acc[0][m][n][2 * half], this->acc[0][m][n][2 * half + 1]}};
            store(own + 8 * half * pitch + 8 * n, pair);
          }
      }
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < slab * warp_cols / 8; i += warp_size) {
        const int row = i % slab, col = i / slab * 8;
        sink(warp / 2 * warp_rows + start + row, warp % 2 * warp_cols + col, load<8>(mine + row * pitch + col));
      }
    }
  }
};

// What stands in a slice where there is no element of x: zeros.
struct NoElements {
  template <class P, class T> static BARACUDA_D void copy(const P&, T* to, const T* from, bool there) {
    cp_async_16_of(to, from, there ? 16 : 0);
  }
};

// What a thread copies of slices [rows][k = (tap, channel)]: one piece of 16 bytes of every 32nd row. NONE: what stands
// for elements that are not there.
template <class T, int EXTENT, int DEPTH, int THREADS = mma_threads, class NONE = NoElements> struct WindowRows {
  static constexpr int SIZE = static_cast<int>(sizeof(T)), EACH = 16 / SIZE, PIECES = DEPTH / EACH;
  static constexpr int STEP = THREADS / PIECES, COUNT = EXTENT / STEP;
  static_assert(STEP % 8 == 0, "the rows a thread copies share one twist");
  const ConvParams& p;
  const T* x;
  int begin[COUNT];  // in pieces: of the batch and the window
  int at[COUNT][3], c;
  ConvTap tap;

  BARACUDA_D WindowRows(const ConvParams& p, i64 group, i64 start)
      : p(p), x(static_cast<const T*>(p.x) + group * p.x_steps[1]), c(static_cast<int>(threadIdx.x) % PIECES * EACH),
        tap(p, 0) {
#pragma unroll
    for (int n = 0; n < COUNT; ++n) {
      const i64 row = start + static_cast<int>(threadIdx.x) / PIECES + n * STEP;
      const ConvRow place(p, min<i64>(row, p.rows - 1));
      i64 from = place.batch * p.x_steps[0];
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        const i64 first = place.at[axis] * p.stride[axis] - p.padding[axis];
        from += first * p.x_steps[3 + axis];
        at[n][axis] = row < p.rows ? static_cast<int>(first) : -(1 << 30);
      }
      begin[n] = static_cast<int>(from / EACH);
    }
    settle();
  }
  BARACUDA_D void copy(T* slice, int) {
    const int row = static_cast<int>(threadIdx.x) / PIECES, piece = static_cast<int>(threadIdx.x) % PIECES;
    T* const to = slice + Twist<DEPTH * SIZE>::at(row, piece) / SIZE;
    int shift[3];
    int moved = c / EACH;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      shift[axis] = tap.at[axis] * static_cast<int>(p.dilation[axis]);
      moved += shift[axis] * step(axis);
    }
#pragma unroll
    for (int n = 0; n < COUNT; ++n) {
      bool there = tap.at[0] < p.kernel[0];
      const int offset = begin[n] + moved;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        there = there && static_cast<u32>(at[n][axis] + shift[axis]) < static_cast<u32>(p.in_extent[axis]);
      }
      NONE::copy(p, to + n * STEP * DEPTH, there ? x + static_cast<i64>(offset) * EACH : x, there);
    }
    c += DEPTH;
    settle();
  }

 private:
  BARACUDA_D int step(int axis) const { return static_cast<int>(p.x_steps[3 + axis] / EACH); }
  // Goes on to the tap that the channel is of.
  BARACUDA_D void settle() {
    while (c >= p.channels && tap.at[0] < p.kernel[0]) c -= static_cast<int>(p.channels), tap.next(p);
  }
};

// What a thread copies of slices [rows][columns = (tap, channel)], where k are the rows of the convolution. PANELS: each 128
// bytes of columns are a slice of their own, one behind the other.
template <class T, int EXTENT, int DEPTH, int THREADS = mma_threads, bool PANELS = false> struct WindowColumns {
  static constexpr int SIZE = static_cast<int>(sizeof(T)), EACH = 16 / SIZE;
  static constexpr int WIDTH = PANELS ? 128 / SIZE : EXTENT;
  using Place = Twist<WIDTH * SIZE, SIZE == 4>;
  static constexpr int LINE = Place::line, STEP = THREADS / LINE, CHUNKS = EXTENT / (LINE * EACH);
  static_assert(STEP % 8 == 0 && DEPTH % STEP == 0, "the rows a thread copies share one twist");
  const ConvParams& p;
  const T* x;
  i64 row;
  int begin[CHUNKS];     // in pieces, of the tap and the channel
  int shift[CHUNKS][3];  // of the tap; nowhere where there is none

  BARACUDA_D WindowColumns(const ConvParams& p, i64 group, i64 start, i64 first)
      : p(p), x(static_cast<const T*>(p.x) + group * p.x_steps[1]), row(first + static_cast<int>(threadIdx.x) / LINE) {
#pragma unroll
    for (int n = 0; n < CHUNKS; ++n) {
      u64 channel;
      const i64 column = start + static_cast<int>(threadIdx.x) % LINE * EACH + n * LINE * EACH;
      const i64 tap = static_cast<i64>(divmod(static_cast<u64>(column), static_cast<u64>(p.channels), channel));
      const ConvTap place(p, tap);
      begin[n] = static_cast<int>(channel) / EACH;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        shift[n][axis] = place.at[axis] * static_cast<int>(p.dilation[axis]) - static_cast<int>(p.padding[axis]);
        begin[n] += shift[n][axis] * step(axis);
      }
      if (tap >= p.taps) shift[n][0] = -(1 << 30);
    }
  }
  BARACUDA_D void copy(T* slice, int left) {
    const int own = static_cast<int>(threadIdx.x) / LINE, piece = static_cast<int>(threadIdx.x) % LINE;
    T* const to = slice + Place::at(own, piece) / SIZE;
#pragma unroll
    for (int n = 0; n < DEPTH / STEP; ++n) {
      const bool exists = own + n * STEP < left;
      const ConvRow place(p, exists ? row + n * STEP : 0);
      int at[3];
      int base = static_cast<int>(place.batch * (p.x_steps[0] / EACH));
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        at[axis] = static_cast<int>(place.at[axis]) * static_cast<int>(p.stride[axis]);
        base += at[axis] * step(axis);
      }
#pragma unroll
      for (int k = 0; k < CHUNKS; ++k) {
        bool there = exists;
        const int offset = base + begin[k];
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
          there = there && static_cast<u32>(at[axis] + shift[k][axis]) < static_cast<u32>(p.in_extent[axis]);
        }
        const T* const from = there ? x + static_cast<i64>(offset) * EACH : x;
        cp_async_16_of(to + n * STEP * WIDTH + k * (PANELS ? WIDTH * DEPTH : LINE * EACH), from, there ? 16 : 0);
      }
    }
    row += DEPTH;
  }

 private:
  BARACUDA_D int step(int axis) const { return static_cast<int>(p.x_steps[3 + axis] / EACH); }
};

}  // namespace baracuda
