#pragma once
// run_numbers   scales and zero points of runs of 32 stored values, read well before they are needed: as bits, so that
//               nothing waits for them, and as floats then.
//
// For formats that derive from Grouped (quantize/format.cuh), where a run is of one group.
#include "quantize/format.cuh"

namespace baracuda {

template <class F, class = void> constexpr bool is_grouped = false;
template <class F> constexpr bool is_grouped<F, decltype(static_cast<void>(&F::template codes<format_run>))> = true;

// Formats of whole numbers (quantize/formats/integers.cuh).
template <class F, class = void> constexpr bool is_whole = false;
template <class F> constexpr bool is_whole<F, decltype(static_cast<void>(F::whole_numbers))> = true;

// The codes of a run of a format that derives from Grouped as words; of others nothing.
template <class F, class = void> struct RunWords_ {
  using type = Vec<u32, 1>;
};
template <class F> struct RunWords_<F, enable_if<is_grouped<F>>> {
  using type = decltype(F::template words<format_run>(*static_cast<const Stored*>(nullptr),
                                                      *static_cast<const StoredRow*>(nullptr), 0));
};
template <class F> using RunWords = typename RunWords_<F>::type;

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

// Those of N runs.
template <int N> struct RunNumbers {
  u32 scales[N], zeros[N];

  // Of run n, that begins at k of a row.
  BARACUDA_D void load(const Stored& w, const StoredRow& row, i64 k, int n) {
    const u32 group = static_cast<u32>(k) / w.group;
    scales[n] = number_bits(w.scales, w.scale_code, row.scale + group * w.scale_steps[2]);
    zeros[n] = w.zeros == nullptr ? 0 : number_bits(w.zeros, w.zero_code, row.zero + group * w.zero_steps[2]);
  }
  // Of runs in these groups; row(n) is that of run n.
  template <class Row> BARACUDA_D void load(const Stored& w, const u32 (&groups)[N], const Row& row) {
    const auto scale = [&](int n) { return row(n).scale + groups[n] * w.scale_steps[2]; };
    const auto zero = [&](int n) { return row(n).zero + groups[n] * w.zero_steps[2]; };
    load_bits(w.scales, w.scale_code, scale, scales);
#pragma unroll
    for (int n = 0; n < N; ++n) zeros[n] = 0;
    if (w.zeros != nullptr) load_bits(w.zeros, w.zero_code, zero, zeros);
  }
  BARACUDA_D void get(const Stored& w, float (&scale)[N], float (&zero)[N]) const {
    with_number(w.scale_code, [&](const auto& number) {
#pragma unroll
      for (int n = 0; n < N; ++n) scale[n] = number(scales[n]);
    });
    if (w.scaled) {
#pragma unroll
      for (int n = 0; n < N; ++n) scale[n] *= w.scale;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) zero[n] = 0.0f;
    if (w.zeros == nullptr) return;
    with_number(w.zero_code, [&](const auto& number) {
#pragma unroll
      for (int n = 0; n < N; ++n) zero[n] = number(zeros[n]);
    });
  }

 private:
  template <class At> static BARACUDA_D void load_bits(const void* from, int code, const At& at, u32 (&to)[N]) {
    const auto as = [&](const auto* numbers) {
#pragma unroll
      for (int n = 0; n < N; ++n) to[n] = __ldg(numbers + at(n));
    };
    switch (code) {
      case code_f32: return as(static_cast<const u32*>(from));
      case code_f16:
      case code_bf16: return as(static_cast<const u16*>(from));
      default: return as(static_cast<const u8*>(from));
    }
  }
};

}  // namespace baracuda
