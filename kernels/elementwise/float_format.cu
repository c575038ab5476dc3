// float_format   y = spacing(x), the gap to the next number, or x rounded to fewer bits; schedule map.
//
// Both are functions of the code of |x|: its upper bits are the exponent, biased, its lower FRACTION bits the fraction.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <class T> struct FloatCode {
  using Word = conditional<sizeof(T) == 8, u64, conditional<sizeof(T) == 4, u32, u16>>;
  static constexpr int bits = 8 * sizeof(T);
  static constexpr int fraction = is_same<T, f16> ? 10 : is_same<T, bf16> ? 7 : is_same<T, float> ? 23 : 52;
  static constexpr Word sign = Word(Word(1) << (bits - 1));
  static constexpr Word infinity = Word(((Word(1) << (bits - 1 - fraction)) - 1) << fraction);
  static constexpr int bias = (1 << (bits - 2 - fraction)) - 1;

  static BARACUDA_D Word of(T x) {
    union {
      T value;
      Word code;
    } both;
    both.value = x;
    return both.code;
  }
  static BARACUDA_D T number(Word code) {
    union {
      T value;
      Word code;
    } both;
    both.code = code;
    return both.value;
  }
};

namespace float_formats {

// The gap is 2^(e - fraction), e the exponent of |x|: a normal number, or a bit of a subnormal one.
template <class T> struct Spacing {
  using C = FloatCode<T>;
  using Word = typename C::Word;
  static BARACUDA_D T value(T x, const FloatFormatParams&) {
    const Word code = C::of(x), size = Word(code & Word(~C::sign));
    if (size >= C::infinity) return numeric<T>::nan();
    const Word sign = size == 0 ? Word(0) : Word(code & C::sign);
    if (size == Word(C::infinity - 1)) return C::number(Word(sign | C::infinity));
    const int biased = max(static_cast<int>(size >> C::fraction), 1), gap = biased - C::fraction;
    const Word found = gap > 0 ? Word(Word(gap) << C::fraction) : Word(Word(1) << (biased - 1));
    return C::number(Word(sign | found));
  }
};

// Rounding adds half a unit less one, and one more where the kept part is odd; a carry goes into the exponent, and from
// the largest number to infinity.
template <class T> struct ReducePrecision {
  using C = FloatCode<T>;
  using Word = typename C::Word;
  static BARACUDA_D T value(T x, const FloatFormatParams& p) {
    const Word code = C::of(x), sign = Word(code & C::sign);
    Word size = Word(code & Word(~C::sign));
    if (size >= C::infinity) return x;
    const int cut = C::fraction - p.mantissa_bits;
    if (cut > 0) {
      const Word odd = Word(size >> cut & 1), half = Word(Word(1) << (cut - 1));
      size = Word(Word(size + Word(half - 1) + odd) >> cut << cut);
    }
    if (p.narrower) {
      const int biased = static_cast<int>(size >> C::fraction);
      if (biased - C::bias < p.least) size = 0;
      else if (biased - C::bias > p.largest) size = C::infinity;
    }
    return C::number(Word(sign | size));
  }
};

}  // namespace float_formats

template <class F, class T, class L> BARACUDA_D void float_format(const FloatFormatParams& p) {
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [&](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < in[0].size; ++k) out[0][k] = F::value(in[0][k], p);
  });
}

}  // namespace baracuda
