// grouped_wgmma products of groups of rows on sm_90a, each with a matrix of its own: the tiles, ring and order of sums of
//               gemm/wgmma.cuh.
//
//   y[r] = a[r] b[g] for the rows r of each group g, with the epilogue of gemm/epilogue.cuh
//
// A tile has rows of one group. Where the group ends within it, the rows of the next one are loaded and multiplied too,
// and not stored: no row has a part in the sums of another. Warps whose 16 rows are all there have the copy engine store
// them, where y is nothing but the sums (`plain`). P has what gemm/grouped.cuh reads, and the maps and steps that
// gemm/wgmma.cuh does.
#include "gemm/group_walk.cuh"
#include "gemm/grouped.cuh"
#include "gemm/wgmma.cuh"

namespace baracuda {
namespace gemm {

template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P>
using ProductOfGroups = Product<T, T, COLUMNS, A_ACROSS, B_ACROSS, GATED, default_stages<COLUMNS>, 2, P,
                                Epilogue<T, T, float, GATED, OneGroup<T, P>>, 1>;

template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P>
struct GroupedProduct : ProductOfGroups<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P> {
  using Base = ProductOfGroups<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P>;
  using Ring = typename Base::Ring;
  using Base::memory, Base::p, Base::slices;

  BARACUDA_D GroupedProduct(const P& p, unsigned char* shared) : Base(p, shared, true) {}

  // A tile goes with the first of its stages, from the producer to the consumers; one without products has a stage for
  // itself.
  struct Place {
    int group, m0, n0, end;
  };
  static constexpr int none = -1, over = -2;  // the group of rows in no group; there are no more tiles
  static BARACUDA_D Place& place(u32 stage) {
    __shared__ __align__(16) Place places[Ring::stages];
    return places[stage];
  }

  // By one thread.
  BARACUDA_D void send(const Place& tile, Stage<Ring::stages>& at) const {
    const u32 stage = at.index();
    memory.empty[stage].wait(at.empty_parity());
    place(stage) = tile;
    if (tile.group >= 0 && slices != 0) return this->fill(at, tile.m0, tile.n0, tile.group);
    memory.full[stage].arrive();
    at.advance();
  }
  BARACUDA_D void produce() const {
    if (lane_id() == 0) this->prefetch();
    GroupWalk<tile_rows, Base::WIDTH> walk;
    Stage<Ring::stages> at;
    for (GroupTile tile; walk.next(p, tile);) {
      if (lane_id() != 0) continue;
      send({static_cast<int>(tile.group), static_cast<int>(tile.m0), static_cast<int>(tile.n0),
            static_cast<int>(tile.end)},
           at);
    }
    if (lane_id() == 0) send({over, 0, 0, 0}, at);
  }
  BARACUDA_D void consume(int group) const {
    Stage<Ring::stages> at;
    for (;;) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      const Place tile = shuffle(place(stage), 0);  // by a shuffle: see warpgroup()
      if (tile.group == over) break;
      float d[COLUMNS / 8][4];
      this->clear(d);
      if (tile.group >= 0 && slices != 0) {
        this->multiply(d, at, group);
      } else {
        this->release(stage);
        at.advance();
      }
      const int m = tile.m0 + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16;  // of this warp
      if (m >= tile.end) continue;
      if constexpr (!GATED) {
        if (p.plain && m + 16 <= tile.end) {
          this->store(d, 1.0f, m, tile.n0, 0, group);
          continue;
        }
      }
      if (lane_id() == 0) bulk_wait_read<0>();  // stores of other tiles that still read what the sums go through
      this->finish(d, OneGroup<T, P>(p, {tile.group, tile.m0, tile.n0, tile.end}), m, tile.n0, 0, group);
    }
    bulk_wait<0>();
  }
  BARACUDA_D void run() const {
    Base::template run<40, 232>([&] { produce(); }, [&](int group) { consume(group); });
  }
};

}  // namespace gemm

template <class T, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, class P>
BARACUDA_D void grouped_wgmma(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::GroupedProduct<T, COLUMNS, A_ACROSS, B_ACROSS, GATED, P>(p, shared).run();
}

}  // namespace baracuda
