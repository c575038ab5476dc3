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
#include <baracuda/opaque.cuh>
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

// Of COUNT levels of x, whose places differ by them for indices that differ by FIRST, 2 FIRST, … those in [from, to).
template <int FIRST, int COUNT, int E, class A> BARACUDA_D void levels(A (&x)[E], int from = 0, int to = COUNT) {
#pragma unroll
  for (int l = 0; l < COUNT; ++l) {
    if (l < from || l >= to) continue;
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

// f of `count`, from 0 to MOST, as a constant. What f does with registers is there for each count: numbers that some
// counts change would else meet in the same registers, a move for every two sums.
template <int N> struct Count {
  static constexpr int value = N;
};
template <int MOST, class F> BARACUDA_D void with_count(int count, const F& f) {
  if constexpr (MOST > 0) {
    if (count < MOST) {
      with_count<MOST - 1>(count, f);
      return;
    }
  }
  f(Count<MOST>());
}

// Where a row of an operand begins. A row is a part of one axis, so that its columns are even steps apart.
template <bool WIDE, class P> BARACUDA_D i64 row_start(const P& p, int operand, i64 row) {
  if constexpr (WIDE) return RowAt<true>(p, row).offset(p, operand);
  else if (p.outer_rank <= 1) return row * p.outer[operand][0];
  else return baracuda::offset<i64>(row, p.outer_rank, p.outer_shape, p.outer[operand]);
}

// ---- a tile in shared memory ----------------------------------------------------------------------------------------

// T as in global memory, E elements a thread in registers. P has `rows`, `k`, `tile_rows`, `rounds`, `shift` and
// `levels`, the numbers of row_params, and operands SOURCE and SIGNS, x and what it is multiplied by first.
template <class T, int E, int BASE, class P> struct Tile {
  using A = acc_t<T>;
  static constexpr int V = vec_elems<T>, C = E / V, LE = log2_of(E), LV = log2_of(V), LC = LE - LV;
  static constexpr int line = log2_of(128 / static_cast<int>(sizeof(A)));  // of shared memory, all banks once
  static constexpr int pad = 16 / static_cast<int>(sizeof(A));
  static constexpr int last = 3;  // round of the parameters, whatever rounds there are
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
  // Where chunk c of a thread is, from the first: the chunks are 2^shift apart.
  static BARACUDA_D int chunk_at(int c, int shift) {
    int to = 0;
#pragma unroll
    for (int l = 0; l < LC; ++l) to += (c >> l & 1) * at(1 << (shift + l));
    return to;
  }
  BARACUDA_D void put(int place, int shift, const A (&x)[E]) const {
    A* const held = tile + at(place);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      Vec<A, V> v;
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] = x[c * V + k];
      store(held + chunk_at(c, shift), v);
    }
  }
  BARACUDA_D void get(int place, int shift, A (&x)[E]) const {
    const A* const held = tile + at(place);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const Vec<A, V> v = load<V>(held + chunk_at(c, shift));
#pragma unroll
      for (int k = 0; k < V; ++k) x[c * V + k] = v[k];
    }
  }
  // Where they are in an operand of aligned chunks.
  BARACUDA_D void chunk_offsets(int operand, int place, int shift, i64 (&to)[C]) const {
    const i64 step = p.outer[operand][0];
    if (p.outer_rank <= 1 && (BASE == 1 || p.tile_rows == 1)) {  // a bit of a place is a distance
      const int row = BASE == 1 ? place >> p.k : 0;
      to[0] = (first + row) * step + (place - (row << p.k));
#pragma unroll
      for (int l = 0; l < LC; ++l) {
        const int bit = shift + l;
        const i64 apart = BASE > 1 || bit < p.k ? i64(1) << bit : step << (bit - p.k);
#pragma unroll
        for (int c = 0; c < 1 << l; ++c) to[c + (1 << l)] = to[c] + apart;
      }
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int i = place + (c << shift), row = row_of(i);
        to[c] = row_start<true>(p, operand, first + row) + (i - row * n);
      }
    }
  }
  BARACUDA_D i64 offset(int operand, int row, int column) const {
    return row_start<false>(p, operand, first + row) + column * p.inner[operand][0];
  }

  // The first round of rows in aligned chunks; COUNT levels of its window.
  template <int SOURCE, int SIGNS, int COUNT> BARACUDA_D void enter_wide() const {
    const T *const from = static_cast<const T*>(p.x), *const signs = static_cast<const T*>(p.signs);
    const int shift = p.shift[0];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
      const int place = chunk_place(w, shift);
      i64 to[C];
      chunk_offsets(SOURCE, place, shift, to);
      Chunk raw[C];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        raw[c] = Chunk{};
        if (place + (c << shift) < valid) raw[c] = load<4>(reinterpret_cast<const u32*>(from + to[c]));
      }
      A x[E];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const auto v = to_acc(unpack<T>(raw[c]));
#pragma unroll
        for (int k = 0; k < V; ++k) x[c * V + k] = v[k];
      }
      if (signs != nullptr) {
        chunk_offsets(SIGNS, place, shift, to);
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (place + (c << shift) >= valid) continue;
          const auto s = to_acc(load<V>(signs + to[c]));
#pragma unroll
          for (int k = 0; k < V; ++k) x[c * V + k] *= s[k];
        }
      }
      levels<1, LV>(x, 0, BASE == 1 ? LV : p.k);
      levels<V, COUNT>(x);
      put(place, shift, x);
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
        x = to_acc(from[offset(SOURCE, row, column)]);
        if (signs != nullptr) x *= to_acc(signs[offset(SIGNS, row, column)]);
      }
      tile[at(i)] = x;
    }
    __syncthreads();
    chunk_round<0>();
  }

  // A round of chunks within the tile.
  template <int ROUND> BARACUDA_D void chunk_round() const {
    const int shift = p.shift[ROUND];
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
      const int place = chunk_place(w, shift);
      A x[E];
      get(place, shift, x);
      levels<1, LV>(x, 0, ROUND == 0 ? p.k : 0);
      levels<V, LC>(x, 0, p.levels[ROUND]);
      put(place, shift, x);
    }
  }

  // The last round of chunks, which stay with their thread.
  BARACUDA_D void last_round(int place, A (&x)[E]) const {
    const int shift = p.shift[last];
    with_count<LC>(p.levels[last], [&](auto count) {
      get(place, shift, x);
      levels<V, decltype(count)::value>(x);
    });
  }

  // A round of the levels of the window of bits from SHIFT on.
  template <int ROUND> BARACUDA_D void window_round() const {
    constexpr int SHIFT = LV + (ROUND - 1) * LE;
    with_count<LE>(p.levels[ROUND], [&](auto count) {
#pragma unroll 1
      for (int w = static_cast<int>(threadIdx.x); w < size / E; w += static_cast<int>(blockDim.x)) {
        A* const held = tile + at(w >> SHIFT << (SHIFT + LE) | (w & ((1 << SHIFT) - 1)));
        A x[E];
#pragma unroll
        for (int r = 0; r < E; ++r) x[r] = held[at(r << SHIFT)];
        levels<1, decltype(count)::value>(x);
#pragma unroll
        for (int r = 0; r < E; ++r) held[at(r << SHIFT)] = x[r];
      }
    });
    __syncthreads();
  }

  // The product with the matrix of BASE, of elements 2^k apart. EVEN: in the tile they are as far apart from one another.
  template <bool EVEN> BARACUDA_D void base_round() const {
    const int step = EVEN ? at(1 << p.k) : p.k;
    const auto place = [&](int d, int from, int by) {
      return EVEN ? tile + at(from) + d * by : tile + at(from + (d << by));
    };
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < size / BASE; w += static_cast<int>(blockDim.x)) {
      const int first_of = (w >> p.k) * n + (w & ((1 << p.k) - 1));
      A x[BASE];
      int from = forgotten(first_of), by = forgotten(step);  // else all places are kept in registers
#pragma unroll
      for (int d = 0; d < BASE; ++d) x[d] = *place(d, from, by);
      multiply<BASE>(x);
      from = forgotten(first_of), by = forgotten(step);
#pragma unroll
      for (int d = 0; d < BASE; ++d) *place(d, from, by) = x[d];
    }
    __syncthreads();
  }

  // All rounds but the last; the tile is then complete.
  template <bool WIDE, int SOURCE, int SIGNS> BARACUDA_D void enter() const {
    if constexpr (WIDE) {
      with_count<LC>(p.levels[0], [&](auto count) { enter_wide<SOURCE, SIGNS, decltype(count)::value>(); });
    } else enter_strided<SOURCE, SIGNS>();
    __syncthreads();
    if (p.rounds > 2) window_round<1>();
    if (p.rounds > 3) window_round<2>();
    if constexpr (BASE > 1) {
      if (p.k >= line + 2) base_round<true>();
      else base_round<false>();
    }
  }
};

// The tile of a block, a number of the grid.
BARACUDA_D i64 block_number() { return static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x; }

}  // namespace baracuda::hadamard
