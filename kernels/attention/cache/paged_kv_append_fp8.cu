// paged_kv_append_fp8   cache[page, h, cell, :] = new[t, h, :] / scale as fp8, rounded to nearest, saturating.
//
// As paged_append.cuh has it; a word is N elements of T, and N bytes of a cache. A scale is k_scale or v_scale times that of
// the head, rounded; quotients are rounded to float, then to fp8.
#include "attention/cache/paged_append.cuh"
#include "attention/cache/quantized_group.cuh"

namespace baracuda {

template <class T, int N, int CODE> struct QuantizedWord {
  struct Held {
    Vec<T, N> x;
    float scale;
  };
  template <class P, class U, class I> static BARACUDA_D Held load(const P& p, int v, U h, I at) {
    const float* const heads = static_cast<const float*>(v ? p.v_head_scale : p.k_head_scale);
    const float scale = static_cast<float>(v ? p.v_scale() : p.k_scale());
    const auto* const words = reinterpret_cast<const Vec<T, N>*>(v ? p.v_new : p.k_new) + at;
    return {baracuda::load<N>(reinterpret_cast<const T*>(words)), heads == nullptr ? scale : scale * heads[h]};
  }
  template <class P, class I> static BARACUDA_D void store(const P& p, int v, I at, const Held& word) {
    const Vec<u8, N> codes = quantized_group::given_codes_of<CODE>(to_acc(word.x), word.scale);
    reinterpret_cast<Vec<u8, N>*>(v ? p.v_cache : p.k_cache)[at] = codes;
  }
};

template <class T, int N, int CODE, class I> BARACUDA_D void paged_kv_append_fp8(const PagedKvAppendFp8Params& p) {
  paged_append<QuantizedWord<T, N, CODE>, I>(p);
}

}  // namespace baracuda
