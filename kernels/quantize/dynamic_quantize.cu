// dynamic_quantize   y = the codes of blocks of x, with the scale and zero point of each block by the range in it.
//
// A group of threads for each block, which stays in registers: chunk c of 16 bytes belongs to thread c % lanes of the
// group, CHUNKS of them a thread. Blocks lie as runs of memory, or as runs of equal length; all chunks are aligned.
// Ranges are exact, whatever the order of threads. LANES threads a group, in a block of their own; 0: up to a warp, as
// the parameters say.
#include <baracuda/rows.cuh>
#include "quantize/codes.cuh"
#include "quantize/qparams.cuh"

namespace baracuda {

namespace affine {

enum BlockOperand { in_y, in_x, in_scale, in_zero };

// Of the threads of a group.
template <int LANES> BARACUDA_D float group_most(float most, int lanes) {
  if constexpr (LANES == 0) return quantize::block_most(most, lanes);
  else return block_reduce<Max, LANES>(most);
}
template <int LANES> BARACUDA_D Span group_span(Span s, int lanes) {
  if constexpr (LANES == 0) {
#pragma unroll 1
    for (int mask = 1; mask < lanes; mask *= 2) s = Span::merge(s, shuffle_xor(s, mask));
    return s;
  } else {
    return {block_reduce<Min, LANES>(s.low), block_reduce<Max, LANES>(s.high)};
  }
}

// The range of what a thread has: of SIZES from 0 to the largest size. 16-bit elements are compared in pairs.
template <class T, bool SIZES, int CHUNKS> BARACUDA_D Span chunks_span(const Chunk (&chunks)[CHUNKS]) {
  Span span = Span::empty();
  if constexpr (is_half<T>) {
    using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
    const auto pair = [](u32 word) { return *reinterpret_cast<const Pair*>(&word); };
    Pair low = pair(0u), high = pair(0u);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (!SIZES) low = __hmin2_nan(low, pair(chunks[i][k]));
        high = __hmax2_nan(high, pair(SIZES ? chunks[i][k] & 0x7fff7fffu : chunks[i][k]));
      }
    }
    span.high = math::maximum(widen(high.x), widen(high.y));
    if constexpr (!SIZES) span.low = math::minimum(widen(low.x), widen(low.y));
  } else {
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      const auto v = to_acc(unpack<T>(chunks[i]));
#pragma unroll
      for (int k = 0; k < vec_elems<T>; ++k) {
        if constexpr (SIZES) span.high = math::maximum(span.high, math::abs(v[k]));
        else span = Span::merge(span, Span{v[k], v[k]});
      }
    }
  }
  return span;
}

}  // namespace affine

template <class T, bool SYMMETRIC, int LANES, int CHUNKS>
BARACUDA_D void dynamic_quantize(const DynamicQuantizeParams& p) {
  using namespace affine;
  constexpr int V = vec_elems<T>, threads = LANES == 0 ? 128 : LANES;
  const int lanes = LANES == 0 ? 1 << p.lane_bits : LANES, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const i64 number = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;  // of the block of threads
  const i64 group = LANES == 0 ? (number * threads + threadIdx.x) >> p.lane_bits : number;
  const bool mine = group < p.rows;  // all threads of a warp stay, as they exchange
  i64 at[4];
  row_offsets<4>(p, mine ? group : 0, at);
  const T* const x = static_cast<const T*>(p.x) + at[in_x];

  // Offset of chunk c in operand n.
  const auto chunk_at = [&](int n, int c) {
    if (p.inner_rank <= 1) return static_cast<i64>(c) * V;
    u32 beside;
    const u32 run = DivMod{p.run[0], p.run[1], p.run[2]}.divmod(static_cast<u32>(c), beside);
    return run * p.inner[n][0] + static_cast<i64>(beside) * V;
  };
  Chunk chunks[CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int c = i * lanes + lane;
    chunks[i] = Chunk{};
    if (mine && c < p.chunks) chunks[i] = load<4>(reinterpret_cast<const u32*>(x + chunk_at(in_x, c)));
  }
  Span span = chunks_span<T, SYMMETRIC>(chunks);
  if constexpr (SYMMETRIC) span.high = group_most<LANES>(span.high, lanes);
  else span = group_span<LANES>(span, lanes);
  if (!mine) return;

  const float most = span.size();
  Vec<float, 1> scale;
  Vec<i32, 1> zero;
  u8 power = 0;
  if constexpr (SYMMETRIC) {
    const auto found = quantize::block_scale(most, p.largest, p.scale_kind, 1.0f);
    scale[0] = found.value, power = found.code, zero[0] = 0;
  } else {
    scale[0] = span_scale(span, p.low, p.high);
    zero[0] = span_zero(span, scale[0], p.low, p.high);
  }
  if (lane == 0) {
    if (p.scale_kind == quantize::scale_e8m0) static_cast<u8*>(p.scales)[at[in_scale]] = power;
    else static_cast<float*>(p.scales)[at[in_scale]] = scale[0];
    if (!SYMMETRIC && p.zero_points != nullptr) static_cast<i32*>(p.zero_points)[at[in_zero]] = zero[0];
  }
  // A piece of code through which the chunks go round: registers for one at a time, for more groups at once.
  const auto each = [&](const auto& write) {
#pragma unroll 1
    for (int c = lane; c < p.chunks; c += lanes) {
      write(at[in_y] + chunk_at(in_y, c), unpack<T>(chunks[0]));
#pragma unroll
      for (int i = 0; i < CHUNKS - 1; ++i) chunks[i] = chunks[i + 1];
    }
  };
  // Codes of zeros come by any scale that is not 0; int32 is no target.
  if (most == 0.0f || divides(scale, most)) {
    with_codes(p, [&](auto codes) {
      each([&](i64 to, const Vec<T, V>& x) { codes.store(p, to, near_quotients(widened(x), scale), zero); });
    });
  } else {
    each([&](i64 to, const Vec<T, V>& x) {
      store_codes(p.y, p.code, to, codes_of(p, quotients(to_acc(x), scale), zero));
    });
  }
}

}  // namespace baracuda
