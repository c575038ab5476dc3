// rope_quantize_fp8   y = code(R(x) quant_scale) of the heads' columns that turn, code(x quant_scale) of those that do not,
//                     R the rotation of rope.cuh, code the rounding to fp8.
//
// A block has a tile of tokens, or a share of the heads of one. It makes their angles once, in shared memory. An item is a
// unit of a head of one of the four inputs (0 queries and 1 keys that turn, 2 queries and 3 keys that do not): two chunks
// that hold whole pairs, as in rope.cuh. Threads take items in order, the next one's chunks in flight. Rotated numbers are
// floats until they are rounded to codes. Nothing is summed; a code does not depend on chunks.
#include "attention/rope/rope.cuh"

#include <baracuda/quantize.cuh>

namespace baracuda {

namespace rope_fp8 {

constexpr int threads = 256, parts = 4;

// The cosines and sines of a tile's tokens, times the scale: entry r * pairs + j. A position outside the table has none.
template <class P> BARACUDA_D void fill_angles(const P& p, i64 first, int rows, float* cosines, float* sines) {
  using A = Angle<float>;
  const u32 pairs = static_cast<u32>(p.rotary_dim / 2);
  if (pairs == 0) return;
  const float scale = static_cast<float>(p.scale());
  const float* const table = static_cast<const float*>(p.cos_sin_cache);
  u32 pair, r = divmod(threadIdx.x, pairs, pair), kept = pairs;
  A::frequency frequency{};
#pragma unroll 1
  while (static_cast<int>(r) < rows) {
    const i64 position =
        static_cast<i64>(rope_position(p, 0, first + r, pair) + static_cast<u64>(p.offset()));  // wraps, as NumPy does
    float sine = 0.0f, cosine = 0.0f;
    if (table == nullptr) {
      if (pair != kept) frequency = rope_kept<float>(p, pair), kept = pair;
      A::sincos(position, frequency, &sine, &cosine);
    } else if (static_cast<u64>(position) < static_cast<u64>(p.num_positions)) {
      const float* const row = table + position * p.cache_strides[0];
      cosine = row[pair * p.cache_strides[1]], sine = row[(pair + pairs) * p.cache_strides[1]];
    }
    cosines[r * pairs + pair] = cosine * scale, sines[r * pairs + pair] = sine * scale;
    r += p.step_rows, pair += p.step_pairs;
    if (pair >= pairs) pair -= pairs, ++r;
  }
}

// Where an item is: its input, the token of the tile, and its chunks' first columns and how many of them exist.
struct Item {
  int part, exist[2];
  u32 row;
  i64 head, col[2];
};
template <int V, bool INTERLEAVED, class P> BARACUDA_D Item item_at(const P& p, u32 i) {
  Item at;
  u32 j, unit;
  at.row = DivMod{p.by_items[0], p.by_items[1], p.by_items[2]}.divmod(i, j);
  at.part = (j >= p.ends[0]) + (j >= p.ends[1]) + (j >= p.ends[2]);
  if (at.part > 0) j -= p.ends[at.part - 1];
  const u32(&by)[3] = p.by_units[at.part];
  at.head = DivMod{by[0], by[1], by[2]}.divmod(j, unit);
  const i64 pairs = p.rotary_dim / 2, columns = p.columns[at.part];
  const i64 split = at.part > 1 ? static_cast<i64>(by[0]) * V : INTERLEAVED ? (pairs + 1) / 2 * 2 : pairs;
  at.col[0] = static_cast<i64>(unit) * V, at.col[1] = at.col[0] + split;
  at.exist[0] = static_cast<int>(max<i64>(min<i64>(min(split, columns) - at.col[0], V), 0));
  at.exist[1] = static_cast<int>(max<i64>(min<i64>(columns - at.col[1], V), 0));
  return at;
}

// The cosines and sines of pairs from `first` on, of which the tile's row ends at `end`.
template <bool WIDE, int N> BARACUDA_D Vec<float, N> entries(const float* from, int first, int end) {
  if constexpr (WIDE) return load<N>(from + first);
  Vec<float, N> x;
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = from[min(first + k, end - 1)];
  return x;
}

BARACUDA_D void turn(float& a, float& b, float cosine, float sine) {
  const float a0 = a;
  a = math::fma(a0, cosine, -(b * sine));
  b = math::fma(b, cosine, a0 * sine);
}

template <bool WIDE, int V> BARACUDA_D void put(u8* to, i64 stride, Vec<float, V> x, float scale, int code, int exist) {
  const quantize::Coder coder(code);
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] *= scale;
  if constexpr (WIDE) {
    const float most = quantize::most_of(x, V);
    if (exist > 0) store_streaming(to, quantize::codes_of(x, coder, most == most));
  } else {
    Vec<u8, V> codes;
#pragma unroll
    for (int k = 0; k < V; ++k) codes[k] = coder(x[k]);
    store_strided(to, stride, codes, exist);
  }
}

}  // namespace rope_fp8

template <class T, bool INTERLEAVED, bool WIDE, class P> BARACUDA_D void rope_quantize_fp8(const P& p) {
  using namespace rope_fp8;
  constexpr int V = WIDE ? vec_elems<T> : 2, N = V / 2;
  using Held = RopeChunk<T, WIDE>;
  BARACUDA_DYNAMIC_SMEM(float, cosines);  // of row r's pair k at r * pairs + k
  const int pairs = static_cast<int>(p.rotary_dim / 2);
  float* const sines = cosines + p.tile_rows * pairs;
  const i64 first_row = static_cast<i64>(blockIdx.x) * p.tile_rows;
  const int rows = static_cast<int>(min<i64>(p.tile_rows, p.num_tokens - first_row));
  const u32 items = static_cast<u32>(rows) * p.by_items[0], step = gridDim.y * threads;
  u32 i = blockIdx.y * threads + threadIdx.x;
  const void* const from[parts] = {p.q_rope, p.k_rope, p.q_nope, p.k_nope};
  void* const to[parts] = {p.yq_rope, p.yk_rope, p.yq_nope, p.yk_nope};

  auto fetch = [&](const Item& at, Held& one, Held& two) {
    const i64(&n)[3] = p.from_strides[at.part];
    const void* base = from[0];
#pragma unroll
    for (int k = 1; k < parts; ++k) base = at.part == k ? from[k] : base;
    const T* const x = static_cast<const T*>(base) + ((first_row + at.row) * n[0] + at.head * n[1]);
    rope_load<T, WIDE>(one, x + at.col[0] * n[2], n[2], at.exist[0]);
    rope_load<T, WIDE>(two, x + at.col[1] * n[2], n[2], at.exist[1]);
  };
  Item next{};
  Held ahead{}, ahead2{};
  if (i < items) {
    next = item_at<V, INTERLEAVED>(p, i);
    fetch(next, ahead, ahead2);  // in flight while the angles are computed
  }
  fill_angles(p, first_row, rows, cosines, sines);
  __syncthreads();
  const float scales[2] = {static_cast<float>(p.quant_scale_q()), static_cast<float>(p.quant_scale_kv())};
#pragma unroll 1
  for (; i < items; i += step) {
    const Item at = next;
    Vec<float, V> a = rope_unpack<T, WIDE>(ahead), c = rope_unpack<T, WIDE>(ahead2);
    if (i + step < items) {
      next = item_at<V, INTERLEAVED>(p, i + step);
      fetch(next, ahead, ahead2);
    }
    if (at.part < 2) {
      const int row = static_cast<int>(at.row) * pairs, end = row + pairs;
      if constexpr (INTERLEAVED) {
        const int one = row + static_cast<int>(at.col[0] / 2), two = row + static_cast<int>(at.col[1] / 2);
        const auto c0 = entries<WIDE, N>(cosines, one, end), s0 = entries<WIDE, N>(sines, one, end);
        const auto c1 = entries<WIDE, N>(cosines, two, end), s1 = entries<WIDE, N>(sines, two, end);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          turn(a[2 * k], a[2 * k + 1], c0[k], s0[k]);
          turn(c[2 * k], c[2 * k + 1], c1[k], s1[k]);
        }
      } else {
        const int one = row + static_cast<int>(at.col[0]);
        const auto c0 = entries<WIDE, V>(cosines, one, end), s0 = entries<WIDE, V>(sines, one, end);
#pragma unroll
        for (int k = 0; k < V; ++k) turn(a[k], c[k], c0[k], s0[k]);
      }
    }
    const i64(&m)[3] = p.to_strides[at.part];
    void* base = to[0];
#pragma unroll
    for (int k = 1; k < parts; ++k) base = at.part == k ? to[k] : base;
    u8* const y = static_cast<u8*>(base) + ((first_row + at.row) * m[0] + at.head * m[1]);
    const float scale = at.part & 1 ? scales[1] : scales[0];
    put<WIDE>(y + at.col[0] * m[2], m[2], a, scale, p.code, at.exist[0]);
    put<WIDE>(y + at.col[1] * m[2], m[2], c, scale, p.code, at.exist[1]);
  }
}

}  // namespace baracuda
