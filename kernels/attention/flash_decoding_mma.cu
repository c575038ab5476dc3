// flash_decoding_mma  y[b, h] = sum_j softmax_j(scale q[b, h] k[b, j]) v[b, j],  j < lengths[b];  lse as in flash_sdpa
//
// A split is 256 keys, more where that would make over 32 of them: it follows from the length alone. A block of four
// warps takes `run` splits, 1 or 4, of one key head, for up to 16 of the query heads that share it: they are the M of
// mma.sync m16n8k16, for both products. Warp w takes a split's tiles of 16 keys w, w + 4, …, each with an online
// softmax (in fp8, whose splits are of 512, two tiles of 16 at once: what a warp waits for is then twice as many bytes);
// the weights are the second product's A operand as they stand, rounded to T. At a split's end the four warps
// are added in order, while the copies of the next split are under way. Splits are then folded by fours, in order, and
// the fours added: a block of 4 folds its own, flash_decoding_merge those of single splits, in the same arithmetic. So
// `run` is the host's choice (enough blocks for the device, or a quarter of the traffic in between) and changes no bit:
// the order of sums follows from (element, D) and the length, not from the batch, the cache's size or alignment.
//
// parts[(b, h, part)][d_v to a multiple of 4] is sum_j 2^(s_j c - base) v_j over a part's keys (one split or four), with
// c = |scale| log2(e), base = max(s) c rounded; stats[(b, h, part)] = {max(s), sum_j 2^(s_j c - base)}.
//
// Keys and values stream through a ring of STAGES units a warp, filled by cp.async: a unit is PAGES pages of 16 rows by
// 128 bytes, 64 columns. Eight lanes copy a page's row, so that a quarter of a warp asks for one line. What lane (g, t)
// = (lane / 4, lane % 4) reads back, in 16-byte pieces:
//   keys    columns 32 i + 8 t … + 7 of keys g and g + 8: the B operand of two k-steps, columns permuted, q's alike
//   values  columns 64 i + 8 g … + 7 of keys 2t, 2t + 1, 2t + 8, 2t + 9: transposed by pairs, the B operand of eight
//           column tiles, of which tile j has column 64 i + 8 g + j at place g
// Of a cache in fp8 a piece has 16 columns: the same with 128 columns a page, four k-steps and 16 column tiles a piece.
// Its elements become f16, exactly, and so do weights. bf16 queries then do too, divided by a power of two a head, so
// that the largest is in [1, 2): what lies more than 2^-14 below that is rounded to 2^-25 of it.
// Piece c of a page's row r stands at place c ^ twist(r), which keeps copies and both reads free of bank conflicts.
#include <baracuda/fp8.cuh>
#include <baracuda/mma.cuh>
#include "attention/flash_decoding_merge.cuh"
#include "attention/flash_decoding_weights.cuh"

namespace baracuda {
namespace decoding {

constexpr int page_bytes = tile_keys * 64 * 2;

BARACUDA_D int twist(int row) { return (row & 6) ^ (row & 1) << 2; }

// The elements at `from` that 16 bytes hold, those from `left` on zero, to memory.
template <class C> BARACUDA_D void piece_narrow(void* to, const C* from, int left) {
  using Bits = conditional<sizeof(C) == 1, u8, u16>;
  constexpr int EACH = 4 / sizeof(C);  // of a word
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

// Eight elements of q as f16, each head divided by the power of two that brings its largest finite element into [1, 2);
// `units` keeps that power a head. Lanes of four and then two warps share a head; the block calls.
template <int PIECES> BARACUDA_D void narrow_queries(uint4 (&x)[PIECES], float* most, float* units) {
  float top = 0.0f;
#pragma unroll
  for (int n = 0; n < PIECES; ++n) {
    const bf16* const q = reinterpret_cast<const bf16*>(&x[n]);
#pragma unroll
    for (int e = 0; e < 8; ++e) top = fmaxf(top, math::isfinite(to_acc(q[e])) ? fabsf(to_acc(q[e])) : 0.0f);
  }
  top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
  top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
  const int lane = lane_id(), warp = threadIdx.x / warp_size, head = warp % 2 * 8 + lane / 4;
  if (lane % 4 == 0) most[warp / 2 * 16 + head] = top;
  __syncthreads();
  top = fmaxf(most[head], most[16 + head]);
  const int exponent = max(__float_as_int(top) >> 23, 1);  // biased; subnormal queries stay what they are
  const float down = exponent > 253 ? 0x1p-126f : __int_as_float((254 - exponent) << 23);
  if (warp < 2 && lane % 4 == 0) units[head] = 1.0f / down;
#pragma unroll
  for (int n = 0; n < PIECES; ++n) {
    const bf16* const q = reinterpret_cast<const bf16*>(&x[n]);
    alignas(16) f16 y[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] = from_acc<f16>(to_acc(q[e]) * down);
    x[n] = *reinterpret_cast<const uint4*>(y);
  }
}

// Keys as B operands of two k-steps: the e-th eight of the elements that 16 bytes hold.
template <class C> BARACUDA_D uint4 multiplied(const uint4& x, int e) {
  if constexpr (is_fp8<C>) {
    const uint2 low = widen_four<C>(e == 0 ? x.x : x.z), high = widen_four<C>(e == 0 ? x.y : x.w);
    return uint4{low.x, low.y, high.x, high.y};
  } else {
    return x;
  }
}

// Columns j and j + 1, j even, of two values, each as a pair: what a B operand has of them.
template <class C> BARACUDA_D uint2 paired(const uint4& first, const uint4& second, int j) {
  const int bytes = j * static_cast<int>(sizeof(C));
  const auto word = [&](const uint4& x) { return bytes < 4 ? x.x : bytes < 8 ? x.y : bytes < 12 ? x.z : x.w; };
  if constexpr (is_fp8<C>) return widen_four<C>(__byte_perm(word(first), word(second), bytes % 4 == 0 ? 0x5140 : 0x7362));
  else return uint2{__byte_perm(word(first), word(second), 0x5410), __byte_perm(word(first), word(second), 0x7632)};
}

}  // namespace decoding

template <class T, class Cache, int D, int PAGES, int STAGES, bool KEEP, class P>
BARACUDA_D void flash_decoding_mma(const P& p) {
  using namespace decoding;
  using C = typename Cache::template Element<T>;
  using M = conditional<is_fp8<C>, f16, T>;                   // what is multiplied
  constexpr int PIECE = 16 / sizeof(C), COLUMNS = 8 * PIECE;  // columns of 16 bytes, and of a page
  constexpr int DV = round_up(D, COLUMNS), COLS = COLUMNS * PAGES, UNITS = DV / COLS;  // units a tile of keys or values has
  constexpr int UNIT = PAGES * page_bytes, RING = STAGES * UNIT, PITCH = DV + 4;
  constexpr int SUBS = Cache::tiles, TILE = SUBS * tile_keys;  // a warp takes that many tiles at once
  constexpr int EACH = PIECE / 8, STEPS = round_up(D, 32 * EACH) / 32;  // pairs of k-steps: in half a page's row, in all
  BARACUDA_DYNAMIC_SMEM(unsigned char, rings);                                    // [warps][STAGES][UNIT]
  uint4* const queries = reinterpret_cast<uint4*>(rings + warps * RING);          // [STEPS][2][32]
  float* const tops = reinterpret_cast<float*>(queries + STEPS * 2 * warp_size);  // [2][warps][16], by a split's parity
  float* const sums = tops + 2 * warps * 16;                                      // likewise
  float2* const folded = reinterpret_cast<float2*>(sums + 2 * warps * 16);        // [2][16] {maximum, sum}, likewise
  using Rows = typename Cache::template Tiles<C, SUBS, (STAGES - 1) / (2 * UNITS * SUBS) + 2>;
  unsigned char* const walk = reinterpret_cast<unsigned char*>(folded + 2 * 16);  // [warps], what rows keep there
  float* const outs = reinterpret_cast<float*>(walk + warps * Rows::bytes);       // [warps][min(group, 8)][PITCH]
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
  const int head0 = chunk * 16, heads = min<int>(16, p.group - head0);  // of the group

  // q as A operands, zeros for heads beyond the group's: lane (g, t) has heads g and g + 8.
  constexpr int PIECES = div_up(STEPS * 2, warps);
  uint4 pieces[PIECES];
  const auto load_queries = [&] {
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      const int n = m * warps * warp_size + static_cast<int>(threadIdx.x), h = n / warp_size % 2 * 8 + n % warp_size / 4;
      if (STEPS % 2 != 0 && n >= STEPS * 2 * warp_size) break;
      const int step = n / (2 * warp_size), d = step / EACH * (32 * EACH) + n % 4 * PIECE + step % EACH * 8;
      const int left = h < heads ? p.d_k - d : 0;
      const T* const q = static_cast<const T*>(p.q) + b * p.q_stride[0] + (kv * p.group + head0 + h) * p.q_stride[1] + d;
      if (p.wide & 1) pieces[m] = left > 0 ? *reinterpret_cast<const uint4*>(q) : uint4{0, 0, 0, 0};
      else piece_narrow(&pieces[m], q, left);
    }
  };
  const auto store_queries = [&] {
    const float sign = static_cast<float>(cache.sign(p, kv));
#pragma unroll
    for (int m = 0; m < PIECES; ++m) {
      if (STEPS % 2 != 0 && m * warps * warp_size + static_cast<int>(threadIdx.x) >= STEPS * 2 * warp_size) break;
      if (sign != 1.0f) {
        alignas(16) T x[8];
        *reinterpret_cast<uint4*>(x) = pieces[m];
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] = from_acc<T>(to_acc(x[e]) * sign);
        pieces[m] = *reinterpret_cast<const uint4*>(x);
      }
      if constexpr (is_same<M, T>) queries[m * warps * warp_size + threadIdx.x] = pieces[m];
    }
    if constexpr (!is_same<M, T>) {
      narrow_queries(pieces, tops, sums);
#pragma unroll
      for (int m = 0; m < PIECES; ++m) queries[m * warps * warp_size + threadIdx.x] = pieces[m];
    }
    __syncthreads();
  };

  // Where cells have to be found their pages and q are asked for before the length is known.
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
  const int keys = static_cast<int>(min(size * p.run, length - k0));  // of all the splits

  // The ring: `fill` starts the copy of one unit of the tile `ahead` belongs to and moves on.
  const int column = lane % 8 * PIECE;
  rows.start(p, b, kv, k0 + warp * TILE, column);
  unsigned char* const ring = rings + warp * RING;
  const int put = lane / 8 * 128 + (lane % 8 ^ twist(lane / 8)) * 16;
  int ahead = keys - warp * TILE, to = 0, from = 0;  // keys left at the tile being filled; bytes into the ring
  const auto fill = [&](int unit) {
    if (ahead > 0) {
      const bool values = unit >= SUBS * UNITS, wide = p.wide & (values ? 4 : 2);
      const int sub = unit / UNITS % SUBS * 4, base = lane / 8 + sub * 4;
      if (wide) {
#pragma unroll
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column - past;
          bool there = true;
          const C* const source = rows.row(values, sub + n % 4, there);
          cp_async_16(ring + to + n * 512 + (put ^ n % 2 * 64), source + past,
                      base + n % 4 * 4 < ahead && left > 0 && there);
        }
      } else {
#pragma unroll 1
        for (int n = 0; n < 4 * PAGES; ++n) {
          const int past = unit % UNITS * COLS + n / 4 * COLUMNS, left = (values ? p.d_v : p.d_k) - column - past;
          bool there = base + n % 4 * 4 < ahead;
          const C* const source = rows.row(values, sub + n % 4, there);
          piece_narrow(ring + to + n * 512 + (put ^ n % 2 * 64), source + past, there ? left : 0);
        }
      }
    }
    if (unit == 2 * SUBS * UNITS - 1) {
      ahead -= warps * TILE;
      rows.next(p, warps * TILE);
    }
    to = to + UNIT == RING ? 0 : to + UNIT;
    cp_async_commit();
  };
#pragma unroll 1
  for (int n = 0; n < STAGES - 1; ++n) fill(n % (2 * SUBS * UNITS));

  if constexpr (!Cache::holes) load_queries();
  store_queries();
  [[maybe_unused]] const float units[2] = {sums[g], sums[8 + g]};  // what scores of narrowed queries are multiplied by

  const float c = static_cast<float>(cache.scale(p, kv) * 1.4426950408889634);
  const int pitch = round_up(p.d_v, 4), lines0 = min<int>(8, p.group);  // floats of a part; rows of outs a warp has
  float* const kept = outs + warps * lines0 * PITCH;                    // [heads][PITCH]: splits folded, where run > 1
  const i64 head = static_cast<i64>(b) * p.num_heads + kv * p.group + head0;
  const int get_k = g * 128 + (t ^ twist(g)) * 16, get_v = t * 256 + (g ^ twist(2 * t)) * 16;
#pragma unroll 1
  for (int rest = keys, split = 0; rest > 0; rest -= static_cast<int>(size), ++split) {
    float acc[DV / 8][4], top[2] = {-numeric<float>::infinity(), -numeric<float>::infinity()}, sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < DV / 8; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;

    const int end = max(0, rest - static_cast<int>(size) - warp * TILE);
#pragma unroll 1
    for (int left = rest - warp * TILE; left > end; left -= warps * TILE) {
      float s[2 * SUBS][4] = {};
#pragma unroll
      for (int unit = 0; unit < SUBS * UNITS; ++unit) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();  // this unit is there, and all lanes are done with the one before, which makes room for the next
        fill((unit + STAGES - 1) % (2 * SUBS * UNITS));
        const unsigned char* const at = ring + from;
#pragma unroll
        for (int n = 0; n < 2 * PAGES; ++n) {
          if ((unit % UNITS * 2 * PAGES + n) * EACH >= STEPS) break;
          uint4 key[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            key[j] = *reinterpret_cast<const uint4*>(at + n / 2 * page_bytes + j * 1024 + (get_k ^ n % 2 * 64));
          }
#pragma unroll
          for (int e = 0; e < EACH; ++e) {
            const int step = (unit % UNITS * 2 * PAGES + n) * EACH + e;
            const uint4 low = queries[step * 64 + lane], high = queries[step * 64 + 32 + lane];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const uint4 x = multiplied<C>(key[j], e);
              mma_m16n8k16<M>(s[unit / UNITS * 2 + j], {low.x, high.x, low.y, high.y}, {x.x, x.y});
              mma_m16n8k16<M>(s[unit / UNITS * 2 + j], {low.z, high.z, low.w, high.w}, {x.z, x.w});
            }
          }
        }
        from = from + UNIT == RING ? 0 : from + UNIT;
      }

      if constexpr (!is_same<M, T>) {
#pragma unroll
        for (int n = 0; n < 8 * SUBS; ++n) s[n / 4][n % 4] *= units[n % 4 / 2];
      }
      if constexpr (Cache::capped) {
        if (p.softcap != 0.0) {
          const SoftCap<float> cap(p, c);
#pragma unroll
          for (int n = 0; n < 8 * SUBS; ++n) s[n / 4][n % 4] = cap(s[n / 4][n % 4]);
        }
      }
      if (left < TILE) {
#pragma unroll
        for (int n = 0; n < 8 * SUBS; ++n) {
          if (n / 4 * 8 + 2 * t + n % 2 >= left) s[n / 4][n % 4] = -numeric<float>::infinity();
        }
      }
      if constexpr (Cache::holes) {
        if (rows.missing) {
#pragma unroll
          for (int n = 0; n < 8 * SUBS; ++n) {
            if (!cache.has(p, k0 + keys - left + n / 4 * 8 + 2 * t + n % 2)) s[n / 4][n % 4] = -numeric<float>::infinity();
          }
        }
      }
      if constexpr (KEEP) {
#pragma unroll
        for (int n = 0; n < 8 * SUBS; n += 2) {  // of head g + 8 (n / 2 % 2) keys 8 (n / 4) + 2t and the next
          const int h = g + n / 2 % 2 * 8, key = n / 4 * 8 + 2 * t;
          const i64 at = k0 + keys - left + key;
          if (h < heads) Scores<float>(p, b, kv * p.group + head0 + h).put(at, s[n / 4] + n % 4, left - key);
        }
      }
      float factor[2];
      u32 weights[SUBS][4];
      bool moved = false;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float high = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
        for (int j = 1; j < 2 * SUBS; ++j) high = fmaxf(high, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
        high = fmaxf(high, __shfl_xor_sync(all_lanes, high, 1));
        high = fmaxf(fmaxf(high, __shfl_xor_sync(all_lanes, high, 2)), top[half]);
        const float base = base_of(high, c);
        factor[half] = exp2_fast(top[half] * c - base);  // of what was summed under the old maximum
        moved |= high != top[half];
        top[half] = high;
        float part = 0.0f;
#pragma unroll
        for (int j = 0; j < 2 * SUBS; ++j) {
          const float p0 = exp2_fast(math::fma(s[j][2 * half], c, -base));
          const float p1 = exp2_fast(math::fma(s[j][2 * half + 1], c, -base));
          part += p0 + p1;
          weights[j / 2][j % 2 * 2 + half] = pack_pair<M>(p0, p1);
        }
        sum[half] = math::fma(sum[half], factor[half], part);
      }
      if (__any_sync(all_lanes, moved)) {  // else every factor is 1
#pragma unroll
        for (int n = 0; n < DV / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[n][e] *= factor[e / 2];
        }
      }

#pragma unroll
      for (int unit = 0; unit < SUBS * UNITS; ++unit) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();
        fill((unit + SUBS * UNITS + STAGES - 1) % (2 * SUBS * UNITS));
        const unsigned char* const at = ring + from;
#pragma unroll
        for (int page = 0; page < PAGES; ++page) {
          uint4 row[4];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int place = n / 2 * 1024 + (n % 2 == 0 ? get_v : (get_v ^ 64) + 128);
            row[n] = *reinterpret_cast<const uint4*>(at + page * page_bytes + place);
          }
#pragma unroll
          for (int j = 0; j < PIECE; j += 2) {  // two columns
            uint2 pair[2];
#pragma unroll
            for (int n = 0; n < 2; ++n) pair[n] = paired<C>(row[2 * n], row[2 * n + 1], j);
            const int tile = (unit % UNITS * PAGES + page) * PIECE + j;
            mma_m16n8k16<M>(acc[tile], weights[unit / UNITS], {pair[0].x, pair[1].x});
            mma_m16n8k16<M>(acc[tile + 1], weights[unit / UNITS], {pair[0].y, pair[1].y});
          }
        }
        from = from + UNIT == RING ? 0 : from + UNIT;
      }
    }

    float* const top_of = tops + split % 2 * warps * 16;
    float* const sum_of = sums + split % 2 * warps * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 1);
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 2);
      if (t == 0) top_of[warp * 16 + 8 * half + g] = top[half];
    }
    __syncthreads();  // the maxima are there, and all are done with the split before
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lines = min(8, heads - 8 * half), h = 8 * half + g;
      if (lines <= 0) break;
      if (half == 1) __syncthreads();  // all are done with the first eight heads
      if (g < lines) {
        float most = top_of[h];
#pragma unroll
        for (int w = 1; w < warps; ++w) most = fmaxf(most, top_of[w * 16 + h]);
        const float factor = exp2_fast(top[half] * c - base_of(most, c));
        if (t == 0) sum_of[warp * 16 + h] = sum[half] * factor;
        float* const out = outs + (warp * lines0 + g) * PITCH + 2 * PIECE * t;
#pragma unroll
        for (int n = 0; n < DV / 8; n += 4) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {  // tiles n … n + 3 are neighbours; a lane's second column stands PIECE further on
            float x[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) x[j] = acc[n + j][2 * half + e] * factor;
            *reinterpret_cast<float4*>(out + n / PIECE * COLUMNS + n % PIECE + PIECE * e) = float4{x[0], x[1], x[2], x[3]};
          }
        }
      }
      __syncthreads();
      const i64 row = (head + 8 * half) * runs + block % runs;
      const bool last = split == p.run - 1 || rest <= size;
      const float2* const before = folded + (split + 1) % 2 * 16 + 8 * half;
      const auto most_of = [&](int line) {
        const float* const at = top_of + 8 * half + line;
        return fmaxf(fmaxf(at[0], at[16]), fmaxf(at[32], at[48]));
      };
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
        float4* const keep = reinterpret_cast<float4*>(kept + (8 * half + line) * PITCH + d);
        if (split > 0) x = Fold(before[line].x, most_of(line), c).add(*keep, x);
        if (last) *reinterpret_cast<float4*>(parts + line * p.runs * pitch + d) = x;
        else *keep = x;
      }
      if (static_cast<int>(threadIdx.x) < lines) {
        const float* const at = sum_of + 8 * half + threadIdx.x;
        float2 stat = {most_of(threadIdx.x), at[0] + at[16] + at[32] + at[48]};
        if (split > 0) {
          const float2 old = before[threadIdx.x];
          const Fold both(old.x, stat.x, c);
          stat = float2{both.top, both.add(old.y, stat.y)};
        }
        if (last) static_cast<float2*>(p.stats)[row + threadIdx.x * p.runs] = stat;
        else folded[split % 2 * 16 + 8 * half + threadIdx.x] = stat;
      }
    }
  }
  rows.end();
}

}  // namespace baracuda
