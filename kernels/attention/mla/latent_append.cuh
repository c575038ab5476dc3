#pragma once
// latent_append   what a warp does of a token's latent and rope, whatever cells are stored as: the norm, the rotation of
// rope.cu. A sum of squares runs over a lane's elements in order, then over the lanes as a butterfly, in double: it follows
// from the columns alone.
#include "attention/cache/paged_places.cuh"
#include "attention/rope/rope.cuh"
#include "norm/channel.cuh"

#include <baracuda/reduce.cuh>

namespace baracuda {

// What normalised latents are multiplied by besides their weights. WIDE: latents start 16-byte aligned.
template <class T, bool WIDE, class P> BARACUDA_D norm::Centre<acc_t<T>> latent_norm(const P& p, const T* latent) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>, STEP = warp_size * V;
  const int lane = lane_id(), d_latent = p.d_latent;
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
  return norm;
}

// Column d of the latent, normalised.
template <class T, class P>
BARACUDA_D acc_t<T> normalised(const P& p, const norm::Centre<acc_t<T>>& norm, acc_t<T> x, int d) {
  return x * norm.scale * norm.rstd * norm::affine_at<T>(p.weight, d * p.weight_stride, p.wide_weight);
}

// Writes a token's rotated columns; `place` is its position unless p.positions has others.
template <class T, class P> BARACUDA_D void append_rope(const P& p, u64 t, u64 place, T* out) {
  using A = acc_t<T>;
  const int lane = lane_id();
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
    out[first] = from_acc<T>(math::fma(a, cosine, -(b * sine)));
    out[second] = from_acc<T>(math::fma(b, cosine, a * sine));
  }
}

}  // namespace baracuda
