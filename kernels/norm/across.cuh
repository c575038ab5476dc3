#pragma once
// across     y of x whose channels lie last: a thread has a chunk of channels and walks down rows, so that what belongs to its
//            channels is read once, into registers. P has the fields of `schedules/channels.py: across_params`.
#include <baracuda/vector.cuh>

namespace baracuda::norm {

// begin(n, channel) reads what belongs to the chunk of channels from `channel` on in sample n; f makes a chunk of `to` from
// those of N arrays. `p.across` threads, a power of two, lie side by side in a row.
template <class T, int N, class P, class Begin, class F>
BARACUDA_D void across(const P& p, const T* const (&from)[N], T* to, const Begin& begin, const F& f) {
  constexpr int V = vec_elems<T>, depth = 4;
  const int shift = 31 - __clz(p.across), step = across_threads >> shift;
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, rest = block / p.tiles;
  const i64 n = rest / p.parts, channel = (block % p.tiles * p.across + (threadIdx.x & (p.across - 1))) * V;
  if (n >= p.samples || channel >= p.channels) return;
  begin(n, channel);
  const i64 start = rest % p.parts * p.span, end = min(p.rows, start + p.span);
  const T* x[N];
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = from[i] + n * p.steps[i][0] + channel;
  T* const y = to + n * p.steps[N][0] + channel;
#pragma unroll 1
  for (i64 row = start + (threadIdx.x >> shift); row < end; row += depth * step) {
    Vec<T, V> in[depth][N];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      const i64 at = min(row + d * step, end - 1);  // for a row past the end the last one: no branch between loads
#pragma unroll
      for (int i = 0; i < N; ++i) in[d][i] = load<V>(x[i] + at * p.steps[i][1]);
    }
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      const Vec<T, V> out = f(in[d]);
      store_whole(y + (row + d * step) * p.steps[N][1], reinterpret_cast<const uint4&>(out), row + d * step < end);
    }
  }
}

// f(k, at) for V channels from `channel` on, `at` the place of the statistic of channel + k in sample n.
template <int V, class P, class F> BARACUDA_D void each_statistic(const P& p, i64 n, i64 channel, const F& f) {
  i64 at = n * p.groups + channel / p.members, left = p.members - channel % p.members;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    f(k, at);
    if (--left == 0) ++at, left = p.members;
  }
}

// What `from`, a weight or a bias, has for those channels, `absent` where it is null.
template <class T, class P>
BARACUDA_D Vec<acc_t<T>, vec_elems<T>> affine_chunk(const P& p, const void* from, i64 channel, i64 step,
                                                    acc_t<T> absent) {
  constexpr int V = vec_elems<T>;
  if (from == nullptr) {
    Vec<acc_t<T>, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = absent;
    return out;
  }
  if constexpr (is_half<T>) {
    if (p.wide) return load_strided<float, V>(static_cast<const float*>(from) + channel * step, step, V);
  }
  return to_acc(load_strided<T, V>(static_cast<const T*>(from) + channel * step, step, V));
}

}  // namespace baracuda::norm
