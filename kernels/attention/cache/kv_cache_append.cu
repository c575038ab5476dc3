// kv_cache_append   cache[b, h, offset[b] + l, :] = new[b, h, l, :] for keys and values, in words of BYTES bytes
//
// A thread moves word c of a row of keys and word c of the row of values. Both loads are in flight while the offset is
// read; rows that fall outside the cache are then skipped. Each cell is written by one thread, so their order does not
// matter. I is i32 where the number of words, and offsets in words, stay below 2^31. Measurements:
// docs/design/cache.md.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <int BYTES, class I> BARACUDA_D void kv_cache_append(const KvCacheAppendParams& p) {
  using W = Word<BYTES>;
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const U item = static_cast<U>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= static_cast<U>(p.items)) return;
  U column, l, h;
  const U row = divmod(item, p.by_row, p.row_words, column);
  const U b = divmod(divmod(row, p.by_len, p.new_len, l), p.by_heads, p.heads, h);
  auto offset = [&](const i64(&n)[3], U line) {  // modulo 2^32 or 2^64: strides may be negative
    return static_cast<I>(b * static_cast<U>(n[0]) + h * static_cast<U>(n[1]) + line * static_cast<U>(n[2]) + column);
  };

  W word[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    if (column >= static_cast<U>(p.words[v])) continue;
    word[v] = load_word<Access::streaming>(static_cast<const W*>(v ? p.v_new : p.k_new) + offset(p.from_strides[v], l));
  }
  const I at = static_cast<I>(b * static_cast<U>(p.offset_stride));
  const i64 start =
      p.offsets_wide ? static_cast<const i64*>(p.cache_offsets)[at] : static_cast<const i32*>(p.cache_offsets)[at];
  const u64 place = static_cast<u64>(start) + l;  // modulo 2^64: a negative place becomes a huge one
  if (place >= static_cast<u64>(p.cache_len)) {
    if (p.status != nullptr) atomicOr(p.status, 1u);
    return;
  }
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    if (column >= static_cast<U>(p.words[v])) continue;
    static_cast<W*>(v ? p.v_cache : p.k_cache)[offset(p.to_strides[v], static_cast<U>(place))] = word[v];
  }
}

}  // namespace baracuda
