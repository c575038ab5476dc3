// channel_norm_held   channel_norm of groups of channels, or of channels, whose row fits the shared memory of a block: x is
//                     read once, in one launch, with the bits of channel_norm.cu. See held.cuh.
#include "norm/held.cuh"
#include "reduce/spread.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void channel_norm_held(const P& p) {
  using A = acc_t<T>;
  using K = kinds::MeanSpread<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(kinds::Spread, states);  // of each segment, then of each channel; the row follows
  __shared__ norm::Centre<A> centre;
  const int members = p.members, chunks = p.chunks;
  T* const row = reinterpret_cast<T*>(states + members * p.segments);
  const i64 at = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (at >= p.rows) return;
  const i64 n = at / p.groups, g = at % p.groups;
  const T* const x = static_cast<const T*>(p.x) + n * p.x_strides[0] + g * p.x_strides[1];
  T* const y = static_cast<T*>(p.y) + n * p.y_strides[0] + g * p.y_strides[1];

  Vec<T, V> v[lane_chunks];
  norm::held_states<K>(
      p, states, [&](int j, int channel, int c) { v[j] = load<V>(x + channel * p.x_strides[2] + c * V); },
      [&](auto& sum, int j, int channel, int c) {
        store(row + (channel * chunks + c) * V, v[j]);
        sum.add(cast_vec<A>(v[j]), V, static_cast<i64>(c) * V);
      });
  if (threadIdx.x < warp_size) {  // as `fold`
    kinds::Spread s = K::empty();
    for (int k = lane_id() & (p.lanes - 1); k < members; k += p.lanes) s = K::merge(s, states[k * p.segments]);
    s = merge_lanes<K>(s, p.lanes);
    if (threadIdx.x == 0) {
      const double variance = s.m2 / s.n, rstd = 1.0 / math::sqrt(variance + p.eps);
      centre = norm::centre_of<A>(s.base, s.offset, rstd);
      if (p.mean != nullptr) static_cast<A*>(p.mean)[at] = static_cast<A>(s.base);
      if (p.rstd != nullptr) static_cast<A*>(p.rstd)[at] = static_cast<A>(rstd);
      if (p.var != nullptr) static_cast<A*>(p.var)[at] = static_cast<A>(variance);
    }
  }
  __syncthreads();
  const norm::Centre<A> c = centre;
  A w, b;
  norm::held_chunks(
      p,
      [&](int channel) {
        const i64 place = g * members + channel;
        w = p.weight == nullptr ? A(1) : norm::affine_at<T>(p.weight, place * p.weight_stride, p.wide);
        b = p.bias == nullptr ? A(0) : norm::affine_at<T>(p.bias, place * p.bias_stride, p.wide);
      },
      [&](int channel, int chunk) {
        Vec<A, V> z = to_acc(load<V>(row + (channel * chunks + chunk) * V));
#pragma unroll
        for (int k = 0; k < V; ++k) z[k] = math::fma((math::fma(z[k], c.scale, -c.mean) - c.low) * c.rstd, w, b);
        store(y + channel * p.y_strides[2] + chunk * V, from_acc<T>(z));
      });
}

}  // namespace baracuda
