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
