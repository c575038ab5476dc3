#pragma once
// flash_decoding_terms    scores with terms: s = softcap tanh(scale q k / softcap) - slope distance + mask; sinks.
//
// A score is multiplied out before its terms are added, so what is summed has a scale of 1. A key's distance is that
// from the last cell that counts. A sink joins the sum of the weights when the splits are merged.
//
// A block has one row of the mask: where rows differ between the query heads of a key head, the host gives it one head.
// So a hidden cell is hidden from all heads of its block, and it is not read.
#include "attention/decoding/flash_decoding.cuh"
#include "attention/mask_bias.cuh"

namespace baracuda {
namespace decoding {

template <class Cache> struct Termed : Cache {
  static constexpr bool terms = true;
  using Cache::Cache;
  template <class P> static BARACUDA_D double factor(const P& p, i64 kv) { return Cache::scale(p, kv); }
  template <class P> static BARACUDA_D double scale(const P&, i64) { return 1.0; }
};

template <class A, class P> BARACUDA_D A slope_of(const P& p, i64 b, i64 h) {
  if (p.slopes == nullptr) return A(0);
  return static_cast<const A*>(p.slopes)[b * p.slope_stride[0] + h * p.slope_stride[1]];
}
template <class A, class P> BARACUDA_D A sink_of(const P& p, i64 h) {
  return p.sinks == nullptr ? -numeric<A>::infinity() : static_cast<const A*>(p.sinks)[h];
}

// Query heads of a block, at most.
template <class Cache, int HEADS, class P> BARACUDA_D int block_heads(const P& p) {
  if constexpr (Cache::masked) return p.block_heads;
  else return HEADS;
}

// A row of the mask; `start` is null where there is none.
struct MaskRow {
  const char* start = nullptr;
  i64 pitch;
  int kind;

  template <class A> BARACUDA_D A bias(i64 cell) const {
    A found = A(0);
    attention::with_kind<A>(kind, [&](auto as) {
      found = attention::as_bias<A>(*reinterpret_cast<const decltype(as)*>(start + cell * pitch));
    });
    return found;
  }
  // The same in two steps, for what is used long after it is loaded; not of f64.
  BARACUDA_D u32 word(i64 cell) const {
    const char* const at = start + cell * pitch;
    if (kind == 0) return *reinterpret_cast<const u8*>(at);
    return kind == 3 ? *reinterpret_cast<const u32*>(at) : *reinterpret_cast<const u16*>(at);
  }
  BARACUDA_D float bias_of(u32 word) const {
    switch (kind) {
      case 0: return attention::as_bias<float>(static_cast<u8>(word));
      case 1: return __half2float(__ushort_as_half(static_cast<u16>(word)));
      case 2: return __uint_as_float(word << 16);
      default: return __uint_as_float(word);
    }
  }
};

// A dense cache of which a sequence sees a part: of row batch_index[b] the cells before the length, from starts[b] and
// the window on, that the mask does not hide.
struct DenseParts : Unscaled {
  static constexpr bool holes = false, capped = true, masked = true;
  i64 row, first, length;
  bool bad;
  MaskRow mask;
  const void* biases = nullptr;  // of a split's cells, in shared memory

  template <class P> BARACUDA_D DenseParts(const P& p, i64 b) : row(b) {
    const i64 all = length_of(p, b, bad);
    first = p.window_left < 0 ? 0 : max<i64>(0, all - 1 - p.window_left);
    if (p.starts != nullptr) {
      const i64 start = integer_at(p.starts, b * p.starts_stride, p.long_starts);
      bad |= start < 0 || start > p.max_len;
      first = max(first, min(start, all));
    }
    length = all - first;
    if (p.batch_index != nullptr) {
      row = integer_at(p.batch_index, b * p.index_stride, p.long_index);
      if (row < 0 || row >= p.cache_batch) row = 0, length = 0, bad = true;
    }
  }
  // Finds the row of the mask for the block's heads, of which `head` is the first.
  template <class P> BARACUDA_D void enter(const P& p, i64 b, i64 head) {
    if (p.mask == nullptr) return;
    mask.start = static_cast<const char*>(p.mask) + b * p.mask_pitch[0] + head * p.mask_pitch[1];
    mask.pitch = p.mask_pitch[2], mask.kind = p.mask_kind;
  }

  // Each lane looks up one cell of a tile; an element of the mask is asked for a tile before it is needed.
  template <class C, int SUBS, int AHEAD> struct Tiles : DenseCache::Tiles<C, SUBS, AHEAD> {
    using Dense = DenseCache::Tiles<C, SUBS, AHEAD>;
    static constexpr int rows = SUBS * 16;
    const DenseParts& cache;
    i64 cell;           // the lane's of the tile whose element was asked for last
    u32 word = 0;       // that element
    u32 held;           // bit 4 n: row lane / 8 + 4 n of the tile exists and is not hidden
    int tile_step = 0;  // cells from one tile to the next

    BARACUDA_D Tiles(const DenseParts& cache, void*) : Dense(cache, nullptr), cache(cache) {}
    template <class P> BARACUDA_D void ask(const P&, i64 from, int step) {
      cell = cache.first + from + lane_id() % rows;
      tile_step = step;
    }
    template <class P> BARACUDA_D void start(const P& p, i64, i64 kv, i64 from, int column, int ahead) {
      Dense::start(p, cache.row, kv, cache.first + from, column, ahead);
      look_up(ahead);
      turn(ahead);
    }
    template <class P> BARACUDA_D void next(const P& p, int step, int ahead) {
      Dense::next(p, step, ahead);
      turn(ahead);
    }
    BARACUDA_D bool has(int n, int) const { return held >> 4 * n & 1; }

   private:
    BARACUDA_D void look_up(int ahead) {
      if (cache.mask.start != nullptr && lane_id() % rows < ahead) word = cache.mask.word(cell);
    }
    BARACUDA_D void turn(int ahead) {
      const bool hidden = cache.mask.start != nullptr && cache.mask.bias_of(word) == -numeric<float>::infinity();
      held = __ballot_sync(all_lanes, lane_id() % rows < ahead && !hidden) >> lane_id() / 8;
      cell += tile_step;
      look_up(ahead - tile_step);
    }
  };

  // Brings the split's part of the mask to shared memory, as what is added to scores.
  template <class A, class P> BARACUDA_D void locate(const P&, i64 k0, int keys) {
    if (mask.start == nullptr) return;
    __shared__ A found[split_keys];
    for (int n = threadIdx.x; n < split_keys; n += blockDim.x) {
      found[n] = n < keys ? mask.bias<A>(first + k0 + n) : A(0);
    }
    biases = found;
  }

  template <class C, int WHICH> struct Cells : DenseCache::Cells<C, WHICH> {
    const DenseParts& cache;
    template <class P>
    BARACUDA_D Cells(const P& p, const DenseParts& cache, i64, i64 kv, i64 k0)
        : DenseCache::Cells<C, WHICH>(p, cache, cache.row, kv, cache.first + k0), cache(cache) {}
    // What is added to the scores of the split's cells, null where nothing is.
    BARACUDA_D const acc_t<C>* biases() const { return static_cast<const acc_t<C>*>(cache.biases); }
    BARACUDA_D bool has(int n) const { return biases() == nullptr || biases()[n] != -numeric<acc_t<C>>::infinity(); }
  };
};

}  // namespace decoding
}  // namespace baracuda
