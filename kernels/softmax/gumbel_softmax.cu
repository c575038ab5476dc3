// gumbel_softmax    softmax of z = (x + g) / tau with g = -log(-log u), u a uniform of the Philox stream: element e of
//                   the array, counted row-major, takes draw e. hard: 1 at the first column of the largest z, else 0.
// Schedules and order of the sum as in softmax/terms.cuh.
#include <baracuda/philox.cuh>
#include "random/transforms.cuh"
#include "softmax/terms.cuh"

namespace baracuda {

// -log(-log u) of u = (n + 1/2) 2^-24, n the upper 24 bits of a word, for y of type T. u is exact below 1/2, and u - 1 above.
template <class T> BARACUDA_D acc_t<T> gumbel_of(u32 word) {
  using A = acc_t<T>;
  const A half = A(2.98023223876953125e-8), low = A(uniform_from_bits(word));
  if constexpr (sizeof(A) == 4) {
    auto parts = random::log_parts(low + half);
    if (parts.exponent == 0) parts.f = (low - 1.0f) + half;
    const float rate = random::minus_log<1>(parts);
    return is_half<T> ? random::minus_log<T>(rate) : -math::log(rate);
  } else {
    return -math::log(low < A(0.5) ? -math::log(low + half) : -math::log1p(half - (A(1) - low)));
  }
}

// The words of V elements from `element` on.
template <int V> BARACUDA_D void noise_words(u64 seed, u64 offset, u64 element, i64 step, u32 (&words)[V]) {
  if (step == 1 && V % 4 == 0 && element % 4 == 0) {
    Philox4 blocks[(V + 3) / 4];
    philox_blocks<(V + 3) / 4>(seed, offset, element / 4, blocks);
#pragma unroll
    for (int k = 0; k < V; ++k) words[k] = philox_word(blocks[k / 4], k % 4);
  } else if (step == 1) {
    philox_words<V>(seed, offset, element, words);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) words[k] = philox_bits(seed, offset, element + k * step);
  }
}

template <class T, bool WHOLE> struct GumbelTerms {
  using element = T;
  using result = T;
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const GumbelSoftmaxParams& p;
  const T* x;
  T *y, *soft;
  u64 seed, offset, first;
  A rate;

  BARACUDA_D GumbelTerms(const GumbelSoftmaxParams& p, i64 row)
      : p(p), seed(p.seed()), offset(p.offset()), rate(A(1) / static_cast<A>(p.tau())) {
    i64 at[4];
    row_offsets(p, row, at);
    x = static_cast<const T*>(p.x) + at[0];
    y = static_cast<T*>(p.y) + at[1];
    soft = p.soft == nullptr ? nullptr : static_cast<T*>(p.soft) + at[2];
    first = at[3];
  }

  BARACUDA_D bool hard() const { return p.hard; }

  using Raw = Vec<T, V>;
  BARACUDA_D Raw read(i64 col) const {
    Raw raw;
    read_columns<WHOLE>(raw, x, p.step[0], col, p.cols - col, p.wide & 1);
    return raw;
  }

  BARACUDA_D Vec<A, V> terms(i64 col, const Raw& raw) const {
    const int count = columns_before<WHOLE, V>(p.cols, col);
    const auto in = unpacked(raw);
    u32 words[V];
    noise_words<V>(seed, offset, first + col * p.step[3], p.step[3], words);
    Vec<A, V> z;
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = (in[k] + gumbel_of<T>(words[k])) * rate;
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = k < count ? z[k] : -numeric<A>::infinity();
    return z;
  }

  BARACUDA_D void put(i64 col, const Vec<A, V>& out, i64 top) const {
    const i64 left = p.cols - col;
    auto said = from_acc<T>(out);
    if (soft != nullptr) write_columns<WHOLE>(soft, p.step[2], col, left, p.wide & 4, said);
    if (p.hard) {
#pragma unroll
      for (int k = 0; k < V; ++k) said[k] = math::isnan(out[k]) ? said[k] : cast<T>(col + k == top ? 1.0f : 0.0f);
    }
    write_columns<WHOLE>(y, p.step[1], col, left, p.wide & 2, said);
  }
};

template <class T, bool WHOLE, int G, int K> BARACUDA_D void gumbel_softmax_rows(const GumbelSoftmaxParams& p) {
  terms_rows<GumbelTerms<T, WHOLE>, G, K>(p);
}
template <class T, bool WHOLE> BARACUDA_D void gumbel_softmax_long(const GumbelSoftmaxParams& p) {
  terms_long<GumbelTerms<T, WHOLE>>(p);
}

}  // namespace baracuda
