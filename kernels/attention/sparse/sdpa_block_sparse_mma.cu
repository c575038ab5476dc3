// sdpa_block_sparse_mma    y[i] = sum_j softmax_j(scale q[i] k[j]) v[j] over the keys j whose block of the pattern is set;
//   lse[i] = log sum_j exp(scale q[i] k[j])
//
// As flash_sdpa_mma.cu: a block has a tile of queries of one head, both products are mma.sync, a warp has 16 MT rows of
// the tile. Only tiles of keys with a set block are loaded. A warp skips a tile that none of its rows sees; blocks that
// end within a warp's part of a tile are masked there. STAGES 1 loads keys while values are multiplied, and values
// while keys are; STAGES 2 loads a whole tile ahead. The order of every sum is fixed by (element, D) and by the
// pattern.
#include "attention/block_pattern.cuh"
#include "attention/flash.cuh"

namespace baracuda {

// Where blocks of the pattern may end: not within a tile, not within a warp's part of one, or anywhere.
enum class Borders { between_tiles, between_warps, anywhere };

template <class T, int D, int WARPS, int MT, int KEYS, int STAGES, Borders BORDERS, class P>
BARACUDA_D void sdpa_block_sparse_mma(const P& p) {
  using namespace attention;
  constexpr bool CUTS = BORDERS == Borders::anywhere;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, TILE = KEYS * D;
  BARACUDA_DYNAMIC_SMEM(T, queries);       // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;      // [STAGES][KEYS][D]
  T* const values = keys + STAGES * TILE;  // [STAGES][KEYS][D]

  const Work work = Dense::find<ROWS>(p);
  const int q0 = static_cast<int>(work.first), row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const T* const q = work.queries<T>(p.q, p.stride[0]);
  const T* const k = work.keys<T>(p.k, p.stride[1]);
  const T* const v = work.keys<T>(p.v, p.stride[2]);
  const int rows = inside<ROWS>(work.query_len, work.first);
  const float c = static_cast<float>(p.scale * 1.4426950408889634);
  const Span<ROWS> span(p, work);
  const int key_len = span.key_len;
  // end of the keys that this warp sees, and that the block sees
  const int own = span.end(min(rows, row0 + 16 * MT)), last = span.end(rows);

  const BlockPattern<P, CUTS> pattern(p, work.b, work.h);
  Search search;
  const auto visit = [&](int k0) {  // the first tile from k0 on that is not skipped; `last` or more where there is none
    return static_cast<int>(pattern.template visit<KEYS, false>(search, q0, ROWS, k0, last));
  };

  const auto load_keys = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(keys + stage * TILE, k + k0 * p.stride[1][2], p.stride[1][2], key_len - k0, p.d_k,
                                 p.wide & 2);
  };
  const auto load_values = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(values + stage * TILE, v + k0 * p.stride[2][2], p.stride[2][2], key_len - k0, p.d_v,
                                 p.wide & 4);
  };
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
  const auto begin = [&] {
    search = {};
    const int k0 = visit(span.template first<KEYS>());
    if (k0 < last) {
      load_keys(k0, 0);
      if (STAGES == 2) load_values(k0, 0);
    }
    cp_async_commit();
    return k0;
  };
  int k0 = begin();

  T* const mine = queries + row0 * D;
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = lane_id(); n < 16 * MT * D; n += warp_size) mine[n] = from_acc<T>(to_acc(mine[n]) * float(p.sign));
    __syncwarp();
  }
  const tile::Reader<D, false> query(mine), value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, D, MT, KEYS> r;

  bool careful = false;  // all is computed again from differences of scores: see Rows::lost_base
  for (;;) {
#pragma unroll 1
    for (int stage = 0; k0 < last; stage ^= STAGES - 1) {
      const int next = visit(k0 + KEYS);
      cp_async_wait<0>();
      __syncthreads();  // this tile is loaded, and all have read the one before
      if (STAGES == 1) {
        load_values(k0, 0);
      } else if (next < last) {
        load_keys(next, stage ^ 1);
        load_values(next, stage ^ 1);
      }
      cp_async_commit();

      const u32 at = stage * TILE * static_cast<u32>(sizeof(T));
      const int left = key_len - k0, from = span.low - k0 + row0, past = span.high - k0 + row0;
      u64 bits[MT][2];
      bool busy = k0 < own;
      if constexpr (BORDERS == Borders::between_warps) {
        busy = busy && !pattern.hides(q0 + row0, k0);
      } else if constexpr (CUTS) {
        u64 any = 0;
#pragma unroll
        for (int m = 0; m < MT; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = 16 * m + 8 * half + lane_id() / 4;
            bits[m][half] = pattern.template keys_of<KEYS>(q0 + row0 + row, k0);
            bits[m][half] &= low_bits(min(left, past + row)) & ~low_bits(from + row);
            any |= bits[m][half];
          }
        }
        busy = __any_sync(full_warp, any != 0);
      }
      const auto middle = [&] {
        if (STAGES == 2) return;
        cp_async_wait<0>();
        __syncthreads();  // the values are loaded, and all have read the keys
        if (next < last) load_keys(next, 0);
        cp_async_commit();
      };
      const bool limited = span.template cuts<KEYS>(k0);
      T* const here = values + stage * TILE;
      const auto nonfinite = [&] {
        return (CUTS || (span.bounded && limited)) && has_nonfinite<TILE / 2, THREADS>(here);
      };
      const auto clear = [&] {
        __syncthreads();
        clear_nonfinite<TILE / 2, THREADS>(here);
        __syncthreads();
      };
      if (busy) {
        score<T, D, MT, KEYS>(r.scores, query, key, at);
        middle();
        if constexpr (CUTS) r.hide(bits);
        else if (limited) r.mask(left, from, past);
        if (careful) r.template weigh<Scores::exact>(c);
        else r.weigh(c);
        r.rescale();
        r.pack();
        if (nonfinite()) {  // 0 times infinity is NaN, but a masked value adds nothing
          r.template add_nonfinite<tile::Rows<D>>(here, left, [&](int row, int j) {
            if constexpr (CUTS) return j >= from + row && j < past + row && !pattern.hides(q0 + row0 + row, k0 + j);
            else return j >= from + row && j < past + row;
          });
          clear();
        }
        multiply<T, D, MT, KEYS>(r.acc, r.weights, value, at);
      } else {  // only other warps see part of the tile; this one meets them at the barriers
        middle();
        if (nonfinite()) clear();
      }
      k0 = next;
    }
    if (careful || !__syncthreads_or(r.lost_base())) break;
    careful = true;
    r.clear();
    k0 = begin();
  }

  cp_async_wait<0>();
  __syncthreads();  // other threads' copies of q must not meet the outputs where no tile was visited
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  r.template finish<tile::Rows<D>>(mine, 0, lse, rows - row0, 1.0f,
                                   careful ? static_cast<float>(p.scale) : ln_2<float>);
  __syncwarp();
  T* const y = work.outputs<T>(p.y, p.stride[3], row0);
  tile::copy_out<16 * MT, D, warp_size>(y, p.stride[3][2], mine, lane_id(), rows - row0, p.d_v, p.wide & 8);
}

}  // namespace baracuda
