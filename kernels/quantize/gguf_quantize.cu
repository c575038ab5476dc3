// gguf_quantize   a matrix as GGML's blocks: each is made by neighbouring lanes, 8 values a lane.
//
// The blocks of a thread block are neighbours in the output too. They are put together in shared memory and written in
// accesses of 16 bytes where the output starts so. What fixes the order of sums stands with the encoders.
#include "quantize/encode.cuh"

namespace baracuda {

template <class E, class T> BARACUDA_D void gguf_quantize(const GgufQuantizeParams& p) {
  constexpr int threads = 256, lanes = E::values / format_part, blocks = threads / lanes;
  alignas(16) __shared__ u8 made[blocks * E::bytes];
  const i64 first = i64(blockIdx.x) * blocks, all = p.rows * p.groups;
  const int thread = static_cast<int>(threadIdx.x), own = thread % lanes;
  // Of blocks that are not there the last is made again, and not written.
  const i64 number = min<i64>(first + thread / lanes, all - 1);
  i64 at = number * E::values;
  if (p.x_step != p.groups * E::values) {
    const i64 row = number / p.groups;
    at = row * p.x_step + (number - row * p.groups) * E::values;
  }
  float x[format_part];
  load_chunk(static_cast<const T*>(p.x) + at + own * format_part, p.wide, x);
#pragma unroll
  for (int j = 0; j < format_part; ++j) x[j] = x[j] != x[j] ? 0.0f : x[j];
  E::encode(x, own, made + thread / lanes * E::bytes);
  __syncthreads();
  u8* const to = static_cast<u8*>(p.codes) + first * E::bytes;
  const int count = static_cast<int>(min<i64>(blocks, all - first)) * E::bytes, words = p.whole ? count / 16 : 0;
  for (int i = thread; i < words; i += threads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(made)[i];
  }
  for (int i = 16 * words + thread; i < count; i += threads) to[i] = made[i];
}

}  // namespace baracuda
