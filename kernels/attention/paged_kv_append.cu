// paged_kv_append   cache[page, h, cell, :] = new[t, h, :] for keys and values, in words of BYTES bytes
//
// A token is the words of all its keys, then those of its values; a thread moves four words a block apart. They are on
// their way while the block looks up where its tokens go, once a token. Tokens without a place are skipped. Every cell
// is written by one thread, so the order is of no account. I is i32 where the words can be counted in 31 bits.
#include <baracuda/pages.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int paged_threads = 256, paged_chunks = 4, paged_words = paged_threads * paged_chunks;

enum OwnTable { cache_offsets = own_tables, token_indptr };

template <class I> struct Paged {
  const PagedKvAppendParams& p;

  // The page and cell of token t; page < 0 where it has none. Sums wrap modulo 2^64, as the reference's do.
  BARACUDA_D void locate(i64 t, i64& page, i64& cell) const {
    page = -1, cell = 0;
    if (p.batch == 0) return;
    i64 b, first, count;
    if (p.token_indptr == nullptr) {
      [[maybe_unused]] u64 row;
      count = p.new_len;
      if constexpr (sizeof(I) == 4) b = static_cast<u32>(t) / static_cast<u32>(count);
      else b = static_cast<i64>(divmod(static_cast<u64>(t), static_cast<u64>(count), row));
      first = b * count;
    } else {
      i64 low = 0, high = p.batch;
      while (high - low > 1) {
        const i64 middle = (low + high) / 2;
        if (read_table(p, token_indptr, p.token_indptr, middle) <= t) low = middle;
        else high = middle;
      }
      b = low;
      first = read_table(p, token_indptr, p.token_indptr, b);
      const i64 end = read_table(p, token_indptr, p.token_indptr, b + 1);
      if (t < first || t >= end) return;  // padding
      count = static_cast<i64>(static_cast<u64>(end) - static_cast<u64>(first));
    }
    const Pages row(p, b);
    u64 place = static_cast<u64>(t) - static_cast<u64>(first);
    if (p.kv_last_page_len == nullptr) {
      place += static_cast<u64>(read_table(p, cache_offsets, p.cache_offsets, b));
    } else {
      place += row.held(p, read_table(p, kv_last_page_len, p.kv_last_page_len, b)) - static_cast<u64>(count);
    }
    if (place < static_cast<u64>(p.reach)) {
      i64 rest;
      page = row.page(slot_of<I>(p, place, rest));
      if (page >= 0) cell = rest;
    }
    if (page < 0 && p.status != nullptr) atomicOr(p.status, 1u);
  }
};

template <int BYTES, class I> BARACUDA_D void paged_kv_append(const PagedKvAppendParams& p) {
  using W = Word<BYTES>;
  using U = conditional<sizeof(I) == 4, u32, u64>;
  __shared__ i64 target[paged_words + 1][2];  // where a token's keys and values start, or nowhere
  constexpr i64 nowhere = numeric<i64>::lowest();
  const i64 start = static_cast<i64>(blockIdx.x) * paged_words;
  if (start >= p.items) return;
  auto token_of = [&](i64 item, i64& word) -> i64 {
    U rest, t;
    if constexpr (sizeof(I) == 4) t = DivMod{p.by_token[0], p.by_token[1], p.by_token[2]}.divmod(static_cast<U>(item), rest);
    else t = divmod(static_cast<U>(item), static_cast<U>(p.token_words), rest);
    word = static_cast<i64>(rest);
    return static_cast<i64>(t);
  };

  W word[paged_chunks];
  i64 to[paged_chunks];
  int token[paged_chunks];  // within the block, twice, plus one for values; -1 beyond the last word
  i64 unused;
  const i64 first_token = token_of(start, unused);
#pragma unroll
  for (int k = 0; k < paged_chunks; ++k) {
    token[k] = -1;
    const i64 item = start + threadIdx.x + k * paged_threads;
    if (item >= p.items) continue;
    i64 column;
    const i64 t = token_of(item, column);
    const int value = column >= p.key_words;
    if (value) column -= p.key_words;
    const u32(&by)[3] = value ? p.by_v : p.by_k;
    u32 rest;
    const i64 h = DivMod{by[0], by[1], by[2]}.divmod(static_cast<u32>(column), rest);
    const i64(&from)[2] = p.from_strides[value];
    token[k] = static_cast<int>(t - first_token) * 2 + value;
    to[k] = h * p.to_strides[value][1] + rest;
    word[k] = load_word<Access::streaming>(
        static_cast<const W*>(value ? p.v_new : p.k_new) + (t * from[0] + h * from[1] + rest));
  }

  const i64 last_token = token_of(min<i64>(start + paged_words, p.items) - 1, unused);
  for (i64 t = first_token + threadIdx.x; t <= last_token; t += paged_threads) {
    i64 page, cell;
    Paged<I>{p}.locate(t, page, cell);
#pragma unroll
    for (int v = 0; v < 2; ++v)
      target[t - first_token][v] = page < 0 ? nowhere : page * p.to_strides[v][0] + cell * p.to_strides[v][2];
  }
  __syncthreads();

#pragma unroll
  for (int k = 0; k < paged_chunks; ++k) {
    if (token[k] < 0) continue;
    const int value = token[k] & 1;
    const i64 base = target[token[k] >> 1][value];
    if (base != nowhere) static_cast<W*>(value ? p.v_cache : p.k_cache)[base + to[k]] = word[k];
  }
}

}  // namespace baracuda
