// gguf_quantize   a matrix as GGML's blocks: each is made by neighbouring lanes, two chunks of 8 values a lane.
//
// The blocks of a thread block are neighbours in the output too. They are put together in shared memory and written in
// accesses of 16 bytes where the output starts so. What fixes the order of sums stands with the encoders.
#include "quantize/encode.cuh"
#include <baracuda/chunks.cuh>
#include <baracuda/index.cuh>

namespace baracuda {

template <class E, class T> BARACUDA_D void gguf_quantize(const GgufQuantizeParams& p) {
  constexpr int threads = 256, lanes = E::values / (2 * format_part), blocks = threads / lanes;
  alignas(16) __shared__ u8 made[blocks * E::bytes];
  const i64 first = i64(blockIdx.x) * blocks, all = p.rows * p.groups;
  const int thread = static_cast<int>(threadIdx.x), own = thread % lanes;
  // Of blocks that are not there the last is made again, and not written.
  const i64 number = min<i64>(first + thread / lanes, all - 1);
  i64 at = number * E::values;
  if (p.x_step != p.groups * E::values) {
    u64 group;
    const u64 row = divmod(static_cast<u64>(number), static_cast<u64>(p.groups), group);
    at = static_cast<i64>(row) * p.x_step + static_cast<i64>(group) * E::values;
  }
  constexpr int apart = E::apart * format_part;
  const T* const from = static_cast<const T*>(p.x) + at + own * (E::apart == 1 ? 2 : 1) * format_part;
  Vec<T, format_part> some[2];
  if (p.wide) {  // all on their way before the first is used
#pragma unroll
    for (int i = 0; i < 2; ++i) some[i] = load_readonly<format_part>(from + i * apart);
#pragma unroll
    for (int i = 0; i < 2; ++i) keep_packed(some[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      some[i] = load_strided<T, format_part, Access::readonly>(from + i * apart, 1, format_part);
      keep_packed(some[i]);
    }
  }
  float x[2 * format_part];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < format_part; ++j) x[i * format_part + j] = cast<float>(some[i][j]);
  }
  E::encode(x, own, made + thread / lanes * E::bytes);
  __syncthreads();
  u8* const to = static_cast<u8*>(p.codes) + first * E::bytes;
  const int count = static_cast<int>(min<i64>(blocks, all - first)) * E::bytes, words = p.whole ? count / 16 : 0;
#pragma unroll 1
  for (int i = thread; i < words; i += threads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(made)[i];
  }
#pragma unroll 1
  for (int i = 16 * words + thread; i < count; i += threads) to[i] = made[i];
}

}  // namespace baracuda
