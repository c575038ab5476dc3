// mla_kv_append   cache[page, cell] = {x / sqrt(mean(x²) + eps) weight, R(k_rope)} of each token, R the rotation of rope.cu
//
// A warp takes a token: it finds the token's cell as paged_kv_append does, then writes the latent in pieces of 16 bytes,
// as it is where there is no weight, and a pair of rotated columns a lane.
#include "attention/mla/latent_append.cuh"

namespace baracuda {

// WIDE: the latents of tokens and cells start 16-byte aligned.
template <class T, bool WIDE> BARACUDA_D void mla_kv_append(const MlaKvAppendParams& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>, STEP = warp_size * V;
  const int lane = lane_id(), d_latent = p.d_latent;
  const u64 t = static_cast<u64>(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (t >= static_cast<u64>(p.num_tokens)) return;
  i64 page, cell;
  u64 place;
  Paged<i64, MlaKvAppendParams>{p}.locate(t, page, cell, place);
  if (page < 0) return;
  const T* const latent = static_cast<const T*>(p.latent) + static_cast<i64>(t) * p.latent_stride;
  T* const out = static_cast<T*>(p.cache) + page * p.cache_stride[0] + cell * p.cache_stride[1];

  const norm::Centre<A> norm = latent_norm<T, WIDE>(p, latent);
  for (int d = lane * V; d < d_latent; d += STEP) {
    auto x = load_vec<T, V, WIDE>(latent + d, d_latent - d);
    if (p.weight != nullptr) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (d + k >= d_latent) break;
        x[k] = from_acc<T>(normalised<T>(p, norm, to_acc(x[k]), d + k));
      }
    }
    store_vec<T, V, WIDE>(out + d, x, d_latent - d);
  }

  append_rope(p, t, place, out + d_latent);
}

}  // namespace baracuda
