// batch_paged_extend_quantized    batch_paged_extend over caches of codes: an element is a code times its scale.
//
// Schedule and order of sums: extend_units.cuh. Codes come by cp.async, CODED tiles ahead, to where the thread that
// asked for them takes them again, so that no barrier stands between. It decodes them to tiles of the ring.
//
// Where a row of a cache has one scale, keys are decoded without it, which is exact, and it multiplies their scores. So
// it does with values where weights are bf16, which has room for any weight times a scale, and codes are finite. Else a
// number is rounded to 16 bits after its scale, as a cache of 16 bits would hold it. Both depend on nothing but the
// token.
#include "attention/paged/extend_codes.cuh"
#include "attention/paged/extend_units.cuh"

namespace baracuda {
namespace attention {

// FORMAT: cache_codes.cuh. GROUPED: rows have several scales. IN_FLIGHT: tiles of codes of 8 bits, of keys and of values.
template <class T, int D, int GROUPS, int KEYS, int RING, int CODE, bool SEVERAL, int IN_FLIGHT, bool WGMMA>
struct CodedShape : UnitShape<T, D, GROUPS, KEYS, RING, true, true, WGMMA> {
  static constexpr int FORMAT = CODE, CODED = IN_FLIGHT * 8 / cache_codes::bits<CODE>;
  static constexpr bool GROUPED = SEVERAL, ASKS = true;
  static constexpr bool KEY_FACTORS = !GROUPED;
  static constexpr bool VALUE_FACTORS = !GROUPED && is_same<T, bf16> && FORMAT != code_e5m2;
  // Consumers of wide heads need all that producers can spare.
  static constexpr int PRODUCER_REGISTERS = GROUPS == 1 ? (D > 64 ? 48 : 72) : D > 128 ? 40 : 72;
  static constexpr int CONSUMER_REGISTERS = GROUPS == 1 ? (D > 64 ? 208 : 184) : D > 128 ? 232 : 216;
};

// Pieces are 16 bytes of codes, of a panel of 64 columns after the other, and there of one row after the other: so
// neighbouring threads store to different banks. A thread's pieces are in ROWS rows, RUN apart, and in the same columns of
// some panels: it finds its first place, and the others are constants further.
template <class Shape> struct CodedTile {
  static constexpr int KEYS = Shape::KEYS, COPIERS = Shape::COPIERS;
  static constexpr int PIECE = cache_codes::piece<Shape::FORMAT>, ROW = 64 / PIECE, PIECES = KEYS * Shape::D / PIECE;
  static constexpr int RUN = COPIERS / ROW, ROWS = KEYS > RUN ? KEYS / RUN : 1, BESIDE = KEYS < RUN ? RUN / KEYS : 1;
  static constexpr int EACH = div_up(PIECES, COPIERS);
  static_assert(RUN % 8 == 0 && (KEYS % RUN == 0 || RUN % KEYS == 0), "a thread's rows are swizzled alike");
  static_assert(EACH % ROWS == 0, "as many pieces in each row");

  // Of piece n of the thread, and of its first.
  static BARACUDA_D int row(int n) { return static_cast<int>(threadIdx.x) / ROW % KEYS + n % ROWS * RUN; }
  static BARACUDA_D int column() {
    return static_cast<int>(threadIdx.x) / (ROW * KEYS) * 64 + static_cast<int>(threadIdx.x) % ROW * PIECE;
  }
  // The number of piece n in the tile, which may end before it; columns and elements of the tile from the first to it.
  static BARACUDA_D int number(int n) { return static_cast<int>(threadIdx.x) + n * COPIERS; }
  static BARACUDA_D bool has(int n) { return PIECES % COPIERS == 0 ? n < EACH : number(n) < PIECES; }
  static constexpr int columns(int n) { return n / ROWS * BESIDE * 64; }
  static constexpr int elements(int n) { return (n % ROWS * RUN + n / ROWS * BESIDE * KEYS) * 64; }
};

// Shared memory behind the ring.
template <class Shape> struct CodedSpace {
  static constexpr bool ROWS_ONLY = Shape::KEY_FACTORS && Shape::VALUE_FACTORS;
  uint4 codes[Shape::CODED][CodedTile<Shape>::PIECES];
  float scales[Shape::CODED][ROWS_ONLY ? Shape::KEYS : CodedTile<Shape>::PIECES];  // of rows, or of pieces
  float factors[Shape::SLOTS][Shape::KEYS];
};

template <class Shape, class P> struct CodedCopies {
  using T = typename Shape::Element;
  using Space = CodedSpace<Shape>;
  using Tile = CodedTile<Shape>;
  static constexpr int KEYS = Shape::KEYS, CODED = Shape::CODED;
  using Source = StreamedKeys<P, KEYS, TokenPlace>;
  static_assert(CODED % 2 == 0 && CODED / 2 < entries_ahead,
                "keys and values; entries are looked up when they are there");

  // Whether a thread has registers for all of its pieces at once.
  template <bool OF_ROWS> static constexpr bool AT_ONCE = OF_ROWS && Shape::D <= 128;

  const P& p;
  const int keys, first;
  Source& source;
  Space& space;
  const CodedHead<0, P> k;
  const CodedHead<1, P> v;
  int k0, asked;  // of the next tile to decode, and to ask for
  u32 place = 0;  // of the next tile of codes

  BARACUDA_D CodedCopies(const P& p, const Extended& sequence, const Unit& unit, const UnitTile& of, Source& source,
                         T* ring)
      : p(p), keys(sequence.keys), first(of.template first<KEYS>()), source(source), space(space_of(ring)),
        k(p, unit.kv), v(p, unit.kv), k0(of.template start<KEYS>()), asked(k0) {
    source.template begin<-KEYS>(k0);
    meet();
#pragma unroll 1
    for (u32 n = 0; n < CODED; n += 2) {
      ask<Shape::KEY_FACTORS>(k, n);
      ask<Shape::VALUE_FACTORS>(v, n + 1);
      look_ahead();
    }
  }
  static BARACUDA_D Space& space_of(T* ring) { return *reinterpret_cast<Space*>(ring + Shape::SLOTS * Shape::TILE); }
  static BARACUDA_D const float* factors(T* ring) { return &space_of(ring).factors[0][0]; }
  static BARACUDA_D void arrive(Barrier& full) { full.arrive(); }
  static BARACUDA_D void meet() { sync_threads<Shape::COPIERS>(of_copiers); }

  BARACUDA_D void fill_keys(T* to, u32 slot) { fill<Shape::KEY_FACTORS>(k, to, slot); }
  BARACUDA_D void fill_values(T* to, u32 slot) { fill<Shape::VALUE_FACTORS>(v, to, slot); }
  BARACUDA_D void look_ahead() {
    source.template step<-KEYS>(asked);
    asked -= KEYS;
    meet();
  }
  BARACUDA_D void next() { k0 -= KEYS; }
  BARACUDA_D bool more() const { return k0 >= first; }

 private:
  // Asks for a tile's codes and scales, of rows or of pieces; zeros where there are none.
  template <bool OF_ROWS, class Head> BARACUDA_D void ask(const Head& head, u32 to) {
    if (asked >= first) {
      const auto look_up = [&](int n) { return source.place(asked + Tile::row(n)); };
      const auto codes_of = [&](const TokenPlace& token) {
        return head.row(token.page, token.cell) + Tile::column() / Tile::PIECE * 16;
      };
      const auto copy = [&](int n, const TokenPlace& token, const u8* codes) {
        if (!Tile::has(n)) return;
        const bool there = asked + Tile::row(n) < keys && Tile::column() + Tile::columns(n) < head.columns();
        cp_async_16(&space.codes[to][Tile::number(n)], codes + Tile::columns(n) / Tile::PIECE * 16, there);
        if (OF_ROWS || head.scales == nullptr) return;
        const i64 group = Shape::GROUPED ? head.group(Tile::column() + Tile::columns(n)) : 0;
        const float* const scale = head.scale(token.page, token.cell) + group;
        cp_async<4>(&space.scales[to][Tile::number(n)], scale, there ? 4 : 0);
      };
      if constexpr (AT_ONCE<OF_ROWS>) {
#pragma unroll
        for (int r = 0; r < Tile::ROWS; ++r) {
          const TokenPlace token = look_up(r);
          const u8* const codes = codes_of(token);
#pragma unroll
          for (int n = r; n < Tile::EACH; n += Tile::ROWS) copy(n, token, codes);
        }
      } else {
#pragma unroll 1
        for (int n = 0; n < Tile::EACH; ++n) {
          const TokenPlace token = look_up(n);
          copy(n, token, codes_of(token));
        }
      }
      if (OF_ROWS && head.scales != nullptr && threadIdx.x < KEYS) {
        const int row = static_cast<int>(threadIdx.x);
        const TokenPlace token = source.place(asked + row);
        cp_async<4>(&space.scales[to][row], head.scale(token.page, token.cell), asked + row < keys ? 4 : 0);
      }
    }
    cp_async_commit();
  }
  // Decodes the oldest tile of codes, and asks for another in its place.
  template <bool OF_ROWS, class Head> BARACUDA_D void fill(const Head& head, T* to, u32 slot) {
    cp_async_wait<CODED - 1>();
    const u32 from = place;
    const auto scale = [&](int n) {
      return head.scales == nullptr ? head.factor : head.factor * space.scales[from][n];
    };
    // A piece is loaded before the one ahead of it is stored, which might be the same memory for all the compiler knows.
    constexpr bool AHEAD = AT_ONCE<OF_ROWS>;
    const auto codes_of = [&](int n) { return Tile::has(n) ? space.codes[from][Tile::number(n)] : uint4{}; };
    uint4 next = AHEAD ? codes_of(0) : uint4{};
#pragma unroll AHEAD ? Tile::EACH : 1
    for (int n = 0; n < Tile::EACH; ++n) {
      const uint4 x = AHEAD ? next : codes_of(n);
      if (AHEAD) next = codes_of(n + 1);
      const u32 words[4] = {x.x, x.y, x.z, x.w};
      if (!Tile::has(n)) continue;
      const float by = OF_ROWS ? 1.0f : scale(Tile::number(n));
#pragma unroll
      for (int part = 0; part < Tile::PIECE / 8; ++part) {
        const int place = tile::Panels<KEYS>::at(Tile::row(0), Tile::column() / 8 + part) + Tile::elements(n);
        *reinterpret_cast<uint4*>(to + place) = cache_codes::eight<Shape::FORMAT, T, !OF_ROWS>(words, part, by);
      }
    }
    if (OF_ROWS && threadIdx.x < KEYS) space.factors[slot][threadIdx.x] = scale(static_cast<int>(threadIdx.x));
    ask<OF_ROWS>(head, from);
    place = (place + 1) % CODED;
  }
};

// The ring where all threads decode: keys and values have a slot each.
template <class Shape, class P> struct DecodedRing {
  using T = typename Shape::Element;
  CodedCopies<Shape, P>& copies;
  T* const ring;
  u32 slot = 0;
  static_assert(Shape::SLOTS == 2, "keys and values");

  BARACUDA_D DecodedRing(CodedCopies<Shape, P>& copies, T* ring) : copies(copies), ring(ring) {}
  // Fills a slot, which all have read before they came to the other, and returns it when all have done so.
  BARACUDA_D u32 await(int) {
    const u32 now = slot;
    slot ^= 1;
    if (now == 0) {
      copies.fill_keys(ring, 0);
    } else {
      copies.fill_values(ring + Shape::TILE, 1);
      copies.look_ahead();
      copies.next();
    }
    __syncthreads();
    return now;
  }
  BARACUDA_D void release(u32) const {}
};

}  // namespace attention

template <class T, int D, int GROUPS, int KEYS, int SLOTS, int FORMAT, bool GROUPED, int IN_FLIGHT, bool WGMMA, class P>
BARACUDA_D void batch_paged_extend_quantized(const P& p) {
  using namespace attention;
  using Shape = CodedShape<T, D, GROUPS, KEYS, SLOTS, FORMAT, GROUPED, IN_FLIGHT, WGMMA>;
  extend_units<Shape, CodedCopies<Shape, P>, DecodedRing<Shape, P>>(p);
}

}  // namespace baracuda
