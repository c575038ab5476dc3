// flash_decoding_mma  y[b, h] = sum_j softmax_j(scale q[b, h] k[b, j]) v[b, j],  j < lengths[b];  lse as in flash_sdpa
//
// Splits. A split is 256 keys, more where that would make over 32 of them: it follows from the length alone. A block of
// four warps takes `run` splits, 1 or 4, of one key head, for up to HEADS (8 or 16) of the query heads that share it.
// Heads are the N of mma.sync m16n8k16 in both products, whose M is 16 keys, then 16 columns. (As M, 16 rows would be
// mostly idle: eight heads would cost twice the products, exponentials and registers of outputs.) Warp w takes a
// split's tiles of 16 keys w, w + 4, …, each with an online softmax; in fp8, whose splits have 512 keys, it takes two
// tiles at once, so that it has as many bytes in flight. The weights, rounded to T and transposed by movmatrix, are the
// B operand of the second product.
//
// Order of sums. At a split's end the four warps are added in order, while the copies of the next split are in flight.
// Splits are then folded in groups of four, in order, and the groups are added: a block with run = 4 folds its own
// splits, flash_decoding_merge folds single ones, in the same arithmetic. So `run` is the host's choice (enough blocks
// for the device, or a quarter of the workspace traffic) and changes no bit: the order of every sum follows from
// (element, D) and the length, not from the batch, the cache's size or alignment.
//
// parts[(b, h, part)][d_v rounded up to 4] is sum_j 2^((s_j - max(s)) c) v_j over a part's keys (one split or four),
// with c = |scale| log2(e); stats[(b, h, part)] = {max(s), sum_j 2^((s_j - max(s)) c)}.
//
// Layout. Keys and values stream through a ring of STAGES units for each warp, filled by cp.async: a unit is PAGES
// pages of 16 rows by 128 bytes (64 columns). Eight lanes copy a page's row, so that a quarter of a warp reads one
// cache line. Piece c of 16 bytes of a page's row r is stored at c ^ r % 8, which keeps copies and ldmatrix free of
// bank conflicts. With (g, t) = (lane / 4, lane % 4), lane (g, t) holds
//
//   keys     rows g and g + 8 of a tile: the A operand of a k-step of 16 columns
//   scores   keys g and g + 8, heads 2t and 2t + 1 of eight
//   values   transposed, columns g and g + 8 of 16, keys 2t, 2t + 1, 2t + 8 and 2t + 9: the A operand of a tile of columns
//   sums     columns g and g + 8 of 16, heads 2t and 2t + 1
//
// A page of an fp8 cache has 128 columns, a piece is a whole k-step. There lane (g, t) has columns 4t … 4t + 3 of keys
// and of q, and columns 2g and 2g + 1 instead of g and g + 8 of values and sums. fp8 elements become f16, exactly, and
// so do weights. bf16 queries then become f16 too, divided by a power of two for each head, so that the largest is in
// [1, 2): what lies more than 2^-14 below that is rounded to 2^-25 of it.
#include <baracuda/fp8.cuh>
#include <baracuda/mma.cuh>
#include "attention/decoding/flash_decoding_merge.cuh"
#include "attention/decoding/flash_decoding_weights.cuh"

namespace baracuda {
namespace decoding {

constexpr int page_bytes = tile_keys * 64 * 2;

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

}  // namespace decoding

template <class T, class Cache, int D, int HEADS, int PAGES, int STAGES, bool KEEP, class P>
BARACUDA_D void flash_decoding_mma(const P& p) {
  using namespace decoding;
  using C = typename Cache::template Element<T>;
  using M = conditional<is_fp8<C>, f16, T>;                   // element of the products
  constexpr int PIECE = 16 / sizeof(C), COLUMNS = 8 * PIECE;  // columns of 16 bytes, and of a page
  // units of a tile of keys or values
  constexpr int DV = round_up(D, COLUMNS), COLS = COLUMNS * PAGES, UNITS = DV / COLS;
  constexpr int UNIT = PAGES * page_bytes, RING = STAGES * UNIT, PITCH = DV + 4;
  constexpr int SUBS = Cache::tiles, TILE = SUBS * tile_keys;       // tiles that a warp takes at once
  constexpr int PAIRS = round_up(D, 32) / 32, EACH = COLUMNS / 32;  // pairs of k-steps, in all and of a page
  // eights of heads and 16-column tiles: N and M of the second product
  constexpr int EIGHTS = HEADS / 8, ACCS = div_up(D, 16);
  BARACUDA_DYNAMIC_SMEM(unsigned char, rings);                            // [warps][STAGES][UNIT]
  uint4* const queries = reinterpret_cast<uint4*>(rings + warps * RING);  // [PAIRS][EIGHTS][32]
  // [2][warps][HEADS], by a split's
  float* const tops = reinterpret_cast<float*>(queries + PAIRS * EIGHTS * warp_size);
  float* const sums = tops + 2 * warps * HEADS;                                // parity; the same
  float2* const folded = reinterpret_cast<float2*>(sums + 2 * warps * HEADS);  // [2][HEADS] {maximum, sum}
  using Rows = typename Cache::template Tiles<C, SUBS, (STAGES - 1) / (2 * UNITS * SUBS) + 2>;
  unsigned char* const walk = reinterpret_cast<unsigned char*>(folded + 2 * HEADS);  // [warps], what rows keep there
  float* const outs = reinterpret_cast<float*>(walk + warps * Rows::bytes);          // [warps][min(group, 8)][PITCH]
  static_assert(DV % COLS == 0, "whole units");

  const u32 runs = static_cast<u32>(p.runs), kv_heads = p.num_heads / p.group, chunks = p.chunks;
  const u32 chunk = blockIdx.x % chunks, block = blockIdx.x / chunks;  // the grid fits 31 bits
  const u32 kv_head = block / runs, b = kv_head / kv_heads, kv = kv_head % kv_heads;
  const Cache cache(p, b);
  const i64 length = cache.length;
  const auto tell = [&] {
    if (cache.bad && p.status != nullptr && threadIdx.x == 0) atomicOr(p.status, 1u);
  };
  if constexpr (!Cache::holes) tell();
  const i64 size = keys_of<Cache>(p, length), k0 = block % runs * p.run * size;
  if (!Cache::holes && k0 >= length) return;
  const int lane = lane_id(), warp = threadIdx.x / warp_size, g = lane / 4, t = lane % 4;
  const int head0 = chunk * HEADS, heads = min<int>(HEADS, p.group - head0);  // of the group

  // q as B operands, zeros for heads beyond the group: SHARE threads have a head, each every SHARE-th eight of columns.
  constexpr int SHARE = warps * warp_size / HEADS, PIECES = div_up(4 * PAIRS, SHARE);
  const int mine = threadIdx.x / SHARE, share = threadIdx.x % SHARE;
  uint4 pieces[PIECES];
  const auto load_queries = [&] {
    const T* const q = static_cast<const T*>(p.q) + b * p.q_stride[0] + (kv * p.group + head0 + mine) * p.q_stride[1];
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      const int d = (m * SHARE + share) * 8, left = mine < heads ? p.d_k - d : 0;
      if (p.wide & 1) pieces[m] = left > 0 ? *reinterpret_cast<const uint4*>(q + d) : uint4{0, 0, 0, 0};
      else piece_narrow(&pieces[m], q + d, left);
    }
  };
  const auto store_queries = [&] {
    const float sign = static_cast<float>(cache.sign(p, kv));
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
    if constexpr (!is_same<M, T>) {
      float unit;
      narrow_queries<SHARE>(pieces, unit);
      if (share == 0) sums[mine] = unit;
    }
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      const int n = m * SHARE + share;
      if (4 * PAIRS % SHARE != 0 && n >= 4 * PAIRS) break;
      const u32 word[4] = {pieces[m].x, pieces[m].y, pieces[m].z, pieces[m].w};
      u32* const to = reinterpret_cast<u32*>(queries + (n / 4 * EIGHTS + mine / 8) * warp_size + mine % 8 * 4);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        to[is_fp8<C> ? (n % 2 * 2 + w / 2) * 4 + n / 2 % 2 * 2 + w % 2 : w * 4 + n % 4] = word[w];
      }
    }
    __syncthreads();
  };

  // Where cells are looked up, their pages and q are requested before the length is known.
  Rows rows(cache, walk + warp * Rows::bytes);
  rows.ask(p, k0 + warp * TILE, warps * TILE);
  if constexpr (Cache::holes) {
    load_queries();
    tell();
  }
  if (Cache::holes && k0 >= length) {
    rows.end();
    return;
  }
  const int keys = static_cast<int>(min(size * p.run, length - k0));  // of all splits of the block

  // The ring: `fill` starts the copy of one unit of the tile at `ahead` and advances.
  const int column = lane % 8 * PIECE;
  unsigned char* const ring = rings + warp * RING;
  const int put = lane / 8 * 128 + (lane % 8 ^ lane / 8) * 16;
  int ahead = keys - warp * TILE, to = 0, from = 0;  // keys left at the tile being filled; byte offsets into the ring
  rows.start(p, b, kv, k0 + warp * TILE, column, ahead);
  const auto fill = [&](int unit) {
    if (ahead > 0) {
      const bool values = unit >= SUBS * UNITS, wide = p.wide & (values ? 4 : 2);
      const int row = unit / UNITS % SUBS * 4;
      if (wide) {
        const C* source[4];  // looked up together: no look-up waits behind a copy
#pragma unroll
        for (int n = 0; n < 4; ++n) source[n] = rows.row(values, row + n);
#pragma unroll
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column - past;
          cp_async_16(ring + to + n * 512 + (put ^ n % 2 * 64), source[n % 4] + past,
                      left > 0 && rows.has(row + n % 4, ahead));
        }
      } else {
#pragma unroll 1
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column - past;
          piece_narrow(ring + to + n * 512 + (put ^ n % 2 * 64), rows.row(values, row + n % 4) + past,
                       rows.has(row + n % 4, ahead) ? left : 0);
        }
      }
    }
    if (unit == 2 * SUBS * UNITS - 1) {
      ahead -= warps * TILE;
      rows.next(p, warps * TILE, ahead);
    }
    to = to + UNIT == RING ? 0 : to + UNIT;
    cp_async_commit();
  };
#pragma unroll 1
  for (int n = 0; n < STAGES - 1; ++n) fill(n % (2 * SUBS * UNITS));

  if constexpr (!Cache::holes) load_queries();
  store_queries();
  float units[EIGHTS][2];  // factors of the scores of narrowed queries
#pragma unroll
  for (int n = 0; n < HEADS / 4; ++n) units[n / 2][n % 2] = is_same<M, T> ? 1.0f : sums[n / 2 * 8 + 2 * t + n % 2];

  const float c = static_cast<float>(cache.scale(p, kv) * 1.4426950408889634);
  bool capped = false;
  if constexpr (Cache::capped) capped = p.softcap != 0.0;
  const int pitch = round_up(p.d_v, 4), lines0 = min<int>(8, p.group);  // floats of a part; rows of outs for each warp
  float* const kept = outs + warps * lines0 * PITCH;  // [heads][PITCH]: splits folded so far, where run > 1
  const i64 head = static_cast<i64>(b) * p.num_heads + kv * p.group + head0;
  [[maybe_unused]] float* score_rows[EIGHTS][2];  // of heads 2t and 2t + 1, from k0 on
  if constexpr (KEEP) {
#pragma unroll
    for (int n = 0; n < HEADS / 4; ++n) {
      score_rows[n / 2][n % 2] = Scores<float>(p, b, kv * p.group + head0 + n / 2 * 8 + 2 * t + n % 2).at + k0;
    }
  }
  // The address and swizzle that a lane gives ldmatrix. Matrices of keys: rows 0 to 7, rows 8 to 15, and both 16 bytes
  // further on; of values: rows 0 to 7, the same 16 bytes further on, and both for rows 8 to 15.
  const u32 get_k = smem_address(ring) + lane % 16 * 128, place_k = (lane / 16 ^ lane % 8) * 16;
  const u32 get_v = smem_address(ring) + (lane % 8 + lane / 16 * 8) * 128, place_v = (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll 1
  for (int rest = keys, split = 0; rest > 0; rest -= static_cast<int>(size), ++split) {
    float acc[ACCS][EIGHTS][4], top[EIGHTS][2], sum[EIGHTS][2];  // columns of lane (g, t), heads 2t and 2t + 1
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      top[eight][0] = top[eight][1] = -numeric<float>::infinity(), sum[eight][0] = sum[eight][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < 4 * ACCS; ++n) acc[n / 4][eight][n % 4] = 0.0f;
    }

    const int end = max(0, rest - static_cast<int>(size) - warp * TILE);
#pragma unroll 1
    for (int left = rest - warp * TILE; left > end; left -= warps * TILE) {
      float s[SUBS][EIGHTS][4] = {};
#pragma unroll
      for (int unit = 0; unit < SUBS * UNITS; ++unit) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();  // this unit is loaded, and all lanes have read the one before, which makes room for the next
        fill((unit + STAGES - 1) % (2 * SUBS * UNITS));
#pragma unroll
        for (int n = 0; n < PAGES * EACH; ++n) {
          const int pair = unit % UNITS * PAGES * EACH + n;
          if (pair >= PAIRS) break;
          u32 key[2][4];
          key_steps<C>(key, get_k + from + n / EACH * page_bytes, place_k, n % EACH);
#pragma unroll
          for (int eight = 0; eight < EIGHTS; ++eight) {
            const uint4 q = queries[(pair * EIGHTS + eight) * warp_size + lane];
            mma_m16n8k16<M>(s[unit / UNITS][eight], key[0], {q.x, q.y});
            mma_m16n8k16<M>(s[unit / UNITS][eight], key[1], {q.z, q.w});
          }
        }
        from = from + UNIT == RING ? 0 : from + UNIT;
      }

      const auto scores = [&](auto f) {  // calls f(score, key of this tile, head)
#pragma unroll
        for (int sub = 0; sub < SUBS; ++sub) {
#pragma unroll
          for (int n = 0; n < 4 * EIGHTS; ++n) {
            f(s[sub][n / 4][n % 4], sub * tile_keys + n % 4 / 2 * 8 + g, n / 4 * 8 + n % 2);
          }
        }
      };
      if constexpr (!is_same<M, T>) scores([&](float& x, int, int h) { x *= units[h / 8][h % 2]; });
      if constexpr (Cache::capped) {
        if (capped) {
          const auto cap = SoftCap<float>::of(p, c * 0.69314718f);
          scores([&](float& x, int, int) { x = cap(x); });
        }
      }
      if (left < TILE) {
        scores([&](float& x, int key, int) {
          if (key >= left) x = -numeric<float>::infinity();
        });
      }
      if constexpr (Cache::holes) {
        if (rows.missing) {
          const Cache again(p, b);  // rare, so no registers are kept for it
#pragma unroll
          for (int n = 0; n < 2 * SUBS; ++n) {
            if (again.has(p, k0 + keys - left + n * 8 + g)) continue;
#pragma unroll
            for (int h = 0; h < 2 * EIGHTS; ++h) s[n / 2][h / 2][n % 2 * 2 + h % 2] = -numeric<float>::infinity();
          }
        }
      }
      if constexpr (KEEP) {
        scores([&](float& x, int key, int h) {
          if (key < left && h + 2 * t < heads) score_rows[h / 8][h % 2][keys - left + key] = x;
        });
      }

      float high[EIGHTS][2], factor[EIGHTS][2];
      u32 weights[SUBS][EIGHTS][2];
      bool moved = false;
#pragma unroll
      for (int h = 0; h < 2 * EIGHTS; ++h) {
        high[h / 2][h % 2] = fmaxf(s[0][h / 2][h % 2], s[0][h / 2][2 + h % 2]);
#pragma unroll
        for (int sub = 1; sub < SUBS; ++sub) {
          high[h / 2][h % 2] = fmaxf(high[h / 2][h % 2], fmaxf(s[sub][h / 2][h % 2], s[sub][h / 2][2 + h % 2]));
        }
      }
#pragma unroll
      for (int other = 4; other < warp_size; other *= 2) {
#pragma unroll
        for (int h = 0; h < 2 * EIGHTS; ++h) {
          high[h / 2][h % 2] = fmaxf(high[h / 2][h % 2], __shfl_xor_sync(all_lanes, high[h / 2][h % 2], other));
        }
      }
#pragma unroll
      for (int h = 0; h < 2 * EIGHTS; ++h) {
        const int eight = h / 2, e = h % 2;
        const float now = fmaxf(high[eight][e], top[eight][e]), base = base_of(now);
        factor[eight][e] = exp2_fast((top[eight][e] - base) * c);  // rescales what was summed under the old maximum
        moved |= now != top[eight][e];
        top[eight][e] = now;
        float part = 0.0f;
#pragma unroll
        for (int n = 0; n < 2 * SUBS; ++n) {
          float& x = s[n / 2][eight][n % 2 * 2 + e];
          x = exp2_fast((x - base) * c);
          part += x;
        }
        sum[eight][e] = math::fma(sum[eight][e], factor[eight][e], part);
      }
#pragma unroll
      for (int n = 0; n < 2 * SUBS * EIGHTS; ++n) {
        const float* const two = &s[n / (2 * EIGHTS)][n / 2 % EIGHTS][n % 2 * 2];
        weights[n / (2 * EIGHTS)][n / 2 % EIGHTS][n % 2] = transpose_8x8(pack_pair<M>(two[0], two[1]));
      }
      if (__any_sync(all_lanes, moved)) {  // else every factor is 1
#pragma unroll
        for (int n = 0; n < ACCS * HEADS / 2; ++n) {
          acc[n / (HEADS / 2)][n / 4 % EIGHTS][n % 4] *= factor[n / 4 % EIGHTS][n % 2];
        }
      }

#pragma unroll
      for (int unit = 0; unit < SUBS * UNITS; ++unit) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();
        fill((unit + SUBS * UNITS + STAGES - 1) % (2 * SUBS * UNITS));
#pragma unroll
        for (int n = 0; n < PAGES * EACH; ++n) {
          const int tile = (unit % UNITS * PAGES * EACH + n) * 2;
          if (tile >= ACCS) break;
          u32 value[2][4];
          value_tiles<C>(value, get_v + from + n / EACH * page_bytes, place_v, n % EACH);
#pragma unroll
          for (int m = 0; m < 2 * EIGHTS; ++m) {
            if (tile + m / EIGHTS >= ACCS) break;
            mma_m16n8k16<M>(acc[tile + m / EIGHTS][m % EIGHTS], value[m / EIGHTS], weights[unit / UNITS][m % EIGHTS]);
          }
        }
        from = from + UNIT == RING ? 0 : from + UNIT;
      }
    }

    float* const top_of = tops + split % 2 * warps * HEADS;
    float* const sum_of = sums + split % 2 * warps * HEADS;
#pragma unroll
    for (int n = 0; n < HEADS / 4; ++n) {
#pragma unroll
      for (int other = 4; other < warp_size; other *= 2) {
        sum[n / 2][n % 2] += __shfl_xor_sync(all_lanes, sum[n / 2][n % 2], other);
      }
      if (g == 0) top_of[warp * HEADS + n / 2 * 8 + 2 * t + n % 2] = top[n / 2][n % 2];
    }
    __syncthreads();  // the maxima are written, and all have read those of the split before
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const int lines = min(8, heads - 8 * eight);
      if (lines <= 0) break;
      if (eight == 1) __syncthreads();  // all have read the first eight heads
      const auto most_of = [&](int line) {
        const float* const at = top_of + 8 * eight + line;
        return fmaxf(fmaxf(at[0], at[HEADS]), fmaxf(at[2 * HEADS], at[3 * HEADS]));
      };
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int line = 2 * t + e;
        if (line >= lines) break;
        const float factor = exp2_fast((top[eight][e] - base_of(most_of(line))) * c);
        if (g == 0) sum_of[warp * HEADS + 8 * eight + line] = sum[eight][e] * factor;
        float* const out = outs + (warp * lines0 + line) * PITCH;
#pragma unroll
        for (int tile = 0; tile < ACCS; ++tile) {
          const float x = acc[tile][eight][e] * factor, y = acc[tile][eight][2 + e] * factor;
          if constexpr (is_fp8<C>) *reinterpret_cast<float2*>(out + 16 * tile + 2 * g) = float2{x, y};
          else out[16 * tile + g] = x, out[16 * tile + 8 + g] = y;
        }
      }
      __syncthreads();
      const i64 row = (head + 8 * eight) * runs + block % runs;
      const bool last = split == p.run - 1 || rest <= size;
      const float2* const before = folded + (split + 1) % 2 * HEADS + 8 * eight;
      float* const parts = static_cast<float*>(p.parts) + row * pitch;
#pragma unroll 2
      for (int n = threadIdx.x; n < lines * (DV / 4); n += warps * warp_size) {
        const int line = n / (DV / 4), d = n % (DV / 4) * 4;
        if (d >= p.d_v) continue;
        float4 x = *reinterpret_cast<const float4*>(outs + line * PITCH + d);
#pragma unroll
        for (int w = 1; w < warps; ++w) {
          const float4 y = *reinterpret_cast<const float4*>(outs + (w * lines0 + line) * PITCH + d);
          x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
        }
        float4* const keep = reinterpret_cast<float4*>(kept + (8 * eight + line) * PITCH + d);
        if (split > 0) x = Fold(before[line].x, most_of(line), c).add(*keep, x);
        if (last) *reinterpret_cast<float4*>(parts + line * p.runs * pitch + d) = x;
        else *keep = x;
      }
      if (static_cast<int>(threadIdx.x) < lines) {
        const float* const at = sum_of + 8 * eight + threadIdx.x;
        float2 stat = {most_of(threadIdx.x), at[0] + at[HEADS] + at[2 * HEADS] + at[3 * HEADS]};
        if (split > 0) {
          const float2 old = before[threadIdx.x];
          const Fold both(old.x, stat.x, c);
          stat = float2{both.top, both.add(old.y, stat.y)};
        }
        if (last) static_cast<float2*>(p.stats)[row + threadIdx.x * p.runs] = stat;
        else folded[split % 2 * HEADS + 8 * eight + threadIdx.x] = stat;
      }
    }
  }
  rows.end();
}

}  // namespace baracuda
