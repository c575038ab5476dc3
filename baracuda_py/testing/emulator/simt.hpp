// What translated PTX calls: one function an opcode, and the threads they run in.
//
// A CUDA thread is a fiber: it runs until an instruction that others have a part in (a shuffle, a barrier, a product of a
// warpgroup), hands over what it brings and sleeps until the last of them has come. Registers are unsigned integers of
// their width; as<T> reads one as T, bits makes one of T.
// PTX ISA 9.0: every function is named as its instruction there.
//
// Whatever a kernel needs compiled is compiled with this header, and reading <cmath> would be two thirds of that: the
// compiler's own functions take its place.
#pragma once
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace simt {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
using f16 = _Float16;
using b8 = u8;
using b16 = u16;
using b32 = u32;
using b64 = u64;
using pred = bool;

// ---- numbers ----

struct bf16 {
  u16 word;
  bf16() = default;
  bf16(double x) {  // to nearest even
    float narrow = static_cast<float>(x);
    u32 b;
    if (static_cast<double>(narrow) != x && x == x) {  // towards odd, so that rounding twice is rounding once
      memcpy(&b, &narrow, 4);
      if (__builtin_fabs(static_cast<double>(narrow)) > __builtin_fabs(x)) --b;
      b |= 1;
      memcpy(&narrow, &b, 4);
    }
    memcpy(&b, &narrow, 4);
    word = narrow != narrow ? 0x7fff : static_cast<u16>((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  operator float() const {
    const u32 b = static_cast<u32>(word) << 16;
    float x;
    memcpy(&x, &b, 4);
    return x;
  }
};

template <class T> struct Two {
  T low, high;
};
template <int N> struct alignas(8) Bytes {
  char at[N];
};
using f16x2 = Two<f16>;
using bf16x2 = Two<bf16>;

struct e4m3 {
  u8 word;
  operator float() const {
    const int power = word / 8 % 16;
    const float digits = word % 8 / 8.0f, x = power ? __builtin_ldexpf(1 + digits, power - 7) : __builtin_ldexpf(digits, -6);
    return word % 128 == 127 ? __builtin_nanf("") : word < 128 ? x : -x;
  }
};
struct e5m2 {
  u8 word;
  operator float() const {
    const u16 wide = static_cast<u16>(word << 8);
    f16 x;
    memcpy(&x, &wide, 2);
    return x;
  }
};
using e4m3x2 = Two<e4m3>;
using e5m2x2 = Two<e5m2>;

template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };

template <class T> constexpr bool integral = std::is_integral_v<T>;
template <class T> constexpr bool is_signed = std::is_signed_v<T>;

template <class T, class R> inline T as(R word) {
  if constexpr (integral<T>) {
    return static_cast<T>(word);
  } else {
    const auto narrow = static_cast<typename Word<sizeof(T)>::type>(word);
    T x;
    memcpy(&x, &narrow, sizeof(T));
    return x;
  }
}

// A register's worth of x; signed numbers fill a wider register with their sign.
template <class T> inline auto bits(T x) {
  if constexpr (integral<T>) {
    return x;
  } else {
    typename Word<sizeof(T)>::type word;
    memcpy(&word, &x, sizeof(T));
    return word;
  }
}

// ---- arithmetic ----

template <class T> T add(T a, T b) {
  if constexpr (integral<T>) return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  else return T(a + b);
}
template <class T> T sub(T a, T b) {
  if constexpr (integral<T>) return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
  else return T(a - b);
}
template <class T> Two<T> mul(Two<T> a, Two<T> b) {
  return {T(float(a.low) * float(b.low)), T(float(a.high) * float(b.high))};
}
template <class T> T mul(T a, T b) { return T(a * b); }
template <class T> T mul_lo(T a, T b) { return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); }
template <class T> T mul_hi(T a, T b) {
  if constexpr (is_signed<T>) return static_cast<T>(static_cast<__int128>(a) * b >> 8 * sizeof(T));
  else return static_cast<T>(static_cast<unsigned __int128>(a) * b >> 8 * sizeof(T));
}
template <class T> auto mul_wide(T a, T b) {
  using Signed = std::conditional_t<sizeof(T) == 2, s32, s64>;
  using Wide = std::conditional_t<is_signed<T>, Signed, std::make_unsigned_t<Signed>>;
  return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
}
template <class T> T mad_lo(T a, T b, T c) { return add(mul_lo(a, b), c); }
template <class T> auto mad_wide(T a, T b, decltype(mul_wide(a, b)) c) { return add(mul_wide(a, b), c); }
template <class T> T div(T a, T b) {
  if constexpr (integral<T>) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (is_signed<T>) return b == -1 ? sub<T>(0, a) : a / b;
  }
  return T(a / b);
}
template <class T> T rem(T a, T b) {
  if (b == 0) return a;
  if constexpr (is_signed<T>) return b == -1 ? 0 : a % b;
  return a % b;
}
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class T> Two<T> fma(Two<T> a, Two<T> b, Two<T> c) {
  const auto one = [](T x, T y, T z) { return T(double(float(x)) * double(float(y)) + double(float(z))); };
  return {one(a.low, b.low, c.low), one(a.high, b.high, c.high)};
}
// Towards 0, towards -inf, towards +inf.
float fma_rz(float a, float b, float c);
float fma_rm(float a, float b, float c);
float fma_rp(float a, float b, float c);
double fma_rz(double a, double b, double c);
double fma_rm(double a, double b, double c);
double fma_rp(double a, double b, double c);
template <class T> T add_rz(T a, T b) { return fma_rz(a, T(1), b); }
template <class T> T add_rm(T a, T b) { return fma_rm(a, T(1), b); }
template <class T> T add_rp(T a, T b) { return fma_rp(a, T(1), b); }
template <class T> T sub_rz(T a, T b) { return fma_rz(b, T(-1), a); }
template <class T> T sub_rm(T a, T b) { return fma_rm(b, T(-1), a); }
template <class T> T sub_rp(T a, T b) { return fma_rp(b, T(-1), a); }
template <class T> T mul_rz(T a, T b) { return fma_rz(a, b, T(-0.0)); }
template <class T> T mul_rm(T a, T b) { return fma_rm(a, b, T(-0.0)); }
template <class T> T mul_rp(T a, T b) { return fma_rp(a, b, T(-0.0)); }
template <class T> T neg(T a) {
  if constexpr (integral<T>) return sub<T>(0, a);
  else return -a;
}
template <class T> T abs(T a) {
  if constexpr (integral<T>) return a < 0 ? neg(a) : a;
  else return T(__builtin_fabs(static_cast<double>(a)));
}
template <class T> bool negative(T a) { return __builtin_signbit(static_cast<double>(a)); }
template <class T> T max(T a, T b) {
  if constexpr (integral<T>) return a > b ? a : b;
  else return a != a ? b : b != b ? a : a == b ? (negative(a) ? b : a) : a > b ? a : b;
}
template <class T> T min(T a, T b) {
  if constexpr (integral<T>) return a < b ? a : b;
  else return a != a ? b : b != b ? a : a == b ? (negative(a) ? a : b) : a < b ? a : b;
}
template <class T> T max_NaN(T a, T b) { return a != a || b != b ? T(__builtin_nanf("")) : max(a, b); }
template <class T> T min_NaN(T a, T b) { return a != a || b != b ? T(__builtin_nanf("")) : min(a, b); }
template <class T> Two<T> max(Two<T> a, Two<T> b) { return {max(a.low, b.low), max(a.high, b.high)}; }
template <class T> Two<T> min(Two<T> a, Two<T> b) { return {min(a.low, b.low), min(a.high, b.high)}; }
template <class T> Two<T> max_NaN(Two<T> a, Two<T> b) { return {max_NaN(a.low, b.low), max_NaN(a.high, b.high)}; }
template <class T> Two<T> min_NaN(Two<T> a, Two<T> b) { return {min_NaN(a.low, b.low), min_NaN(a.high, b.high)}; }
template <class T> T copysign(T a, T b) { return negative(a) == negative(b) ? b : -b; }
inline float sqrt(float a) { return __builtin_sqrtf(a); }
inline double sqrt(double a) { return __builtin_sqrt(a); }
template <class T> T rcp(T a) { return T(1) / a; }
template <class T> T flushed(T a) { return a != 0 && __builtin_fabs(a) < std::numeric_limits<T>::min() ? copysign(a, T(0)) : a; }
template <class T> T rcp_ftz(T a) { return flushed(T(1) / flushed(a)); }
template <class T> T rsqrt(T a) { return T(1 / sqrt(static_cast<double>(a))); }
inline float ex2(float a) { return __builtin_exp2f(a); }
inline float ex2_ftz(float a) { return flushed(ex2(flushed(a))); }
inline float lg2(float a) { return __builtin_log2f(a); }
inline float sin(float a) { return __builtin_sinf(a); }
inline float cos(float a) { return __builtin_cosf(a); }
inline float tanh(float a) { return __builtin_tanhf(a); }

// ---- bits ----

template <class T> T not_(T a) {
  if constexpr (std::is_same_v<T, bool>) return !a;
  else return static_cast<T>(~a);
}
template <class T> T shl(T a, u32 b) { return b >= 8 * sizeof(T) ? 0 : static_cast<T>(static_cast<u64>(a) << b); }
template <class T> T shr(T a, u32 b) {
  if (b >= 8 * sizeof(T)) return is_signed<T> && a < 0 ? static_cast<T>(-1) : T(0);
  return static_cast<T>(a >> b);
}
template <class T> u32 popc(T a) { return static_cast<u32>(__builtin_popcountll(a)); }
template <class T> u32 clz(T a) { return a == 0 ? 8 * sizeof(T) : __builtin_clzll(a) - (64 - 8 * sizeof(T)); }
template <class T> T brev(T a) {
  T b = 0;
  for (unsigned n = 0; n < 8 * sizeof(T); ++n) b |= static_cast<T>(a >> n & 1) << (8 * sizeof(T) - 1 - n);
  return b;
}
inline u32 bfind_shiftamt(u32 a) { return a == 0 ? ~0u : static_cast<u32>(__builtin_clz(a)); }
// c + the products of the four bytes of a (of A's sign) and of b (of T's).
template <class A, class T> T dp4a(T a, T b, T c) {
  using B = std::conditional_t<is_signed<T>, signed char, unsigned char>;
  u32 sum = static_cast<u32>(c);
  for (int k = 0; k < 32; k += 8) sum += static_cast<u32>(static_cast<A>(a >> k) * static_cast<B>(b >> k));
  return static_cast<T>(sum);
}
template <class T> T dp4a_s32(T a, T b, T c) { return dp4a<signed char>(a, b, c); }
template <class T> T dp4a_u32(T a, T b, T c) { return dp4a<unsigned char>(a, b, c); }
template <class T> T bfi(T a, T b, u32 at, u32 count) {
  at &= 255, count &= 255;
  for (u32 n = 0; n < count && at + n < 8 * sizeof(T); ++n) b = (b & ~(T(1) << (at + n))) | (a >> n & 1) << (at + n);
  return b;
}
template <class T> T bfe(T a, u32 at, u32 count) {
  at &= 255, count &= 255;
  constexpr u32 top = 8 * sizeof(T) - 1;
  const bool sign = is_signed<T> && count > 0 && (a >> (at + count - 1 < top ? at + count - 1 : top) & 1);
  T b = 0;
  for (u32 n = 0; n <= top; ++n) b |= (n < count && at + n <= top ? a >> (at + n) & 1 : T(sign)) << n;
  return b;
}
u32 prmt(u32 a, u32 b, u32 selector);
inline u64 joined(u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; }
inline u32 shf_l(u32 low, u32 high, u32 n) { return static_cast<u32>(joined(low, high) << (n & 31) >> 32); }
inline u32 shf_r(u32 low, u32 high, u32 n) { return static_cast<u32>(joined(low, high) >> (n & 31)); }

// ---- comparisons, of floats ----

template <class T> bool eq(T a, T b) { return a == b; }
template <class T> bool ne(T a, T b) { return a == a && b == b && a != b; }
template <class T> bool lt(T a, T b) { return a < b; }
template <class T> bool le(T a, T b) { return a <= b; }
template <class T> bool gt(T a, T b) { return a > b; }
template <class T> bool ge(T a, T b) { return a >= b; }
template <class T> bool equ(T a, T b) { return !(a < b || a > b); }
template <class T> bool neu(T a, T b) { return !(a == b); }
template <class T> bool ltu(T a, T b) { return !(a >= b); }
template <class T> bool leu(T a, T b) { return !(a > b); }
template <class T> bool gtu(T a, T b) { return !(a <= b); }
template <class T> bool geu(T a, T b) { return !(a < b); }
template <class T> bool num(T a, T b) { return a == a && b == b; }
template <class T> bool nan(T a, T b) { return a != a || b != b; }

// ---- conversions ----

template <class To> To to_integer(double x) {  // whole already; NaN is 0, and 2^63 where To has 64 bits
  if (x != x) return sizeof(To) == 8 ? static_cast<To>(1ull << 63) : To(0);
  using Limits = std::numeric_limits<To>;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  if (x >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<To>(x);
}
template <class T> double to_odd(T x) {  // an integer, so that rounding it again is rounding it once
  u64 size = x < 0 ? 0 - static_cast<u64>(x) : static_cast<u64>(x);
  const int more = size >> 53 ? 11 - __builtin_clzll(size) : 0;  // bits than a double has
  const u64 rest = size & ((1ull << more) - 1);
  size = (size >> more | (rest != 0)) << more;
  return x < 0 ? -static_cast<double>(size) : static_cast<double>(size);
}
template <class T> constexpr bool is_pair = false;
template <class T> constexpr bool is_pair<Two<T>> = true;
template <class To, class From> To cvt(From x) {
  if constexpr (integral<To>) {
    static_assert(integral<From>, "a number becomes an integer by cvt.rni and the like");
    return static_cast<To>(x);
  } else if constexpr (is_pair<From>) {
    return {decltype(To::low)(float(x.low)), decltype(To::low)(float(x.high))};
  } else if constexpr (std::is_same_v<From, bf16>) {
    return To(float(x));
  } else if constexpr (integral<From> && sizeof(To) == 2) {
    return To(to_odd(x));
  } else {
    return To(x);
  }
}
template <class To> To whole(double x) {
  if constexpr (integral<To>) return to_integer<To>(x);
  else return To(x);
}
template <class To, class From> To cvt_rni(From x) { return whole<To>(__builtin_nearbyint(double(x))); }
template <class To, class From> To cvt_rzi(From x) { return whole<To>(__builtin_trunc(double(x))); }
template <class To, class From> To cvt_rmi(From x) { return whole<To>(__builtin_floor(double(x))); }
template <class To, class From> To cvt_rpi(From x) { return whole<To>(__builtin_ceil(double(x))); }
// Rounded to nearest, and one step back where that went the wrong way: a long double holds every integer and double.
template <class To, class From> To directed(From x, To end, bool back(long double, long double)) {
  static_assert(std::is_same_v<To, float> || std::is_same_v<To, double>, "a float of 16 bits is rounded to nearest");
  const To y = static_cast<To>(x);
  if (!back(y, x)) return y;
  if constexpr (sizeof(To) == 4) return __builtin_nextafterf(y, end);
  else return __builtin_nextafter(y, end);
}
template <class To, class From> To cvt_rz(From x) {
  return directed(x, To(0), [](long double y, long double z) { return __builtin_fabsl(y) > __builtin_fabsl(z); });
}
template <class To, class From> To cvt_rm(From x) {
  return directed(x, To(-__builtin_inff()), [](long double y, long double z) { return y > z; });
}
template <class To, class From> To cvt_rp(From x) {
  return directed(x, To(__builtin_inff()), [](long double y, long double z) { return y < z; });
}
template <class To, class From> To cvt_sat(From x) { return x > From(0) ? To(x < From(1) ? x : From(1)) : To(0); }
template <class To, class From> To cvt(From high, From low) { return {decltype(To::low)(low), decltype(To::low)(high)}; }

// ---- threads ----

enum class State : u8 { ready, waits, gone };

struct Block;
struct Thread {
  u32 tid[3], lane, number;  // number: among the block's threads
  State state;
  bool carry;
  u32 line;      // of the PTX where it waits
  char* shared;  // the block's
  const char* param;
  Block* block;
};

void pause(Thread& t, u32 line);  // others run first
[[noreturn]] void fail(Thread& t, u32 line, const char* what, u64 value = 0);
[[noreturn]] void leave(Thread& t);
extern u64 events;  // whatever another thread could wait for
u32 ctaid(Thread& t, int axis);
u32 nctaid(Thread& t, int axis);
u32 ntid(Thread& t, int axis);
u32 cluster_rank(Thread& t);

// ---- sums of several words ----

template <class T> T carried(Thread& t, T a, T b, bool carry) {
  const auto sum = static_cast<unsigned __int128>(a) + b + carry;
  t.carry = sum >> 8 * sizeof(T) & 1;
  return static_cast<T>(sum);
}
template <class T> T add_cc(Thread& t, T a, T b) { return carried(t, a, b, false); }
template <class T> T addc_cc(Thread& t, T a, T b) { return carried(t, a, b, t.carry); }
template <class T> T addc(Thread& t, T a, T b) { return static_cast<T>(a + b + t.carry); }
template <class T> T borrowed(Thread& t, T a, T b, bool borrow) {
  t.carry = a < b || (borrow && a == b);
  return static_cast<T>(a - b - borrow);
}
template <class T> T sub_cc(Thread& t, T a, T b) { return borrowed(t, a, b, false); }
template <class T> T subc_cc(Thread& t, T a, T b) { return borrowed(t, a, b, t.carry); }
template <class T> T subc(Thread& t, T a, T b) { return static_cast<T>(a - b - t.carry); }
template <class T> T mad_lo_cc(Thread& t, T a, T b, T c) { return carried(t, mul_lo(a, b), c, false); }
template <class T> T mad_hi_cc(Thread& t, T a, T b, T c) { return carried(t, mul_hi(a, b), c, false); }
template <class T> T madc_lo_cc(Thread& t, T a, T b, T c) { return carried(t, mul_lo(a, b), c, t.carry); }
template <class T> T madc_hi_cc(Thread& t, T a, T b, T c) { return carried(t, mul_hi(a, b), c, t.carry); }
template <class T> T madc_lo(Thread& t, T a, T b, T c) { return addc(t, mul_lo(a, b), c); }
template <class T> T madc_hi(Thread& t, T a, T b, T c) { return addc(t, mul_hi(a, b), c); }

// ---- memory ----

// In shared memory, with its bounds; what a product in flight reads must not be written.
char* shared_at(Thread& t, u32 line, u64 address, u32 size, bool writes);
inline char* aligned(Thread& t, u32 line, u64 address, u32 size) {
  if (address % size) fail(t, line, "misaligned address", address);
  if (address < 65536) fail(t, line, "no such address", address);
  return reinterpret_cast<char*>(address);
}
template <class T> auto load(const char* at) {
  T x;
  memcpy(&x, at, sizeof(T));
  return bits(x);
}
template <class T, class R> void store(char* at, R word) {
  const T x = as<T>(word);
  memcpy(at, &x, sizeof(T));
  ++events;
}
inline u64 cvta_shared(Thread& t, u64 x) { return x + reinterpret_cast<u64>(t.shared); }
inline u64 cvta_to_shared(Thread& t, u64 x) { return x - reinterpret_cast<u64>(t.shared); }

enum class Atom { add, min, max, and_, or_, xor_, exch, inc, dec };
template <class T> T combined(Atom op, T a, T b) {
  if constexpr (integral<T>) {
    switch (op) {
      case Atom::and_: return a & b;
      case Atom::or_: return a | b;
      case Atom::xor_: return a ^ b;
      case Atom::inc: return a >= b ? T(0) : T(a + 1);
      case Atom::dec: return a == 0 || a > b ? b : T(a - 1);
      default: break;
    }
  }
  switch (op) {
    case Atom::add: return add(a, b);
    case Atom::min: return min(a, b);
    case Atom::max: return max(a, b);
    default: return b;
  }
}
template <class T, class R> auto atom(char* at, Atom op, R b) {
  const T old = as<T>(load<T>(at));
  store<T>(at, bits(combined<T>(op, old, as<T>(b))));
  return bits(old);
}
template <class T, class R> auto atom_cas(char* at, R expected, R desired) {
  const auto old = load<T>(at);
  if (old == expected) store<T>(at, desired);
  return old;
}

// ---- what threads do together ----

enum class Shuffle { idx, up, down, bfly };
u32 shfl(Thread& t, u32 line, Shuffle how, u32 a, u32 b, u32 c, u32 mask, bool* inside = nullptr);
enum class Vote { any, all, ballot, match, elect };
u32 vote(Thread& t, u32 line, Vote how, u32 value, u32 mask);
inline void bar_warp(Thread& t, u32 line, u32 mask) { vote(t, line, Vote::any, 0, mask); }
void ldmatrix(Thread& t, u32 line, u32* d, int count, bool trans, u32 address);
void stmatrix(Thread& t, u32 line, const u32* a, int count, bool trans, u32 address);
u32 movmatrix(Thread& t, u32 line, u32 a);
enum class Half { f16, bf16, tf32, e4m3, e5m2, s8, u8 };  // those of 16 bits, and what warpgroups multiply besides
void mma(Thread& t, u32 line, Half type, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4]);
void mma_bytes(Thread& t, u32 line, Half type, Half right, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const u32 (&c)[4]);
void mma_doubles(Thread& t, u32 line, double (&d)[2], double a, double b, const double (&c)[2]);  // 8 by 8 by 4
void wgmma(Thread& t, u32 line, Half type, Half right, int n, u32* d, const u32* a, u64 a_at, bool a_across, u64 b_at, bool b_across,
           bool adds);
void publish(Thread& t);  // fence.proxy.async
void wgmma_commit(Thread& t, u32 line);
void wgmma_wait(Thread& t, u32 line, u32 pending);
enum class Reduce { none, any, all, count };
u32 barrier(Thread& t, u32 line, u32 id, u32 count, bool waits, Reduce how = Reduce::none, u32 value = 0);  // count 0: all

void mbarrier_init(Thread& t, u32 line, u32 address, u32 count);
void mbarrier_arrive(Thread& t, u32 line, u32 address);
void mbarrier_expect(Thread& t, u32 line, u32 address, u32 bytes);  // and arrive
bool mbarrier_over(Thread& t, u32 line, u32 address, u32 parity);
bool mbarrier_wait(Thread& t, u32 line, u32 address, u32 parity);  // sleeps until the phase ends

void cp_async(Thread& t, u32 line, u32 to, u64 from, u32 size, u32 read);
void cp_async_commit(Thread& t);
void cp_async_wait(Thread& t, u32 pending);
void cp_async_arrive(Thread& t, u32 line, u32 barrier);
void bulk(Thread& t, u32 line, u64 to, u32 from, u32 bytes, bool adds);
void bulk_commit(Thread& t);
void bulk_wait(Thread& t, u32 pending);

// Boxes of arrays, and clusters: tensor.cpp. blocks 0: the thread's own.
struct Coordinates {
  u32 at[5];
};
void tensor_load(Thread& t, u32 line, int rank, u64 map, Coordinates at, u32 to, u32 barrier, u32 blocks);
void tensor_store(Thread& t, u32 line, int rank, u64 map, Coordinates at, u32 from);
u32 mapa(Thread& t, u32 line, u32 address, u32 rank);
void cluster_arrive(Thread& t, u32 line);
void cluster_wait(Thread& t, u32 line);

}  // namespace simt

#include "packed.hpp"
