#pragma once
// flash_mma    what the forward's kernels on mma.sync share: a block's tiles of keys and values, from the first that it
//              takes to the last, its queries, and its outputs.
#include "attention/flash.cuh"

namespace baracuda {
namespace attention {

// Whether rows are whole aligned 16-byte pieces: of all operands alike, or of each as p says, which is read where it is
// needed, as that costs less than a register.
struct AllWide {
  bool wide;
  BARACUDA_D bool keys() const { return wide; }
  BARACUDA_D bool values() const { return wide; }
};
template <class P> struct EachWide {
  const P& p;
  BARACUDA_D bool keys() const { return p.wide & 2; }
  BARACUDA_D bool values() const { return p.wide & 4; }
};

// Tiles of keys and values in shared memory, by cp.async. STAGES 1: one of each, and either is loaded while the other
// is multiplied. STAGES 2: two of each, and both are loaded a tile ahead. All THREADS of the block call each function.
template <class T, int D, int DV, int KEYS, int STAGES, int THREADS, class Order, class Source, class SourceRows,
          class Wide>
struct KeyTiles {
  static constexpr int TILE = KEYS * D, VALUES = KEYS * DV;
  Source& source;
  const SourceRows &k, &v;  // rows of keys, and of values from this block's columns on
  T* const keys;            // [STAGES][KEYS][D]
  T* const values;          // [STAGES][KEYS][DV]
  const int key_len, last;  // keys of the sequence, and the end of those that the block sees
  const int d_k, d_v;
  const Wide wide;
  int stage = 0;

  BARACUDA_D void load_keys(int k0, int stage) const {
    tile::copy<KEYS, D, THREADS, Order>(keys + stage * TILE, k.from(k0), key_len - k0, d_k, wide.keys());
  }
  BARACUDA_D void load_values(int k0, int stage) const {
    tile::copy<KEYS, DV, THREADS, Order>(values + stage * VALUES, v.from(k0), key_len - k0, d_v, wide.values());
  }
  // The first tile of a walk.
  BARACUDA_D void load_first(int k0) const {
    load_keys(k0, 0);
    if (STAGES == 2) load_values(k0, 0);
  }
  // Waits for the keys of the tile at k0; the block's next tile is at `next`, from `last` on where there is none.
  BARACUDA_D void begin(int k0, int next) const {
    cp_async_wait<0>();
    __syncthreads();  // this tile is loaded, and all have read the one before
    source.template step<KEYS>(k0);
    if (STAGES == 1) {
      load_values(k0, 0);
    } else if (next < last) {
      load_keys(next, stage ^ 1);
      load_values(next, stage ^ 1);
    }
    cp_async_commit();
  }
  // Waits for the values of the tile, after its scores.
  BARACUDA_D void middle(int next) const {
    if (STAGES == 2) return;
    cp_async_wait<0>();
    __syncthreads();  // the values are loaded, and all have read the keys
    if (next < last) load_keys(next, 0);
    cp_async_commit();
  }
  BARACUDA_D void advance() { stage ^= STAGES - 1; }

  // Distances in bytes of this stage from the first.
  BARACUDA_D u32 keys_at() const { return stage * TILE * static_cast<u32>(sizeof(T)); }
  BARACUDA_D u32 values_at() const { return stage * VALUES * static_cast<u32>(sizeof(T)); }
  BARACUDA_D T* tile_of_values() const { return values + stage * VALUES; }

  // For a tile_of_values().
  static BARACUDA_D bool has_nonfinite(const T* tile) { return attention::has_nonfinite<VALUES / 2, THREADS>(tile); }
  static BARACUDA_D void clear_nonfinite(T* tile) {
    __syncthreads();
    attention::clear_nonfinite<VALUES / 2, THREADS>(tile);
    __syncthreads();
  }
};

// The keys of a tile that a warp's rows see: of the first `left`, row r those from from + r to before past + r.
struct TileWindow {
  int left, from, past;
  template <class Span>
  BARACUDA_D TileWindow(const Span& span, int k0, int row0)
      : left(span.key_len - k0), from(span.low - k0 + row0), past(span.high - k0 + row0) {}
  BARACUDA_D bool sees(int row, int key) const { return key >= from + row && key < past + row; }
};

// Multiplies a warp's elements of the queries by `sign`, once they are loaded.
template <class T, int COUNT> BARACUDA_D void sign_queries(T* own, double sign) {
  if (sign == 1.0) return;
  cp_async_wait<0>();
  __syncthreads();
  for (int n = lane_id(); n < COUNT; n += warp_size) own[n] = from_acc<T>(to_acc(own[n]) * float(sign));
  __syncwarp();
}

}  // namespace attention
}  // namespace baracuda
