#pragma once
// copy       y = x of one shape and any strides, in words; geometry in schedules/copy.py.
//
// copy_flat    both dense: chunks of 16 bytes, as schedule map has them.
// copy_words   words of BYTES along the last axis, four in flight a thread. Where `moving` axes begin at an index that
//              the device holds, the view of x (or of y, if `target`) is shifted first.
// copy_pieces  words of 16 bytes of y, each of elements of BYTES that x has otherwise: one for the whole word (spread),
//              in the opposite order (turned), `apart` elements from one another, or, where a word of a dense y goes
//              beyond the end of a row, anywhere (ragged).
// copy_tile    y and x are contiguous along different axes: tiles of both axes pass through shared memory, so that
//              whole sectors are read and written. The rows of a tile follow y's axis, its columns x's.
// Elements are words, whatever they mean. Without x, y becomes 0 (copy_flat, copy_words). No sums.
#include <baracuda/map.cuh>

namespace baracuda {

template <int BYTES, class L, class P> BARACUDA_D void copy_flat(const P& p) {
  using W = Word<BYTES>;
  if (p.x == nullptr) {
    map_write<L>(p, static_cast<W*>(p.y), W{});
    return;
  }
  W* const y[1] = {static_cast<W*>(p.y)};
  const W* const x[1] = {static_cast<const W*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) { out[0] = in[0]; });
}

// ---- words ----------------------------------------------------------------------------------------------------------

// How many words the moving view lies further. An index below 0 counts from the end of the axis; then it is held within
// [0, limit], as jax.lax.dynamic_slice does.
template <class P> BARACUDA_D i64 copy_shift(const P& p) {
  i64 shift = 0;
  for (int a = 0; a < p.moving; ++a) {
    i64 at =
        p.starts_wide ? static_cast<const i64*>(p.starts)[p.place[a]] : static_cast<const i32*>(p.starts)[p.place[a]];
    if (at < 0) at += p.extent[a];
    shift += min(max(at, static_cast<i64>(0)), p.limit[a]) * p.shift[a];
  }
  return shift;
}

// From `from` to `to`, wherever they are in P.
template <int BYTES, class P> BARACUDA_D void copy_words(const P& p, void* to, const void* from) {
  using W = Word<BYTES>;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * copy_words_in_flight) + threadIdx.x;
  if (first >= p.chunks) return;
  const i64 shift = p.moving ? copy_shift(p) : 0;
  const W* x = static_cast<const W*>(from) + (p.target ? 0 : shift);
  W* y = static_cast<W*>(to) + (p.target ? shift : 0);
  i64 c[copy_words_in_flight], at[copy_words_in_flight][2];
#pragma unroll
  for (int u = 0; u < copy_words_in_flight; ++u) c[u] = min(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
  W word[copy_words_in_flight];
#pragma unroll
  for (int u = 0; u < copy_words_in_flight; ++u) word[u] = from == nullptr ? W{} : x[at[u][1]];
#pragma unroll
  for (int u = 0; u < copy_words_in_flight; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    store_word<Access::streaming>(y + at[u][0], word[u]);
  }
}
template <int BYTES, class P> BARACUDA_D void copy_words(const P& p) { copy_words<BYTES>(p, p.y, p.x); }

// ---- pieces ---------------------------------------------------------------------------------------------------------

template <int BYTES> BARACUDA_D u32 turned_word(u32 w) {
  if constexpr (BYTES == 1) return __byte_perm(w, 0, 0x0123);
  else if constexpr (BYTES == 2) return __byte_perm(w, 0, 0x1032);
  else return w;
}
// The elements of 16 bytes in the opposite order.
template <int BYTES> BARACUDA_D uint4 turned(const uint4& w) {
  if constexpr (BYTES == 8) return uint4{w.z, w.w, w.x, w.y};
  else return uint4{turned_word<BYTES>(w.w), turned_word<BYTES>(w.z), turned_word<BYTES>(w.y), turned_word<BYTES>(w.x)};
}

// Words of a dense y across the ends of its rows: each element is looked for alone, up to eight at once.
template <int BYTES, class P> BARACUDA_D void copy_ragged(const P& p) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES, some = width < 8 ? width : 8;
  const i64 first = (static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x) * width;
  if (first >= p.count) return;
  Vec<W, width> chunk;
#pragma unroll
  for (int k0 = 0; k0 < width; k0 += some) {
    i64 e[some], at[some][2];
#pragma unroll
    for (int k = 0; k < some; ++k) e[k] = min(first + k0 + k, p.count - 1);
    map_offsets(p, e, at);
#pragma unroll
    for (int k = 0; k < some; ++k) chunk[k0 + k] = static_cast<const W*>(p.x)[at[k][1]];
  }
  store_vec<W, width, true, Access::streaming>(static_cast<W*>(p.y) + first, chunk, p.count - first);
}

template <int BYTES, class P> BARACUDA_D void copy_pieces(const P& p) {
  if (static_cast<Pieces>(p.how) == Pieces::ragged) {
    copy_ragged<BYTES>(p);
    return;
  }
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES, words = copy_pieces_in_flight;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * words) + threadIdx.x;
  if (first >= p.chunks) return;
  const W* x = static_cast<const W*>(p.x);
  const Pieces how = static_cast<Pieces>(p.how);
  i64 c[words], at[words][2];
#pragma unroll
  for (int u = 0; u < words; ++u) c[u] = min(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
  Vec<W, width> chunk[words];
  if (how == Pieces::turned) {
#pragma unroll
    for (int u = 0; u < words; ++u) {
      const uint4 word = *reinterpret_cast<const uint4*>(x + at[u][1] - (width - 1));
      reinterpret_cast<uint4&>(chunk[u]) = turned<BYTES>(word);
    }
  } else {
    const i64 apart = how == Pieces::spread ? 0 : p.apart;
#pragma unroll
    for (int u = 0; u < words; ++u) {
#pragma unroll
      for (int k = 0; k < width; ++k) chunk[u][k] = x[at[u][1] + k * apart];
    }
  }
#pragma unroll
  for (int u = 0; u < words; ++u) {
    if (first + u * map_threads < p.chunks) store_streaming(static_cast<W*>(p.y) + at[u][0], chunk[u]);
  }
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

// A tile of SIDE by SIDE elements. A row begins one unit of shared memory (4 bytes, or an element that is wider) after
// the end of the one before, and another one after every `width` rows: the words of a warp, along a row or down a
// column, then fall into different banks.
template <int BYTES> struct CopyTile {
  static constexpr int side = BYTES == 1 ? 128 : BYTES <= 4 ? 64 : 32;
  static constexpr int width = 16 / BYTES;
  static constexpr int unit = BYTES < 4 ? 4 : BYTES;
  static constexpr int pitch = side * BYTES / unit + 1;
  static constexpr int chunks = side / width;  // of 16 bytes, along a side
  static constexpr int each = side * chunks / map_threads;
  static constexpr int units = side * pitch + side / width;
  static constexpr int apart = map_threads / side;  // rows, or columns, that the threads take at once, one by one
  static constexpr int most = BYTES == 1 ? 4 : 16;  // more single bytes would cost half of the blocks their registers
  static constexpr int in_flight = side / apart < most ? side / apart : most;

  static BARACUDA_D int row(int r) { return (r * pitch + (width > 1 ? r / width : 0)) * unit; }  // in bytes
};

template <int BYTES, class P> BARACUDA_D void copy_tile(const P& p) {
  using W = Word<BYTES>;
  using T = CopyTile<BYTES>;
  using Unit = Word<T::unit>;
  __shared__ Unit shared[T::units];
  char* const tile = reinterpret_cast<char*>(shared);

  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (block >= p.blocks) return;
  u64 tile_column, tile_row;
  const u64 rest = divmod(static_cast<u64>(block), static_cast<u64>(p.tile_columns), tile_column);
  const i64 batch[1] = {static_cast<i64>(divmod(rest, static_cast<u64>(p.tile_rows), tile_row))};
  i64 at[1][2];
  map_offsets(p, batch, at);
  const i64 row0 = static_cast<i64>(tile_row) * T::side, column0 = static_cast<i64>(tile_column) * T::side;
  const int rows = static_cast<int>(min(p.rows - row0, static_cast<i64>(T::side)));
  const int columns = static_cast<int>(min(p.columns - column0, static_cast<i64>(T::side)));
  const W* x = static_cast<const W*>(p.x) + at[0][1] + row0 * p.x_steps[0] + column0 * p.x_steps[1];
  W* y = static_cast<W*>(p.y) + at[0][0] + row0 * p.y_steps[0] + column0 * p.y_steps[1];

  if (p.wide_x) {
    uint4 chunk[T::each];
#pragma unroll
    for (int k = 0; k < T::each; ++k) {
      const int j = threadIdx.x + k * map_threads, r = j / T::chunks, c = j % T::chunks * T::width;
      if (r < rows && c < columns) chunk[k] = *reinterpret_cast<const uint4*>(x + r * p.x_steps[0] + c);
    }
#pragma unroll
    for (int k = 0; k < T::each; ++k) {
      const int j = threadIdx.x + k * map_threads, r = j / T::chunks, c = j % T::chunks * T::width;
      Unit* const to = reinterpret_cast<Unit*>(tile + T::row(r) + c * BYTES);
#pragma unroll
      for (int n = 0; n < 16 / T::unit; ++n) to[n] = reinterpret_cast<const Unit*>(&chunk[k])[n];
    }
  } else {
    const int c = threadIdx.x % T::side, r0 = threadIdx.x / T::side;
    const W* from = x + r0 * p.x_steps[0] + c * p.x_steps[1];
    const i64 down = T::apart * p.x_steps[0];
#pragma unroll 1
    for (int r = r0; r < T::side; r += T::in_flight * T::apart) {
      W word[T::in_flight];
#pragma unroll
      for (int k = 0; k < T::in_flight; ++k, from += down) {
        if (r + k * T::apart < rows && c < columns) word[k] = *from;
      }
#pragma unroll
      for (int k = 0; k < T::in_flight; ++k) {
        *reinterpret_cast<W*>(tile + T::row(r + k * T::apart) + c * BYTES) = word[k];
      }
    }
  }
  __syncthreads();
  if (p.wide_y) {
#pragma unroll
    for (int k = 0; k < T::each; ++k) {
      const int j = threadIdx.x + k * map_threads, c = j / T::chunks, r = j % T::chunks * T::width;
      Vec<W, T::width> words;
#pragma unroll
      for (int n = 0; n < T::width; ++n) words[n] = *reinterpret_cast<const W*>(tile + T::row(r + n) + c * BYTES);
      if (r < rows && c < columns) store_streaming(y + c * p.y_steps[1] + r, words);
    }
  } else {
    const int r = threadIdx.x % T::side, c0 = threadIdx.x / T::side;
    W* to = y + c0 * p.y_steps[1] + r * p.y_steps[0];
    const i64 down = T::apart * p.y_steps[1];
#pragma unroll 4
    for (int c = c0; c < columns; c += T::apart, to += down) {
      if (r < rows) *to = *reinterpret_cast<const W*>(tile + T::row(r) + c * BYTES);
    }
  }
}

}  // namespace baracuda
