// masked_softmax    softmax or its logarithm of z = scale x + bias, where z is -inf at columns that mask or causal leave
//                   out. Schedules and order of the sum as in softmax/terms.cuh.
#include "softmax/terms.cuh"

namespace baracuda {

template <class T, class OUT, bool WHOLE> struct MaskedTerms {
  using element = T;
  using result = OUT;
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const MaskedSoftmaxParams& p;
  const T *x, *bias;
  const u8* mask;
  OUT* y;
  i64 end;  // of a causal row's columns
  A scale;

  BARACUDA_D MaskedTerms(const MaskedSoftmaxParams& p, i64 row) : p(p), scale(static_cast<A>(p.scale())) {
    i64 at[5];
    row_offsets(p, row, at);
    x = static_cast<const T*>(p.x) + at[0];
    y = static_cast<OUT*>(p.y) + at[1];
    mask = p.mask == nullptr ? nullptr : static_cast<const u8*>(p.mask) + at[2];
    bias = p.bias == nullptr ? nullptr : static_cast<const T*>(p.bias) + at[3];
    end = p.causal ? min<i64>(at[4] + p.diagonal + 1, p.cols) : p.cols;
  }

  static constexpr bool hard() { return false; }

  struct Raw {
    Vec<T, V> x, bias;
    Vec<u8, V> kept;
  };
  BARACUDA_D Raw read(i64 col) const {
    const i64 left = p.cols - col;
    Raw raw{};
    read_columns<WHOLE>(raw.x, x, p.step[0], col, left, p.wide & 1);
    if (bias != nullptr) read_columns<WHOLE>(raw.bias, bias, p.step[3], col, left, p.wide & 8);
    if (mask != nullptr) read_columns<WHOLE>(raw.kept, mask, p.step[2], col, left, p.wide & 4);
    return raw;
  }

  BARACUDA_D Vec<A, V> terms(i64 col, const Raw& raw) const {
    const int count = p.causal ? columns_before<false, V>(end, col) : columns_before<WHOLE, V>(end, col);
    auto z = unpacked(raw.x);
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] *= scale;
    if (bias != nullptr) {
      const auto added = unpacked(raw.bias);
#pragma unroll
      for (int k = 0; k < V; ++k) z[k] += added[k];
    }
    if (mask != nullptr) {
#pragma unroll
      for (int k = 0; k < V; ++k) z[k] = byte_of(raw.kept, k) ? z[k] : -numeric<A>::infinity();
    }
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = k < count ? z[k] : -numeric<A>::infinity();
    return z;
  }

  BARACUDA_D void put(i64 col, const Vec<A, V>& out, i64) const {
    write_columns<WHOLE>(y, p.step[1], col, p.cols - col, p.wide & 2, from_acc<OUT>(out));
  }
};

template <class T, class OUT, bool WHOLE, int G, int K>
BARACUDA_D void masked_softmax_rows(const MaskedSoftmaxParams& p) {
  terms_rows<MaskedTerms<T, OUT, WHOLE>, G, K>(p);
}
template <class T, class OUT, bool WHOLE> BARACUDA_D void masked_softmax_long(const MaskedSoftmaxParams& p) {
  terms_long<MaskedTerms<T, OUT, WHOLE>>(p);
}

}  // namespace baracuda
