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
// parts[(b, h, n)][d_v rounded up to 4] is the partial sum_j 2^((s_j - max(s)) c) v_j over the keys of the n-th run (of
// one split or four), with c = |scale| log2(e); stats[(b, h, n)] = {max(s), sum_j 2^((s_j - max(s)) c)}.
//
// Layout. Keys and values stream through a ring of STAGES units for each warp, filled by cp.async: a unit is PAGES
// pages of 16 rows by 128 bytes (64 columns). Eight lanes copy a page's row, so that a quarter of a warp reads one
// cache line. Piece c of 16 bytes of a page's row r is stored at c ^ r % 8, which keeps copies and ldmatrix free of
// bank conflicts. With g = lane / 4 (`lane_row`) and t = lane % 4 (`lane_col` = 2t), lane (g, t) holds
//
//   keys     rows g and g + 8 of a tile: the A operand of a k-step of 16 columns
//   scores   keys g and g + 8, heads 2t and 2t + 1 of eight
//   values   transposed, columns g and g + 8 of 16, keys 2t, 2t + 1, 2t + 8, 2t + 9: the A operand of a tile of columns
//   outputs  columns g and g + 8 of 16, heads 2t and 2t + 1
//
// A page of an fp8 cache has 128 columns, a piece is a whole k-step. There lane (g, t) has columns 4t … 4t + 3 of keys
// and of q, and columns 2g and 2g + 1 instead of g and g + 8 of values and outputs. fp8 elements become f16, exactly,
// and so do weights. bf16 queries then become f16 too, divided by a power of two for each head, so that the largest is
// in [1, 2): what lies more than 2^-14 below that is rounded to 2^-25 of it.
#include "attention/decoding/flash_decoding_tiles.cuh"
#include "attention/decoding/flash_decoding_weights.cuh"

namespace baracuda {
namespace decoding {

// Calls f(score, key of the warp's tiles, head) for each score of a lane; heads count from 2t.
template <int SUBS, int EIGHTS, class F> BARACUDA_D void each_score(float (&scores)[SUBS][EIGHTS][4], const F& f) {
  const int lane_row = lane_id() / 4;
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
#pragma unroll
    for (int n = 0; n < 4 * EIGHTS; ++n) {
      f(scores[sub][n / 4][n % 4], sub * decoding_keys + n % 4 / 2 * 8 + lane_row, n / 4 * 8 + n % 2);
    }
  }
}

// scores = k qᵀ for the warp's next tiles.
template <class Shape, class P>
BARACUDA_D void multiply_keys(float (&scores)[Shape::SUBS][Shape::EIGHTS][4], UnitRing<Shape, P>& ring,
                              const uint4* queries) {
  using M = typename Shape::M;
  constexpr int STEPS = Shape::PAGES * Shape::EACH;
  // The address and swizzle that a lane gives ldmatrix. Matrices: rows 0 to 7, rows 8 to 15, and both 16 bytes further
  // on.
  const int lane = lane_id();
  const u32 address = smem_address(ring.ring) + lane % 16 * 128, place = (lane / 16 ^ lane % 8) * 16;
#pragma unroll
  for (int unit = 0; unit < Shape::SUBS * Shape::UNITS; ++unit) {
    ring.await(unit);
#pragma unroll
    for (int n = 0; n < STEPS; ++n) {
      const int pair = unit % Shape::UNITS * STEPS + n;
      if (pair >= Shape::PAIRS) break;
      u32 key[2][4];
      key_steps<typename Shape::C>(key, address + ring.from + n / Shape::EACH * page_bytes, place, n % Shape::EACH);
#pragma unroll
      for (int eight = 0; eight < Shape::EIGHTS; ++eight) {
        const uint4 q = queries[(pair * Shape::EIGHTS + eight) * warp_size + lane];
        mma_m16n8k16<M>(scores[unit / Shape::UNITS][eight], key[0], {q.x, q.y});
        mma_m16n8k16<M>(scores[unit / Shape::UNITS][eight], key[1], {q.z, q.w});
      }
    }
    ring.release();
  }
}

// The registers of a warp for the tiles of a split: columns of lane (g, t), heads 2t and 2t + 1 of eight.
template <class Shape> struct HeadRows {
  static constexpr int SUBS = Shape::SUBS, EIGHTS = Shape::EIGHTS, ACCS = Shape::ACCS;
  using M = typename Shape::M;
  float acc[ACCS][EIGHTS][4], row_max[EIGHTS][2], row_sum[EIGHTS][2];

  BARACUDA_D HeadRows() {
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      row_max[eight][0] = row_max[eight][1] = -numeric<float>::infinity();
      row_sum[eight][0] = row_sum[eight][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < 4 * ACCS; ++n) acc[n / 4][eight][n % 4] = 0.0f;
    }
  }

  // Online softmax: turns scores into weights 2^((s - max) c), B operands of the second product, adds them to row_sum
  // and rescales what was summed under a lower maximum.
  BARACUDA_D void softmax(float (&scores)[SUBS][EIGHTS][4], u32 (&weights)[SUBS][EIGHTS][2], float c) {
    float high[EIGHTS][2], factor[EIGHTS][2];
    bool moved = false;
    highest(high, scores);
#pragma unroll
    for (int h = 0; h < 2 * EIGHTS; ++h) {
      const int eight = h / 2, e = h % 2;
      const float now = fmaxf(high[eight][e], row_max[eight][e]), base = base_of(now);
      factor[eight][e] = exp2_fast((row_max[eight][e] - base) * c);
      moved |= now != row_max[eight][e];
      row_max[eight][e] = now;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2 * SUBS; ++n) {
        float& x = scores[n / 2][eight][n % 2 * 2 + e];
        x = exp2_fast((x - base) * c);
        sum += x;
      }
      row_sum[eight][e] = math::fma(row_sum[eight][e], factor[eight][e], sum);
    }
#pragma unroll
    for (int n = 0; n < 2 * SUBS * EIGHTS; ++n) {
      const float* const two = &scores[n / (2 * EIGHTS)][n / 2 % EIGHTS][n % 2 * 2];
      weights[n / (2 * EIGHTS)][n / 2 % EIGHTS][n % 2] = transpose_8x8(pack_pair<M>(two[0], two[1]));
    }
    if (__any_sync(all_lanes, moved)) {  // else every factor is 1
#pragma unroll
      for (int n = 0; n < ACCS * EIGHTS * 4; ++n) {
        acc[n / (EIGHTS * 4)][n / 4 % EIGHTS][n % 4] *= factor[n / 4 % EIGHTS][n % 2];
      }
    }
  }
  // acc += v weights for the warp's tiles.
  template <class P> BARACUDA_D void multiply_values(const u32 (&weights)[SUBS][EIGHTS][2], UnitRing<Shape, P>& ring) {
    constexpr int STEPS = Shape::PAGES * Shape::EACH;
    // As for keys; matrices: rows 0 to 7, the same 16 bytes further on, and both for rows 8 to 15.
    const int lane = lane_id();
    const u32 address = smem_address(ring.ring) + (lane % 8 + lane / 16 * 8) * 128;
    const u32 place = (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll
    for (int unit = 0; unit < SUBS * Shape::UNITS; ++unit) {
      ring.await(SUBS * Shape::UNITS + unit);
#pragma unroll
      for (int n = 0; n < STEPS; ++n) {
        const int tile = (unit % Shape::UNITS * STEPS + n) * 2;
        if (tile >= ACCS) break;
        u32 value[2][4];
        value_tiles<typename Shape::C>(value, address + ring.from + n / Shape::EACH * page_bytes, place,
                                       n % Shape::EACH);
#pragma unroll
        for (int m = 0; m < 2 * EIGHTS; ++m) {
          if (tile + m / EIGHTS >= ACCS) break;
          mma_m16n8k16<M>(acc[tile + m / EIGHTS][m % EIGHTS], value[m / EIGHTS],
                          weights[unit / Shape::UNITS][m % EIGHTS]);
        }
      }
      ring.release();
    }
  }

 private:
  static BARACUDA_D void highest(float (&high)[EIGHTS][2], const float (&scores)[SUBS][EIGHTS][4]) {
#pragma unroll
    for (int h = 0; h < 2 * EIGHTS; ++h) {
      high[h / 2][h % 2] = fmaxf(scores[0][h / 2][h % 2], scores[0][h / 2][2 + h % 2]);
#pragma unroll
      for (int sub = 1; sub < SUBS; ++sub) {
        high[h / 2][h % 2] = fmaxf(high[h / 2][h % 2], fmaxf(scores[sub][h / 2][h % 2], scores[sub][h / 2][2 + h % 2]));
      }
    }
#pragma unroll
    for (int other = 4; other < warp_size; other *= 2) {
#pragma unroll
      for (int h = 0; h < 2 * EIGHTS; ++h) {
        high[h / 2][h % 2] = fmaxf(high[h / 2][h % 2], __shfl_xor_sync(all_lanes, high[h / 2][h % 2], other));
      }
    }
  }
};

// The end of a split: the warps are added in order, folded with the splits before, and with the last split of a block
// stored.
template <class Shape, class P> struct SplitEnd {
  static constexpr int HEADS = Shape::HEADS, EIGHTS = Shape::EIGHTS, PITCH = Shape::PITCH;
  const P& p;
  const DecodingBuffers<Shape>& buffers;
  const float c;
  const i64 head;  // number of the block's first head
  const u32 run;
  const int heads, lines0;  // heads of the block, and rows of `outs` for each warp

  BARACUDA_D void finish(HeadRows<Shape>& rows, int split, bool last) const {
    float* const maxima = buffers.maxima + split % 2 * warps * HEADS;
    const int lane_row = lane_id() / 4, lane_col = lane_id() % 4 * 2, warp = threadIdx.x / warp_size;
#pragma unroll
    for (int n = 0; n < HEADS / 4; ++n) {
#pragma unroll
      for (int other = 4; other < warp_size; other *= 2) {
        rows.row_sum[n / 2][n % 2] += __shfl_xor_sync(all_lanes, rows.row_sum[n / 2][n % 2], other);
      }
      if (lane_row == 0) maxima[warp * HEADS + n / 2 * 8 + lane_col + n % 2] = rows.row_max[n / 2][n % 2];
    }
    __syncthreads();  // the maxima are written, and all have read those of the split before
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const int lines = min(8, heads - 8 * eight);
      if (lines <= 0) break;
      if (eight == 1) __syncthreads();  // all have read the first eight heads
      put_outputs(rows, eight, lines, split);
      __syncthreads();
      add_warps(eight, lines, split, last);
      add_stats(eight, lines, split, last);
    }
  }

 private:
  // The largest score of a head in the split.
  BARACUDA_D float max_of(int split, int of_head) const {
    const float* const at = buffers.maxima + split % 2 * warps * HEADS + of_head;
    return fmaxf(fmaxf(at[0], at[HEADS]), fmaxf(at[2 * HEADS], at[3 * HEADS]));
  }
  // Writes a warp's outputs and sums of eight heads, rescaled to the maxima of the split, to shared memory.
  BARACUDA_D void put_outputs(const HeadRows<Shape>& rows, int eight, int lines, int split) const {
    const int lane_row = lane_id() / 4, lane_col = lane_id() % 4 * 2, warp = threadIdx.x / warp_size;
    float* const sums = buffers.sums + split % 2 * warps * HEADS;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int line = lane_col + e;
      if (line >= lines) break;
      const float factor = exp2_fast((rows.row_max[eight][e] - base_of(max_of(split, 8 * eight + line))) * c);
      if (lane_row == 0) sums[warp * HEADS + 8 * eight + line] = rows.row_sum[eight][e] * factor;
      float* const out = buffers.outs + (warp * lines0 + line) * PITCH;
#pragma unroll
      for (int tile = 0; tile < Shape::ACCS; ++tile) {
        const float x = rows.acc[tile][eight][e] * factor, y = rows.acc[tile][eight][2 + e] * factor;
        if constexpr (is_fp8<typename Shape::C>) {
          *reinterpret_cast<float2*>(out + 16 * tile + 2 * lane_row) = float2{x, y};
        } else {
          out[16 * tile + lane_row] = x, out[16 * tile + 8 + lane_row] = y;
        }
      }
    }
  }
  BARACUDA_D i64 row_of(int eight) const { return (head + 8 * eight) * static_cast<u32>(p.runs) + run; }
  BARACUDA_D const float2* folded_before(int split, int eight) const {
    return buffers.folded + (split + 1) % 2 * HEADS + 8 * eight;
  }
  // Adds the outputs of the warps, and folds in those of the splits before.
  BARACUDA_D void add_warps(int eight, int lines, int split, bool last) const {
    constexpr int DV = Shape::DV;
    const int pitch = round_up(p.d_v, 4);  // floats of a partial
    const float2* const before = folded_before(split, eight);
    float* const parts = static_cast<float*>(p.parts) + row_of(eight) * pitch;
#pragma unroll 2
    for (int n = threadIdx.x; n < lines * (DV / 4); n += warps * warp_size) {
      const int line = n / (DV / 4), d = n % (DV / 4) * 4;
      if (d >= p.d_v) continue;
      float4 x = *reinterpret_cast<const float4*>(buffers.outs + line * PITCH + d);
#pragma unroll
      for (int w = 1; w < warps; ++w) {
        const float4 y = *reinterpret_cast<const float4*>(buffers.outs + (w * lines0 + line) * PITCH + d);
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
      }
      float4* const keep = reinterpret_cast<float4*>(buffers.kept + (8 * eight + line) * PITCH + d);
      if (split > 0) x = Fold(before[line].x, max_of(split, 8 * eight + line), c).add(*keep, x);
      if (last) *reinterpret_cast<float4*>(parts + line * p.runs * pitch + d) = x;
      else *keep = x;
    }
  }
  // The same for each head's {maximum, sum}.
  BARACUDA_D void add_stats(int eight, int lines, int split, bool last) const {
    if (static_cast<int>(threadIdx.x) >= lines) return;
    const float* const at = buffers.sums + split % 2 * warps * HEADS + 8 * eight + threadIdx.x;
    float2 stat = {max_of(split, 8 * eight + threadIdx.x), at[0] + at[HEADS] + at[2 * HEADS] + at[3 * HEADS]};
    if (split > 0) {
      const float2 old = folded_before(split, eight)[threadIdx.x];
      const Fold both(old.x, stat.x, c);
      stat = float2{both.row_max, both.add(old.y, stat.y)};
    }
    if (last) static_cast<float2*>(p.stats)[row_of(eight) + threadIdx.x * p.runs] = stat;
    else buffers.folded[split % 2 * HEADS + 8 * eight + threadIdx.x] = stat;
  }
};

}  // namespace decoding

template <class T, class Cache, int D, int HEADS, int PAGES, int STAGES, bool KEEP, class P>
BARACUDA_D void flash_decoding_mma(const P& p) {
  using namespace decoding;
  using Shape = DecodingShape<T, Cache, D, HEADS, PAGES, STAGES>;
  using M = typename Shape::M;
  constexpr int SUBS = Shape::SUBS, TILE = Shape::TILE, EIGHTS = Shape::EIGHTS;
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const int lines0 = min<int>(8, p.group);
  const DecodingBuffers<Shape> buffers(shared, lines0);

  const BlockHeads at = BlockHeads::of(p, block_heads<Cache, HEADS>(p));
  const u32 b = at.b, kv = at.kv;
  Cache cache(p, b);
  if constexpr (Cache::masked) cache.enter(p, b, at.head(p));
  const i64 length = cache.length;
  const auto tell = [&] {
    if (cache.bad && p.status != nullptr && threadIdx.x == 0) atomicOr(p.status, 1u);
  };
  if constexpr (!Cache::holes) tell();
  const i64 size = keys_of<Cache>(p, length), k0 = at.run * p.run * size;
  if (!Cache::holes && k0 >= length) return;
  const int lane_row = lane_id() / 4, lane_col = lane_id() % 4 * 2, warp = threadIdx.x / warp_size;

  // Where cells are looked up, their pages and q are requested before the length is known.
  QueryLoader<T, Shape> loader;
  typename Shape::Tiles rows(cache, buffers.look_ups + warp * Shape::Tiles::bytes);
  rows.ask(p, k0 + warp * TILE, warps * TILE);
  if constexpr (Cache::holes) {
    loader.load(p, at);
    tell();
  }
  if (Cache::holes && k0 >= length) {
    rows.end();
    return;
  }
  const int keys = static_cast<int>(min(size * p.run, length - k0));  // of all splits of the block

  // Fill the ring, and bring the queries to shared memory.
  using Ring = UnitRing<Shape, P>;
  Ring ring(p, rows, buffers.rings + warp * Shape::RING, keys - warp * TILE);
  rows.start(p, b, kv, k0 + warp * TILE, Ring::column(), ring.ahead);
  ring.fill_first();
  if constexpr (!Cache::holes) loader.load(p, at);
  loader.store(buffers.queries, buffers.sums, static_cast<float>(cache.sign(p, kv)));
  float units[EIGHTS][2];  // factors of the scores of narrowed queries
#pragma unroll
  for (int n = 0; n < HEADS / 4; ++n) {
    units[n / 2][n % 2] = is_same<M, T> ? 1.0f : buffers.sums[n / 2 * 8 + lane_col + n % 2];
    if constexpr (Cache::terms) units[n / 2][n % 2] *= static_cast<float>(cache.factor(p, kv));
  }
  [[maybe_unused]] float slopes[EIGHTS][2];
  if constexpr (Cache::terms) {
#pragma unroll
    for (int n = 0; n < HEADS / 4; ++n) {
      const int h = n / 2 * 8 + lane_col + n % 2;
      slopes[n / 2][n % 2] = h < at.heads ? slope_of<float>(p, b, at.head(p) + h) : 0.0f;
    }
  }

  const float c = static_cast<float>(cache.scale(p, kv) * 1.4426950408889634);
  bool capped = false;
  if constexpr (Cache::capped) capped = p.softcap != 0.0;
  [[maybe_unused]] float* score_rows[EIGHTS][2];  // of heads 2t and 2t + 1, from k0 on
  if constexpr (KEEP) {
#pragma unroll
    for (int n = 0; n < HEADS / 4; ++n) {
      score_rows[n / 2][n % 2] = Scores<float>(p, b, at.head(p) + n / 2 * 8 + lane_col + n % 2).at + cache.first + k0;
    }
  }
  const SplitEnd<Shape, P> end_of_split{p,      buffers,  c,     static_cast<i64>(b) * p.num_heads + at.head(p),
                                        at.run, at.heads, lines0};
#pragma unroll 1
  for (int rest = keys, split = 0; rest > 0; rest -= static_cast<int>(size), ++split) {
    HeadRows<Shape> heads;
    const int end = max(0, rest - static_cast<int>(size) - warp * TILE);
#pragma unroll 1
    for (int left = rest - warp * TILE; left > end; left -= warps * TILE) {
      const i64 key0 = k0 + keys - left;  // of those that count
      [[maybe_unused]] u32 masked[2 * SUBS];
      if constexpr (Cache::masked) {
        if (cache.mask.start != nullptr) {
#pragma unroll
          for (int n = 0; n < 2 * SUBS; ++n) {
            masked[n] = n * 8 + lane_row < left ? cache.mask.word(cache.first + key0 + n * 8 + lane_row) : 0;
          }
        }
      }
      float scores[SUBS][EIGHTS][4] = {};
      multiply_keys<Shape>(scores, ring, buffers.queries);

      // Complete the scores; those of keys that are not there become -inf.
      if constexpr (!is_same<M, T> || Cache::terms) {
        each_score(scores, [&](float& x, int, int h) { x *= units[h / 8][h % 2]; });
      }
      if constexpr (Cache::capped) {
        if (capped) {
          const auto cap = SoftCap<float>::of(p, Cache::terms ? 1.0f : c * 0.69314718f);
          each_score(scores, [&](float& x, int, int) { x = cap(x); });
        }
      }
      if constexpr (Cache::terms) {
        if (p.slopes != nullptr) {
          const float last = static_cast<float>(length - 1 - key0);
          each_score(scores, [&](float& x, int key, int h) {
            x = math::fma(-slopes[h / 8][h % 2], last - static_cast<float>(key), x);
          });
        }
      }
      if constexpr (Cache::masked) {
        if (cache.mask.start != nullptr) {
#pragma unroll
          for (int n = 0; n < 2 * SUBS; ++n) {
            const float bias = cache.mask.bias_of(masked[n]);
#pragma unroll
            for (int h = 0; h < 2 * EIGHTS; ++h) {
              float& x = scores[n / 2][h / 2][n % 2 * 2 + h % 2];
              x = attention::with_bias(x, bias);
            }
          }
        }
      }
      if (left < TILE) {
        each_score(scores, [&](float& x, int key, int) {
          if (key >= left) x = -numeric<float>::infinity();
        });
      }
      if constexpr (Cache::holes) {
        if (rows.missing) {
          const Cache again(p, b);  // rare, so no registers are kept for it
#pragma unroll
          for (int n = 0; n < 2 * SUBS; ++n) {
            if (again.has(p, k0 + keys - left + n * 8 + lane_row)) continue;
#pragma unroll
            for (int h = 0; h < 2 * EIGHTS; ++h) scores[n / 2][h / 2][n % 2 * 2 + h % 2] = -numeric<float>::infinity();
          }
        }
      }
      if constexpr (KEEP) {
        each_score(scores, [&](float& x, int key, int h) {
          if (key < left && h + lane_col < at.heads) score_rows[h / 8][h % 2][keys - left + key] = x;
        });
      }

      u32 weights[SUBS][EIGHTS][2];
      heads.softmax(scores, weights, c);
      heads.multiply_values(weights, ring);
    }
    end_of_split.finish(heads, split, split == p.run - 1 || rest <= size);
  }
  rows.end();
}

}  // namespace baracuda
