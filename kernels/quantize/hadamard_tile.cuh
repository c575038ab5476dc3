#pragma once
// hadamard_tile   y = H x for all rows of a tile in shared memory, n = BASE 2^k elements a row, H = H_BASE (x) S_k with
// S_k the Hadamard matrix of Sylvester: bit q of an element's place in its row is level q, a sum and a difference.
//
// A tile is dense: element i is column i % n of row i / n. It is transformed in rounds; in each a thread holds E elements
// whose places differ in some bits and does the levels of those bits in registers, then the round's threads meet at a
// barrier and hold elements of other places. The first and the last round hold chunks of 16 bytes of T, as global memory
// is accessed, so that their bits are the lowest ones and a window of bits above; rounds between hold a window of bits.
// Windows follow from n and T alone (baracuda_py/schedules/hadamard.py), and they fix the order of every sum.
#include <baracuda/math.cuh>
#include <baracuda/rows.cuh>

namespace baracuda::hadamard {

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// ---- matrices of 12, 20 and 28 --------------------------------------------------------------------------------------

// Paley's second construction (1933): C (x) [1 1; 1 -1] + I (x) [1 -1; -1 -1], where C borders the quadratic characters of
// the differences of all elements of the field of q = BASE / 2 - 1 elements. C and so H are symmetric.
template <int BASE> struct Paley {
  static constexpr int q = BASE / 2 - 1;
  static constexpr u32 squares = q == 5 ? 0x12u : q == 9 ? 0x4eu : 0x161au;  // of the field, but 0
  // Elements of the field of 9 are a + 3 b for a + b i, with i^2 = -1.
  static constexpr BARACUDA_D int difference(int a, int b) {
    return q == 9 ? (a % 3 - b % 3 + 3) % 3 + 3 * ((a / 3 - b / 3 + 3) % 3) : (a - b + q) % q;
  }
  static constexpr BARACUDA_D int character(int row, int column) {
    return row == column                                            ? 0
           : row == 0 || column == 0                                ? 1
           : (squares >> difference(row - 1, column - 1) & 1u) != 0 ? 1
                                                                    : -1;
  }
};

// x = H x. Columns of C are taken by two, whose sum and difference serve all rows: 1 + BASE / 4 additions an element.
template <int BASE, class A> BARACUDA_D void multiply(A (&x)[BASE]) {
  using C = Paley<BASE>;
  A u[BASE];
#pragma unroll
  for (int i = 0; i < BASE; i += 2) {
    u[i] = x[i] + x[i + 1], u[i + 1] = x[i] - x[i + 1];
    x[i] = u[i + 1], x[i + 1] = -u[i];
  }
#pragma unroll
  for (int c = 0; c < BASE / 2; c += 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const A one = u[2 * c + h], two = u[2 * c + 2 + h], sum = one + two, difference = one - two;
#pragma unroll
      for (int r = 0; r < BASE / 2; ++r) {
        const int left = C::character(r, c), right = C::character(r, c + 1);
        const A term = left == 0 ? two : right == 0 ? one : left == right ? sum : difference;
        x[2 * r + h] = (left == 0 ? right : left) > 0 ? x[2 * r + h] + term : x[2 * r + h] - term;
      }
    }
  }
}

// ---- levels in registers --------------------------------------------------------------------------------------------

// Levels bit, bit + 1, … of x, whose places differ by them for indices that differ by FIRST, 2 FIRST, … COUNT levels are
// held, of which those in [low, high) are done.
template <int FIRST, int COUNT, int E, class A> BARACUDA_D void levels(A (&x)[E], int bit, int low, int high) {
#pragma unroll
  for (int l = 0; l < COUNT; ++l) {
    if (bit + l < low || bit + l >= high) continue;
    const int step = FIRST << l;
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if ((i & step) == 0) {
        const A a = x[i], b = x[i + step];
        x[i] = a + b, x[i + step] = a - b;
      }
    }
  }
}

// ---- a tile in shared memory ----------------------------------------------------------------------------------------

// T as in global memory, E elements a thread in registers. P has `rows`, `k`, `tile_rows`, `rounds`, `shift`, `low` and
// `high`, the numbers of row_params, and operands SOURCE and SIGNS, x and what it is multiplied by first.
template <class T, int E, int BASE, class P> struct Tile {
  using A = acc_t<T>;
  static constexpr int V = vec_elems<T>, C = E / V, LE = log2_of(E), LV = log2_of(V), LC = LE - LV;
  static constexpr int line = log2_of(128 / static_cast<int>(sizeof(A)));  // of shared memory, all banks once
  static constexpr int pad = 16 / static_cast<int>(sizeof(A));
  const P& p;
  A* const tile;
  const i64 first;        // row of the tile's first
  const int size, valid;  // elements, and those of rows that there are
  const int n;

  BARACUDA_D Tile(const P& params, A* memory, i64 row)
      : p(params), tile(memory), first(row), size(params.tile_rows * (BASE << params.k)),
        valid(static_cast<int>(min<i64>(params.tile_rows, params.rows - row)) * (BASE << params.k)),
        n(BASE << params.k) {}
  // Where element i is: gaps behind a line of shared memory, and behind some of them, keep lanes off one another's banks.
  // It is additive over numbers without common bits, and for BASE > 1 over multiples of 2^(line + 2).
  static BARACUDA_D int at(int i) {
    return i + pad * ((i >> line) + (i >> (line + 2)) + (BASE == 1 ? 2 * (i >> (line + 5)) : 0));
  }
  BARACUDA_D int row_of(int i) const { return (i >> p.k) / BASE; }
  // The first place of chunks of item w, which are 2^shift apart.
  BARACUDA_D int chunk_place(int w, int shift) const {
    const int low = w & ((1 << (shift - LV)) - 1);
    return w >> (shift - LV) << (shift + LC) | low << LV;
  }
  BARACUDA_D void chunk_levels(A (&x)[E], int round) const {
    levels<1, LV>(x, 0, p.low[round], p.high[round]);
    levels<V, LC>(x, p.shift[round], p.low[round], p.high[round]);
  }
  BARACUDA_D void put(int i, const A* x) const {
    Vec<A, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = x[k];
    store(tile + at(i), v);
  }
  BARACUDA_D void get(int i, A* x) const {
    const Vec<A, V> v = load<V>(static_cast<const A*>(tile) + at(i));
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = v[k];
  }
  template <bool WIDE> BARACUDA_D i64 row_offset(int operand, int row) const {
    return RowAt<WIDE>(p, first + row).offset(p, operand);
  }

  // The first round of rows in aligned chunks.
  template <int SOURCE, int SIGNS> BARACUDA_D void enter_wide() const {
    const T *const from = static_cast<const T*>(p.x), *const signs = static_cast<const T*>(p.signs);
    const int shift = p.shift[0];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
      const int place = chunk_place(w, shift);
      Chunk raw[C];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int i = place + (c << shift), row = row_of(i);
        raw[c] = Chunk{};
        if (i < valid)
          raw[c] = load<4>(reinterpret_cast<const u32*>(from + row_offset<true>(SOURCE, row) + (i - row * n)));
      }
      A x[E];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        auto v = to_acc(unpack<T>(raw[c]));
        const int i = place + (c << shift), row = row_of(i);
        if (signs != nullptr && i < valid) {
          const auto s = to_acc(load<V>(signs + row_offset<true>(SIGNS, row) + (i - row * n)));
#pragma unroll
          for (int k = 0; k < V; ++k) v[k] *= s[k];
        }
#pragma unroll
        for (int k = 0; k < V; ++k) x[c * V + k] = v[k];
      }
      chunk_levels(x, 0);
#pragma unroll
      for (int c = 0; c < C; ++c) put(place + (c << shift), x + c * V);
    }
  }

  // Rows of any strides come to the tile first.
  template <int SOURCE, int SIGNS> BARACUDA_D void enter_strided() const {
    const T *const from = static_cast<const T*>(p.x), *const signs = static_cast<const T*>(p.signs);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
      const int row = row_of(i), column = i - row * n;
      A x = A(0);
      if (i < valid) {
        x = to_acc(from[row_offset<false>(SOURCE, row) + column_offset<false>(p, SOURCE, column)]);
        if (signs != nullptr)
          x *= to_acc(signs[row_offset<false>(SIGNS, row) + column_offset<false>(p, SIGNS, column)]);
      }
      tile[at(i)] = x;
    }
    __syncthreads();
    chunk_round(0);
  }

  // A round of chunks within the tile.
  BARACUDA_D void chunk_round(int round) const {
    const int shift = p.shift[round];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
      const int place = chunk_place(w, shift);
      A x[E];
#pragma unroll
      for (int c = 0; c < C; ++c) get(place + (c << shift), x + c * V);
      chunk_levels(x, round);
#pragma unroll
      for (int c = 0; c < C; ++c) put(place + (c << shift), x + c * V);
    }
  }

  // A round of the levels of the window of bits from SHIFT on.
  template <int SHIFT> BARACUDA_D void window_round(int round) const {
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
      A* const held = tile + at(w >> SHIFT << (SHIFT + LE) | (w & ((1 << SHIFT) - 1)));
      A x[E];
#pragma unroll
      for (int r = 0; r < E; ++r) x[r] = held[at(r << SHIFT)];
      levels<1, LE>(x, SHIFT, p.low[round], p.high[round]);
#pragma unroll
      for (int r = 0; r < E; ++r) held[at(r << SHIFT)] = x[r];
    }
    __syncthreads();
  }

  // The product with the matrix of BASE, of elements 2^k apart. EVEN: in the tile they are as far apart from one another.
  template <bool EVEN> BARACUDA_D void base_round() const {
    const int step = at(1 << p.k);
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / BASE; w += static_cast<int>(blockDim.x)) {
      const int first_of = (w >> p.k) * n + (w & ((1 << p.k) - 1));
      A* const held = tile + at(first_of);
      A x[BASE];
#pragma unroll
      for (int d = 0; d < BASE; ++d) x[d] = EVEN ? held[d * step] : tile[at(first_of + (d << p.k))];
      multiply<BASE>(x);
#pragma unroll
      for (int d = 0; d < BASE; ++d) {
        if constexpr (EVEN) held[d * step] = x[d];
        else tile[at(first_of + (d << p.k))] = x[d];
      }
    }
    __syncthreads();
  }

  // All rounds but the last; the tile is then complete.
  template <bool WIDE, int SOURCE, int SIGNS> BARACUDA_D void enter() const {
    if constexpr (WIDE) enter_wide<SOURCE, SIGNS>();
    else enter_strided<SOURCE, SIGNS>();
    __syncthreads();
    if (p.rounds > 2) window_round<LV>(1);
    if (p.rounds > 3) window_round<LV + LE>(2);
    if constexpr (BASE > 1) {
      if (p.k >= line + 2) base_round<true>();
      else base_round<false>();
    }
  }
};

// The tile of a block, a number of the grid.
BARACUDA_D i64 block_number() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

}  // namespace baracuda::hadamard
