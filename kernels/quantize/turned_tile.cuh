#pragma once
// turned_tile   a tile of 128 x 128 of x, its sizes, the scales of its rows and columns, and codes in both directions.
//
// Thread t has columns 8 (t % 16) to 8 (t % 16) + 7 of rows 8 (t / 16) to 8 (t / 16) + 7. P has x, y, yt, scales and
// scales_t with steps of the first three, rows, cols, scope, scope_t, same, upright, code and largest.
#include <baracuda/quantize.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

namespace turned {

constexpr int side = turned_side, each = 8, across = side / each, threads = across * across;
// What shares a scale; -1: there are no codes.
constexpr int scope_tensor = static_cast<int>(Scope::tensor), scope_rows = static_cast<int>(Scope::rows);
constexpr int scope_groups = static_cast<int>(Scope::groups), scope_blocks = static_cast<int>(Scope::blocks);

// Sizes in pairs: NaN wins.
template <class T> BARACUDA_D u32 larger(u32 a, u32 b) {
  using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
  const Pair most = __hmax2_nan(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const u32*>(&most);
}
// Number `half`, 0 or 1, of a pair.
template <class T> BARACUDA_D float number(u32 pair, int half) {
  if constexpr (is_same<T, bf16>) return __uint_as_float(half == 0 ? pair << 16 : pair & 0xffff0000u);
  else return to_acc(reinterpret_cast<const Vec<T, 2>&>(pair)[half]);
}
// *to = the larger of itself and `most`; the bits of floats that are not negative are in their order.
BARACUDA_D void raise(float* to, float most) {
  const int bits = __float_as_int(most);
  if (bits > *reinterpret_cast<const volatile int*>(to)) atomicMax(reinterpret_cast<int*>(to), bits);
}

// Where a tile begins, and how many stand across.
struct Place {
  i64 tiles, down, top, left;
  template <class P> BARACUDA_D explicit Place(const P& p) {
    const i64 n = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
    tiles = p.cols > side ? div_up(p.cols, side) : 1;
    down = p.rows > side ? div_up(p.rows, side) : 1;
    top = n / tiles * side, left = n % tiles * side;
  }
};

template <class T, bool WIDE> struct Tile {
  Chunk x[each];

  template <class P> BARACUDA_D void load(const P& p, const Place& place) {
    const int t = static_cast<int>(threadIdx.x);
    const i64 row = place.top + t / across * each, column = place.left + t % across * each;
    const T* const from = static_cast<const T*>(p.x) + row * p.x_steps[0] + column * p.x_steps[1];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      x[i] = Chunk{};
      if (row + i >= p.rows || column >= p.cols) continue;
      if constexpr (WIDE) {
        x[i] = baracuda::load<4>(reinterpret_cast<const u32*>(from + i * p.x_steps[0]));
      } else {
        const auto v = load_strided<T, each>(from + i * p.x_steps[0], p.x_steps[1], p.cols - column);
        x[i] = reinterpret_cast<const Chunk&>(v);
      }
    }
  }
};

// The largest sizes of the rows and columns of a tile, in pairs.
template <class T> struct Sizes {
  u32 rows[side / 2], columns[threads / warp_size][side / 2];

  // What comes of a thread's own tile; a barrier stands behind.
  template <bool WIDE> BARACUDA_D void take(const Tile<T, WIDE>& tile) {
    constexpr u32 size = 0x7fff7fffu;
    const int t = static_cast<int>(threadIdx.x), lane = lane_id();
    u32 most[4];  // of rows 2j and 2j + 1
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 of[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Chunk& x = tile.x[2 * j + n];
        of[n] = larger<T>(larger<T>(x[0] & size, x[1] & size), larger<T>(x[2] & size, x[3] & size));
      }
      most[j] = larger<T>(__byte_perm(of[0], of[1], 0x5410), __byte_perm(of[0], of[1], 0x7632));
    }
    // Lanes of one row exchange halves of what they have, until each has one pair.
    const bool late = (lane & 8) != 0, odd = (lane & 4) != 0;
    const u32 first = larger<T>(late ? most[2] : most[0], shuffle_xor(late ? most[0] : most[2], 8));
    const u32 second = larger<T>(late ? most[3] : most[1], shuffle_xor(late ? most[1] : most[3], 8));
    u32 one = larger<T>(odd ? second : first, shuffle_xor(odd ? first : second, 4));
    one = larger<T>(one, shuffle_xor(one, 2));
    one = larger<T>(one, shuffle_xor(one, 1));
    if ((lane & 3) == 0) rows[t / across * 4 + 2 * late + odd] = one;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      u32 down = 0;
#pragma unroll
      for (int i = 0; i < each; ++i) down = larger<T>(down, tile.x[i][k] & size);
      down = larger<T>(down, shuffle_xor(down, 16));
      if (lane < 16) columns[t / warp_size][lane * 4 + k] = down;
    }
  }
  BARACUDA_D float row(int r) const { return number<T>(rows[r / 2], r % 2); }
  BARACUDA_D float column(int c) const {
    u32 most = 0;
#pragma unroll
    for (int w = 0; w < threads / warp_size; ++w) most = larger<T>(most, columns[w][c / 2]);
    return number<T>(most, c % 2);
  }
};

// What the numbers of a row or column are divided by.
struct Line {
  float scale, inverse;
};

// The scales of the tile's rows and columns, written by the first tile that they belong to; whether `near` makes every code.
template <class P, class T, bool WIDE>
BARACUDA_D bool scales_of(const P& p, const Place& place, const Tile<T, WIDE>& tile, Sizes<T>& sizes, Line* lines) {
  const int t = static_cast<int>(threadIdx.x), of = t % side;
  const bool row = t < side;
  float most = 0.0f, all = 0.0f;
  if (p.scope >= scope_groups || p.scope_t >= scope_groups) {
    sizes.take(tile);
    __syncthreads();
    most = row ? sizes.row(of) : sizes.column(of);
    if (p.scope == scope_blocks || p.scope_t == scope_blocks) all = block_reduce<Max, threads>(most);
  }
  const int scope = row ? p.scope : p.scope_t;
  const i64 line = (row ? place.top : place.left) + of, along = (row ? place.left : place.top) / side;
  const i64 wide = row ? place.tiles : place.down;
  const bool there = line < (row ? p.rows : p.cols);
  const float* const known = static_cast<const float*>(p.sizes);
  i64 at = -1;  // of the scale, for the thread that writes it
  if (scope == scope_tensor) {
    most = known[0];
    if (line == 0 && along == 0) at = 0;
  } else if (scope == scope_rows) {
    most = there ? known[1 + (row ? 0 : p.rows) + line] : 0.0f;
    if (there && along == 0) at = line;
  } else if (scope == scope_groups) {
    if (there) at = line * wide + along;
  } else if (scope == scope_blocks) {
    most = all;
    if (there && of == 0) at = line / side * wide + along;
  }
  const float scale = quantize::scale_of(most, p.largest);
  float* const to = static_cast<float*>(row ? p.scales : p.scales_t);
  if (at >= 0 && to != nullptr && (scope < scope_groups || (p.rows > 0 && p.cols > 0))) to[at] = scale;
  const quantize::Divisor by(scale);
  // Codes of zeros come by any scale that is not 0.
  lines[t] = most == 0.0f ? Line{1.0f, 1.0f} : Line{scale, by.inverse};
  return __syncthreads_and(scope < 0 || most == 0.0f || by.serves(most));
}

// Where a quotient may be NaN, or a scale is near the ends of the range: rare, and so a loop that reads x anew.
template <class T, class P> BARACUDA_D void put_one_by_one(const P& p, const Place& place, const Line* lines) {
  const quantize::Coder coder(p.code);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < side * side; i += threads) {
    const i64 row = place.top + i / side, column = place.left + i % side;
    if (row >= p.rows || column >= p.cols) continue;
    const float x = to_acc(static_cast<const T*>(p.x)[row * p.x_steps[0] + column * p.x_steps[1]]);
    const auto code = [&](const Line& line) { return coder(quantize::Divisor(line.scale)(x)); };
    if (p.y != nullptr) static_cast<u8*>(p.y)[row * p.y_steps[0] + column * p.y_steps[1]] = code(lines[i / side]);
    if (p.yt != nullptr) {
      static_cast<u8*>(p.yt)[column * p.yt_steps[0] + row * p.yt_steps[1]] = code(lines[side + i % side]);
    }
  }
}

// Four words, of rows, as those of four columns.
BARACUDA_D void turn_words(const u32 (&x)[4], u32 (&y)[4]) {
  const u32 a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[0], x[1], 0x7362);
  const u32 c = __byte_perm(x[2], x[3], 0x5140), d = __byte_perm(x[2], x[3], 0x7362);
  y[0] = __byte_perm(a, c, 0x5410), y[1] = __byte_perm(a, c, 0x7632);
  y[2] = __byte_perm(b, d, 0x5410), y[3] = __byte_perm(b, d, 0x7632);
}

// Eight numbers over the scale of their line as two words.
template <class C> BARACUDA_D uint2 codes_of(Vec<float, each> v, const Line& line) {
  const quantize::Divisor by(line.scale, line.inverse);
#pragma unroll
  for (int k = 0; k < each; ++k) v[k] = by.near(v[k]);
  return make_uint2(C::codes_of(v.v), C::codes_of(v.v + 4));
}

// Codes of a column's 128 rows stand in one line of shared memory; its pieces of 16 bytes change places by the column, so
// that neither the writes of 8 rows nor the reads of 16 meet in a bank.
BARACUDA_D int place_of(int column, int piece) { return column * across / 2 + (piece ^ (column / each & 7)); }

template <class C, class P, class T, bool WIDE>
BARACUDA_D void put_codes(const P& p, const Place& place, const Tile<T, WIDE>& tile, const Line* lines, uint4* codes) {
  const int t = static_cast<int>(threadIdx.x), down = t / across, beside = t % across;
  const i64 row = place.top + down * each, column = place.left + beside * each;
  uint2* const to = reinterpret_cast<uint2*>(codes);
  uint2 made[each] = {};
  if (p.scope >= 0) {
    u8* const y = static_cast<u8*>(p.y) + row * p.y_steps[0] + column * p.y_steps[1];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      Vec<float, each> v;
#pragma unroll
      for (int k = 0; k < each; ++k) v[k] = number<T>(tile.x[i][k / 2], k % 2);
      made[i] = codes_of<C>(v, lines[down * each + i]);
      if (p.y == nullptr || row + i >= p.rows || column >= p.cols) continue;
      const auto& bytes = reinterpret_cast<const Vec<u8, each>&>(made[i]);
      if constexpr (WIDE) store(y + i * p.y_steps[0], bytes);
      else store_strided(y + i * p.y_steps[0], p.y_steps[1], bytes, p.cols - column);
    }
  }
  if (p.yt == nullptr) return;
  if (p.same) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 rows[2][4], columns[2][4];
#pragma unroll
      for (int i = 0; i < each; ++i) rows[i / 4][i % 4] = half == 0 ? made[i].x : made[i].y;
      turn_words(rows[0], columns[0]), turn_words(rows[1], columns[1]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        to[2 * place_of(beside * each + 4 * half + k, down / 2) + down % 2] = make_uint2(columns[0][k], columns[1][k]);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < each; ++k) {
      Vec<float, each> v;
#pragma unroll
      for (int i = 0; i < each; ++i) v[i] = number<T>(tile.x[i][k / 2], k % 2);
      to[2 * place_of(beside * each + k, down / 2) + down % 2] = codes_of<C>(v, lines[side + beside * each + k]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < side * side / 16 / threads; ++n) {
    const int i = n * threads + t, line = i / 8, piece = i % 8;
    const i64 at = place.left + line, from = place.top + piece * 16;
    if (at >= p.cols || from >= p.rows) continue;
    const uint4 word = codes[place_of(line, piece)];
    u8* const yt = static_cast<u8*>(p.yt) + at * p.yt_steps[0] + from * p.yt_steps[1];
    if (p.upright) *reinterpret_cast<uint4*>(yt) = word;
    else store_strided(yt, p.yt_steps[1], reinterpret_cast<const Vec<u8, 16>&>(word), p.rows - from);
  }
}

}  // namespace turned

}  // namespace baracuda
