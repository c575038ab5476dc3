// quantized_sdpa_simt    quantized_sdpa without the tensor cores' products of bytes, in float: any blocks of keys.
//
// A warp has a query and walks its keys 32 at a time; a lane has one of them. A product of int8 codes is exact.
#include "attention/quantized/quantized.cuh"
#include "attention/sparse/block_select_simt.cuh"

namespace baracuda {

template <class C, class V, class Y, int D, class P> BARACUDA_D void quantized_sdpa_simt(const P& p) {
  using namespace attention;
  __shared__ float queries[select_warps][D];
  float* const query = queries[threadIdx.x / warp_size];
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + threadIdx.x / warp_size;
  const i64 row = unit % p.query_len, head = unit / p.query_len;
  if (head >= p.heads) return;
  const u32 b = static_cast<u32>(head / p.num_heads), h = static_cast<u32>(head % p.num_heads), kv = h / p.group;
  const auto at = [&](const auto* x, int n, u32 of, i64 r) {
    return x + b * p.stride[n][0] + of * p.stride[n][1] + r * p.stride[n][2];
  };
  const C* const q = at(static_cast<const C*>(p.q), 0, h, row);
  for (int d = lane_id(); d < p.d_k; d += warp_size) query[d] = cast<float>(q[d]);
  __syncwarp();
  const float unit_log2 = query_scale(p, b, h, row) * p.unit_log2;
  const i64 end = min(p.key_len, row + p.shift + p.right + 1);
  float acc[D / warp_size] = {}, high = -numeric<float>::infinity(), sum = 0.0f;
#pragma unroll 1
  for (i64 k0 = 0; k0 < end; k0 += warp_size) {
    const int left = static_cast<int>(min<i64>(warp_size, end - k0));
    float score = -numeric<float>::infinity();
    if (lane_id() < left) {
      const C* const key = at(static_cast<const C*>(p.k), 1, kv, k0 + lane_id());
      float s = 0.0f;
#pragma unroll 4
      for (int d = 0; d < p.d_k; ++d) s = math::fma(query[d], cast<float>(key[d]), s);
      score = s * (unit_log2 * key_scale(p, b, kv, k0 + lane_id()));
    }
    const float most = fmaxf(high, warp_reduce<Max>(score));
    const float base = most == -numeric<float>::infinity() ? 0.0f : most, factor = math::exp2(high - base);
    const float weight = math::exp2(score - base);
    high = most;
    sum = math::fma(sum, factor, warp_reduce<Sum>(weight));
#pragma unroll
    for (float& x : acc) x *= factor;
#pragma unroll 1
    for (int j = 0; j < left; ++j) {
      add_row<D>(acc, __shfl_sync(full_warp, weight, j), at(static_cast<const V*>(p.v), 2, kv, k0 + j), p.d_v);
    }
  }
  const float factor = sum == 0.0f ? 0.0f : output_scale(p, b, kv) / sum;
  put_row<D>(const_cast<Y*>(at(static_cast<const Y*>(p.y), 3, h, row)), acc, factor, p.d_v);
  if (p.lse != nullptr && lane_id() == 0) {
    static_cast<float*>(p.lse)[unit] =
        sum == 0.0f ? -numeric<float>::infinity() : math::fma(high, ln_2<float>, math::log(sum));
  }
}

}  // namespace baracuda
