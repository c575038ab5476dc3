// concat     many arrays laid side by side in one, or its parts back into many; elements are moved as they are. No sums.
//
// concat_rows    every part is rows of words, and so is its place in the whole. A block moves words of one part, the
//                last that begins at its own number or before (multi_tensor.cuh), in one band of rows: the blocks of
//                a band, of all parts, come before those of the next. Four words are in flight a thread.
// concat_across  every part is the words of a column of the whole (stack along the last axis): a block passes `side`
//                words of all parts through shared memory, a row for each part, so that both ends move side by side.
// concat_part    one part of any strides (copy.cuh).
// `apart`: from the whole to the parts. schedules/concat.py has the bytes of a tile in shared memory, `across_bytes`.
#include <baracuda/copy.cuh>
#include <baracuda/multi_tensor.cuh>

namespace baracuda {

template <int BYTES, class P> BARACUDA_D void concat_rows(const P& p) {
  using W = Word<BYTES>;
  const u32 band = blockIdx.x / static_cast<u32>(p.band_blocks);
  const int block = static_cast<int>(blockIdx.x - band * static_cast<u32>(p.band_blocks));
  const int part = find_tensor(p, block);
  const i64 width = p.width[part], pitch = p.pitch[part], in_band = p.band * width, before = band * in_band;
  const i64 words = min(p.words[part], before + in_band);  // up to the end of the band
  const i64 first =
      before + static_cast<i64>(block - p.first[part]) * (map_threads * copy_words_in_flight) + threadIdx.x;
  if (first >= words) return;
  W* const own = static_cast<W*>(p.parts[part]);
  W* const whole = static_cast<W*>(p.whole) + p.place[part];
  // The source and the target have rows of `width` words; their pitches differ.
  const W* const from = p.apart ? whole : own;
  W* const to = p.apart ? own : whole;
  const i64 from_pitch = p.apart ? p.whole_pitch : pitch, to_pitch = p.apart ? pitch : p.whole_pitch;
  u64 column = static_cast<u64>(first);
  i64 row = 0;
  if (width < words) row = static_cast<i64>(divmod(static_cast<u64>(first), static_cast<u64>(width), column));
  i64 target[copy_words_in_flight];
  W word[copy_words_in_flight];
#pragma unroll
  for (int u = 0; u < copy_words_in_flight; ++u) {
    target[u] = row * to_pitch + static_cast<i64>(column);
    if (first + u * map_threads < words) word[u] = from[row * from_pitch + static_cast<i64>(column)];
    column += map_threads;
    if (column < static_cast<u64>(width)) continue;
    if (width >= map_threads) {
      column -= static_cast<u64>(width), ++row;
    } else {
      row += static_cast<i64>(divmod(column, static_cast<u64>(width), column));
    }
  }
#pragma unroll
  for (int u = 0; u < copy_words_in_flight; ++u) {
    if (first + u * map_threads < words) store_word<Access::streaming>(to + target[u], word[u]);
  }
}

// ---- columns --------------------------------------------------------------------------------------------------------

// The tile: row r, of part r, has words first … first + columns of it, and begins one unit after the end of the row
// before, so that words of one column fall into different banks.
template <int BYTES> struct AcrossTile {
  using W = Word<BYTES>;
  using Unit = Word<(BYTES < 4 ? 4 : BYTES)>;
  char* memory;
  int pitch;  // in bytes

  BARACUDA_D W& at(int r, int c) const { return *reinterpret_cast<W*>(memory + r * pitch + c * BYTES); }
  BARACUDA_D Unit* units(int r, int c) const { return reinterpret_cast<Unit*>(&at(r, c)); }
};

// Between the parts and the tile; IN: into the tile.
template <bool IN, int BYTES, class P>
BARACUDA_D void across_parts(const P& p, const AcrossTile<BYTES>& tile, i64 first, int columns) {
  using W = Word<BYTES>;
  using Unit = typename AcrossTile<BYTES>::Unit;
  constexpr int width = 16 / BYTES, units = 16 / static_cast<int>(sizeof(Unit)), batch = 4;
  const bool wide = p.wide && columns == p.side;
  const int each = wide ? p.side / width : p.side, all = p.count * each;  // chunks, or words, of a row
  if (!wide) {
    for (int j = threadIdx.x; j < all; j += map_threads) {
      const int r = j / each, c = j - r * each;
      if (c >= columns) continue;
      W* const own = static_cast<W*>(p.parts[r]) + first;
      if constexpr (IN) tile.at(r, c) = own[c];
      else own[c] = tile.at(r, c);
    }
    return;
  }
  for (int j0 = threadIdx.x; j0 < all; j0 += batch * map_threads) {
    uint4 chunk[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int j = min(j0 + u * map_threads, all - 1), r = j / each, c = (j - r * each) * width;
      if constexpr (IN) {
        chunk[u] = *reinterpret_cast<const uint4*>(static_cast<const W*>(p.parts[r]) + first + c);
      } else {
#pragma unroll
        for (int k = 0; k < units; ++k) reinterpret_cast<Unit*>(&chunk[u])[k] = tile.units(r, c)[k];
      }
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int j = j0 + u * map_threads, r = j / each, c = (j - r * each) * width;
      if (j >= all) break;
      if constexpr (IN) {
#pragma unroll
        for (int k = 0; k < units; ++k) tile.units(r, c)[k] = reinterpret_cast<const Unit*>(&chunk[u])[k];
      } else {
        *reinterpret_cast<uint4*>(static_cast<W*>(p.parts[r]) + first + c) = chunk[u];
      }
    }
  }
}

// Between the whole and the tile. A dense whole moves 16 bytes at a time.
template <bool IN, int BYTES, class P>
BARACUDA_D void across_whole(const P& p, const AcrossTile<BYTES>& tile, i64 first, int columns) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES;
  W* const whole = static_cast<W*>(p.whole) + first * p.whole_pitch;
  const int total = columns * p.count;
  if (!p.dense) {
    for (int j = threadIdx.x; j < total; j += map_threads) {
      const int c = j / p.count, r = j - c * p.count;
      if constexpr (IN) tile.at(r, c) = whole[c * p.whole_pitch + r];
      else whole[c * p.whole_pitch + r] = tile.at(r, c);
    }
    return;
  }
  for (int e = static_cast<int>(threadIdx.x) * width; e < total; e += map_threads * width) {
    int c = e / p.count, r = e - c * p.count;
    Vec<W, width> chunk;
    if constexpr (IN) chunk = load_vec<W, width, true>(whole + e, total - e);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (e + k < total) {
        if constexpr (IN) tile.at(r, c) = chunk[k];
        else chunk[k] = tile.at(r, c);
      }
      if (++r == p.count) r = 0, ++c;
    }
    if constexpr (!IN) store_vec<W, width, true, Access::streaming>(whole + e, chunk, total - e);
  }
}

template <int BYTES, class P> BARACUDA_D void concat_across(const P& p) {
  using Unit = typename AcrossTile<BYTES>::Unit;
  __shared__ Unit shared[across_bytes / sizeof(Unit)];
  const AcrossTile<BYTES> tile{reinterpret_cast<char*>(shared), p.side * BYTES + static_cast<int>(sizeof(Unit))};
  const i64 first = static_cast<i64>(blockIdx.x) * p.side;
  const int columns = static_cast<int>(min(static_cast<i64>(p.side), p.words - first));
  if (p.apart) across_whole<true>(p, tile, first, columns);
  else across_parts<true>(p, tile, first, columns);
  __syncthreads();
  if (p.apart) across_parts<false>(p, tile, first, columns);
  else across_whole<false>(p, tile, first, columns);
}

// ---- any strides ----------------------------------------------------------------------------------------------------

template <int BYTES, class P> BARACUDA_D void concat_part(const P& p) {
  if (p.apart) copy_words<BYTES>(p, p.part[0], p.whole);
  else copy_words<BYTES>(p, p.whole, p.part[0]);
}

}  // namespace baracuda
