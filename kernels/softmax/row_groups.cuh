#pragma once
// row_groups rows along one axis, each by a group of G threads: how chunks of 16 bytes are read, held and written.
//
// Chunk c of a row belongs to thread c % G. G, and so the order of every sum, follows from the row's length and element
// alone (`schedules/row_groups.py`): alignment, strides and other rows never change a row's bits. P is a parameter
// struct with the fields of `group_params`, and for tiles tile, tiles, axis_rows, pitch and tile_wide.
#include <baracuda/opaque.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

enum GroupMode {
  group_wide = 0,     // dense and aligned: 16-byte accesses
  group_strided = 1,  // element by element
  group_tile = 2,     // in shared memory, aligned and padded to whole chunks
};

template <class T> constexpr int row_vec = 16 / static_cast<int>(sizeof(T));
template <class T> using RowChunk = Vec<T, row_vec<T>>;

constexpr int group_block(int g) { return g < 128 ? 128 : g; }
constexpr int long_chunks = 4;  // chunks in flight for each of its threads

// exp(x) for x <= 0, or NaN. 16-bit elements: relative error below 2^-21 + 2^-24 |x|, less than their rounding.
template <class T> BARACUDA_D acc_t<T> row_exp(acc_t<T> x) {
  if constexpr (is_half<T>) return math::fast_exp2(x * 1.44269504f);
  else return math::exp(x);
}

// ---- chunks ---------------------------------------------------------------------------------------------------------
//
// A chunk held in registers is four 32-bit words. Accessed by element it would take one register for each element as
// soon as it is loaded, so it is copied and unpacked by words.

template <class T> BARACUDA_D void copy_chunk(RowChunk<T>& to, const RowChunk<T>& from) {
  *reinterpret_cast<uint4*>(&to) = *reinterpret_cast<const uint4*>(&from);
}

template <class T> BARACUDA_D Vec<acc_t<T>, row_vec<T>> unpack_chunk(const RowChunk<T>& x) {
  if constexpr (is_half<T>) {
    const u32* words = reinterpret_cast<const u32*>(&x);
    Vec<float, row_vec<T>> out;
#pragma unroll
    for (int k = 0; k < row_vec<T> / 2; ++k) {
      const u32 word = words[k];
      if constexpr (is_same<T, bf16>) {
        out[2 * k] = __uint_as_float(word << 16);
        out[2 * k + 1] = __uint_as_float(word & 0xffff0000u);
      } else {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word));
        out[2 * k] = pair.x, out[2 * k + 1] = pair.y;
      }
    }
    return out;
  } else {
    return to_acc(x);
  }
}

template <class T> BARACUDA_D RowChunk<T> filled(T fill) {
  RowChunk<T> out;
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) out[k] = fill;
  return out;
}

// Reads columns col … of a row; fill beyond the row's end.
template <int MODE, class T, class I>
BARACUDA_D void read_chunk(RowChunk<T>& out, const T* row, i64 step, I col, I cols, T fill) {
  constexpr int V = row_vec<T>;
  if (col >= cols) {
    copy_chunk(out, filled(fill));
  } else if (MODE == group_tile || (MODE == group_wide && cols - col >= V)) {
    copy_chunk(out, load < V, MODE == group_wide ? Access::streaming : Access::plain > (row + col));
  } else {
    const i64 each = MODE == group_wide ? 1 : step;
    RowChunk<T> some = load_strided<T, V>(row + col * each, each, cols - col, fill);
    forget(some);
    copy_chunk(out, some);
  }
}

template <int MODE, class T, class I>
BARACUDA_D void write_chunk(T* row, i64 step, I col, I cols, const RowChunk<T>& x) {
  if (col >= cols) return;
  if constexpr (MODE == group_tile) store(row + col, x);
  else if constexpr (MODE == group_wide) store_vec<T, row_vec<T>, true, Access::streaming>(row + col, x, cols - col);
  else store_strided<T, row_vec<T>>(row + col * step, step, x, cols - col);
}

// The largest element of several chunks. 16-bit elements compare in pairs: a maximum is exact in any order.
template <class T, int K, class Used> BARACUDA_D acc_t<T> chunk_max(const RowChunk<T> (&v)[K], Used used) {
  using A = acc_t<T>;
  A top = -numeric<A>::infinity();
  if constexpr (is_half<T>) {
    using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
    auto larger = [](u32 a, u32 b) {
      const Pair c = __hmax2_nan(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
      return *reinterpret_cast<const u32*>(&c);
    };
    constexpr u32 infinities = is_same<T, f16> ? 0xfc00fc00u : 0xff80ff80u;
    u32 best = infinities;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const u32* words = reinterpret_cast<const u32*>(&v[j]);
      if (used(j)) best = larger(best, larger(larger(words[0], words[1]), larger(words[2], words[3])));
    }
    const Pair pair = *reinterpret_cast<const Pair*>(&best);
    top = math::maximum(to_acc(pair.x), to_acc(pair.y));
  } else {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (used(j)) top = math::maximum(top, tree_reduce<Max>(v[j]));
    }
  }
  return top;
}

// ---- groups ---------------------------------------------------------------------------------------------------------

// Over the G threads of a group. Called by all threads of the block.
template <class Op, int G, class A> BARACUDA_D A row_reduce(A x) {
  if constexpr (G <= warp_size) return group_reduce<Op, G>(x);
  else return block_reduce<Op, G>(x);
}

// Running maximum and sum of a long row, of one thread (online softmax). A part of only -inf has the sum 0.
template <class T> struct OnlineRow {
  using A = acc_t<T>;
  MaxSum<A> state{-numeric<A>::infinity(), A(0)};

  template <int K, class Used> BARACUDA_D void add(RowChunk<T> (&v)[K], Used used) {
    const A top = math::maximum(state.max, chunk_max<T>(v, used));
    const A zero = top == -numeric<A>::infinity() ? A(0) : top;
    A sum = state.sum * row_exp<T>(state.max - zero);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (used(j)) {
        forget(v[j]);
        auto e = unpack_chunk(v[j]);
#pragma unroll
        for (int k = 0; k < row_vec<T>; ++k) e[k] = row_exp<T>(e[k] - zero);
        sum += tree_reduce<Sum>(e);
      }
    }
    state = {top, sum};
  }

  // Over the block; a row of only -inf is NaN, as where the maximum is subtracted first.
  BARACUDA_D MaxSum<A> finish() const {
    MaxSum<A> all = block_reduce<LogSumExp, long_group>(state);
    if (all.max == -numeric<A>::infinity()) all.sum = numeric<A>::nan();
    return all;
  }
};

// ---- tiles ----------------------------------------------------------------------------------------------------------

// The rows of a block's tile: `count` neighbouring rows from row `first` on.
struct TileRows {
  i64 first;
  int count;
};
template <class P> BARACUDA_D TileRows tile_rows(const P& p) {
  const i64 axis = blockIdx.x / p.tiles, start = blockIdx.x % p.tiles * p.tile;
  return {axis * p.axis_rows + start, static_cast<int>(min<i64>(p.tile, p.axis_rows - start))};
}

// Copies from global memory, where neighbouring rows are adjacent and a row's elements `step` apart, to a tile with
// rows `pitch` apart; tile_store copies back. The last chunk of every row is padded with fill.
template <int THREADS, class T, class P>
BARACUDA_D void tile_load(const P& p, const T* global, i64 step, T* tile, int count, T fill) {
  constexpr int V = row_vec<T>, U = 4;
  const int cols = static_cast<int>(p.cols), pitch = static_cast<int>(p.pitch), size = static_cast<int>(p.tile);
  const int parts = p.tile_wide ? size / V : size, shift = 31 - __clz(parts), total = cols << shift;
  for (int i = threadIdx.x; i < total; i += U * THREADS) {
    if (p.tile_wide) {
      RowChunk<T> v[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int at = i + u * THREADS, row = (at & (parts - 1)) * V;
        if (at < total && row < count) v[u] = load_streaming<V>(global + row + (at >> shift) * step);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int at = i + u * THREADS, row = (at & (parts - 1)) * V;
        if (at < total && row < count) {
#pragma unroll
          for (int k = 0; k < V; ++k) tile[(row + k) * pitch + (at >> shift)] = v[u][k];
        }
      }
    } else {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int at = i + u * THREADS, row = at & (parts - 1);
        if (at < total && row < count) tile[row * pitch + (at >> shift)] = global[row + (at >> shift) * step];
      }
    }
  }
  const int padding = round_up(cols, V) - cols;
  for (int i = threadIdx.x; i < count * padding; i += THREADS) tile[i / padding * pitch + cols + i % padding] = fill;
}

template <int THREADS, class T, class P>
BARACUDA_D void tile_store(const P& p, T* global, i64 step, const T* tile, int count) {
  constexpr int V = row_vec<T>;
  const int cols = static_cast<int>(p.cols), pitch = static_cast<int>(p.pitch), size = static_cast<int>(p.tile);
  const int parts = p.tile_wide ? size / V : size, shift = 31 - __clz(parts), total = cols << shift;
  for (int i = threadIdx.x; i < total; i += THREADS) {
    const int col = i >> shift;
    if (p.tile_wide) {
      const int row = (i & (parts - 1)) * V;
      if (row >= count) continue;
      RowChunk<T> v;
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] = tile[(row + k) * pitch + col];
      store_streaming(global + row + col * step, v);
    } else {
      const int row = i & (parts - 1);
      if (row < count) global[row + col * step] = tile[row * pitch + col];
    }
  }
}

}  // namespace baracuda
