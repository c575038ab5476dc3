// choose_qparams   scales and zero points of blocks by the range of their numbers; schedule reduce over blocks.
#include <baracuda/reduce_axes.cuh>
#include "quantize/qparams.cuh"

namespace baracuda::kinds {

template <class T> struct Spanned {
  using State = affine::Span;
  using Lane = Fold<Spanned>;
  using TakesParameters = void;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return State::empty(); }
  static BARACUDA_D State leaf(float x) { return State::of(x); }
  static BARACUDA_D State merge(State a, State b) { return State::merge(a, b); }
};

// The scale that brings the largest size to `largest`; R is float, or u8 for float8_e8m0fnu.
template <class T, class R> struct SizeScale : Spanned<T> {
  using Result = R;
  template <class P> static BARACUDA_D R finish(affine::Span s, const Reduced&, const P& p) {
    const bool power = is_same<R, u8>;
    const auto scale =
        quantize::block_scale(s.size(), p.largest, power ? quantize::scale_e8m0 : quantize::scale_f32, 1.0f);
    if constexpr (is_same<R, u8>) return scale.code;
    else return scale.value;
  }
};

// The scale of a range, and its zero point. The ends of the codes are the halves of `correction`, the one number of the
// parameters that `second` sees.
template <class T> struct SpanScale : Spanned<T> {
  using Result = float;
  using Second = i32;
  template <class P> static BARACUDA_D float finish(affine::Span s, const Reduced& r, const P&) {
    return affine::span_scale(s, first(r), last(r));
  }
  static BARACUDA_D i32 second(affine::Span s, const Reduced& r) {
    return affine::span_zero(s, affine::span_scale(s, first(r), last(r)), first(r), last(r));
  }

 private:
  static BARACUDA_D i32 first(const Reduced& r) { return static_cast<i32>(r.correction >> 32); }
  static BARACUDA_D i32 last(const Reduced& r) { return static_cast<i32>(static_cast<u32>(r.correction)); }
};

}  // namespace baracuda::kinds
