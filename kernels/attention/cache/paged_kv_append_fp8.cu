// paged_kv_append_fp8   cache[page, h, cell, :] = new[t, h, :] / scale as fp8, rounded to nearest, saturating.
//
// As paged_append.cuh has it; a word is N elements of T, and N bytes of a cache. A scale is k_scale or v_scale times that of
// the head, rounded; quotients are rounded to float, then to fp8.
#include "attention/cache/paged_append.cuh"
#include "quantize/affine.cuh"

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
    using Coder = conditional<CODE == code_e4m3, quantize::E4M3Coder, quantize::E5M2Coder>;
    const auto exact = [&](float x) { return affine::Quotient<float>(word.scale)(x); };
    const Vec<float, N> u = to_acc(word.x);
    Vec<u8, N> codes;
    if constexpr (N % 4 == 0) {
      const quantize::Divisor by(word.scale);
      const auto near = [&](float x) { return by.near(x); };
      codes = quantize::codes_by(u, Coder(), by.serves(quantize::most_of(u, N)), near, exact);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) codes[k] = Coder::code_of(exact(u[k]));
    }
    reinterpret_cast<Vec<u8, N>*>(v ? p.v_cache : p.k_cache)[at] = codes;
  }
};

template <class T, int N, int CODE, class I> BARACUDA_D void paged_kv_append_fp8(const PagedKvAppendFp8Params& p) {
  paged_append<QuantizedWord<T, N, CODE>, I>(p);
}

}  // namespace baracuda
