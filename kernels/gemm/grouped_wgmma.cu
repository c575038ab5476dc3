// grouped_wgmma products of groups of rows on sm_90a: the tiles, ring and order of sums of gemm/wgmma.cuh.
//
//   grouped_wgmma           y[r] = a[r] b[g] for the rows r of each group g, with the epilogue of gemm/epilogue.cuh
//   grouped_product_wgmma   y[g] = a[:, r] b[r] over the rows r of b, and columns of a, of group g
//
// P has what gemm/grouped.cuh, or GroupRows, reads, and the maps and steps that gemm/wgmma.cuh does.
#include "gemm/grouped.cuh"
#include "gemm/wgmma_groups.cuh"

namespace baracuda {
namespace gemm {

template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P, class E = void>
using OneBlock =
    SentProduct<Product<FloatMma<T, A_ACROSS, B_ACROSS>, T, COLUMNS, GATED, default_stages<COLUMNS>, 2, P, E, 1>>;

// Tiles are those of gemm/wgmma_groups.cuh. Warps whose 16 rows are all there have TMA store them, where y is
// nothing but the sums (`plain`).
template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P>
struct RowsOfGroups : OneBlock<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P, Epilogue<T, T, float, GATED, OneGroup<T, P>>> {
  using Base = OneBlock<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P, Epilogue<T, T, float, GATED, OneGroup<T, P>>>;
  using Base::p, Base::Base;

  BARACUDA_D void finish_tile(const SentTile& tile, typename Base::Accumulator& acc, int consumer) const {
    const int m = this->row_of_warp(tile, consumer);
    if (m >= tile.end) return;
    // Store, by TMA.
    if constexpr (!GATED) {
      if (p.plain && m + 16 <= tile.end) return this->store(acc, 1.0f, m, tile.n, 0, consumer);
    }
    // Epilogue.
    if (lane_id() == 0) bulk_wait_read<0>();  // stores of other tiles that still read the warp's staging
    this->finish(acc, OneGroup<T, P>(p, {tile.batch, tile.m, tile.n, tile.end}), m, tile.n, 0, consumer);
  }
  BARACUDA_D void consume(int consumer) const {
    this->receive(consumer,
                  [&](const SentTile& tile, typename Base::Accumulator& acc) { finish_tile(tile, acc, consumer); });
  }
  BARACUDA_D void run() const {
    Base::template run<40, 232>([&] { send_groups(*this, p); }, [&](int consumer) { consume(consumer); });
  }
};

// Both operands are read across, so that a slice is 64 rows of a group. Where it ends within a slice, the rows behind it
// are another group's, and the consumers put zeros in their place before they multiply.
template <class T, int COLUMNS, class P> struct SumsOfGroups : OneBlock<T, COLUMNS, true, true, false, P> {
  using Base = OneBlock<T, COLUMNS, true, true, false, P>;
  using Base::p, Base::memory, Base::Base;

  BARACUDA_D void produce() const {
    const bool sends = lane_id() == 0;
    if (sends) this->prefetch();
    Stage<Base::Ring::stages> at;
    const struct {
      u32 rows, cols, band;
    } grid{static_cast<u32>(p.tiles_m), static_cast<u32>(p.tiles_n), static_cast<u32>(p.band)};
    for (u32 number = blockIdx.x; number < static_cast<u32>(p.total); number += gridDim.x) {
      const Tile tile(grid, number);
      // The rows of its group.
      i64 before = 0;
      for (i64 i = lane_id(); i <= tile.batch; i += warp_size) before = max(before, group_bound(p, i));
      const int begin = static_cast<int>(warp_reduce<Max>(before));
      const int end = max(begin, static_cast<int>(group_bound(p, tile.batch + 1)));
      if (sends) {
        this->send(at, {tile.batch, tile.m * tile_rows, tile.n * COLUMNS, end, begin,
                        (end - begin + Base::DEPTH - 1) / Base::DEPTH});
      }
    }
    if (sends) this->send_end(at);
  }
  // Zeros in rows `left` … of a slice.
  BARACUDA_D void cut(u32 stage, int left) const {
    constexpr int panels = Base::Ring::stage_bytes / panel_bytes, threads = consumers * 128;
    float4* const pieces = reinterpret_cast<float4*>(memory.a(stage));
#pragma unroll 1
    for (int n = 0; n < panels; ++n) {
      for (int e = left * 8 + static_cast<int>(threadIdx.x) % threads; e < panel_bytes / 16; e += threads) {
        pieces[n * (panel_bytes / 16) + e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
    bulk_fence();
    sync_threads<threads>(1);
  }
  BARACUDA_D void consume(int consumer) const {
    this->receive(
        consumer,
        [&](const SentTile& tile, typename Base::Accumulator& acc) {
          this->store(acc, 1.0f, this->row_of_warp(tile, consumer), tile.n, tile.batch, consumer);
        },
        [&](const SentTile& tile, u32 stage, int slice) {
          const int left = tile.end - tile.k - slice * Base::DEPTH;
          if (left < Base::DEPTH) cut(stage, left);
        });
  }
  BARACUDA_D void run() const {
    Base::template run<40, 232>([&] { produce(); }, [&](int consumer) { consume(consumer); });
  }
};

}  // namespace gemm

template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P>
BARACUDA_D void grouped_wgmma(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::RowsOfGroups<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P>(p, shared, true).run();
}

template <class T, int COLUMNS, class P> BARACUDA_D void grouped_product_wgmma(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::SumsOfGroups<T, COLUMNS, P>(p, shared, true).run();
}

}  // namespace baracuda
