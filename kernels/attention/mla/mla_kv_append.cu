// mla_kv_append   cache[page, cell] = {x / sqrt(mean(x²) + eps) weight, R(k_rope)} of each token, R the rotation of rope.cu
//
// A warp takes a token: it finds the token's cell as paged_kv_append does, then writes the latent in pieces of 16 bytes,
// as it is where there is no weight, and a pair of rotated columns a lane. A sum of squares runs over a lane's elements
// in order, then over the lanes as a butterfly, in double: it follows from the columns alone.
#include "attention/cache/paged_places.cuh"
#include "attention/rope/rope.cuh"
#include "norm/channel.cuh"

#include <baracuda/reduce.cuh>

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

  norm::Centre<A> norm{};
  if (p.weight != nullptr) {
    double sum = 0;
    for (int d = lane * V; d < d_latent; d += STEP) {
      const auto x = load_vec<T, V, WIDE>(latent + d, d_latent - d);  // zeros beyond the last
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double value = static_cast<double>(to_acc(x[k]));
        sum = math::fma(value, value, sum);
      }
    }
    sum = warp_reduce<Sum>(sum);
    norm = norm::centre_of<A>(0.0, 0.0, 1.0 / math::sqrt(sum / static_cast<double>(d_latent) + p.eps));
  }
  for (int d = lane * V; d < d_latent; d += STEP) {
    auto x = load_vec<T, V, WIDE>(latent + d, d_latent - d);
    if (p.weight != nullptr) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (d + k >= d_latent) break;
        const A weight = norm::affine_at<T>(p.weight, (d + k) * p.weight_stride, p.wide_weight);
        x[k] = from_acc<T>(to_acc(x[k]) * norm.scale * norm.rstd * weight);
      }
    }
    store_vec<T, V, WIDE>(out + d, x, d_latent - d);
  }

  const T* const k_rope = static_cast<const T*>(p.k_rope) + static_cast<i64>(t) * p.rope_stride;
  i64 position = static_cast<i64>(place);
  if (p.positions != nullptr)
    position = rope_integer(p.positions, static_cast<i64>(t) * p.position_stride, p.positions_wide);
  const int pairs = p.rotary_dim / 2;
  for (int pair = lane; pair < pairs; pair += warp_size) {
    A sine, cosine;
    Angle<A>::sincos(position, rope_kept<A>(p, pair), &sine, &cosine);
    const A scale = static_cast<A>(p.scale());
    sine *= scale, cosine *= scale;
    const int first = p.interleaved ? 2 * pair : pair, second = p.interleaved ? first + 1 : pair + pairs;
    const A a = to_acc(k_rope[first]), b = to_acc(k_rope[second]);
    out[d_latent + first] = from_acc<T>(math::fma(a, cosine, -(b * sine)));
    out[d_latent + second] = from_acc<T>(math::fma(b, cosine, a * sine));
  }
}

}  // namespace baracuda
