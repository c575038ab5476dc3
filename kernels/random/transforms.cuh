#pragma once
// transforms   logarithms, radii and angles of uniform numbers, for y of type T: without branches, and without the cases
//              that a number of `open` never is.
//
// float: logarithms within 4 ulp, radii within 3, sines within 1. float16 and bfloat16 by special functions: logarithms
// within 4e-7 and as large a part of themselves, sines within 1e-6. double: the library's functions.
#include <baracuda/approximate.cuh>
#include "random/streams.cuh"

namespace baracuda::random {

template <class T> constexpr bool is_half = sizeof(T) == 2;

// `open` of a word; of 16 bits it may be 1, which minus_log and radius take.
template <class T> BARACUDA_D double near_open(u64 w) { return open(w); }
template <class T> BARACUDA_D float near_open(u32 w) {
  return is_half<T> ? math::fma(static_cast<float>(w), 2.3283064365386963e-10f, 1.1641532182693481e-10f) : open(w);
}

// u = 2^e (1 + f), |f| <= 1/3; e as it stands in a float's bits.
struct LogParts {
  float f;
  i32 exponent;
};
BARACUDA_D LogParts log_parts(float u) {
  const i32 bits = __float_as_int(u), exponent = (bits - 0x3f2aaaab) & 0xff800000;
  return {__int_as_float(bits - exponent) - 1.0f, exponent};
}

// -TIMES log of such a number: the polynomial in f is within 2^-22.6 of the logarithm wherever that of 2^e is 0.
template <int TIMES> BARACUDA_D float minus_log(const LogParts& u) {
  constexpr float n = TIMES;
  const float f = u.f;
  float p = math::fma(f, 0.15878313f * n, -0.17105592f * n);
  p = math::fma(f, p, 0.16298573f * n);
  p = math::fma(f, p, -0.19799159f * n);
  p = math::fma(f, p, 0.25016609f * n);
  p = math::fma(f, p, -0.33337465f * n);
  p = math::fma(f, p, 0.49999738f * n);
  p = math::fma(f, p, -n);
  return math::fma(f, p, static_cast<float>(u.exponent) * (-8.2629582e-8f * n));  // -log(2) / 2^23
}

// -TIMES log(u), 2^-34 < u < 1, TIMES a power of two.
template <class T, int TIMES = 1> BARACUDA_D double minus_log(double u) { return -TIMES * math::log(u); }
template <class T, int TIMES = 1> BARACUDA_D float minus_log(float u) {
  constexpr float n = TIMES;
  // Of a number near 1 the approximate logarithm may be 0, where 1 - u is nearer. 2^-23 more, and 1 does not give 0.
  if constexpr (is_half<T>) {
    return ::fmaxf(approximate::log2(u) * (-0.69314718f * n), math::fma(-n, u, n * 1.00000012f));
  }
  return minus_log<TIMES>(log_parts(u));
}

// The distance from 0 of two standard normal variates.
template <class T> BARACUDA_D double radius(double u) { return math::sqrt(minus_log<T, 2>(u)); }
template <class T> BARACUDA_D float radius(float u) {
  const float square = minus_log<T, 2>(u);
  return square * approximate::rsqrt(square);
}

// x / y as x times `inverse` times `scale`, so that quotients by one number need one division: a power of two keeps
// the inverse of a very large and a very small number within range.
template <class A> struct Divisor {
  A inverse, scale;
  BARACUDA_D explicit Divisor(A y) {
    constexpr A large = sizeof(A) == 4 ? A(18446744073709551616.0) : A(1.3407807929942597e154);  // 2^64, 2^512
    scale = math::abs(y) > large ? A(1) / large : math::abs(y) < A(1) / large ? large : A(1);
    inverse = A(1) / (y * scale);
  }
  BARACUDA_D A into(A x) const { return x * inverse * scale; }
};

// ---- normal variates by pairs (Box and Muller 1958) -----------------------------------------------------------------

// sin and cos of an eighth of a turn on either side of an axis: of f quarter turns, |f| <= 1/2, to an ulp.
BARACUDA_D void quarter(float f, float& s, float& c) {
  const float q = f * f;
  const float odd = math::fma(math::fma(q, -0.004621981f, 0.079687035f), q, -0.645964f);
  s = f * math::fma(odd, q, 1.5707964f);
  const float even = math::fma(math::fma(math::fma(q, 0.00090674172f, -0.020861529f), q, 0.25366941f), q, -1.2337005f);
  c = math::fma(even, q, 1.0f);
}
BARACUDA_D float with_sign_of(float x, u32 w) { return __uint_as_float(__float_as_uint(x) ^ (w & 0x80000000u)); }

// Two independent standard normal variates of two words, `normal_pair` in double: a radius, and an angle of as many
// quarter turns as the second word's two highest bits say and, on either side of that axis, what the others say.
template <class T> BARACUDA_D void normals(u64 w0, u64 w1, double& z0, double& z1) { normal_pair(w0, w1, z0, z1); }
template <class T> BARACUDA_D void normals(u32 w0, u32 w1, float& z0, float& z1) {
  const float r = radius<T>(near_open<T>(w0));
  if constexpr (is_half<T>) {
    const i32 turn = static_cast<i32>(w1 - 2 * (w1 & 0x20000000u));  // in units of 2^-32
    const float angle = static_cast<float>(turn) * 1.4629181e-9f;
    z0 = r * approximate::cos(angle), z1 = r * approximate::sin(angle);
  } else {
    const float rest = static_cast<float>(static_cast<i32>(w1 << 2)) * 2.3283064365386963e-10f;
    float s, c;
    quarter(rest, s, c);
    const bool odd = w1 & 0x40000000u;
    z0 = with_sign_of(r, w1 ^ w1 << 1) * (odd ? s : c);
    z1 = with_sign_of(r, w1) * (odd ? c : s);
  }
}

}  // namespace baracuda::random
