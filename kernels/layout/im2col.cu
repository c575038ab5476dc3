// im2col     y[n, c, k, o] = x[n, c, o · stride + k · dilation - padding], 0 outside; its gradient adds up. No atomics.
//
// Three spatial axes, of which the first may have extent 1: of k the place in a window, of o the window.
// im2col    a thread makes V windows that follow one another, or four elements of any strides.
// col2im    a thread makes an element: it sums over the places in a window, the last axis moving fastest, those
//           windows that have the element there.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/wanted.cuh>

namespace baracuda {

// V windows that follow one another from element e of the columns on. U holds every count and index.
template <int BYTES, int V, class U, class P> BARACUDA_D void im2col_windows(const P& p, i64 e) {
  using W = Word<BYTES>;
  using I = conditional<sizeof(U) == 4, i32, i64>;
  U o[3], k[3], c, rest = static_cast<U>(e);
#pragma unroll
  for (int a = 2; a >= 0; --a) rest = divmod(rest, p.dividers[a], p.windows[a], o[a]);
#pragma unroll
  for (int a = 2; a >= 0; --a) rest = divmod(rest, p.dividers[3 + a], p.kernel[a], k[a]);
  const U n = divmod(rest, p.dividers[6], p.channels, c);
  const U windows[2] = {static_cast<U>(p.windows[1]), static_cast<U>(p.windows[2])};
  const U kernel[2] = {static_cast<U>(p.kernel[1]), static_cast<U>(p.kernel[2])};
  const U row = ((c * static_cast<U>(p.kernel[0]) + k[0]) * kernel[0] + k[1]) * kernel[1] + k[2];
  const U column = (o[0] * windows[0] + o[1]) * windows[1] + o[2];
  W* const y = static_cast<W*>(p.y) + static_cast<i64>(n) * p.y_steps[0] + static_cast<i64>(row) * p.y_steps[1] +
               static_cast<i64>(column) * p.y_steps[2];
  const W* const x =
      static_cast<const W*>(p.x) + static_cast<i64>(n) * p.x_steps[0] + static_cast<i64>(c) * p.x_steps[1];
  const auto index = [&](int a) {
    return static_cast<I>(o[a]) * static_cast<I>(p.stride[a]) + static_cast<I>(k[a]) * static_cast<I>(p.dilation[a]) -
           static_cast<I>(p.padding[a]);
  };
  const auto has = [&](int a, I i) { return static_cast<U>(i) < static_cast<U>(p.extent[a]); };
  // Of the windows after the first one only the last axis moves, but at the end of a row.
  I l = index(2);
  bool inside;
  const W* from;
  const auto begin_row = [&] {
    const I i = index(0), j = index(1);
    inside = has(0, i) && has(1, j);
    from = x + static_cast<i64>(i) * p.x_steps[2] + static_cast<i64>(j) * p.x_steps[3] +
           static_cast<i64>(l) * p.x_steps[4];
  };
  begin_row();
  const i64 step = p.stride[2] * p.x_steps[4];
  W word[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    load_wanted(word[v], from, inside && has(2, l));
    l += static_cast<I>(p.stride[2]), from += step;
    if (v + 1 < V && ++o[2] == windows[1]) {
      o[2] = 0;
      if (++o[1] == windows[0]) o[1] = 0, ++o[0];
      l = index(2);
      begin_row();
    }
  }
  Vec<W, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = word[v];
  store_streaming(y, out);
}

template <int BYTES, int V, class P> BARACUDA_D void im2col(const P& p) {
  constexpr int items = V > 1 ? 1 : 4;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * items) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < items; ++u) {
    const i64 e = (first + u * map_threads) * V;
    if (e >= p.count) break;
    if (p.narrow) im2col_windows<BYTES, V, u32>(p, e);
    else im2col_windows<BYTES, V, u64>(p, e);
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
