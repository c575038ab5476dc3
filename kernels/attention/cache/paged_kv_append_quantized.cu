// paged_kv_append_quantized   cache[page, h, cell, :] = codes of new[t, h, :], and the scale of each group of its columns.
//
// `lanes` neighbouring threads take a group of a token's keys and the same group of its values: chunks of N columns, the
// first of which each lane keeps in registers. Both are in flight while the lanes look up the token's cell; then the
// lanes exchange the largest size and write codes. A group of more columns than the lanes keep is read a second time.
// Tokens without a cell are skipped. I is i32 where groups, tokens and table entries can be counted, and offsets kept,
// below 2^31. The number of bytes that this takes: docs/design/cache.md.
#include "attention/cache/paged_places.cuh"
#include "attention/cache/quantized_group.cuh"

namespace baracuda {

// Groups are whole chunks: of 16 bytes and aligned, or of the columns of a byte.
template <class T, bool WIDE, int FORMAT, class I>
BARACUDA_D void paged_kv_append_quantized(const PagedKvAppendQuantizedParams& p) {
  constexpr int per_byte = quantized_group::per_byte<FORMAT>, N = WIDE ? vec_elems<T> : per_byte;
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const U number = static_cast<U>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int lanes = 1 << p.lane_bits, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const U item = number >> p.lane_bits;
  const bool mine = item < static_cast<U>(p.items);  // all threads of a warp stay, as they exchange
  U rest, group;
  const U t = divmod(mine ? item : 0, p.by_token, p.token_groups, rest);
  const U h = divmod(rest, p.by_head, p.head_groups, group);

  const T* from[2];
  int count[2];  // chunks of the group
  Vec<T, N> first[2];
  const auto chunk = [&](int v, int c) { return load_vec<T, N, WIDE, Access::streaming>(from[v] + c * N); };
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const i64(&n)[2] = p.from_strides[v];
    const I at = static_cast<I>(t * static_cast<U>(n[0]) + h * static_cast<U>(n[1]) + group * p.columns[v]);
    from[v] = static_cast<const T*>(v ? p.v_new : p.k_new) + at;
    count[v] = mine && group < static_cast<U>(p.groups[v]) ? p.chunks[v] : 0;
    first[v] = Vec<T, N>{};
    if (lane < count[v]) first[v] = chunk(v, lane);
  }

  i64 page = -1, cell = 0;
  u64 place;
  if (mine) Paged<I, PagedKvAppendQuantizedParams>{p}.locate(t, page, cell, place);
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float most = quantize::most_of(to_acc(first[v]), N);
    for (int c = lane + lanes; c < count[v]; c += lanes)
      most = math::maximum(most, quantize::most_of(to_acc(chunk(v, c)), N));
    most = quantize::block_most(most, lanes);
    if (page < 0 || !mine || group >= static_cast<U>(p.groups[v])) continue;
    const float scale = quantized_group::scale_of<FORMAT>(most);
    const auto at = [&](const i64(&n)[4]) {  // modulo 2^32 or 2^64: strides may be negative
      return static_cast<I>(static_cast<U>(page) * static_cast<U>(n[0]) + h * static_cast<U>(n[1]) +
                            static_cast<U>(cell) * static_cast<U>(n[2]) + group * static_cast<U>(n[3]));
    };
    if (lane == 0) static_cast<float*>(v ? p.v_scales : p.k_scales)[at(p.scale_strides[v])] = scale;
    u8* const to = static_cast<u8*>(v ? p.v_cache : p.k_cache) + at(p.to_strides[v]);
    constexpr int bytes = N / per_byte;
    for (int c = lane; c < count[v]; c += lanes) {
      const Vec<T, N> x = c == lane ? first[v] : chunk(v, c);
      store_vec<u8, bytes, WIDE>(to + c * bytes, quantized_group::codes_of<FORMAT>(to_acc(x), scale, most));
    }
  }
}

}  // namespace baracuda
