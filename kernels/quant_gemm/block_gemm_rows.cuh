#pragma once
// block_gemm_rows   the tile of a product by stored weights that tensor cores make: up to 64 rows of x, of f16 or bf16
//                   with sums in float, by weights that are decoded in registers.
//
// W is the left operand of mma.sync: 16 of its rows by 16 of k, times 16 of k of 8 rows of x. Which k stands in which
// place of a fragment is free as long as both agree. Of a chunk of 128 of k lane (g, q) has the run 32 q … 32 q + 31 of
// four rows of W, g + 8 i. Two products take eight of each run, the first 0, 4, 1, 5, the second 2, 6, 3, 7: so lie codes
// of 4 bits whose places in a word are 16 bits apart.
//
// The chunks of k are cut into 8 ranges. A range is one chain of products in the order of k; the ranges are added as a
// tree. Warps have a range each of 32 columns of y, or, where x has more than 8 rows, two ranges each of one of two such
// tiles, which read the same x. So the order depends on k alone: neither on the number of rows of x nor on how many of
// them, 8 NT, a block has.
//
// Formats whose codes lie in runs are copied to shared memory some chunks ahead, a lane's own by itself.
#include "quant_gemm/block_gemm.cuh"
#include "quant_gemm/run_numbers.cuh"
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int block_gemm_threads = 256, block_gemm_warps = 8, block_gemm_chunk = 128, block_gemm_ranges = 8;

// How many warps share k, and how many columns of y a block has, beside 8 NT rows.
constexpr int block_gemm_splits(int nt) { return nt == 1 ? 8 : 4; }
constexpr int block_gemm_columns(int nt) { return 32 * block_gemm_warps / block_gemm_splits(nt); }
template <int NT> using BlockGemmRowsTile = BlockGemmTile<8 * NT, block_gemm_columns(NT)>;

// The codes of a lane's LINES runs of STAGES chunks, in shared memory.
template <class F, int LINES, int NT> struct RunRing {
  static constexpr int bytes = format_run * F::bits / 8, unit = F::run_unit, pieces = bytes / unit;
  static constexpr int stages = NT > 2 || F::bits > 4 ? 2 : 4, warp_bytes = stages * LINES * bytes * warp_size;
  u8* own;

  BARACUDA_D explicit RunRing(u8* shared) : own(shared + threadIdx.x / warp_size * warp_bytes + lane_id() * unit) {}
  BARACUDA_D u8* place(int stage, int line, int piece) const {
    return own + ((stage * LINES + line) * pieces + piece) * (warp_size * unit);
  }
  BARACUDA_D void copy(int stage, int line, const u8* from) const {
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      if constexpr (unit == 16) cp_async_16(place(stage, line, i), from + i * unit);
      else cp_async<unit>(place(stage, line, i), from + i * unit);
    }
  }
  BARACUDA_D Vec<u32, code_words(bytes)> words(int stage, int line) const {
    using W = Word<unit>;
    Vec<u32, code_words(bytes)> out;
#pragma unroll
    for (int i = 0; i < pieces; ++i) reinterpret_cast<W*>(&out)[i] = *reinterpret_cast<const W*>(place(stage, line, i));
    return out;
  }
};

template <class F, class T, int NT, class P> struct BlockGemmRows {
  static constexpr int splits = block_gemm_splits(NT), ranges = block_gemm_ranges / splits;  // warps that share k, and
                                                                                             // ranges of each
  static constexpr int columns = block_gemm_columns(NT), rows = 8 * NT;
  static constexpr int MT = 2, lines = 2 * MT, width = 16 * MT, parts = MT * NT * 4;
  static_assert(ranges <= 2, "a warp keeps the sums of one range beside those it makes");

  const P& p;
  const BlockGemmRowsTile<NT>& tile;
  const Stored& stored;
  float *totals, *own;  // [warp][part of a lane's sums][lane], and the lane's
  int warp, q, left_m, left_n, tiles;
  StoredRow w[lines];
  const T* x;
  u32 x_row[NT];
  float sums[MT][NT][4];

  // Of rows that are not there others are read: nobody takes their sums.
  BARACUDA_D StoredRow stored_row(int r) const {
    return StoredRow(stored, tile.batch, tile.n0 + min(warp / splits * width + r, left_n - 1));
  }
  BARACUDA_D BlockGemmRows(const P& p, const Stored& stored, const BlockGemmRowsTile<NT>& tile, float* shared)
      : p(p), tile(tile), stored(stored), totals(shared), warp(static_cast<int>(threadIdx.x) / warp_size),
        q(lane_id() % 4), left_m(static_cast<int>(min<i64>(rows, p.m - tile.m0))),
        left_n(static_cast<int>(min<i64>(columns, p.n - tile.n0))), tiles((left_m + 7) / 8),
        w{stored_row(lane_id() / 4), stored_row(lane_id() / 4 + 8), stored_row(lane_id() / 4 + 16),
          stored_row(lane_id() / 4 + 24)},
        x(static_cast<const T*>(p.x) + tile.batch * p.x_steps[0] + tile.m0 * p.x_steps[1] + format_run * q) {
    own = totals + warp * parts * warp_size + lane_id();
#pragma unroll
    for (int t = 0; t < NT; ++t) x_row[t] = min(8 * t + lane_id() / 4, left_m - 1) * static_cast<u32>(p.x_steps[1]);
    clear();
  }

  // ---- products ----

  BARACUDA_D void clear() {
#pragma unroll
    for (int e = 0; e < parts; ++e) sums[e / 4 / NT][e / 4 % NT][e % 4] = 0.0f;
  }
  // Eight of k of each tile of x, as the fragments of two products.
  struct Eights {
    uint4 of[NT];
  };
  BARACUDA_D Eights load_x(i64 k, bool there = true) const {
    Eights out;
#pragma unroll
    for (int t = 0; t < NT; ++t) {
      out.of[t] = uint4{};
      if (there && (NT <= 2 || t < tiles)) out.of[t] = __ldg(reinterpret_cast<const uint4*>(x + k + x_row[t]));
    }
    return out;
  }
  // Eight of k of the lines from `first` on, pairs (j, j + 4), by those of x.
  template <int COUNT> BARACUDA_D void multiply(int first, const u32 (&pairs)[COUNT][4], const Eights& by) {
#pragma unroll
    for (int t = 0; t < NT; ++t) {
      if (NT > 2 && t >= tiles) continue;
      const uint4& of = by.of[t];
      const u32 of_x[2][2] = {{__byte_perm(of.x, of.z, 0x5410), __byte_perm(of.x, of.z, 0x7632)},
                              {__byte_perm(of.y, of.w, 0x5410), __byte_perm(of.y, of.w, 0x7632)}};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
          const u32 of_w[4] = {pairs[i][2 * j], pairs[i + 1][2 * j], pairs[i][2 * j + 1], pairs[i + 1][2 * j + 1]};
          mma_m16n8k16<T>(sums[(first + i) / 2][t], of_w, of_x[j]);
        }
      }
    }
  }
  static BARACUDA_D void to_pairs(const float* values, u32 (&pairs)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = pack_pair<T>(values[j], values[j + 4]);
  }
  // A chunk, eight of k of a run at a time; decode(line, n, pairs) makes the n-th eight of a line.
  template <class Decode> BARACUDA_D void by_eights(i64 k, const Decode& decode) {
#pragma unroll
    for (int n = 0; n < format_run / format_part; ++n) {
      const Eights of_x = load_x(k + n * format_part);
      u32 pairs[lines][4];
#pragma unroll
      for (int line = 0; line < lines; ++line) decode(line, n, pairs[line]);
      multiply(0, pairs, of_x);
    }
  }
  // A chunk whose runs are not whole, or that k ends in.
  BARACUDA_D void by_parts(i64 chunk) {
    const i64 k = chunk * block_gemm_chunk;
#pragma unroll 1
    for (int part = 0; part < format_run; part += format_part) {
      const bool there = k + format_run * q + part < p.k;
      const Eights of_x = load_x(k + part, there);
      u32 pairs[lines][4] = {};
      // One line at a time, which is put among registers, as those have no index: what decodes any layout is long.
#pragma unroll 1
      for (int line = 0; there && line < lines; ++line) {
        float values[format_part];
        u32 own_pairs[4];
        F::decode(stored, stored_row(lane_id() / 4 + 8 * line), k + format_run * q + part, values);
        to_pairs(values, own_pairs);
#pragma unroll
        for (int e = 0; e < 4 * lines; ++e) {
          if (e / 4 == line) pairs[e / 4][e % 4] = own_pairs[e % 4];
        }
      }
      multiply(0, pairs, of_x);
    }
  }
  // The end of the first of two ranges.
  BARACUDA_D void keep() {
#pragma unroll
    for (int e = 0; e < parts; ++e) own[e * warp_size] = sums[e / 4 / NT][e / 4 % NT][e % 4];
    clear();
  }

  // ---- formats that decode a run from where it is stored ----

  BARACUDA_D void by_runs(i64 first, i64 middle, i64 last, i64 whole) {
    constexpr int ahead = 3;
    // Codes of a later chunk go to the L2 cache: two lanes for each row of W, in sectors of 32 bytes.
    const u8* const rows_ahead[MT] = {stored_row(lane_id() / 2).codes, stored_row(lane_id() / 2 + 16).codes};
    const auto prefetch = [&](i64 chunk) {
      if (chunk >= min(last, whole)) return;
#pragma unroll
      for (int i = 0; i < MT; ++i) {
        const u8* const from = rows_ahead[i] + chunk * p.chunk_bytes;
        for (int at = lane_id() % 2 * 32; at < p.chunk_bytes; at += 64) prefetch_l2(from + at);
      }
    };
#pragma unroll
    for (int i = 1; i < ahead; ++i) prefetch(first + i);
    Stored simple = stored;  // which it is where runs are whole: the compiler is to know
    simple.whole = true;
#pragma unroll 1
    for (i64 chunk = first; chunk < last; ++chunk) {
      if (ranges == 2 && chunk == middle) keep();
      prefetch(chunk + ahead);
      if (!stored.whole || chunk >= whole) {
        by_parts(chunk);
        continue;
      }
      const i64 k = chunk * block_gemm_chunk;
#pragma unroll
      for (int line = 0; line < lines; line += 2) {
        u32 pairs[format_run / format_part][2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float values[format_run];
          F::decode(simple, w[line + half], k + format_run * q, values);
#pragma unroll
          for (int n = 0; n < format_run / format_part; ++n) to_pairs(values + n * format_part, pairs[n][half]);
        }
#pragma unroll
        for (int n = 0; n < format_run / format_part; ++n) multiply(line, pairs[n], load_x(k + n * format_part));
      }
    }
  }

  // ---- formats whose runs are copied ahead ----

  // The group of the lane's run of a chunk, as chunks go on.
  struct GroupPlace {
    u32 group, rest, step, more;
    BARACUDA_D GroupPlace(u32 size, i64 k)
        : group(static_cast<u32>(k) / size), rest(static_cast<u32>(k) % size), step(block_gemm_chunk / size),
          more(block_gemm_chunk % size) {}
    BARACUDA_D void advance(u32 size) {
      group += step, rest += more;
      if (rest >= size) rest -= size, ++group;
    }
  };
  using Numbers = RunNumbers<lines>;
  template <class Ring>
  BARACUDA_D void copied(const Ring& ring, int stage, const Numbers& bits, const typename F::Decoder& decoder, i64 k) {
    float scale[lines], zero[lines];
    bits.get(stored, scale, zero);
    decltype(ring.words(0, 0)) words[lines];
#pragma unroll
    for (int line = 0; line < lines; ++line) words[line] = ring.words(stage, line);
    const bool whole_zeros = stored.zeros == nullptr || stored.zero_code == code_u8;
    if constexpr (F::template has_pairs<T>) {
      typename F::template Pairs<T> of[lines];
      bool exact = whole_zeros;
#pragma unroll
      for (int line = 0; line < lines; ++line) exact &= of[line].set(scale[line], zero[line]);
      if (__all_sync(all_lanes, exact)) {
        by_eights(k, [&](int line, int n, u32(&pairs)[4]) { of[line].get(words[line][n], pairs); });
        return;
      }
    }
    if constexpr (F::is_shifted) {
      if (whole_zeros) {
        constexpr int biases = F::Shifted::biases;
        float minus[lines][biases];
#pragma unroll
        for (int e = 0; e < lines * biases; ++e)
          minus[e / biases][e % biases] = F::Shifted::bias(e % biases) + zero[e / biases];
        by_eights(k, [&](int line, int n, u32(&pairs)[4]) {
          float values[format_part];
#pragma unroll
          for (int j = 0; j < format_part; ++j) {
            values[j] = (F::Shifted::number(words[line], n * format_part + j) - minus[line][j % biases]) * scale[line];
          }
          to_pairs(values, pairs);
        });
        return;
      }
    }
    by_eights(k, [&](int line, int n, u32(&pairs)[4]) {
      float values[format_part];
#pragma unroll
      for (int j = 0; j < format_part; ++j) {
        values[j] = decoder(words[line], n * format_part + j);
        if constexpr (F::has_zeros) values[j] -= zero[line];
        values[j] *= scale[line];
      }
      to_pairs(values, pairs);
    });
  }
  BARACUDA_D void by_copies(i64 first, i64 middle, i64 last, i64 whole, u8* shared) {
    using Ring = RunRing<F, lines, NT>;
    const Ring ring(shared);
    const typename F::Decoder decoder;
    const bool runs = stored.whole && stored.index == nullptr && stored.group % format_run == 0;
    const i64 stop = runs ? min(last, whole) : first;
    const auto copy = [&](i64 chunk) {
      if (chunk < stop) {
#pragma unroll
        for (int line = 0; line < lines; ++line) {
          const u8* const from = w[line].codes + chunk * (block_gemm_chunk / 8 * F::bits) + q * Ring::bytes;
          ring.copy(static_cast<int>(chunk) & (Ring::stages - 1), line, from);
        }
      }
      cp_async_commit();
    };
#pragma unroll
    for (int i = 0; i < Ring::stages - 1; ++i) copy(first + i);
    GroupPlace place(stored.group, first * block_gemm_chunk + format_run * q);
    Numbers next = {};
    const auto load_next = [&](i64 chunk) {
      if (chunk >= stop) return;
#pragma unroll
      for (int line = 0; line < lines; ++line) next.load_group(stored, w[line], place.group, line);
      place.advance(stored.group);
    };
    load_next(first);
#pragma unroll 1
    for (i64 chunk = first; chunk < last; ++chunk) {
      if (ranges == 2 && chunk == middle) keep();
      if (chunk >= stop) {
        by_parts(chunk);
        continue;
      }
      copy(chunk + Ring::stages - 1);
      const Numbers numbers = next;
      load_next(chunk + 1);
      cp_async_wait<Ring::stages - 1>();
      copied(ring, static_cast<int>(chunk) & (Ring::stages - 1), numbers, decoder, chunk * block_gemm_chunk);
    }
  }

  // ---- the block ----

  BARACUDA_D void run() {
    const i64 chunks = div_up(p.k, static_cast<i64>(block_gemm_chunk)), whole = p.k / block_gemm_chunk;
    const auto begin = [&](int range) { return chunks * range / block_gemm_ranges; };
    const int range = warp % splits * ranges;
    const i64 first = begin(range), middle = begin(range + 1), last = begin(range + ranges);
    if constexpr (ranges == 2) keep();
    if constexpr (is_grouped<F>) {
      by_copies(first, middle, last, whole, reinterpret_cast<u8*>(totals + block_gemm_warps * parts * warp_size));
    } else {
      by_runs(first, middle, last, whole);
    }
#pragma unroll
    for (int e = 0; e < parts; ++e) {
      const float sum = sums[e / 4 / NT][e / 4 % NT][e % 4];
      own[e * warp_size] = ranges == 2 ? own[e * warp_size] + sum : sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < rows * columns; e += block_gemm_threads) {
      const int column = e % columns, row = e / columns;
      if (row >= left_m || column >= left_n) continue;
      const int quad = column % width / 16 * NT + row / 8, part = quad * 4 + column % 16 / 8 * 2 + row % 2;
      const float* const from =
          totals + (column / width * splits * parts + part) * warp_size + column % 8 * 4 + row % 8 / 2;
      Vec<float, splits> all;
#pragma unroll
      for (int i = 0; i < splits; ++i) all[i] = from[i * parts * warp_size];
      put_sum<T>(p, tile.batch, tile.m0 + row, tile.n0 + column, tree_reduce<Sum>(all));
    }
  }
};

template <class F, class T, int NT, class P>
BARACUDA_D void block_gemm_rows_tile(const P& p, const Stored& stored, const BlockGemmRowsTile<NT>& tile) {
  BARACUDA_DYNAMIC_SMEM(float, shared);
  BlockGemmRows<F, T, NT, P>(p, stored, tile, shared).run();
}

}  // namespace baracuda
