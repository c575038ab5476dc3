#pragma once
// arithmetic   a + b, a - b, a b and a / b.
#include "elementwise/complex_functors.cuh"

namespace baracuda::of_complex {

template <class R> struct Add {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a + b; }
  static BARACUDA_D C da(C dy, C, C) { return dy; }
  static BARACUDA_D C db(C dy, C, C) { return dy; }
};
template <class R> struct Sub {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a - b; }
  static BARACUDA_D C da(C dy, C, C) { return dy; }
  static BARACUDA_D C db(C dy, C, C) { return -dy; }
};
template <class R> struct Mul {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a * b; }
  static BARACUDA_D C da(C dy, C, C b) { return dy * math::conj(b); }
  static BARACUDA_D C db(C dy, C a, C) { return dy * math::conj(a); }
};
template <class R> struct Div {
  using C = complex<R>;
  static BARACUDA_D C value(C a, C b) { return a / b; }
  static BARACUDA_D C da(C dy, C, C b) { return dy / math::conj(b); }
  static BARACUDA_D C db(C dy, C a, C b) { return -(dy * math::conj(a / b) / math::conj(b)); }
};

}  // namespace baracuda::of_complex
