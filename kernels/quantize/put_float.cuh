#pragma once
// put_float  a number stored as a float whose element is a number of the parameters.
#include <baracuda/convert.cuh>

namespace baracuda::affine {

template <class A> BARACUDA_D void put_float(void* y, int code, i64 at, A x) {
  switch (code) {
    case code_f16: static_cast<f16*>(y)[at] = cast<f16>(x); break;
    case code_bf16: static_cast<bf16*>(y)[at] = cast<bf16>(x); break;
    case code_f64: static_cast<double*>(y)[at] = static_cast<double>(x); break;
    default: static_cast<float*>(y)[at] = static_cast<float>(x);
  }
}

}  // namespace baracuda::affine
