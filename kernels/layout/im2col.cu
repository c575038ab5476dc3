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

// Element e of the image. Three places along the last axis are on their way at once: loads without a branch, of which
// those that are no window's give 0. U holds every count and index.
template <class T, class U, class P> BARACUDA_D void col2im_element(const P& p, i64 e) {
  using A = acc_t<T>;
  using I = conditional<sizeof(U) == 4, i32, i64>;
  U i[3], c, rest = static_cast<U>(e);
#pragma unroll
  for (int a = 2; a >= 0; --a) rest = divmod(rest, p.dividers[a], p.extent[a], i[a]);
  const i64 n = static_cast<i64>(divmod(rest, p.dividers[6], p.channels, c));
  // Whether a window has the element at place k of axis a, and which one.
  const auto window = [&](int a, i64 k, U& o) {
    const I from =
        static_cast<I>(i[a]) + static_cast<I>(p.padding[a]) - static_cast<I>(k) * static_cast<I>(p.dilation[a]);
    U off;
    o = divmod(static_cast<U>(from), p.dividers[3 + a], p.stride[a], off);
    return from >= 0 && off == 0 && o < static_cast<U>(p.windows[a]);
  };
  const T* row = static_cast<const T*>(p.y) + n * p.y_steps[0] +
                 static_cast<i64>(c) * p.kernel[0] * p.kernel[1] * p.kernel[2] * p.y_steps[1];
  A sum = A(0);
#pragma unroll 1
  for (i64 k0 = 0; k0 < p.kernel[0]; ++k0) {
    U o0;
    const bool plane = window(0, k0, o0);
#pragma unroll 1
    for (i64 k1 = 0; k1 < p.kernel[1]; ++k1, row += p.kernel[2] * p.y_steps[1]) {
      U o1;
      if (!plane || !window(1, k1, o1)) continue;
      const T* const from = row + (static_cast<i64>(o0) * p.windows[1] + o1) * p.windows[2] * p.y_steps[2];
#pragma unroll 1
      for (i64 k2 = 0; k2 < p.kernel[2]; k2 += 3) {
        Packed<T, 1> one[3];
#pragma unroll
        for (int u = 0; u < 3; ++u) {
          U o2;
          const bool there = window(2, k2 + u, o2) && k2 + u < p.kernel[2];
          one[u].load_if(from + (k2 + u) * p.y_steps[1] + static_cast<i64>(o2) * p.y_steps[2], there);
        }
#pragma unroll
        for (int u = 0; u < 3; ++u) sum = sum + to_acc(one[u].unpacked()[0]);
      }
    }
  }
  T* x = static_cast<T*>(p.x) + n * p.x_steps[0] + static_cast<i64>(c) * p.x_steps[1];
  x[i[0] * p.x_steps[2] + i[1] * p.x_steps[3] + i[2] * p.x_steps[4]] = from_acc<T>(sum);
}

template <class T, class P> BARACUDA_D void col2im(const P& p) {
  const i64 e = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.count) return;
  if (p.narrow) col2im_element<T, u32>(p, e);
  else col2im_element<T, u64>(p, e);
}

}  // namespace baracuda
