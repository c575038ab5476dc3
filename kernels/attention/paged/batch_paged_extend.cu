// batch_paged_extend    y[i] = sum_j softmax_j(s[i, j]) v[j] for a sequence's newest queries i over the keys of its
//                       pages; s = scale q[i] k[j], capped, less a slope times the distance; lse as in flash_sdpa.
//
// Schedule and order of sums: extend_units.cuh. The ring is filled by cp.async, straight from the pages.
#include "attention/paged/extend_units.cuh"

namespace baracuda {
namespace attention {

// The copies of a block, in the order in which they are read.
template <class Shape, class P> struct UnitCopies {
  using T = typename Shape::Element;
  static constexpr int KEYS = Shape::KEYS, D = Shape::D;
  using Source = StreamedKeys<P, KEYS>;
  using Panels = decltype(tile::panels_up<KEYS, D, Shape::COPIERS, Shape::WIDE>(
      static_cast<Source*>(nullptr)->template keys<T>(), 0));

  const P& p;
  const int keys, first;
  Source& source;
  Panels next_keys, next_values;
  int k0;  // of the next tile

  BARACUDA_D UnitCopies(const P& p, const Extended& sequence, const Unit&, const UnitTile& of, Source& source, T*)
      : p(p), keys(sequence.keys), first(of.template first<KEYS>()), source(source),
        next_keys(source.template keys<T>().from(of.template start<KEYS>()), p.d_k),
        next_values(source.template values<T>().from(of.template start<KEYS>()), p.d_v), k0(of.template start<KEYS>()) {
    source.template begin<-KEYS>(k0);
    meet();
  }
  static BARACUDA_D void meet() { sync_threads<Shape::COPIERS>(of_copiers); }

  static BARACUDA_D void arrive(Barrier& full) { full.arrive_when_copied(Shape::WIDE); }
  static BARACUDA_D const float* factors(T*) { return nullptr; }

  BARACUDA_D void fill_keys(T* to, u32 = 0) { next_keys.copy(to, keys - k0); }
  BARACUDA_D void fill_values(T* to, u32 = 0) { next_values.copy(to, keys - k0); }
  BARACUDA_D void look_ahead() {
    cp_async_commit();
    cp_async_wait<3>();  // entries of tiles before; the slots wait for as much
    source.template step<-KEYS>(k0);
    meet();
  }
  BARACUDA_D void next() { k0 -= KEYS; }
  BARACUDA_D bool more() const { return k0 >= first; }
};

// The ring where all threads copy. Slots are awaited in turn: keys, then values, of tile after tile.
template <class Shape, class P> struct CopiedRing {
  using T = typename Shape::Element;
  static constexpr int SLOTS = Shape::SLOTS;
  UnitCopies<Shape, P>& copies;
  T* const ring;
  Stage<SLOTS> filled, taken;
  static_assert(SLOTS == 4, "tiles are looked up as far ahead as they are copied");

  BARACUDA_D CopiedRing(UnitCopies<Shape, P>& copies, T* ring) : copies(copies), ring(ring) {
    fill();
    fill();
    copies.source.template step<-Shape::KEYS>(copies.k0 + Shape::KEYS);
    fill();
  }
  BARACUDA_D void fill() {
    T* const to = ring + filled.index() * Shape::TILE;
    if (copies.more()) {
      if (filled.count % 2 == 0) {
        copies.fill_keys(to);
      } else {
        copies.fill_values(to);
        copies.next();
      }
    }
    cp_async_commit();
    filled.advance();
  }
  // Returns a slot that has arrived, when all have read the one that is filled next.
  BARACUDA_D u32 await(int k0) {
    cp_async_wait<SLOTS - 2>();
    __syncthreads();
    const bool keys = taken.count % 2 == 0;
    fill();
    if (keys) copies.source.template step<-Shape::KEYS>(k0 - Shape::KEYS);
    const u32 slot = taken.index();
    taken.advance();
    return slot;
  }
  BARACUDA_D void release(u32) const {}
};
}  // namespace attention

template <class T, int D, int GROUPS, int KEYS, int SLOTS, bool WIDE, bool TERMS, bool WGMMA, class P>
BARACUDA_D void batch_paged_extend(const P& p) {
  using namespace attention;
  using Shape = UnitShape<T, D, GROUPS, KEYS, SLOTS, WIDE, TERMS, WGMMA>;
  extend_units<Shape, UnitCopies<Shape, P>, CopiedRing<Shape, P>>(p);
}

}  // namespace baracuda
