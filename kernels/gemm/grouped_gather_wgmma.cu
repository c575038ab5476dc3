// grouped_gather_wgmma   y[r] = x[rows[r]] b[g] for the rows r of each group g on sm_90a, with the epilogue of
//                        gemm/epilogue.cuh: the tiles, ring and order of sums of grouped_wgmma, whose bits rows so have.
//
// TMA reads b and no gathered rows: the four producer warps copy them (cp.async), 32 rows of a tile each, 16 bytes a
// thread, into the 128-byte swizzle. All walk the tiles; the first thread has TMA read b, and sends the tile. A row of x
// that does not exist is zeros.
#include "gemm/grouped_wgmma.cu"
#include <baracuda/positions.cuh>

namespace baracuda {
namespace gemm {

template <class T, int COLUMNS, bool B_ACROSS, bool GATED, class P>
struct GatheredRows : RowsOfGroups<T, COLUMNS, false, B_ACROSS, GATED, P> {
  using Base = RowsOfGroups<T, COLUMNS, false, B_ACROSS, GATED, P>;
  using Ring = typename Base::Ring;
  using Base::p, Base::memory, Base::Base;
  static constexpr int copiers = 128, pieces = 8;  // 16-byte pieces that a thread copies for a stage, of as many rows
  static constexpr u32 nothing = 0xffffffffu;

  // Where this thread's rows of a tile begin in x, in 16 bytes; `nothing`: rows that are not there.
  BARACUDA_D void find_rows(u32 (&from)[pieces], const GroupTile& tile) const {
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const i64 m = tile.m0 + row_of(i);
      const i64 row = m < tile.end ? read_index(p.index, p.index_wide, m * p.index_step) : -1;
      const bool there = row >= 0 && row < p.sources;
      from[i] = there ? static_cast<u32>(row * p.strides[gemm_matrix::a][0] / vec_elems<T>) : nothing;
    }
  }
  static BARACUDA_D int row_of(int i) { return static_cast<int>(threadIdx.x) / warp_size * 32 + 4 * i + lane_id() / 8; }
  // Copies k … k + 63 of the rows; what lies beyond the end of k is zeros.
  BARACUDA_D void copy_rows(const u32 (&from)[pieces], u32 stage, i64 k) const {
    const int piece = lane_id() % 8;
    const bool some = k + piece * vec_elems<T> < p.k;
    const char* const start = static_cast<const char*>(p.a) + k * static_cast<int>(sizeof(T)) + piece * 16;
    unsigned char* const to = memory.a(stage);
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const int row = row_of(i);
      const bool there = some && from[i] != nothing;
      cp_async_16(to + row * 128 + (piece ^ row % 8) * 16, there ? start + static_cast<u64>(from[i]) * 16 : p.a, there);
    }
  }
  // By all producer warps.
  BARACUDA_D void produce() const {
    const bool sends = threadIdx.x == 0;
    if (sends && this->slices != 0) prefetch_map(p.b_map);
    GroupWalk<tile_rows, Base::WIDTH> walk;
    Stage<Ring::stages> at;
    const auto next_stage = [&] {
      const u32 stage = at.index();
      memory.empty[stage].wait(at.empty_parity());
      return stage;
    };
    for (GroupTile tile; walk.next(p, tile);) {
      const int group = static_cast<int>(tile.group), slices = group < 0 ? 0 : this->slices;
      const SentTile sent{group, static_cast<int>(tile.m0), static_cast<int>(tile.n0), static_cast<int>(tile.end), 0,
                          slices};
      u32 from[pieces];
      if (slices != 0) find_rows(from, tile);
#pragma unroll 1
      for (int s = 0; s < max(slices, 1); ++s, at.advance()) {
        // Wait until the stage is empty.
        const u32 stage = next_stage();
        if (sends && s == 0) Base::place(stage) = sent;
        if (slices == 0) {
          announce(stage, sends);
          continue;
        }
        // Issue TMA, and the copies; the full barrier counts its bytes and their threads.
        if (sends) {
          const int k = s * Base::DEPTH;
          arrive_expecting(memory.full[stage], Ring::b_bytes);
#pragma unroll
          for (int share = 0; share < Base::SHARES; ++share) this->load_share(stage, share, sent.n, k, group);
        }
        copy_rows(from, stage, static_cast<i64>(s) * Base::DEPTH);
        memory.full[stage].arrive_when_copied(true);
      }
    }
    const u32 stage = next_stage();
    if (sends) Base::place(stage) = {-1, 0, 0, 0, 0, -1};
    announce(stage, sends);
    cp_async_commit();
    cp_async_wait<0>();
  }
  // Arrives for a stage that has nothing but a tile.
  BARACUDA_D void announce(u32 stage, bool sends) const {
    memory.full[stage].arrive();
    if (sends) memory.full[stage].arrive();
  }
  BARACUDA_D void consume(int consumer) const {
    this->receive(
        consumer,
        [&](const SentTile& tile, typename Base::Accumulator& acc) { this->finish_tile(tile, acc, consumer); },
        [](const SentTile&, u32, int) { wgmma_publish(); });
  }
  BARACUDA_D void run() const {
    run_in_roles<1, 1, 56, 224>([&] { memory.init(1 + copiers); }, [&](int) { produce(); },
                                [&](int consumer) { consume(consumer); });
  }
};

}  // namespace gemm

template <class T, int COLUMNS, bool B_ACROSS, bool GATED, class P> BARACUDA_D void grouped_gather_wgmma(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::GatheredRows<T, COLUMNS, B_ACROSS, GATED, P>(p, shared, true).run();
}

}  // namespace baracuda
