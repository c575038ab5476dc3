// block_gemm_mid   y = x Wᵀ + bias by stored weights for a few dozen to some hundred rows of x, of f16 or bf16 with sums
//                  in float: mma.sync, W decoded in registers once for the 64 rows of x of a block, which come through
//                  shared memory.
//
// It is yᵀ = W xᵀ: a block has 128 rows of W, a warp 32 of them and half of the block's k, which is cut into chunks of
// 128. So two groups of four warps have a ring of chunks of x each and wait for nobody else. Of a chunk lane (g, q) has
// the run 32 q … 32 q + 31 of the four rows of W g + 8 i. Two products take eight of each run, the first 0, 4, 1, 5, the
// second 2, 6, 3, 7, as chunk_decode.cuh pairs them; x is read 16 bytes a lane and brought into that order.
//
// k may be cut into splits (`parts`), of so many chunks `each` but the last, whose partial sums are matrices of y for
// block_gemm_sums. The half of a split that a group has is one chain in the order of k, and the two halves are added: the
// order depends on k and the splits alone. W's codes lie in whole units, its groups in whole runs and in order; k may end
// within a chunk.
#include "quant_gemm/block_gemm.cuh"
#include "quant_gemm/block_sums.cuh"
#include "quant_gemm/chunk_decode.cuh"
#include <baracuda/pipeline.cuh>

namespace baracuda {

template <class F> constexpr bool block_gemm_mid_small() {
  if constexpr (is_grouped<F>) return F::bits <= 4;
  else return true;
}

template <class F, class T> struct BlockGemmMid {
  using P = BlockGemmMidParams;
  static constexpr int columns = mid_columns, rows = mid_rows, NT = rows / 8, groups = mid_groups, group_threads = 128,
                       threads = groups * group_threads;
  static constexpr int stages = block_gemm_mid_small<F>() ? mid_short_stages : mid_stages;
  static constexpr int lines = chunk_lines, MT = lines / 2, width = 8 * lines;
  static constexpr int row_bytes = chunk_k * sizeof(T), eight_bytes = 8 * row_bytes, x_bytes = rows * row_bytes;
  static constexpr int pitch = columns + 4;  // floats of a row of sums on their way out: no two lanes meet in a bank
  using Tile = BlockGemmTile<rows, columns>;

  const P& p;
  const Stored stored;
  u8* const shared;
  const int warp, g, q;
  int m0, n0, split, left_m;  // the tile, the split of its matrix, and its rows of x that are there
  int first, last;            // chunks of the group
  const T* x_from;            // the thread's piece of x's row of chunk 0 that it copies first
  u8* x_to;                   // and where to
  const u8* x_own;            // the lane's first 16 bytes of a chunk of x, but for the order of the pieces of its row
  const u8* x_now;            // the same of the chunk that is read
  int to = 0, at = 0;         // places of the stages that are copied to next, and read
  float acc[MT][NT][4];

  // Of eight rows of x, 16-byte pieces 4 q + n lie so that neither the copies nor lanes that read one n meet in a bank.
  static BARACUDA_D int place(int row, int q) { return (q ^ row % 2 * 4) * 16; }
  static BARACUDA_D int twist(int n) { return (4 * n ^ (n & 2)) * 16; }

  BARACUDA_D BlockGemmMid(const P& p, u8* shared)
      : p(p), stored(p), shared(shared), warp(static_cast<int>(threadIdx.x) / warp_size), g(lane_id() / 4),
        q(lane_id() % 4) {
    const BlockGemmTile<rows, columns> tile(p, blockIdx.x);
    m0 = static_cast<int>(tile.m0), n0 = static_cast<int>(tile.n0), split = static_cast<int>(tile.batch);
    left_m = min(rows, static_cast<int>(p.m) - m0);
    const int chunks = static_cast<int>(div_up(p.k, static_cast<i64>(chunk_k)));
    const int begin = split % p.parts * p.each, end = min(chunks, begin + p.each);
    const int middle = begin + (end - begin + 1) / 2;
    first = group() == 0 ? begin : middle, last = group() == 0 ? middle : end;
    u8* const ring = shared + group() * (stages * x_bytes);
    const int row = copied_row(), piece = copied_piece();
    x_from = static_cast<const T*>(p.x) + matrix() * p.x_steps[0] + (tile.m0 + row) * p.x_steps[1] + 8 * piece;
    x_to = ring + row * row_bytes + (place(row, piece / 4) ^ twist(piece % 4));
    x_own = ring + g * row_bytes;
#pragma unroll
    for (int e = 0; e < MT * NT * 4; ++e) acc[e / 4 / NT][e / 4 % NT][e % 4] = 0.0f;
  }
  static BARACUDA_D int group() { return static_cast<int>(threadIdx.x) / group_threads; }
  BARACUDA_D i64 matrix() const { return split / p.parts; }  // of W and x
  static BARACUDA_D int copied_row() { return static_cast<int>(threadIdx.x) % group_threads / 16; }
  static BARACUDA_D int copied_piece() { return static_cast<int>(threadIdx.x) % 16; }

  // Of rows that are not there others are read: nobody takes their sums.
  BARACUDA_D StoredRow stored_row(int r) const {
    return StoredRow(stored, matrix(), min(n0 + warp % 4 * width + r, static_cast<int>(p.n) - 1));
  }

  // ---- x ----

  static BARACUDA_D void advance(int& stage) { stage = stage == (stages - 1) * x_bytes ? 0 : stage + x_bytes; }
  // Begins to copy a chunk, if there is one; what is not of x becomes zeros. The caller commits.
  BARACUDA_D void copy_x(int chunk) {
    if (chunk >= last) return;
    const i64 k = static_cast<i64>(chunk) * chunk_k;
    const bool inside = k + 8 * copied_piece() < p.k;
    const T* from = x_from + k;
#pragma unroll
    for (int j = 0; j < NT; ++j, from += 8 * p.x_steps[1]) {
      if (j < 4 || j / 4 * 32 < left_m) {
        cp_async_16(x_to + to + j * eight_bytes, from, inside && 8 * j + copied_row() < left_m);
      }
    }
    advance(to);
  }
  // Waits for the chunk whose copies are the oldest, and until the group is done with the one before.
  BARACUDA_D void next_x() {
    cp_async_wait<stages - 2>();
    sync_threads<group_threads>(1 + group());
    x_now = x_own + at;
    advance(at);
  }
  // Eight of k of each run of the lines from `from` on, by those of x.
  template <int COUNT> BARACUDA_D void multiply(int from, const u32 (&pairs)[COUNT][4], int n) {
    const u8* const here = x_now + (place(g, q) ^ twist(n));
#pragma unroll
    for (int quad = 0; quad < NT / 4; ++quad) {
      if (quad != 0 && 32 * quad >= left_m) break;
#pragma unroll
      for (int t = 4 * quad; t < 4 * quad + 4; ++t) {
        multiply_pairs<T>(acc, from, t, pairs, *reinterpret_cast<const uint4*>(here + t * eight_bytes));
      }
    }
  }

  // ---- chunks ----

  // The chunk that k ends in.
  BARACUDA_D void by_parts(int chunk) {
    const i64 k = static_cast<i64>(chunk) * chunk_k + format_run * q;
#pragma unroll 1
    for (int n = 0; n < format_run / format_part; ++n) {
      const bool there = k + n * format_part < p.k;
      u32 pairs[lines][4] = {};
      const auto decode = [&](int line, float(&values)[format_part]) {
        F::decode(stored, stored_row(g + 8 * line), k + n * format_part, values);
      };
      decode_eights<T>(there, decode, pairs);
      multiply(0, pairs, n);
    }
  }
  // Codes that lie in runs are copied ahead, each lane its own.
  BARACUDA_D void by_copies(int whole) {
    using Ring = ChunkRing<F, stages>;
    using Numbers = ChunkNumbers<F, T>;
    u8* const codes = shared + groups * stages * x_bytes;
    Ring ring(codes + warp * Ring::warp_bytes, first, [&](int r) { return stored_row(r); });
    Numbers numbers(stored, stored_row(lane_id()), first,
                    codes + threads / warp_size * Ring::warp_bytes + warp * Numbers::warp_bytes);
    const ChunkDecode<F, T> decode(stored);
    const int end = min(last, whole);
    const auto copy = [&](int chunk) {
      copy_x(chunk);
      ring.copy(chunk < end);
    };
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) copy(first + i);
    if (first < end) numbers.load();
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk) {
      if (chunk < end) numbers.put();
      // Wait for the stage, and issue the copies of a later chunk.
      next_x();
      copy(chunk + stages - 1);
      if (chunk >= end) {
        by_parts(chunk);
        continue;
      }
      if (chunk + 1 < end) numbers.load();
      // Decode and multiply.
      typename Ring::Words words[lines];
      ring.take(words);
      decode(words, numbers, [&](int n, const u32(&pairs)[lines][4]) { multiply(0, pairs, n); });
    }
  }
  // Others are decoded from where they are stored, after a prefetch into the L2 cache.
  BARACUDA_D void by_runs(int whole) {
    const int end = min(last, whole);
    const CodesAhead codes([&](int r) { return stored_row(r); });
    const auto prefetch = [&](int chunk) {
      if (chunk < end) codes.prefetch(p, chunk);
    };
    Stored simple = stored;
    simple.whole = true;  // as it is: the compiler is to know
#pragma unroll
    for (int i = 0; i < CodesAhead::chunks; ++i) prefetch(first + i);
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) {
      copy_x(first + i);
      cp_async_commit();
    }
#pragma unroll 1
    for (int chunk = first; chunk < last; ++chunk) {
      // Wait for the stage, and issue the copies of a later chunk.
      next_x();
      copy_x(chunk + stages - 1);
      cp_async_commit();
      // Decode and multiply.
      if (chunk >= end) {
        by_parts(chunk);
        continue;
      }
      prefetch(chunk + CodesAhead::chunks);
      const auto decode = [&](int line, float(&values)[format_run]) {
        F::decode(simple, stored_row(g + 8 * line), static_cast<i64>(chunk) * chunk_k + format_run * q, values);
      };
      by_whole_runs<T>(decode, [&](int line, int n, const u32(&pairs)[2][4]) { multiply(line, pairs, n); });
    }
  }

  // ---- the epilogue ----

  // A group's accumulators into shared memory, or to those of the other that are there.
  BARACUDA_D void put(float* out, bool add) const {
#pragma unroll
    for (int e = 0; e < MT * NT * 4; ++e) {
      const int i = e / 4 / NT, t = e / 4 % NT;
      float* const to = out + (8 * t + 2 * q + e % 2) * pitch + warp % 4 * width + 16 * i + e % 4 / 2 * 8 + g;
      *to = add ? *to + acc[i][t][e % 4] : acc[i][t][e % 4];
    }
  }
  BARACUDA_D void finish() const {
    float* const out = reinterpret_cast<float*>(shared);
    __syncthreads();  // all are done with x
    // The sums of both groups meet.
    if (group() == 0) put(out, false);
    __syncthreads();
    if (group() == 1) put(out, true);
    __syncthreads();
    // Store.
    const int n = static_cast<int>(threadIdx.x) % 16 * 8, left = static_cast<int>(p.n) - n0 - n;
    if (left <= 0) return;
    Vec<float, 8> bias{};
    if (p.bias != nullptr) {
      const T* const from = static_cast<const T*>(p.bias) + (n0 + n) * p.bias_step;
      bias = to_acc(load_strided<T, 8>(from, p.bias_step, left));
    }
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x) / 16; row < left_m; row += threads / 16) {
      auto all = load<8>(out + row * pitch + n);
#pragma unroll
      for (int j = 0; j < 8; ++j) all[j] += bias[j];
      put_sums<T>(p, split, m0 + row, n0 + n, all);
    }
  }
  BARACUDA_D void run() {
    const int whole = static_cast<int>(p.k / chunk_k);
    if constexpr (is_grouped<F>) by_copies(whole);
    else by_runs(whole);
    finish();
  }
};

template <class F, class T> BARACUDA_D void block_gemm_mid(const BlockGemmMidParams& p) {
  BARACUDA_DYNAMIC_SMEM(u8, shared);
  BlockGemmMid<F, T>(p, shared).run();
}

}  // namespace baracuda
