#pragma once
// latent_tiles   copies of queries and cells to tiles in shared memory, and where partials go, for the tensor-core
// kernels of mla_decode and mla_sparse.
//
// A tile is panels of 64 columns (tile::Panels): D of the latent, of which d_latent have values, then 64 of the rope, of
// which d_rope do; the others are zeros.
#include "attention/mla/latent_list.cuh"
#include "attention/mla/latent_pages.cuh"
#include "attention/mla/latent_records.cuh"
#include "attention/flash_tiles.cuh"

namespace baracuda {
namespace mla {

// Copies the eight columns number `piece` of each of COLUMNS / 64 panels of a row, from the row's column `first` on and
// before `end`; `from` may be any valid address where !there.
template <int ROWS, int COLUMNS, class T, class P>
BARACUDA_D void copy_columns(const P& p, T* panels, int row, int piece, const T* from, int first, int end, bool there) {
  T* const to = panels + tile::at<64>(row, piece);
#pragma unroll
  for (int c = 0; c < COLUMNS; c += 64) {
    const int begin = first + c + 8 * piece, left = there ? end - begin : 0;
    if (p.wide) cp_async_16(to + c * ROWS, left > 0 ? from + begin : from, left > 0);
    else store(to + c * ROWS, load_vec<T, 8, false>(from + begin, left));
  }
}
// The same of the latent's D columns, and of the rope's.
template <int ROWS, int D, class T, class P>
BARACUDA_D void copy_row(const P& p, T* tile, T* rope, int row, int piece, const T* from, bool there) {
  copy_columns<ROWS, D>(p, tile, row, piece, from, 0, p.d_latent, there);
  copy_columns<ROWS, rope_columns>(p, rope, row, piece, from, p.d_latent, p.d_latent + p.d_rope, there);
}

// Copies the queries of a block's rows, by THREADS.
template <int ROWS, int D, int THREADS, class T, class K, class P>
BARACUDA_D void copy_queries(const P& p, const Share<K, P>& share, T* tile, T* rope) {
  const T* const q = static_cast<const T*>(p.q);
#pragma unroll 1
  for (int r = static_cast<int>(threadIdx.x) / 8; r < ROWS; r += THREADS / 8) {
    const bool there = r < share.count;
    const T* const from = q + (there ? share.at(p, p.q_stride, r) : 0);
    copy_row<ROWS, D>(p, tile, rope, r, static_cast<int>(threadIdx.x) % 8, from, there);
  }
}

// Copies tiles of KEYS cells one after another, by THREADS, of which this is number `thread`. What says where
// they are is read a tile ahead.
template <int KEYS, int D, int THREADS, class T, class K, class P> struct CellCopies {
  static constexpr int EACH = KEYS * 8 / THREADS;
  static_assert(EACH * THREADS == KEYS * 8, "every thread copies as many rows");
  const P& p;
  const Share<K, P>& share;
  const int thread;
  i64 k0;  // the next tile
  typename K::template Cell<P> cells[EACH];

  BARACUDA_D CellCopies(const P& p, const Share<K, P>& share, int thread)
      : p(p), share(share), thread(thread), k0(share.begin) {
    look();
  }
  // Starts the copies of the next tile; there[key] becomes whether the tile has it.
  BARACUDA_D void copy(T* tile, u8* there) {
    using Stored = typename K::Record::template Stored<T>;
    const Stored* const any = static_cast<const Stored*>(p.pages == 0 ? p.q : p.cache);
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int row = thread / 8 + n * (THREADS / 8);
      const i64 at = cells[n].find(p, share.sequence, k0 + row < share.end);
      const bool found = at != nowhere;
      if (thread % 8 == 0) there[row] = found;
      const Stored* const from = found ? static_cast<const Stored*>(p.cache) + at : any;
      if constexpr (K::Record::plain) copy_row<KEYS, D>(p, tile, tile + D * KEYS, row, thread % 8, from, found);
      else K::Record::template copy_row<KEYS, D>(p, tile, tile + D * KEYS, row, thread % 8, from, found);
    }
    cp_async_commit();
    k0 += KEYS;
    look();
  }

 private:
  BARACUDA_D void look() {
#pragma unroll
    for (int n = 0; n < EACH; ++n) cells[n].look(p, share.sequence, k0 + thread / 8 + n * (THREADS / 8));
  }
};

// Whether some row of the block does not see a key before `past` that another one sees.
template <class K, class P> BARACUDA_D bool hides(const P& p, const Share<K, P>& share, i64 past) {
  return share.seen(p, 0) < min(past, share.end);
}

// Writes two rows, `low` and `low` + 8 of the block, of an accumulator of columns from `column` on to parts.
template <int N, class K, class P>
BARACUDA_D void put_parts(const P& p, const Share<K, P>& share, const float (&acc)[N][4], int low, int column) {
  const int pitch = round_up(p.d_latent, 8), own = lane_id() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = low + 8 * half;
    if (row >= share.count) break;
    float* const out = static_cast<float*>(p.parts) + share.part(p, row) * pitch;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int d = column + 8 * n;
      if (d < pitch) *reinterpret_cast<float2*>(out + d + own) = float2{acc[n][2 * half], acc[n][2 * half + 1]};
    }
  }
}

}  // namespace mla
}  // namespace baracuda
