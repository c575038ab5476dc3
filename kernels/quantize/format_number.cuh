#pragma once
// format_number   scales and zero points of stored values, each of one of several elements: as floats, or as bits that are
//                 made floats later, and the group that a value is in.
#include <baracuda/convert.cuh>

namespace baracuda {

// The number at `at` of an array of scales or zero points, whose element is a number of `ElementCode`.
BARACUDA_D float format_number(const void* from, int code, i64 at) {
  switch (code) {
    case code_f32: return __ldg(static_cast<const float*>(from) + at);
    case code_f16: return widen(__ldg(static_cast<const f16*>(from) + at));
    case code_bf16: return widen(__ldg(static_cast<const bf16*>(from) + at));
    case code_e8m0: return coded_value<code_e8m0>(__ldg(static_cast<const u8*>(from) + at));
    case code_e4m3: return coded_value<code_e4m3>(__ldg(static_cast<const u8*>(from) + at));
    default: return static_cast<float>(__ldg(static_cast<const u8*>(from) + at));
  }
}

// The number of `ElementCode` `code` at `at` as bits.
BARACUDA_D u32 number_bits(const void* from, int code, i64 at) {
  switch (code) {
    case code_f32: return __ldg(static_cast<const u32*>(from) + at);
    case code_f16:
    case code_bf16: return __ldg(static_cast<const u16*>(from) + at);
    default: return __ldg(static_cast<const u8*>(from) + at);
  }
}

// Calls body(f), f makes such bits a float; as `format_number` does.
template <class Body> BARACUDA_D void with_number(int code, const Body& body) {
  switch (code) {
    case code_f32: return body([](u32 bits) { return __uint_as_float(bits); });
    case code_f16: return body([](u32 bits) { return widen(__ushort_as_half(static_cast<u16>(bits))); });
    case code_bf16: return body([](u32 bits) { return __uint_as_float(bits << 16); });
    case code_e8m0: return body([](u32 bits) { return coded_value<code_e8m0>(static_cast<u8>(bits)); });
    case code_e4m3: return body([](u32 bits) { return coded_value<code_e4m3>(static_cast<u8>(bits)); });
    default: return body([](u32 bits) { return static_cast<float>(bits); });
  }
}

// The group that a value of a row is in, and the values of a row one after the other at equal distances: one division.
struct GroupOf {
  u32 group, rest;
  BARACUDA_D GroupOf() = default;
  BARACUDA_D GroupOf(u32 k, u32 size) : group(k / size), rest(k - group * size) {}
  BARACUDA_D void advance(const GroupOf& by, u32 size) {
    group += by.group, rest += by.rest;
    if (rest >= size) rest -= size, ++group;
  }
};

}  // namespace baracuda
