// kv_cache_append   cache[b, h, offset[b] + l, :] = new[b, h, l, :] for keys and values, in words of BYTES bytes
//
// Word i of a row of keys followed by a row of values; a thread moves four words a block apart, all loaded before the
// first is stored. Rows that fall outside the cache are skipped. Every cell is written by one thread, so the order
// is of no account. I is i32 where the words can be counted in 31 bits; the divisions are then prepared by the host.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int kv_chunks = 4;

template <int BYTES, class I> BARACUDA_D void kv_cache_append(const KvCacheAppendParams& p) {
  using W = Word<BYTES>;
  const W* source[kv_chunks];
  W* target[kv_chunks];
  const i64 first = static_cast<i64>(blockIdx.x) * blockDim.x * kv_chunks + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kv_chunks; ++k) {
    target[k] = nullptr;
    const i64 item = first + static_cast<i64>(k) * blockDim.x;
    if (item >= p.items) continue;
    i64 column, l, h, b;
    if constexpr (sizeof(I) == 4) {
      u32 c, row, head;
      const u32 sample = DivMod{p.by_heads[0], p.by_heads[1], p.by_heads[2]}.divmod(
          DivMod{p.by_len[0], p.by_len[1], p.by_len[2]}.divmod(
              DivMod{p.by_row[0], p.by_row[1], p.by_row[2]}.divmod(static_cast<u32>(item), c), row), head);
      column = c, l = row, h = head, b = sample;
    } else {
      u64 c, row, head;
      const u64 cell = divmod(static_cast<u64>(item), static_cast<u64>(p.row_words), c);
      b = divmod(divmod(cell, static_cast<u64>(p.new_len), row), static_cast<u64>(p.heads), head);
      column = c, l = row, h = head;
    }
    const i64 at = b * p.offset_stride;
    const i64 offset =
        p.offsets_wide ? static_cast<const i64*>(p.cache_offsets)[at] : static_cast<const i32*>(p.cache_offsets)[at];
    const u64 place = static_cast<u64>(offset) + static_cast<u64>(l);  // modulo 2^64: a negative place is a huge one
    if (place >= static_cast<u64>(p.cache_len)) {
      if (p.status != nullptr) atomicOr(p.status, 1u);
      continue;
    }
    const int value = column >= p.k_words;
    if (value) column -= p.k_words;
    const i64(&from)[3] = p.from_strides[value];
    const i64(&to)[3] = p.to_strides[value];
    source[k] = static_cast<const W*>(value ? p.v_new : p.k_new) + (b * from[0] + h * from[1] + l * from[2] + column);
    target[k] = static_cast<W*>(value ? p.v_cache : p.k_cache) +
                (b * to[0] + h * to[1] + static_cast<i64>(place) * to[2] + column);
  }
  W word[kv_chunks];
#pragma unroll
  for (int k = 0; k < kv_chunks; ++k) {
    if (target[k] != nullptr) word[k] = load_word<Access::streaming>(source[k]);
  }
#pragma unroll
  for (int k = 0; k < kv_chunks; ++k) {
    if (target[k] != nullptr) *target[k] = word[k];
  }
}

}  // namespace baracuda
