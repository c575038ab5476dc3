#pragma once
// block_gemm_rows   the tile of a product by stored weights that tensor cores make: up to 64 rows of x, of f16 or bf16
//                   with sums in float, by weights that are decoded in registers.
//
// W is the left operand of mma.sync: 16 of its rows by 16 of k, times 16 of k of 8 rows of x. Of a chunk of 128 of k lane
// (g, q) has the run 32 q … 32 q + 31 of four rows of W, g + 8 i, which chunk_decode.cuh gives to the products eight of k
// at a time.
//
// The chunks of k are cut into 8 ranges. A range is one chain of products in the order of k; the ranges are added as a
// tree. SPLITS warps share k: with 8 they have a range each of 32 columns of y; with 4, which is for many rows of x and
// many columns, two ranges each of one of two such tiles, which read the same x. So the order depends on k alone: neither
// on the number of rows of x nor on how many rows, 8 NT, and columns a block has.
//
// Formats whose codes lie in runs are copied to shared memory some chunks ahead, a lane's own by itself, and those of GGML's
// blocks of 32 by the lanes of a row; of up to 16 rows of x half a chunk is in registers ahead.
#include "quant_gemm/block_gemm.cuh"
#include "quant_gemm/block_ring.cuh"
#include "quant_gemm/chunk_decode.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int block_gemm_threads = block_gemm_warps * warp_size, block_gemm_ranges = 8;

template <class F> constexpr int block_gemm_stages(int nt) {
  return nt > 2 || F::bits > 4 ? block_gemm_long_stages : block_gemm_short_stages;
}
// Of formats whose blocks are copied, for up to 16 rows of x.
template <class F> constexpr bool block_gemm_copies(int nt) { return nt <= 2 && HeldBlock<F>::bytes > 0; }
template <class F>
constexpr int block_gemm_block_stages =
    HeldBlock<F>::bytes <= block_gemm_short_block ? block_gemm_short_block_stages : block_gemm_long_block_stages;
constexpr int block_gemm_columns(int splits) { return 32 * block_gemm_warps / splits; }
template <int NT, int SPLITS> using BlockGemmRowsTile = BlockGemmTile<8 * NT, block_gemm_columns(SPLITS)>;

template <class F, class T, int NT, int SPLITS, class P> struct BlockGemmRows {
  static constexpr int splits = SPLITS, ranges = block_gemm_ranges / splits;  // warps that share k, and ranges of each
  static constexpr int columns = block_gemm_columns(SPLITS), rows = 8 * NT;
  static constexpr int MT = 2, lines = 2 * MT, width = 16 * MT, own_sums = MT * NT * 4;
  static_assert(ranges <= 2, "a warp keeps the sums of one range beside those it makes");

  const P& p;
  const BlockGemmRowsTile<NT, SPLITS>& tile;
  const Stored& stored;
  float* totals;  // [warp][number of a lane's sum][lane]
  int warp, q, left_m, left_n, tiles;
  const T* x;
  u32 x_row[NT];
  float acc[MT][NT][4];

  // Of rows that are not there others are read: nobody takes their sums.
  BARACUDA_D StoredRow stored_row(int r) const {
    return StoredRow(stored, tile.batch, tile.n0 + min(warp / splits * width + r, left_n - 1));
  }
  BARACUDA_D BlockGemmRows(const P& p, const Stored& stored, const BlockGemmRowsTile<NT, SPLITS>& tile, float* shared)
      : p(p), tile(tile), stored(stored), totals(shared), warp(static_cast<int>(threadIdx.x) / warp_size),
        q(lane_id() % 4), left_m(static_cast<int>(min<i64>(rows, p.m - tile.m0))),
        left_n(static_cast<int>(min<i64>(columns, p.n - tile.n0))), tiles((left_m + 7) / 8),
        x(static_cast<const T*>(p.x) + tile.batch * p.x_steps[0] + tile.m0 * p.x_steps[1] + format_run * q) {
#pragma unroll
    for (int t = 0; t < NT; ++t) x_row[t] = min(8 * t + lane_id() / 4, left_m - 1) * static_cast<u32>(p.x_steps[1]);
    clear();
  }

  // ---- products ----

  // The lane's sum number e among the totals.
  BARACUDA_D float& own_total(int e) const { return totals[(warp * own_sums + e) * warp_size + lane_id()]; }
  BARACUDA_D void clear() {
#pragma unroll
    for (int e = 0; e < own_sums; ++e) acc[e / 4 / NT][e / 4 % NT][e % 4] = 0.0f;
  }
  // Eight of k of each tile of x, as the fragments of two products.
  struct Eights {
    uint4 of[NT];
  };
  BARACUDA_D Eights load_x(const T* at, bool there = true) const {
    Eights out;
#pragma unroll
    for (int t = 0; t < NT; ++t) {
      out.of[t] = uint4{};
      if (there && (NT <= 2 || t < tiles)) out.of[t] = __ldg(reinterpret_cast<const uint4*>(at + x_row[t]));
    }
    return out;
  }
  // Eight of k of the lines from `first` on, pairs (j, j + 4), by those of x.
  template <int COUNT> BARACUDA_D void multiply(int first, const u32 (&pairs)[COUNT][4], const Eights& by) {
#pragma unroll
    for (int t = 0; t < NT; ++t) {
      if (NT > 2 && t >= tiles) continue;
      multiply_pairs<T>(acc, first, t, pairs, by.of[t]);
    }
  }
  // What a lane has of x of a chunk.
  static constexpr int eights = format_run / format_part, x_ahead = NT <= 2 ? 2 : 0;
  static constexpr int x_slots = NT <= 2 ? x_ahead : 1;
  // The n-th eight of k of a chunk, whose x is at `at`. What of x is used gives its place to what follows, at last of the
  // chunk at `next`.
  BARACUDA_D void multiply_eight(const T* at, const T* next, Eights (&of_x)[x_slots], int n,
                                 const u32 (&pairs)[lines][4]) {
    Eights& own_x = of_x[n % x_slots];
    if (x_ahead == 0) own_x = load_x(at + n * format_part);
    multiply(0, pairs, own_x);
    constexpr int wrap = eights - x_ahead;
    if (x_ahead > 0) own_x = load_x(n < wrap ? at + (n + x_ahead) * format_part : next + (n - wrap) * format_part);
  }
  // A chunk whose runs are not whole, or that k ends in.
  BARACUDA_D void by_parts(int chunk) {
    const i64 k = static_cast<i64>(chunk) * chunk_k;
#pragma unroll 1
    for (int eight = 0; eight < format_run; eight += format_part) {
      const bool there = k + format_run * q + eight < p.k;
      const Eights of_x = load_x(x + k + eight, there);
      u32 pairs[lines][4] = {};
      const auto decode = [&](int line, float(&values)[format_part]) {
        F::decode(stored, stored_row(lane_id() / 4 + 8 * line), k + format_run * q + eight, values);
      };
      decode_eights<T>(there, decode, pairs);
      multiply(0, pairs, of_x);
    }
  }
  // The end of the first of two ranges.
  BARACUDA_D void keep() {
#pragma unroll
    for (int e = 0; e < own_sums; ++e) own_total(e) = acc[e / 4 / NT][e / 4 % NT][e % 4];
    clear();
  }

  // ---- formats that decode a run from where it is stored ----

  BARACUDA_D int by_runs(int first, int middle, int last) {
    if (first >= last) return first;
    const StoredRow w[lines] = {stored_row(lane_id() / 4), stored_row(lane_id() / 4 + 8),
                                stored_row(lane_id() / 4 + 16), stored_row(lane_id() / 4 + 24)};
    const CodesAhead codes([&](int r) { return stored_row(r); });
    const auto prefetch = [&](int chunk) {
      if (chunk < last) codes.prefetch(p, chunk);
    };
#pragma unroll
    for (int i = 1; i < CodesAhead::chunks; ++i) prefetch(first + i);
    Stored simple = stored;  // which it is where runs are whole: the compiler is to know
    simple.whole = true;
    const T* at = x + static_cast<i64>(first) * chunk_k;
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk, at += chunk_k) {
      if (ranges == 2 && chunk == middle) keep();
      prefetch(chunk + CodesAhead::chunks);
      const auto decode = [&](int line, float(&values)[format_run]) {
        F::decode(simple, w[line], static_cast<i64>(chunk) * chunk_k + format_run * q, values);
      };
      by_whole_runs<T>(decode, [&](int line, int n, const u32(&pairs)[2][4]) {
        multiply(line, pairs, load_x(at + n * format_part));
      });
    }
    return last;
  }

  // ---- formats whose runs are copied ahead ----

  BARACUDA_D int by_copies(int first, int middle, int last, u8* shared) {
    constexpr int stages = block_gemm_stages<F>(NT);
    using Ring = ChunkRing<F, stages>;
    using Numbers = ChunkNumbers<F, T>;
    const auto row = [&](int r) { return stored_row(r); };
    if (first >= last) return first;
    Ring ring(shared + warp * Ring::warp_bytes, first, row);
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) ring.copy(first + i < last);
    Numbers numbers(stored, stored_row(lane_id()), first,
                    shared + block_gemm_warps * Ring::warp_bytes + warp * Numbers::warp_bytes);
    const ChunkDecode<F, T> decode(stored);
    const T* at = x + static_cast<i64>(first) * chunk_k;
    numbers.load();
    Eights of_x[x_slots];
#pragma unroll
    for (int n = 0; n < x_ahead; ++n) of_x[n] = load_x(at + n * format_part);
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk, at += chunk_k) {
      const T* const next = chunk + 1 < last ? at + chunk_k : at;
      if (ranges == 2 && chunk == middle) keep();
      numbers.put();
      ring.copy(chunk + stages - 1 < last);
      if (chunk + 1 < last) numbers.load();
      typename Ring::Words words[lines];
      ring.take(words);
      decode(words, numbers, [&](int n, const u32(&pairs)[lines][4]) { multiply_eight(at, next, of_x, n, pairs); });
    }
    return last;
  }

  // ---- formats whose blocks are copied ahead ----

  BARACUDA_D int by_blocks(int first, int middle, int last, u8* shared) {
    constexpr int stages = block_gemm_block_stages<F>;
    using Held = HeldBlock<F>;
    using Ring = BlockRing<Held::bytes, stages>;
    if (first >= last) return first;
    Ring ring(shared + warp * Ring::warp_bytes, first, [&](int r) { return stored_row(r); });
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) ring.copy(first + i < last);
    const T* at = x + static_cast<i64>(first) * chunk_k;
    Eights of_x[x_slots];
#pragma unroll
    for (int n = 0; n < x_ahead; ++n) of_x[n] = load_x(at + n * format_part);
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk, at += chunk_k) {
      if (ranges == 2 && chunk == middle) keep();
      ring.wait();
      ring.copy(chunk + stages - 1 < last);
      Held held[lines];
      ring.take(held);
      const T* const next = chunk + 1 < last ? at + chunk_k : at;
      const auto body = [&](int n, const u32(&pairs)[lines][4]) { multiply_eight(at, next, of_x, n, pairs); };
      by_eights(body, [&](int line, int n, u32(&pairs)[4]) {
        float values[format_part];
#pragma unroll
        for (int j = 0; j < format_part; ++j) values[j] = held[line](n * format_part + j);
        eight_to_pairs<T>(values, pairs);
      });
    }
    return last;
  }

  // ---- the block ----

  BARACUDA_D void run() {
    const int chunks = static_cast<int>(div_up(p.k, static_cast<i64>(chunk_k))),
              whole = static_cast<int>(p.k / chunk_k);
    const auto begin = [&](int range) {
      return static_cast<int>(static_cast<i64>(chunks) * range / block_gemm_ranges);
    };
    const int range = warp % splits * ranges;
    const int first = begin(range), middle = begin(range + 1), last = begin(range + ranges);
    if constexpr (ranges == 2) keep();
    // Whole chunks by what the format allows.
    int chunk = first;
    u8* const shared = reinterpret_cast<u8*>(totals + block_gemm_warps * own_sums * warp_size);
    if constexpr (is_grouped<F>) {
      const bool runs = stored.whole && stored.index == nullptr && stored.group % format_run == 0;
      if (runs) chunk = by_copies(first, middle, min(last, whole), shared);
    } else if constexpr (block_gemm_copies<F>(NT)) {
      const bool copies = stored.whole && BlockRing<HeldBlock<F>::bytes, 2>::aligned(stored);
      if (copies) chunk = by_blocks(first, middle, min(last, whole), shared);
    } else {
      if (stored.whole) chunk = by_runs(first, middle, min(last, whole));
    }
    // The others, eight of k at a time.
#pragma unroll 1
    for (; chunk < last; ++chunk) {
      if (ranges == 2 && chunk == middle) keep();
      by_parts(chunk);
    }
#pragma unroll
    for (int e = 0; e < own_sums; ++e) {
      const float sum = acc[e / 4 / NT][e / 4 % NT][e % 4];
      own_total(e) = ranges == 2 ? own_total(e) + sum : sum;
    }
    __syncthreads();
    // Epilogue: add the ranges as a tree.
    for (int e = threadIdx.x; e < rows * columns; e += block_gemm_threads) {
      const int column = e % columns, row = e / columns;
      if (row >= left_m || column >= left_n) continue;
      const int quad = column % width / 16 * NT + row / 8, number = quad * 4 + column % 16 / 8 * 2 + row % 2;
      const float* const from =
          totals + (column / width * splits * own_sums + number) * warp_size + column % 8 * 4 + row % 8 / 2;
      Vec<float, splits> all;
#pragma unroll
      for (int i = 0; i < splits; ++i) all[i] = from[i * own_sums * warp_size];
      put_sum<T>(p, tile.batch, tile.m0 + row, tile.n0 + column, tree_reduce<Sum>(all));
    }
  }
};

template <class F, class T, int NT, int SPLITS, class P>
BARACUDA_D void block_gemm_rows_tile(const P& p, const Stored& stored, const BlockGemmRowsTile<NT, SPLITS>& tile) {
  BARACUDA_DYNAMIC_SMEM(float, shared);
  BlockGemmRows<F, T, NT, SPLITS, P>(p, stored, tile, shared).run();
}

}  // namespace baracuda
