#pragma once
// recurrent_product   the product of a recurrent step: ROWS rows of states, or of slopes, by GROUPS times UNITS rows of
//                     weights, for a block of 512 threads, each of which gets the sums of one row with its unit of every group.
//
// Slices of LINE bytes of k go through a ring of stages in shared memory, swizzled as in mma_tile.cuh. 16-bit elements:
// eight warps or four have a share of 32 of k of every slice each, a chain of mma.sync in the order of k, and these
// chains are added in order. Others: a thread has as many chains of FMA as 16 bytes hold elements, k modulo that, added
// in order. So the order depends on k alone, neither on the rows of a batch nor on how operands lie.
#include <baracuda/math.cuh>
#include <baracuda/mma_tile.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// A row of an operand: where it begins, the step along k, and whether there is one; else it is zeros.
template <class T> struct ProductRow {
  const T* from;
  i64 step;
  bool there;
};

template <class T, int ROWS, int GROUPS, int LINE, bool WIDE> struct RecurrentProduct {
  using A = acc_t<T>;
  static constexpr bool tensor = sizeof(T) == 2;
  static constexpr int threads = recurrent_threads, units = threads / ROWS, cols = GROUPS * units;
  static constexpr int right_rows = (cols + 15) / 16 * 16;  // whole fragments
  static constexpr int each = 16 / static_cast<int>(sizeof(T)), depth = LINE / static_cast<int>(sizeof(T));
  static constexpr int pieces = LINE / 16, lines = threads / pieces;  // those of a slice that all threads copy at once
  static constexpr int all = ROWS + right_rows, passes = (all + lines - 1) / lines;
  static constexpr int stage_bytes = all * LINE, stages = recurrent_smem / stage_bytes;
  static constexpr int tiles = ROWS / 16, ways = threads / warp_size / tiles, share = 32;  // of the warps
  static_assert(!tensor || ways * share == depth, "every warp has a share of a slice");
  static_assert(ways * ROWS * (cols + 1) * 4 <= recurrent_smem && stages >= 3, "room for sums and for a ring");

  unsigned char* const ring;
  const int tid, row, unit;  // the sums of this thread
  const int k, rows;         // terms of a sum; rows of states that are there
  ProductRow<T> source[passes];

  // left(row) and right(group, unit, whether there is one): the rows of both operands. WIDE: rows are dense and 16-byte aligned, and k is a
  // multiple of 16 bytes.
  template <class Left, class Right>
  BARACUDA_D RecurrentProduct(unsigned char* shared, int k, int rows, Left left, Right right)
      : ring(shared), tid(static_cast<int>(threadIdx.x)), row(tid / units), unit(tid % units), k(k), rows(rows) {
#pragma unroll
    for (int n = 0; n < passes; ++n) {
      const int line = tid / pieces + n * lines, col = line - ROWS;
      if (n * lines < ROWS) source[n] = left(line);
      else source[n] = right(col / units, col % units, col < cols);
    }
  }

  static_assert(ROWS % lines == 0, "threads copy rows of one operand at once");

  // Issue the copies of the first slices.
  BARACUDA_D void start() const {
    for (int s = 0; s < stages - 1; ++s) {
      load(s);
      cp_async_commit();
    }
  }
  // The sums of this thread; all call.
  BARACUDA_D void finish(A (&sums)[GROUPS]) const {
    if constexpr (tensor) multiply_tensor(sums);
    else multiply(sums);
  }

 private:
  BARACUDA_D int slices() const { return (k + depth - 1) / depth; }

  BARACUDA_D void load(int slice) const {
    if (slice >= slices()) return;
    const int piece = tid % pieces, first = slice * depth + piece * each, begin = tid / pieces;
    // Lines that a thread copies differ by multiples of eight: they share one twist.
    static_assert(lines % 8 == 0, "one twist a thread");
    unsigned char* const to = ring + slice % stages * stage_bytes + begin * LINE + (piece ^ (begin & 7)) * 16;
#pragma unroll
    for (int n = 0; n < passes; ++n) {
      if (all % lines != 0 && begin + n * lines >= all) break;
      const ProductRow<T>& from = source[n];
      if constexpr (WIDE) {
        cp_async_16(to + n * lines * LINE, from.from + first, from.there && first < k);
      } else {
        T* const here = reinterpret_cast<T*>(to + n * lines * LINE);
#pragma unroll 1
        for (int e = 0; e < each; ++e) {
          here[e] = from.there && first + e < k ? from.from[(first + e) * from.step] : from_acc<T>(A(0));
        }
      }
    }
  }
  // Calls add(stage) for every slice in order; the ring is free after it.
  template <class Add> BARACUDA_D void for_slices(Add add) const {
    const int count = slices();
#pragma unroll 1
    for (int s = 0; s < count; ++s) {
      // Wait for the slice; the stage of the one before is free.
      cp_async_wait<stages - 2>();
      __syncthreads();
      load(s + stages - 1);
      cp_async_commit();
      add(s % stages);
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  BARACUDA_D void multiply(A (&sums)[GROUPS]) const {
    A chains[GROUPS][each];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
      for (int e = 0; e < each; ++e) chains[g][e] = A(0);
    const auto piece_of = [&](const unsigned char* stage, int line, int piece) {
      return baracuda::load<each>(reinterpret_cast<const T*>(stage + line * LINE + (piece ^ (line & 7)) * 16));
    };
    for_slices([&](int number) {
      if (row >= rows) return;
      const unsigned char* const stage = ring + number * stage_bytes;
#pragma unroll 4
      for (int piece = 0; piece < pieces; ++piece) {
        const Vec<T, each> x = piece_of(stage, row, piece);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
          const Vec<T, each> w = piece_of(stage, ROWS + g * units + unit, piece);
#pragma unroll
          for (int e = 0; e < each; ++e) chains[g][e] = math::fma(to_acc(x[e]), to_acc(w[e]), chains[g][e]);
        }
      }
    });
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      sums[g] = chains[g][0];
#pragma unroll
      for (int e = 1; e < each; ++e) sums[g] += chains[g][e];
    }
  }

  BARACUDA_D void multiply_tensor(A (&sums)[GROUPS]) const {
    constexpr int D = LINE / 2, NT = cols / 8, pitch = cols + 1;
    const int warp = tid / warp_size, tile = warp % tiles, way = warp / tiles;
    const T* const first = reinterpret_cast<const T*>(ring);
    const baracuda::tile::Reader<D, false> left(first);
    const baracuda::tile::Reader<D, true> right(first + ROWS * D);
    const bool mine = tile * 16 < rows;
    float acc[right_rows / 8][4] = {};
    for_slices([&](int number) {
      if (!mine) return;
#pragma unroll
      for (int s = 0; s < share; s += 16) {
        const int col = way * share + s;
        u32 a[4];
        left.read(a, tile * 16, col, number * stage_bytes);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
          u32 b[4];
          right.read(b, n * 8, col, number * stage_bytes);
          const u32 one[2] = {b[0], b[1]}, two[2] = {b[2], b[3]};
          mma_m16n8k16<T>(acc[n], a, one);
          if (n + 1 < NT) mma_m16n8k16<T>(acc[n + 1], a, two);
        }
      }
    });
    float* const partial = reinterpret_cast<float*>(ring);
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        partial[(way * ROWS + tile * 16 + g + e / 2 * 8) * pitch + n * 8 + 2 * t + e % 2] = acc[n][e];
      }
    __syncthreads();
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const float* const own = partial + row * pitch + group * units + unit;
      sums[group] = own[0];
#pragma unroll
      for (int w = 1; w < ways; ++w) sums[group] += own[w * ROWS * pitch];
    }
  }
};

}  // namespace baracuda
