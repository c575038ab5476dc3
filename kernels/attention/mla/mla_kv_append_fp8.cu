// mla_kv_append_fp8   mla_kv_append into records of fp8: codes, a scale for each 128 columns, the rope.
//
// A warp takes a token and 256 columns at a time, eight a lane: 16 lanes find the largest magnitude of their group. Latents
// are numbers of float until they are codes.
#include "attention/mla/latent_append.cuh"

#include <baracuda/fp8_cast.cuh>

namespace baracuda {

// WIDE: latents start 16-byte aligned, codes 8-byte aligned.
template <class T, bool WIDE> BARACUDA_D void mla_kv_append_fp8(const MlaKvAppendFp8Params& p) {
  static_assert(sizeof(T) == 2, "a lane has eight columns in 16 bytes");
  const int lane = lane_id();
  const u64 t = static_cast<u64>(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (t >= static_cast<u64>(p.num_tokens)) return;
  i64 page, cell;
  u64 place;
  Paged<i64, MlaKvAppendFp8Params>{p}.locate(t, page, cell, place);
  if (page < 0) return;
  const T* const latent = static_cast<const T*>(p.latent) + static_cast<i64>(t) * p.latent_stride;
  u8* const codes = static_cast<u8*>(p.codes) + page * p.codes_stride[0] + cell * p.codes_stride[1];
  float* const scales = static_cast<float*>(p.scales) + page * p.scales_stride[0] + cell * p.scales_stride[1];
  const norm::Centre<float> norm = latent_norm<T, WIDE>(p, latent);
  for (int first = 0; first < p.d_latent; first += warp_size * 8) {
    const int d = first + lane * 8, left = p.d_latent - d;
    const auto x = load_vec<T, 8, WIDE>(latent + (left > 0 ? d : 0), left);
    float value[8], most = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      value[k] = to_acc(x[k]);
      if (p.weight != nullptr && left > 0) value[k] = normalised<T>(p, norm, value[k], d + k);
      most = math::maximum(most, math::abs(value[k]));
    }
    most = group_reduce<Max, 16>(most) / 448.0f;
    const float scale = most < 0x1p-126f ? 0x1p-126f : most;
    if (left <= 0) continue;
    Vec<u8, 8> out;
#pragma unroll
    for (int k = 0; k < 8; ++k) out[k] = cast<e4m3>(value[k] / scale).__x;
    store_vec<u8, 8, WIDE>(codes + d, out);
    if (lane % 16 == 0) scales[d / 128 * p.scales_stride[2]] = scale;
  }
  append_rope(p, t, place, static_cast<T*>(p.rope) + page * p.rope_out_stride[0] + cell * p.rope_out_stride[1]);
}

}  // namespace baracuda
