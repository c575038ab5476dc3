#pragma once
// flash_decoding_tiles    operands of flash_decoding_mma in shared memory: queries as fragments, and each warp's ring
//                         of keys and values; the kernel's header says how they are laid out.
#include <baracuda/fp8.cuh>
#include <baracuda/mma.cuh>
#include "attention/decoding/flash_decoding_merge.cuh"

namespace baracuda {
namespace decoding {

constexpr int page_bytes = decoding_keys * 64 * 2;

// Writes the elements of 16 bytes at `from` to memory, those from `left` on as zeros.
template <class C> BARACUDA_D void piece_narrow(void* to, const C* from, int left) {
  using Bits = conditional<sizeof(C) == 1, u8, u16>;
  constexpr int EACH = 4 / sizeof(C);  // elements of a word
  u32 word[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    word[n] = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 x = EACH * n + e < left ? reinterpret_cast<const Bits*>(from)[EACH * n + e] : 0;
      word[n] |= x << 32 / EACH * e;
    }
  }
  *reinterpret_cast<uint4*>(to) = uint4{word[0], word[1], word[2], word[3]};
}

// Converts eight elements of q to f16, divided by the power of two that brings the head's largest finite element into
// [1, 2); `unit` becomes that power. THREADS neighbouring lanes share a head.
template <int THREADS, int PIECES> BARACUDA_D void narrow_queries(uint4 (&x)[PIECES], float& unit) {
  float top = 0.0f;
#pragma unroll
  for (int n = 0; n < PIECES; ++n) {
    const bf16* const q = reinterpret_cast<const bf16*>(&x[n]);
#pragma unroll
    for (int e = 0; e < 8; ++e) top = fmaxf(top, math::isfinite(to_acc(q[e])) ? fabsf(to_acc(q[e])) : 0.0f);
  }
#pragma unroll
  for (int other = 1; other < THREADS; other *= 2) top = fmaxf(top, __shfl_xor_sync(all_lanes, top, other));
  const int exponent = max(__float_as_int(top) >> 23, 1);  // biased; subnormal queries are not scaled up
  const float down = exponent > 253 ? 0x1p-126f : __int_as_float((254 - exponent) << 23);
  unit = 1.0f / down;
#pragma unroll
  for (int n = 0; n < PIECES; ++n) {
    const bf16* const q = reinterpret_cast<const bf16*>(&x[n]);
    alignas(16) f16 y[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] = from_acc<f16>(to_acc(q[e]) * down);
    x[n] = *reinterpret_cast<const uint4*>(y);
  }
}

// Reads keys as A operands of the n-th pair of k-steps of a page: row g of `at` and row g + 8.
template <class C> BARACUDA_D void key_steps(u32 (&key)[2][4], u32 at, u32 place, int n) {
  if constexpr (is_fp8<C>) {
    u32 x[4];
    ldmatrix_x4(x, at + (place ^ n * 32));
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint2 low = widen_four<C>(x[2 * step]), high = widen_four<C>(x[2 * step + 1]);
      key[step][0] = low.x, key[step][1] = high.x, key[step][2] = low.y, key[step][3] = high.y;
    }
  } else {
    ldmatrix_x4(key[0], at + (place ^ n * 64));
    ldmatrix_x4(key[1], at + (place ^ n * 64 + 32));
  }
}

// Reads values as A operands of the n-th pair of 16-column tiles of a page.
template <class C> BARACUDA_D void value_tiles(u32 (&value)[2][4], u32 at, u32 place, int n) {
  if constexpr (is_fp8<C>) {
    u32 x[4];  // two columns each of keys 2t and 2t + 1
    ldmatrix_x4_trans(x, at + (place ^ n * 32));
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const uint2 first = widen_four<C>(__byte_perm(x[tile], 0, 0x3120));
      const uint2 second = widen_four<C>(__byte_perm(x[2 + tile], 0, 0x3120));
      value[tile][0] = first.x, value[tile][1] = first.y, value[tile][2] = second.x, value[tile][3] = second.y;
    }
  } else {
    ldmatrix_x4_trans(value[0], at + (place ^ n * 64));
    ldmatrix_x4_trans(value[1], at + (place ^ n * 64 + 32));
  }
}

// What follows from a kernel's elements and sizes.
template <class T, class Cache, int WIDTH, int MOST_HEADS, int UNIT_PAGES, int RING_STAGES> struct DecodingShape {
  using C = typename Cache::template Element<T>;
  using M = conditional<is_fp8<C>, f16, T>;  // element of the products
  static constexpr int D = WIDTH, HEADS = MOST_HEADS, PAGES = UNIT_PAGES, STAGES = RING_STAGES;
  static constexpr int PIECE = 16 / sizeof(C), COLUMNS = 8 * PIECE;  // columns of 16 bytes, and of a page
  // units of a tile of keys or values
  static constexpr int DV = round_up(D, COLUMNS), COLS = COLUMNS * PAGES, UNITS = DV / COLS;
  static constexpr int UNIT = PAGES * page_bytes, RING = STAGES * UNIT, PITCH = DV + 4;
  static constexpr int SUBS = Cache::tiles, TILE = SUBS * decoding_keys;   // tiles that a warp takes at once
  static constexpr int PAIRS = round_up(D, 32) / 32, EACH = COLUMNS / 32;  // pairs of k-steps, in all and of a page
  // eights of heads and 16-column tiles: N and M of the second product
  static constexpr int EIGHTS = HEADS / 8, ACCS = div_up(D, 16);
  static_assert(DV % COLS == 0, "whole units");
  using Tiles = typename Cache::template Tiles<C, SUBS, (STAGES - 1) / (2 * UNITS * SUBS) + 2>;
};

// The shared memory of a block.
template <class Shape> struct DecodingBuffers {
  unsigned char* const rings;        // [warps][STAGES][UNIT]
  uint4* const queries;              // [PAIRS][EIGHTS][32]
  float *const maxima, *const sums;  // [2][warps][HEADS], by a split's parity: of each warp
  float2* const folded;              // [2][HEADS] {maximum, sum} of the splits folded so far
  unsigned char* const look_ups;     // [warps], what Tiles keep there
  float* const outs;                 // [warps][min(group, 8)][PITCH]
  float* const kept;                 // [heads][PITCH]: splits folded so far, where a block has several

  BARACUDA_D DecodingBuffers(unsigned char* shared, int lines)
      : rings(shared), queries(reinterpret_cast<uint4*>(rings + warps * Shape::RING)),
        maxima(reinterpret_cast<float*>(queries + Shape::PAIRS * Shape::EIGHTS * warp_size)),
        sums(maxima + 2 * warps * Shape::HEADS), folded(reinterpret_cast<float2*>(sums + 2 * warps * Shape::HEADS)),
        look_ups(reinterpret_cast<unsigned char*>(folded + 2 * Shape::HEADS)),
        outs(reinterpret_cast<float*>(look_ups + warps * Shape::Tiles::bytes)),
        kept(outs + warps * lines * Shape::PITCH) {}
};

// The query heads of a block: heads head0 … head0 + heads - 1 of those that share key head kv of sequence b, and the
// number `run` of its splits among those of a head.
struct BlockHeads {
  u32 b, kv, run;
  int head0, heads;

  template <class P> static BARACUDA_D BlockHeads of(const P& p, int most) {
    const u32 runs = static_cast<u32>(p.runs), kv_heads = p.num_heads / p.group, chunks = p.chunks;
    const u32 chunk = blockIdx.x % chunks, block = blockIdx.x / chunks;  // the grid fits 31 bits
    const u32 kv_head = block / runs;
    const int head0 = chunk * most;
    return {kv_head / kv_heads, kv_head % kv_heads, block % runs, head0, min<int>(most, p.group - head0)};
  }
  template <class P> BARACUDA_D u32 head(const P& p) const { return kv * p.group + head0; }  // the first, of sequence b
};

// Queries as B operands, zeros for heads beyond the group: SHARE threads have a head, each every SHARE-th eight of
// columns.
template <class T, class Shape> struct QueryLoader {
  static constexpr int SHARE = warps * warp_size / Shape::HEADS, PIECES = div_up(4 * Shape::PAIRS, SHARE);
  uint4 pieces[PIECES];

  static BARACUDA_D int own_head() { return threadIdx.x / SHARE; }
  static BARACUDA_D int share() { return threadIdx.x % SHARE; }

  template <class P> BARACUDA_D void load(const P& p, const BlockHeads& at) {
    const T* const q = static_cast<const T*>(p.q) + at.b * p.q_stride[0] + (at.head(p) + own_head()) * p.q_stride[1];
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      const int d = (m * SHARE + share()) * 8, left = own_head() < at.heads ? p.d_k - d : 0;
      if (p.wide & 1) pieces[m] = left > 0 ? *reinterpret_cast<const uint4*>(q + d) : uint4{0, 0, 0, 0};
      else piece_narrow(&pieces[m], q + d, left);
    }
  }
  // Writes the queries times `sign` to shared memory, and, where they are narrowed, each head's factor to `units`.
  BARACUDA_D void store(uint4* queries, float* units, float sign) {
    if (sign != 1.0f) {
#pragma unroll
      for (int m = 0; m < PIECES; ++m) {
        alignas(16) T x[8];
        *reinterpret_cast<uint4*>(x) = pieces[m];
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] = from_acc<T>(to_acc(x[e]) * sign);
        pieces[m] = *reinterpret_cast<const uint4*>(x);
      }
    }
    if constexpr (!is_same<typename Shape::M, T>) {
      float unit;
      narrow_queries<SHARE>(pieces, unit);
      if (share() == 0) units[own_head()] = unit;
    }
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      const int n = m * SHARE + share();
      if (4 * Shape::PAIRS % SHARE != 0 && n >= 4 * Shape::PAIRS) break;
      const u32 word[4] = {pieces[m].x, pieces[m].y, pieces[m].z, pieces[m].w};
      u32* const to =
          reinterpret_cast<u32*>(queries + (n / 4 * Shape::EIGHTS + own_head() / 8) * warp_size + own_head() % 8 * 4);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        to[is_fp8<typename Shape::C> ? (n % 2 * 2 + w / 2) * 4 + n / 2 % 2 * 2 + w % 2 : w * 4 + n % 4] = word[w];
      }
    }
    __syncthreads();
  }
};

// A warp's ring of units. A tile is SUBS * UNITS units of keys, then as many of values.
template <class Shape, class P> struct UnitRing {
  using C = typename Shape::C;
  static constexpr int SUBS = Shape::SUBS, UNITS = Shape::UNITS, PAGES = Shape::PAGES;
  static constexpr int UNIT = Shape::UNIT, RING = Shape::RING, STAGES = Shape::STAGES;
  const P& p;
  typename Shape::Tiles& rows;
  unsigned char* const ring;
  int ahead;             // keys left at the tile being filled
  int to = 0, from = 0;  // byte offsets of the stage to fill and of the one to read

  BARACUDA_D UnitRing(const P& p, typename Shape::Tiles& rows, unsigned char* ring, int ahead)
      : p(p), rows(rows), ring(ring), ahead(ahead) {}

  static BARACUDA_D int column() { return lane_id() % 8 * Shape::PIECE; }  // the lane's first column of a page

  // Starts the copy of one unit of the tile at `ahead` and goes on to the next.
  BARACUDA_D void fill(int unit) {
    constexpr int COLS = Shape::COLS, COLUMNS = Shape::COLUMNS;
    const int put = lane_id() / 8 * 128 + (lane_id() % 8 ^ lane_id() / 8) * 16;
    if (ahead > 0) {
      const bool values = unit >= SUBS * UNITS, wide = p.wide & (values ? 4 : 2);
      const int row = unit / UNITS % SUBS * 4;
      if (wide) {
        const C* source[4];  // looked up together: no look-up waits behind a copy
#pragma unroll
        for (int n = 0; n < 4; ++n) source[n] = rows.row(values, row + n);
#pragma unroll
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column() - past;
          cp_async_16(ring + to + n * 512 + (put ^ n % 2 * 64), source[n % 4] + past,
                      left > 0 && rows.has(row + n % 4, ahead));
        }
      } else {
#pragma unroll 1
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column() - past;
          piece_narrow(ring + to + n * 512 + (put ^ n % 2 * 64), rows.row(values, row + n % 4) + past,
                       rows.has(row + n % 4, ahead) ? left : 0);
        }
      }
    }
    if (unit == 2 * SUBS * UNITS - 1) {
      ahead -= warps * Shape::TILE;
      rows.next(p, warps * Shape::TILE, ahead);
    }
    to = to + UNIT == RING ? 0 : to + UNIT;
    cp_async_commit();
  }
  BARACUDA_D void fill_first() {
#pragma unroll 1
    for (int n = 0; n < STAGES - 1; ++n) fill(n % (2 * SUBS * UNITS));
  }
  // Waits for unit `unit` of the tile, then starts the copy of the one that is STAGES - 1 units ahead.
  BARACUDA_D void await(int unit) {
    cp_async_wait<STAGES - 2>();
    __syncwarp();  // this unit is loaded, and all lanes have read the one before, which makes room for the next
    fill((unit + STAGES - 1) % (2 * SUBS * UNITS));
  }
  BARACUDA_D void release() { from = from + UNIT == RING ? 0 : from + UNIT; }
};

}  // namespace decoding
}  // namespace baracuda
