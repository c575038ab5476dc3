// widen_values    to[b, kv, key, c] = v[b, kv, key, c], e4m3 as f16, exactly; four columns a thread.
#include <baracuda/fp8.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Rows of `to` have p.pitch columns, a multiple of 8, those behind v's zeros.
template <int THREADS, class P> BARACUDA_D void widen_values(const P& p) {
  const i64 n = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x, pieces = p.pitch / 4;
  if (n >= p.rows * pieces) return;
  const i64 row = n / pieces, key = row % p.key_len, head = row / p.key_len;
  const int c = static_cast<int>(n % pieces) * 4;
  const u8* const from = static_cast<const u8*>(p.v) + head / p.kv_heads * p.stride[0] +
                         head % p.kv_heads * p.stride[1] + key * p.stride[2] + c;
  u32 word = 0;
  if (p.wide && c + 4 <= p.d_v) {
    word = *reinterpret_cast<const u32*>(from);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) word |= c + e < p.d_v ? static_cast<u32>(from[e]) << (8 * e) : 0u;
  }
  static_cast<uint2*>(p.wide_v)[n] = widen_four<e4m3>(word);
}

}  // namespace baracuda
