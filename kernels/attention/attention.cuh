#pragma once
// attention  tiles of attention without tensor cores, multiplied by a block of 128 threads = 8 x 16: each thread has R
//            rows by 4 keys of a score tile and R rows by D / 16 columns of an output tile.
//
// Thread (r, c) = (threadIdx.x / 16, threadIdx.x % 16) owns rows r, r + 8, … and keys c, c + 16, c + 32, c + 48 of a
// score tile. So a half-warp holds whole rows: row reductions are shuffles, and the half-warp that wrote a score tile
// to shared memory also reads it. Elements are widened to acc_t<T> on their way into shared memory. Pitches are 16
// bytes more than a multiple of 128, which spreads the rows that a warp reads over all banks.
//
// Order of sums: a score is one chain of fma over d; an output is a chain over the value_rows keys of a staged piece,
// and the pieces are added in order.
#include <baracuda/reduce.cuh>
#include <baracuda/row_source.cuh>

namespace baracuda::attention {

constexpr int threads = 128;

template <class A> constexpr int pad = 16 / static_cast<int>(sizeof(A));  // elements in 16 bytes
template <class A, int D>
constexpr int chunk = sizeof(A) == 8 || D % 64 != 0 ? 32 : 64;  // columns staged for a product
template <class A> constexpr int score_pitch = tile_keys + pad<A>;

// Rows of D accumulators that fit BYTES: a power of two, at most 64.
template <class A, int D, int BYTES> BARACUDA_HD constexpr int value_rows() {
  int rows = 64;
  while (rows * D * static_cast<int>(sizeof(A)) > BYTES) rows /= 2;
  return rows;
}

BARACUDA_D int thread_row() { return static_cast<int>(threadIdx.x) / 16; }
BARACUDA_D int thread_col() { return static_cast<int>(threadIdx.x) % 16; }

// end - start, clamped to ±N: how many rows of a tile of N at `start` lie below `end`; negative where `end` is far
// below.
template <int N> BARACUDA_D int inside(i64 end, i64 start) {
  return static_cast<int>(min<i64>(N, max<i64>(-N, end - start)));
}

// Whether sequences of lengths of their own are packed: only then P says where their queries stand.
template <class P, class = void> constexpr bool is_packed = false;
template <class P> constexpr bool is_packed<P, decltype(static_cast<void>(P::bottom_right))> = true;

// The tile of queries and the head of a block. Heads go in chunks whose keys and values stay in the L2 cache; where
// rows differ in length the longest tiles of a chunk go first, so that short ones fill the end of the grid.
struct Place {
  u32 tile, head;
  // Takes `chunk` heads at a time: all of them at one tile before the next tile.
  static BARACUDA_D Place together(u32 block, u32 tiles, u32 heads, u32 chunk) {
    const u32 first = block / (chunk * tiles) * chunk, within = block - first * tiles;
    const u32 size = min(chunk, heads - first);
    return {within / size, first + within % size};
  }
  template <class P> static BARACUDA_D Place of(const P& p, u32 block, u32 heads) {
    const u32 tiles = static_cast<u32>(p.tiles);
    if (!p.causal) return {block % tiles, block / tiles};
    const Place place = together(block, tiles, heads, p.chunk);
    return {tiles - 1 - place.tile, place.head};
  }
};

// The work of a block of the forward: a tile of queries of one head of one sequence.
struct Work {
  u32 b, h, kv;          // sequence, query head, key head
  i64 row, key_row;      // index of the tile's first query and of the sequence's first key among the rows of b
  i64 first, query_len;  // the tile's first query in its sequence, and the sequence's length
  i64 key_len, shift;    // keys of the sequence; a causal query i sees the keys j <= i + shift
  i64 stat;              // index of the first query in lse

  template <class T> BARACUDA_D const T* queries(const void* x, const i64 (&stride)[3]) const {
    return static_cast<const T*>(x) + b * stride[0] + h * stride[1] + row * stride[2];
  }
  template <class T> BARACUDA_D const T* keys(const void* x, const i64 (&stride)[3]) const {
    return static_cast<const T*>(x) + b * stride[0] + kv * stride[1] + key_row * stride[2];
  }
  template <class T> BARACUDA_D T* outputs(void* x, const i64 (&stride)[3], int from = 0) const {
    return static_cast<T*>(x) + b * stride[0] + h * stride[1] + (row + from) * stride[2];
  }
};

// Source of the keys and values of a block's sequence, row by row. A kernel that takes tiles of KEYS of them (0: any)
// one after the other calls begin and step, for sources that look ahead.
template <class P> struct KeyRows {
  static constexpr bool looks_up = false;
  const P& p;
  const Work& work;
  BARACUDA_D KeyRows(const P& p, const Work& work) : p(p), work(work) {}
  template <class T> BARACUDA_D Strided<T> keys() const {
    return {work.template keys<T>(p.k, p.stride[1]), p.stride[1][2]};
  }
  template <class T> BARACUDA_D Strided<T> values() const {
    return {work.template keys<T>(p.v, p.stride[2]), p.stride[2][2]};
  }
  template <int BY, class F> BARACUDA_D void begin(int, const F&) const {}
  template <int BY> BARACUDA_D void step(int) const {}
};

// A sequence, as the backward sees it.
struct Sequence {
  i64 query_row, key_row;         // index of its first query and key among the rows of b
  i64 query_len, key_len, shift;  // a causal query i sees the keys j <= i + shift
  i64 before;                     // tiles of queries of the sequences before it in b

  // The tiles of keys [first, end) that the tile of queries `at` sees.
  template <int QUERIES, int KEYS, class P> BARACUDA_D i64 first_tile(const P& p, i64 at) const {
    return max<i64>(0, at * QUERIES + shift - p.left) / KEYS;
  }
  template <int QUERIES, int KEYS, class P> BARACUDA_D i64 end_tile(const P& p, i64 at) const {
    const i64 keys = min(key_len, (at + 1) * QUERIES + shift + p.right);
    return keys <= 0 ? 0 : (keys + KEYS - 1) / KEYS;
  }
};

// The work of a block of the backward: a tile of keys of one key head of one sequence.
struct KeyTile {
  Sequence of;
  u32 tile, b, kv;        // b: batch, or packed sequence; kv: key head
  int first, last, left;  // the tiles of queries that see one of its keys; keys left from the tile's start on

  // The batch as rows, statistics and turns are counted; packed sequences are one.
  template <class P> BARACUDA_D u32 batch(const P&) const { return is_packed<P> ? 0 : b; }

  // The walk over the tiles of queries begins at start() and goes on while sees().
  BARACUDA_D int start() const { return last; }
  BARACUDA_D bool sees(int at) const { return at >= first; }

  template <int QUERIES, int KEYS, class P>
  static BARACUDA_D KeyTile make(const P& p, const Sequence& of, u32 tile, u32 b, u32 kv) {
    const i64 k0 = static_cast<i64>(tile) * KEYS, tiles = (of.query_len + QUERIES - 1) / QUERIES;
    const i64 end = k0 + KEYS - of.shift + p.left;  // of the queries that see a key
    const int first = static_cast<int>(min(tiles, max<i64>(0, k0 - of.shift - p.right) / QUERIES));
    const int last = static_cast<int>(end <= 0 ? -1 : min(tiles - 1, (end - 1) / QUERIES));
    return {of, tile, b, kv, first, last, inside<KEYS>(of.key_len, k0)};
  }
};

// A tile of keys whose tiles of queries may also be walked up, from the first; such tiles are taken from a sequence's
// last on.
struct RisingTile : KeyTile {
  bool up;

  BARACUDA_D int start() const { return up ? first : last; }
  BARACUDA_D bool sees(int at) const { return first <= at && at <= last; }
};
// The tile of a ticket: those of the first `p.rising` of a sequence's `kv_heads` come before all others, and may walk
// up.
struct RisingPlace {
  Place place;  // head = b kv_heads + kv
  bool early;

  template <class P> static BARACUDA_D RisingPlace of(const P& p, u32 ticket, u32 batch, u32 kv_heads) {
    const u32 tiles = static_cast<u32>(p.key_tiles), rising = static_cast<u32>(p.rising),
              before = batch * rising * tiles;
    const bool early = ticket < before;
    const u32 heads = early ? rising : kv_heads - rising;
    const Place place =
        Place::together(early ? ticket : ticket - before, tiles, batch * heads, static_cast<u32>(p.chunk));
    return {{place.tile, place.head / heads * kv_heads + (early ? 0 : rising) + place.head % heads}, early};
  }
};

// Tile `at` of the queries of a sequence.
struct QueryTile {
  Sequence of;
  i64 at;
};

// How blocks find their work. Dense: operands are [batch, heads, rows, d] and all sequences have the same length.
struct Dense {
  static constexpr bool surplus = false;  // whether the grid may have blocks without work (query_len 0)
  template <class P, int KEYS> using Keys = KeyRows<P>;
  template <int ROWS, class P> static BARACUDA_D Work find(const P& p) {
    return find<ROWS>(p, blockIdx.x, gridDim.x / static_cast<u32>(p.tiles));
  }
  template <int ROWS, class P> static BARACUDA_D Work find(const P& p, u32 block, u32 heads) {
    const Place place = Place::of(p, block, heads);
    const u32 b = place.head / p.num_heads, h = place.head % p.num_heads;
    const i64 q0 = static_cast<i64>(place.tile) * ROWS;
    return {b,         h,       p.group == 1 ? h : h / p.group, q0, 0, q0, p.query_len,
            p.key_len, p.shift, place.head * p.query_len + q0};
  }
  template <class P> static BARACUDA_D Sequence sequence(const P& p) {
    return {0, 0, p.query_len, p.key_len, p.shift, 0};
  }
  template <int QUERIES, int KEYS, class P> static BARACUDA_D KeyTile key_tile(const P& p, u32 ticket) {
    return key_tile<QUERIES, KEYS>(p, ticket, gridDim.x / static_cast<u32>(p.key_tiles));
  }
  template <int QUERIES, int KEYS, class P> static BARACUDA_D KeyTile key_tile(const P& p, u32 ticket, u32 heads) {
    const u32 kv_heads = p.num_heads / p.group;
    const Place place = Place::together(ticket, static_cast<u32>(p.key_tiles), heads, static_cast<u32>(p.chunk));
    return KeyTile::make<QUERIES, KEYS>(p, sequence(p), place.tile, place.head / kv_heads, place.head % kv_heads);
  }
  template <int QUERIES, int KEYS, class P>
  static BARACUDA_D RisingTile rising_tile(const P& p, u32 ticket, u32 heads) {
    const u32 kv_heads = p.num_heads / p.group;
    const auto [place, up] = RisingPlace::of(p, ticket, heads / kv_heads, kv_heads);
    const u32 tile = up ? static_cast<u32>(p.key_tiles) - 1 - place.tile : place.tile;
    return {KeyTile::make<QUERIES, KEYS>(p, sequence(p), tile, place.head / kv_heads, place.head % kv_heads), up};
  }
  template <int QUERIES, class P> static BARACUDA_D QueryTile query_tile(const P& p, i64 tile) {
    return {sequence(p), tile};
  }
};

// The keys that the rows of a tile of queries see: row r those of [low + r, high + r) that exist.
template <int ROWS> struct Span {
  int key_len, low, high;
  bool bounded;  // some row may see less than all keys
  // Row 0 stands at key position `at` and sees the keys from `left` before it to `right` after it.
  BARACUDA_D Span(i64 at, i64 left, i64 right, i64 keys) : key_len(static_cast<int>(keys)) {
    const auto clamped = [&](i64 key) { return static_cast<int>(max<i64>(-ROWS, min(key, keys))); };
    low = clamped(at - left);
    high = clamped(at + right + 1);
    bounded = left < unbounded_side || right < unbounded_side;
  }
  template <class P>
  BARACUDA_D Span(const P& p, const Work& work) : Span(work.first + work.shift, p.left, p.right, work.key_len) {}
  // No row sees keys before first(), and none of the first `rows` rows sees keys from end(rows) on; end may be <= 0.
  template <int KEYS> BARACUDA_D int first() const { return max(0, low) / KEYS * KEYS; }
  BARACUDA_D int end(int rows) const { return min(key_len, high + rows - 1); }
  // Start of the last tile that they see, for walks from there down to first(); 0 where they see none.
  template <int KEYS> BARACUDA_D int start(int rows) const { return (max(end(rows), 1) - 1) / KEYS * KEYS; }
  // Whether some row sees less than all of a tile of keys.
  template <int KEYS> BARACUDA_D bool cuts(int k0) const {
    return k0 + KEYS > min(key_len, high) || k0 < low + ROWS - 1;
  }
};

// as accurate as exp2f, but subnormal weights become 0
BARACUDA_D float exp2_fast(float x) { return math::fast_exp2(x); }
BARACUDA_D double exp2_fast(double x) { return math::exp2(x); }

template <class A> constexpr A log2_e = static_cast<A>(1.4426950408889634);
template <class A> constexpr A ln_2 = static_cast<A>(0.6931471805599453);

// ---- weights recomputed from a saved lse ----------------------------------------------------------------------------

// A weight is exp(score - lse) and never above 1. Score and lse are both rounded, so their difference may come out
// above 0, and the further the larger they are. A difference above 0 therefore counts as 0. From `coarse` on, where
// neighbouring floats are 2 or more apart, a score that rounding may have left below its row's lse counts as equal to
// it. So the highest key of a row keeps the weight 1.
//
// Biases make rows of which lse holds next to nothing: where all are the lowest float it is that, however many keys
// share the row. There flash_lse_rests finds what lse lacks, rest = log sum_j exp(score - lse), and a weight is
// exp(score - lse - rest).
template <class A> constexpr A coarse = static_cast<A>(sizeof(A) == 8 ? 0x1p53 : 0x1p24);
// What is subtracted from a row's scores, given its lse: infinite where the row has seen no key, so that all weights
// are 0.
template <class A> BARACUDA_D A replay_base(A lse) {
  constexpr A room = static_cast<A>(sizeof(A) == 8 ? 0x1p-48 : 0x1p-19);  // 16 to 32 units in the last place
  const A size = math::abs(lse), most = numeric<A>::max();
  if (lse == -numeric<A>::infinity()) return -lse;
  return size >= coarse<A> && size <= most ? math::maximum(math::fma(size, -room, lse), -most) : lse;
}
// The weight of a score that lies `above` its row's base.
template <class A> BARACUDA_D A replayed_weight(A above) { return exp2_fast(math::minimum(above, A(0)) * log2_e<A>); }
// A key that has all of its row's weight has ds = 0, whatever dropout left of it, since all other weights are 0.
// Computed as that weight times (dy v - delta), with a rounded y, ds would only be near 0. So it is set to 0 where the
// difference shows: under dropout, and in far rows, whose lse has so many powers of 2 that rounding score and lse
// changes a 16-bit weight by more than 1 in its last place.
template <class A> constexpr A far_powers = A(0x1p10);
template <class A> BARACUDA_D bool is_far_base(A base) { return math::abs(base) >= far_powers<A> * ln_2<A>; }
// The gradient of a row's lse, which ds takes off delta: dlse[row], where that is given and the row sees a key.
template <class P, class A> BARACUDA_D A lse_gradient(const P& p, A lse, i64 row) {
  return p.dlse == nullptr || lse == -numeric<A>::infinity() ? A(0) : static_cast<const A*>(p.dlse)[row];
}
// Whether a weight rounds to 1 as an element of T (16 bits).
template <class T> BARACUDA_D bool rounds_to_one(float weight) {
  return weight >= (is_same<T, f16> ? 1 - 0x1p-12f : 1 - 0x1p-9f);
}

// ---- global to shared memory ----------------------------------------------------------------------------------------

// tile[r][c] = source.row(r)[c] for r < rows and c < cols, zeros elsewhere in ROWS x COLS. wide: rows start 16-byte
// aligned and cols is whole 16-byte pieces; then a thread has up to AHEAD loads in flight. Called by all 128 threads;
// the caller synchronises.
template <int ROWS, int COLS, int PITCH, int AHEAD, class T, class Source>
BARACUDA_D void stage(acc_t<T>* tile, const Source& source, int rows, int cols, bool wide) {
  constexpr int VEC = vec_elems<T>, LINE = COLS / VEC, EACH = ROWS * LINE / threads;
  static_assert(ROWS * LINE % threads == 0, "every thread takes as many 16-byte pieces");
  constexpr int BATCH = EACH % AHEAD == 0 ? AHEAD : EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : EACH % 2 == 0 ? 2 : 1;
  if (wide) {
    constexpr bool EVEN = threads % LINE == 0;  // all pieces of a thread have the same columns
    constexpr int STEP = threads / LINE;
    const int line = static_cast<int>(threadIdx.x) / LINE, column = static_cast<int>(threadIdx.x) % LINE * VEC;
    auto from = source.template walk<STEP>(line, column, rows);
#pragma unroll 1
    for (int first = 0; first < EACH; first += BATCH) {
      uint4 piece[BATCH];  // as words: a Vec of 16-bit elements would take a register for each
#pragma unroll
      for (int n = 0; n < BATCH; ++n) {
        const int at = (first + n) * threads + static_cast<int>(threadIdx.x);
        const int r = EVEN ? line + (first + n) * STEP : at / LINE, c = EVEN ? column : at % LINE * VEC;
        piece[n] = uint4{0, 0, 0, 0};
        const T* const here = EVEN ? from.next() : source.row(r) + c;
        if (r < rows && c < cols) piece[n] = __ldg(reinterpret_cast<const uint4*>(here));
      }
#pragma unroll
      for (int n = 0; n < BATCH; ++n) {
        const int at = (first + n) * threads + static_cast<int>(threadIdx.x);
        const int r = EVEN ? line + (first + n) * STEP : at / LINE, c = EVEN ? column : at % LINE * VEC;
        Vec<T, VEC> x;
        memcpy(&x, &piece[n], sizeof(x));
        store(tile + r * PITCH + c, to_acc(x));
      }
    }
  } else {
#pragma unroll 2
    for (int n = threadIdx.x; n < ROWS * COLS; n += threads) {
      const int r = n / COLS, c = n % COLS;
      tile[r * PITCH + c] = r < rows && c < cols ? to_acc(source.row(r)[c]) : acc_t<T>(0);
    }
  }
}
template <int ROWS, int COLS, int PITCH, int AHEAD = 8, class T>
BARACUDA_D void stage(acc_t<T>* tile, const T* source, i64 stride, int rows, int cols, bool wide) {
  stage<ROWS, COLS, PITCH, AHEAD, T>(tile, Strided<T>{source, stride}, rows, cols, wide);
}

// ---- products -------------------------------------------------------------------------------------------------------

// s[i][j] += sum over COLS columns of x[row i] y[key j].
template <int R, int COLS, int XPITCH, int YPITCH, class A>
BARACUDA_D void multiply_scores(A (&s)[R][4], const A* x, const A* y) {
  constexpr int V = pad<A>;
  x += thread_row() * XPITCH;
  y += thread_col() * YPITCH;
#pragma unroll 1
  for (int d = 0; d < COLS; d += V) {  // one step is 64 or 128 multiply-adds; more at a time only takes registers
    Vec<A, V> key[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) key[j] = load<V>(y + 16 * j * YPITCH + d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const auto row = load<V>(x + 8 * i * XPITCH + d);
#pragma unroll
      for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] = math::fma(row[e], key[j][e], s[i][j]);
      }
    }
  }
}

// A thread's columns of an output tile: `per` of them in groups of `width` neighbours, group g at column 16 width g +
// width c.
template <class A, int R, int D> struct Columns {
  static constexpr int per = D / 16;
  static constexpr int width = sizeof(A) == 4 && per % 4 == 0 ? 4 : 2;
  static constexpr int groups = per / width;
  static BARACUDA_HD constexpr int at_once(int outputs) {  // as many groups as leave registers for their partial sums
    const int words = static_cast<int>(sizeof(A)) / 4, room = per * R * words * outputs > 64 ? 32 : 64;
    int n = groups;
    while (groups % n != 0 || (n > 1 && n * width * R * words > room)) --n;
    return n;
  }
};

// acc[i] = acc[i] * factor(row i) + sum over ROWS values of p[row i][n] value[n]. The factors stand behind the weights,
// in the padding of p's rows, where they take no registers. MASKED: values that seen(i, n) denies add nothing to row i,
// be they infinite or NaN; only tiles cut by the mask need that, so that form takes one value at a time and compiles
// fast.
template <int R, int D, int ROWS, bool MASKED, bool RESCALE, class A, class Seen>
BARACUDA_D void multiply_values(A (&acc)[R][D / 16], const A* p, const A* factor, const A* value, Seen seen) {
  using C = Columns<A, R, D>;
  constexpr bool FULL = C::per * R * static_cast<int>(sizeof(A)) > 384;  // the accumulators leave room for fewer values
  constexpr int V = MASKED ? 1 : FULL ? pad<A> / 2 : pad<A>, W = C::width, N = C::at_once(RESCALE ? 1 : 2);
  p += thread_row() * score_pitch<A>;
  value += thread_col() * W;
#pragma unroll
  for (int group = 0; group < C::groups; group += N) {
    A part[R][N * W];
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int k = 0; k < N * W; ++k) part[i][k] = A(0);
    }
#pragma unroll 1
    for (int n = 0; n < ROWS; n += V) {
      Vec<A, W> v[V][N];
#pragma unroll
      for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int g = 0; g < N; ++g) v[e][g] = load<W>(value + (n + e) * D + (group + g) * 16 * W);
      }
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const auto weight = load<V>(p + 8 * i * score_pitch<A> + n);
        if constexpr (MASKED) {
          if (!seen(i, n)) continue;
        }
#pragma unroll
        for (int e = 0; e < V; ++e) {
#pragma unroll
          for (int k = 0; k < N * W; ++k) part[i][k] = math::fma(weight[e], v[e][k / W][k % W], part[i][k]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const A f = RESCALE ? factor[8 * i * score_pitch<A>] : A(1);
#pragma unroll
      for (int k = 0; k < N * W; ++k) acc[i][group * W + k] = math::fma(acc[i][group * W + k], f, part[i][k]);
    }
  }
}
struct AllSeen {
  BARACUDA_D bool operator()(int, int) const { return true; }
};

// Whether all COUNT values are finite; called by all threads, which all get the answer.
template <int COUNT, class A> BARACUDA_D bool all_finite(const A* values) {
  bool good = true;
#pragma unroll 4
  for (int n = threadIdx.x; n < COUNT; n += threads) good &= math::isfinite(values[n]);
  return __syncthreads_and(good);
}

// ---- registers to memory --------------------------------------------------------------------------------------------

// Writes a score tile to shared memory, for multiply_values.
template <int R, class A> BARACUDA_D void put_scores(A* tile, const A (&s)[R][4]) {
  tile += thread_row() * score_pitch<A> + thread_col();
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[8 * i * score_pitch<A> + 16 * j] = s[i][j];
  }
}

// out[row i][column] = acc * factor[i] for rows < rows and columns < cols.
template <int R, int D, class T, class A>
BARACUDA_D void put_output(T* out, i64 stride, const A (&acc)[R][D / 16], const A (&factor)[R], int rows, int cols,
                           bool wide) {
  using C = Columns<A, R, D>;
  constexpr int W = C::width;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int r = thread_row() + 8 * i;
    if (r >= rows) continue;
#pragma unroll
    for (int g = 0; g < C::groups; ++g) {
      const int c = (16 * g + thread_col()) * W;
      Vec<A, W> x;
#pragma unroll
      for (int k = 0; k < W; ++k) x[k] = acc[i][g * W + k] * factor[i];
      T* to = out + r * stride + c;
      if (wide) store_vec<T, W, true>(to, from_acc<T>(x), cols - c);
      else store_vec<T, W, false>(to, from_acc<T>(x), cols - c);
    }
  }
}

}  // namespace baracuda::attention
