// channel_norm_held_backward   channel_norm_backward of rows that fit the shared memory of a block with their dy: both are
//                              read once, with the bits of channel_norm_backward.cu. See held.cuh.
//
// What weight and bias take of a channel goes to the workspace, where `fold` of channel_norm_backward.cu adds the samples.
#include "norm/channel_norm_backward.cu"
#include "norm/held.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void channel_norm_held_backward(const P& p) {
  using A = acc_t<T>;
  using K = kinds::Sum<complex<A>>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(complex<A>, states);
  __shared__ A means[2];
  const int members = p.members, chunks = p.chunks, segments = p.segments;
  T* const held_dy = reinterpret_cast<T*>(states + round_up(members * segments, 2));
  T* const held_x = held_dy + members * chunks * V;
  const i64 at = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (at >= p.rows) return;
  const i64 n = at / p.groups, g = at % p.groups;
  const T* const dy = static_cast<const T*>(p.dy) + n * p.dy_strides[0] + g * p.dy_strides[1];
  const T* const x = static_cast<const T*>(p.x) + n * p.x_strides[0] + g * p.x_strides[1];
  T* const dx = static_cast<T*>(p.dx) + n * p.dx_strides[0] + g * p.dx_strides[1];
  const A mean = static_cast<const A*>(p.mean)[at], rstd = static_cast<const A*>(p.rstd)[at];
  const auto weight = [&](int channel) {
    return p.weight == nullptr ? A(1) : norm::affine_at<T>(p.weight, (g * members + channel) * p.weight_stride, p.wide);
  };

  Vec<T, V> from[lane_chunks], v[lane_chunks];
  norm::held_states<K>(
      p, states,
      [&](int j, int channel, int c) {
        from[j] = load<V>(dy + channel * p.dy_strides[2] + c * V), v[j] = load<V>(x + channel * p.x_strides[2] + c * V);
      },
      [&](auto& sum, int j, int channel, int c) {
        store(held_dy + (channel * chunks + c) * V, from[j]);
        store(held_x + (channel * chunks + c) * V, v[j]);
        Vec<complex<A>, V> both;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const A d = to_acc(from[j][k]);
          both[k] = {d, d * ((to_acc(v[j][k]) - mean) * rstd)};
        }
        sum.add(both, V, static_cast<i64>(c) * V);
      });
  if (p.partials != nullptr) {
    complex<A>* const partials = static_cast<complex<A>*>(p.partials) + at * members;
    for (int k = threadIdx.x; k < members; k += blockDim.x) partials[k] = states[k * segments];
  }
  if (threadIdx.x < warp_size) {  // as `fold`
    double a = 0, b = 0;
    for (int k = lane_id() & (p.lanes - 1); k < members; k += p.lanes) {
      const complex<A> partial = states[k * segments];
      const double w = weight(k);
      a += w * static_cast<double>(partial.re), b += w * static_cast<double>(partial.im);
    }
    a = norm::lanes_sum(a, p.lanes), b = norm::lanes_sum(b, p.lanes);
    if (threadIdx.x == 0) means[0] = static_cast<A>(a * p.inverse), means[1] = static_cast<A>(b * p.inverse);
  }
  __syncthreads();
  const A shift = means[0], slope = means[1];
  A w;
  norm::held_chunks(
      p, [&](int channel) { w = weight(channel); },
      [&](int channel, int chunk) {
        const Vec<A, V> d = to_acc(load<V>(held_dy + (channel * chunks + chunk) * V));
        const Vec<A, V> z = to_acc(load<V>(held_x + (channel * chunks + chunk) * V));
        Vec<A, V> out;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          out[k] = math::fma(-((z[k] - mean) * rstd), slope, d[k] * w - shift) * rstd;
        }
        store(dx + channel * p.dx_strides[2] + chunk * V, from_acc<T>(out));
      });
}

}  // namespace baracuda
