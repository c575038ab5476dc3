// flash_sdpa_wgmma    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also what terms.cuh adds to s or hides of it, each term a branch that all threads take alike.
//
// flash_sdpa_mma on wgmma: a warpgroup owns 64 queries of the block's tile, and the tensor cores read q, k and v from
// panels of 64 columns in shared memory. The scores of a tile are started before the product with the values of the tile
// before, and its softmax runs beside that product. Keys and values have two buffers each; a tile's values are loaded with
// the keys of the next one. Order of sums as in flash_sdpa_mma, with this kernel's tiles.
#include <baracuda/flash.cuh>
#include <baracuda/paged.cuh>
#include <baracuda/terms.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda {

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces; with TERMS 2 p says so.
template <class T, int D, int GROUPS, int KEYS, bool WIDE, class Where, int TERMS, class P>
BARACUDA_D void flash_sdpa_wgmma(const P& p) {
  using namespace attention;
  constexpr int THREADS = GROUPS * 128, ROWS = GROUPS * 64, TILE = KEYS * D, PANEL = KEYS * 64;
  constexpr u64 within = 32 >> 4, across = 2048 >> 4;  // 16 elements along k, in a descriptor
  constexpr bool HELD = D <= 128 && KEYS == 64;  // queries in registers: from shared memory they cost as much as the keys
  using InTile = tile::Panels<KEYS>;
  const bool wide = TERMS == 2 ? p.wide == 0b1111 : WIDE;  // one kernel for both where speed is not all
  BARACUDA_DYNAMIC_SMEM(T, shared);
  T* const queries = shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T);  // panels; at the end the outputs
  T* const keys = queries + ROWS * D;  // [2] tiles of panels
  T* const values = keys + 2 * TILE;   // [2] tiles of panels

  const Work work = Where::template find<ROWS>(p);
  if (Where::surplus && work.query_len == 0) return;
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  const typename Where::template Keys<P> source(p, work);
  const auto k = source.template rows<T>(p.k, p.stride[1]), v = source.template rows<T>(p.v, p.stride[2]);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, row0 = warp * 16;
  const int rows = inside<ROWS>(work.query_len, work.first), i0 = static_cast<int>(work.first) + row0;
  const Span<ROWS> span(p, work);
  const int key_len = span.key_len, first = span.template first<KEYS>(), last = span.end(rows);
  const TermsOf<TERMS, float, true, P> terms(p, work);
  const float c = terms.c;

  const auto load_keys = [&](int k0, int slot) {
    tile::copy_panels<KEYS, D, THREADS>(keys + slot * TILE, k.from(k0), key_len - k0, p.d_k, wide);
  };
  const auto load_values = [&](int k0, int slot) {
    tile::copy_panels<KEYS, D, THREADS>(values + slot * TILE, v.from(k0), key_len - k0, p.d_v, wide);
  };
  const auto arrive = [&] {  // all that was loaded is there, and all are done with what is loaded over next
    cp_async_wait<0>();
    wgmma_publish();
    __syncthreads();
  };
  tile::copy_panels<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, wide);
  load_keys(first, 0);
  cp_async_commit();
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = threadIdx.x; n < ROWS * D; n += THREADS) queries[n] = from_acc<T>(to_acc(queries[n]) * float(p.sign));
  }

  Rows<T, D, 1, KEYS> r;
  if constexpr (TERMS != 0) r.begin_with(terms);
  const u64 query = wgmma_operand(queries) + warp / 4 * (64 * 8), key = wgmma_operand(keys), value = wgmma_operand(values);
  u32 held[HELD ? D / 16 : 1][4];  // the warp's queries
  const auto start_scores = [&](int slot) {  // s = q kᵀ
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const u64 y = key + slot * (TILE / 8) + d / 64 * (PANEL / 8) + d % 64 / 16 * within;
      if constexpr (HELD) wgmma<T, false>(r.s[0], held[d / 16], y, d != 0);
      else wgmma<T, false, false>(r.s[0], query + d / 64 * (ROWS * 8) + d % 64 / 16 * within, y, d != 0);
    }
    wgmma_commit();
  };
  const auto start_outputs = [&](int slot) {  // acc += weights v
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
      for (int d = 0; d < D; d += 64) {
        wgmma<T, true>(reinterpret_cast<float(&)[8][4]>(r.acc[0][d / 8]), r.weights[0][j / 16],
                       value + slot * (TILE / 8) + d / 64 * (PANEL / 8) + j / 16 * across, 1);
      }
    }
    wgmma_commit();
  };
  const auto weigh = [&](int k0) {
    if constexpr (TERMS != 0) r.add(terms, i0, k0);
    if (span.template cuts<KEYS>(k0)) r.mask(key_len - k0, span.low - k0 + row0, span.high - k0 + row0);
    r.weigh(c);
    if constexpr (TERMS != 0) {
      if (terms.drops()) r.drop(terms, i0, k0);
    }
  };
  const auto settle = [&](int k0, int slot) {  // 0 times infinity is NaN, but a masked value adds nothing
    bool cut = span.bounded && span.template cuts<KEYS>(k0);
    if constexpr (TERMS != 0) cut |= terms.masked();
    if (!cut || !has_odd<TILE / 2, THREADS>(values + slot * TILE)) return;
    r.template add_odd<InTile>(values + slot * TILE, key_len - k0, [&](int row, int key) {
      const bool seen = key >= span.low - k0 + row0 + row && key < span.high - k0 + row0 + row;
      if constexpr (TERMS != 0) return seen && !terms.hides(i0 + row, k0 + key);
      else return seen;
    });
    __syncthreads();
    clear_odd<TILE / 2, THREADS>(values + slot * TILE);
    wgmma_publish();
    __syncthreads();
  };

  if (first < last) {
    arrive();
    load_values(first, 0);
    if (first + KEYS < last) load_keys(first + KEYS, 1);
    cp_async_commit();
    if constexpr (HELD) {
#pragma unroll
      for (int d = 0; d < D; d += 16) {
        tile::Reader<64, false>(queries + d / 64 * (ROWS * 64) + row0 * 64).read(held[d / 16], 0, d % 64);
      }
    }
    wgmma_fence();
    start_scores(0);
    wgmma_wait<0>();
    hold(r.s[0]);
    weigh(first);
    r.pack();
    int k0 = first + KEYS, slot = 1;
#pragma unroll 1
    for (; k0 < last; k0 += KEYS, slot ^= 1) {
      arrive();
      load_values(k0, slot);
      if (k0 + KEYS < last) load_keys(k0 + KEYS, slot ^ 1);
      cp_async_commit();
      settle(k0 - KEYS, slot ^ 1);
      hold(r.weights[0]);
      hold(r.acc[0]);
      wgmma_fence();
      start_scores(slot);
      start_outputs(slot ^ 1);
      wgmma_wait<1>();
      hold(r.s[0]);
      hold(held);
      weigh(k0);
      wgmma_wait<0>();
      hold(r.acc[0]);
      hold(r.weights[0]);
      r.rescale();
      r.pack();
    }
    arrive();
    settle(k0 - KEYS, slot ^ 1);
    hold(r.weights[0]);
    hold(r.acc[0]);
    wgmma_fence();
    start_outputs(slot ^ 1);
    wgmma_wait<0>();
    hold(r.acc[0]);
  } else {
    cp_async_wait<0>();
    __syncthreads();  // the copies of q, by other threads, must not meet the outputs
  }
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  r.template finish<tile::Panels<ROWS>>(queries, row0, lse, rows - row0, c, terms.natural, terms.again);
  __syncwarp();
  T* const y = work.template outputs<T>(p.y, p.stride[3], row0);
#pragma unroll
  for (int d = 0; d < D; d += 64) {
    tile::copy_out<16, 64, warp_size>(y + d, p.stride[3][2], queries + d * ROWS + row0 * 64, lane_id(), rows - row0,
                                      p.d_v - d, wide);
  }
}

}  // namespace baracuda
