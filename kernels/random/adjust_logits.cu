// adjust_logits   y = logits with penalties for tokens of a history, a bias, and -inf where a bit mask forbids a token.
//
// A block has a tile of a row's tokens and counts in shared memory how often each is in the history: it reads the whole
// history, and no dense array of counts exists. Counts are integers, so no order of atomics can change them.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr u32 in_prompt = 0x80000000u;  // beside the count

template <class P> BARACUDA_D double row_number(const P&, const void* rows, double value) {
  return rows == nullptr ? value : static_cast<double>(static_cast<const float*>(rows)[blockIdx.y]);
}
BARACUDA_D i64 token_at(const void* tokens, bool wide, i64 at) {
  return wide ? static_cast<const i64*>(tokens)[at] : static_cast<const i32*>(tokens)[at];
}

template <class T, bool WIDE> BARACUDA_D void adjust_logits(const AdjustLogitsParams& p) {
  using A = acc_t<T>;
  constexpr int V = WIDE ? vec_elems<T> : 1;
  __shared__ u32 counts[adjust_tile];
  const i64 row = blockIdx.y, begin = static_cast<i64>(blockIdx.x) * adjust_tile;
  const i64 end = min<i64>(p.cols, begin + adjust_tile);
  for (int i = threadIdx.x; i < adjust_tile; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (i64 i = threadIdx.x; i < p.lengths[0]; i += blockDim.x) {
    const i64 token = token_at(p.history, p.wide[0], row * p.token_strides[0][0] + i * p.token_strides[0][1]);
    if (token >= begin && token < end) atomicAdd(&counts[token - begin], 1u);
  }
  for (i64 i = threadIdx.x; i < p.lengths[1]; i += blockDim.x) {
    const i64 token = token_at(p.prompt, p.wide[1], row * p.token_strides[1][0] + i * p.token_strides[1][1]);
    if (token >= begin && token < end) atomicOr(&counts[token - begin], in_prompt);
  }
  __syncthreads();
  const A repetition = static_cast<A>(row_number(p, p.repetitions, p.repetition()));
  const A frequency = static_cast<A>(row_number(p, p.frequencies, p.frequency()));
  const A presence = static_cast<A>(row_number(p, p.presences, p.presence()));
  const T* const logits = static_cast<const T*>(p.logits) + row * p.strides[0][0];
  T* const y = static_cast<T*>(p.y) + row * p.strides[1][0];
  for (i64 at = begin + static_cast<i64>(threadIdx.x) * V; at < end; at += static_cast<i64>(blockDim.x) * V) {
    Vec<T, V> x;
    if constexpr (WIDE) x = load_vec<T, V, true>(logits + at, end - at);
    else x[0] = logits[at * p.strides[0][1]];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (at + k >= end) break;
      const u32 seen = counts[at + k - begin], count = seen & ~in_prompt;
      A value = to_acc(x[k]);
      if (seen != 0) value = value > A(0) ? value / repetition : value * repetition;
      if (count != 0) value = value - frequency * static_cast<A>(count) - presence;
      if (p.bias != nullptr) {
        value += to_acc(static_cast<const T*>(p.bias)[row * p.strides[2][0] + (at + k) * p.strides[2][1]]);
      }
      if (p.mask != nullptr) {
        const u32 word = static_cast<const u32*>(p.mask)[row * p.mask_strides[0] + (at + k >> 5) * p.mask_strides[1]];
        if (!(word >> (at + k & 31) & 1)) value = -numeric<A>::infinity();
      }
      x[k] = cast<T>(value);
    }
    if constexpr (WIDE) store_vec<T, V, true>(y + at, x, end - at);
    else y[at * p.strides[1][1]] = x[0];
  }
}

}  // namespace baracuda
