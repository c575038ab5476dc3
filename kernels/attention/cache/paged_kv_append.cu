// paged_kv_append   cache[page, h, cell, :] = new[t, h, :] for keys and values, in words of BYTES bytes; paged_append.cuh.
#include "attention/cache/paged_append.cuh"

namespace baracuda {

template <int BYTES> struct CopiedWord {
  using Held = Word<BYTES>;
  template <class P, class U, class I> static BARACUDA_D Held load(const P& p, int v, U, I at) {
    return load_word<Access::streaming>(static_cast<const Held*>(v ? p.v_new : p.k_new) + at);
  }
  template <class P, class I> static BARACUDA_D void store(const P& p, int v, I at, const Held& word) {
    static_cast<Held*>(v ? p.v_cache : p.k_cache)[at] = word;
  }
};

template <int BYTES, class I> BARACUDA_D void paged_kv_append(const PagedKvAppendParams& p) {
  paged_append<CopiedWord<BYTES>, I>(p);
}

}  // namespace baracuda
