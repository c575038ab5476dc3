// repeat_penalties   logits of tokens that would go on a repetition of a row's history
//
// repeat_matches counts, for every place of a history, how many tokens before it are the history's last ones. Then a block
// has a tile of a row's tokens and takes the largest count of each in shared memory: a maximum of integers, which no order
// of atomics can change.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

BARACUDA_D i64 repeat_end(const RepeatPenaltiesParams& p, i64 row) {
  if (p.lengths == nullptr) return p.length;
  return max<i64>(0, min<i64>(p.length, read_index(p.lengths, p.wide_lengths, row)));
}
BARACUDA_D i64 repeat_token(const RepeatPenaltiesParams& p, i64 row, i64 at) {
  return read_index(p.history, p.wide_history, row * p.history_strides[0] + at * p.history_strides[1]);
}
BARACUDA_D bool goes_on(const RepeatPenaltiesParams& p, i64 token) {
  if (token < 0 || token >= p.cols) return false;
  for (i64 k = 0; k < p.breaker_count; ++k) {
    if (p.breakers != nullptr && read_index(p.breakers, p.wide_breakers, k) == token) return false;
  }
  return true;
}

template <class T> BARACUDA_D void repeat_matches(const RepeatPenaltiesParams& p) {
  const i64 row = blockIdx.y, at = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= p.length) return;
  const i64 end = repeat_end(p, row), most = min<i64>(at, p.longest);
  i32 found = at < end ? 0 : -1;
  while (found >= 0 && found < most) {
    const i64 token = repeat_token(p, row, end - 1 - found);
    if (repeat_token(p, row, at - 1 - found) != token || !goes_on(p, token)) break;
    ++found;
  }
  static_cast<i32*>(p.matches)[row * p.length + at] = found;
}

template <class T, bool WIDE> BARACUDA_D void repeat_penalties(const RepeatPenaltiesParams& p) {
  using A = acc_t<T>;
  constexpr int V = WIDE ? vec_elems<T> : 1;
  __shared__ i32 best[repeat_tile];
  const i64 row = blockIdx.y, begin = static_cast<i64>(blockIdx.x) * repeat_tile;
  const i64 end = min<i64>(p.cols, begin + repeat_tile), used = repeat_end(p, row);
  for (int i = threadIdx.x; i < repeat_tile; i += blockDim.x) best[i] = -1;
  __syncthreads();
  for (i64 i = threadIdx.x; i < used; i += blockDim.x) {
    const i64 token = repeat_token(p, row, i);
    if (token >= begin && token < end) {
      atomicMax(&best[token - begin], static_cast<const i32*>(p.matches)[row * p.length + i]);
    }
  }
  __syncthreads();
  const i64 ngram = p.ngrams == nullptr ? p.ngram() : read_index(p.ngrams, p.wide_ngrams, row);
  const i64 allowed =
      max<i64>(0, p.allowed_lengths == nullptr ? p.allowed_length()
                                               : read_index(p.allowed_lengths, p.wide_allowed_lengths, row));
  const double factor = p.multipliers == nullptr ? p.multiplier() : static_cast<const float*>(p.multipliers)[row];
  const double base = p.bases == nullptr ? p.base() : static_cast<const float*>(p.bases)[row];
  const T* const logits = static_cast<const T*>(p.logits) + row * p.strides[0][0];
  T* const y = static_cast<T*>(p.y) + row * p.strides[1][0];
  for (i64 at = begin + static_cast<i64>(threadIdx.x) * V; at < end; at += static_cast<i64>(blockDim.x) * V) {
    Vec<T, V> x;
    if constexpr (WIDE) x = load_vec<T, V, true>(logits + at, end - at);
    else x[0] = logits[at * p.strides[0][1]];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (at + k >= end) break;
      const i32 longest = best[at + k - begin];
      if (longest < 0) continue;
      if (ngram > 0 && longest >= ngram - 1) {
        x[k] = from_acc<T>(-numeric<A>::infinity());
      } else if (factor > 0.0 && longest >= allowed) {
        const double penalty = factor * math::pow(base, static_cast<double>(longest - allowed));
        x[k] = from_acc<T>(to_acc(x[k]) - static_cast<A>(penalty));
      }
    }
    if constexpr (WIDE) store_vec<T, V, true>(y + at, x, end - at);
    else y[at * p.strides[1][1]] = x[0];
  }
}

}  // namespace baracuda
