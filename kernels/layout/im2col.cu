// im2col     y[n, c, k, o] = x[n, c, o · stride + k · dilation - padding], 0 outside; its gradient adds up. No atomics.
//
// Three spatial axes, of which the first may have extent 1: of k the place in a window, of o the window.
// im2col    a thread makes V windows that follow one another, or four elements of any strides.
// col2im    a thread makes an element: it sums over the places in a window, the last axis moving fastest, those
//           windows that have the element there.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

// The spatial index of a place in a window, less than 0 or beyond the extent where it lies in the padding.
template <class P> BARACUDA_D i64 window_index(const P& p, int a, i64 window, i64 place) {
  return window * p.stride[a] + place * p.dilation[a] - p.padding[a];
}

template <int BYTES, int V, class P> BARACUDA_D void im2col(const P& p) {
  using W = Word<BYTES>;
  constexpr int items = V > 1 ? 1 : 4;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * items) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < items; ++u) {
    const i64 e = (first + u * map_threads) * V;
    if (e >= p.count) break;
    u64 o[3], k[3], c, rest = static_cast<u64>(e);
#pragma unroll
    for (int a = 2; a >= 0; --a) rest = divmod(rest, static_cast<u64>(p.windows[a]), o[a]);
    const i64 at = (o[0] * p.windows[1] + o[1]) * p.windows[2] + o[2];
#pragma unroll
    for (int a = 2; a >= 0; --a) rest = divmod(rest, static_cast<u64>(p.kernel[a]), k[a]);
    const i64 n = static_cast<i64>(divmod(rest, static_cast<u64>(p.channels), c));
    const i64 row = ((static_cast<i64>(c) * p.kernel[0] + k[0]) * p.kernel[1] + k[1]) * p.kernel[2] + k[2];
    const W* x = static_cast<const W*>(p.x) + n * p.x_steps[0] + static_cast<i64>(c) * p.x_steps[1];
    Vec<W, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      out[v] = W{};
      const i64 i = window_index(p, 0, o[0], k[0]), j = window_index(p, 1, o[1], k[1]),
                l = window_index(p, 2, o[2], k[2]);
      if (i >= 0 && i < p.extent[0] && j >= 0 && j < p.extent[1] && l >= 0 && l < p.extent[2]) {
        out[v] = x[i * p.x_steps[2] + j * p.x_steps[3] + l * p.x_steps[4]];
      }
      if (V > 1 && ++o[2] == p.windows[2]) {
        o[2] = 0;
        if (++o[1] == p.windows[1]) o[1] = 0, ++o[0];
      }
    }
    store(static_cast<W*>(p.y) + n * p.y_steps[0] + row * p.y_steps[1] + at * p.y_steps[2], out);
  }
}

template <class T, class P> BARACUDA_D void col2im(const P& p) {
  using A = acc_t<T>;
  const i64 e = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.count) return;
  u64 i[3], c, rest = static_cast<u64>(e);
#pragma unroll
  for (int a = 2; a >= 0; --a) rest = divmod(rest, static_cast<u64>(p.extent[a]), i[a]);
  const i64 n = static_cast<i64>(divmod(rest, static_cast<u64>(p.channels), c));
  const T* y = static_cast<const T*>(p.y) + n * p.y_steps[0];
  // The window that has element i at place k of axis a; below 0 there is none.
  const auto window = [&](int a, i64 k) {
    const i64 from = static_cast<i64>(i[a]) + p.padding[a] - k * p.dilation[a];
    if (from < 0 || from % p.stride[a] != 0 || from / p.stride[a] >= p.windows[a]) return static_cast<i64>(-1);
    return from / p.stride[a];
  };
  A sum = A(0);
#pragma unroll 1
  for (i64 k0 = 0; k0 < p.kernel[0]; ++k0) {
    const i64 o0 = window(0, k0);
    if (o0 < 0) continue;
#pragma unroll 1
    for (i64 k1 = 0; k1 < p.kernel[1]; ++k1) {
      const i64 o1 = window(1, k1);
      if (o1 < 0) continue;
#pragma unroll 1
      for (i64 k2 = 0; k2 < p.kernel[2]; ++k2) {
        const i64 o2 = window(2, k2);
        if (o2 < 0) continue;
        const i64 row = ((static_cast<i64>(c) * p.kernel[0] + k0) * p.kernel[1] + k1) * p.kernel[2] + k2;
        const i64 at = (o0 * p.windows[1] + o1) * p.windows[2] + o2;
        sum = sum + to_acc(y[row * p.y_steps[1] + at * p.y_steps[2]]);
      }
    }
  }
  T* x = static_cast<T*>(p.x) + n * p.x_steps[0] + static_cast<i64>(c) * p.x_steps[1];
  x[i[0] * p.x_steps[2] + i[1] * p.x_steps[3] + i[2] * p.x_steps[4]] = from_acc<T>(sum);
}

}  // namespace baracuda
