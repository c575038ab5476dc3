#pragma once
// window     y[n, o] = finish(combine over the elements x[n, i] of window o); geometry in schedules/window.py.
//
// Up to three spatial axes (those an op lacks have extent 1) and any batch axes. Along an axis window o holds the
// positions o * stride - padding + k * dilation, 0 <= k < kernel, that exist; *adaptive* windows hold the positions
// floor(o * in / out) up to ceil((o + 1) * in / out). P holds the fields of `schedules/window.py: window_params`.
//
//   window_points<VEC>   a thread makes one output of VEC neighbouring batch elements (channels last: 16-byte accesses).
//                        VEC = 1 takes any strides.
//   window_tile<VEC>     x is contiguous along the last spatial axis: a block copies the rows that its outputs need to
//                        shared memory, VEC elements an access and each element once, and combines from there.
//   window_backward      the way back: a thread makes elements of dx from the windows that hold them, each window's part
//                        after the other in row-major order; no atomics.
//
// The elements of a window are combined one after the other in row-major order, whatever kernel does it: neither layout
// nor alignment changes a bit. A functor F has
//   element, State<I>, passes   the type of x, what is kept for one output, how often the window is read
//   begin(state)                before the first element
//   add<PASS>(state, x, place)  the element x at the row-major place of the spatial axes
//   put<N>(p, offset, states, windows)   write N outputs; offset[n] is the place of the first in operand n
// and is made from the parameters; a functor G of the way back has
//   element, Part<M>            the type of x, what M neighbouring windows hand back
//   read<M>(p, offset, windows) that part
//   own<N>(p, offset)           what N elements of x add to it themselves
//   slope(part, m, own, n, place)   what window m hands to element n, which lies at `place`
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int window_loads = 4;  // elements of a row, or chunks of a tile, that a thread has in flight

// One window along one axis: positions start + k * step for first <= k < last. `taps` counts the padding's, too, as far
// as it reaches; `reach` is the distance from the first position to behind the last one, existing or not.
template <class I> struct Window {
  I start, first, last, step, taps, reach;
};

template <class I, class P> BARACUDA_D Window<I> window_of(const P& p, int axis, I o) {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const I in = static_cast<I>(p.in_extent[axis]);
  Window<I> w;
  w.first = 0;
  if (p.adaptive) {
    const U out = static_cast<U>(p.out_extent[axis]);
    w.start = static_cast<I>(static_cast<U>(o) * static_cast<U>(in) / out);
    w.last = static_cast<I>((static_cast<U>(o + 1) * static_cast<U>(in) + out - 1) / out) - w.start;
    w.step = 1;
    w.taps = w.reach = w.last;
    return w;
  }
  const I kernel = static_cast<I>(p.kernel[axis]), padding = static_cast<I>(p.padding[axis]);
  w.step = static_cast<I>(p.dilation[axis]);
  w.start = o * static_cast<I>(p.stride[axis]) - padding;
  w.reach = (kernel - 1) * w.step + 1;
  const I before = w.start < 0 ? -w.start : 0, inside = in - w.start, beyond = inside + padding;
  if (w.step == 1) {
    w.first = before, w.last = min(kernel, inside), w.taps = min(kernel, beyond);
  } else {
    w.first = div_up(before, w.step), w.last = min(kernel, div_up(inside, w.step));
    w.taps = min(kernel, div_up(beyond, w.step));
  }
  return w;
}

// Places of a window, with those of the padding or without.
template <class I> BARACUDA_D i64 window_size(const Window<I> (&w)[3], bool with_padding) {
  i64 size = 1;
#pragma unroll
  for (int a = 0; a < 3; ++a) size *= with_padding ? w[a].taps : max(w[a].last - w[a].first, I(0));
  return size;
}

// ---- where a thread works -------------------------------------------------------------------------------------------

// Item number → chunk of the inner batch axis (fastest), the three coordinates of `points`, the other batch axes.
template <class I, int N> struct WindowItem {
  I at[3];
  I offset[N];  // of the batch axes alone, in elements
};
template <class I, int N, class P> BARACUDA_D WindowItem<I, N> window_item(const P& p, i64 item) {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  WindowItem<I, N> found;
  U chunk, at[3], rest = divmod(static_cast<U>(item), p.dividers[3], p.inner, chunk);
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    rest = divmod(rest, p.dividers[a], p.points[a], at[a]);
    found.at[a] = static_cast<I>(at[a]);
  }
  offsets<I, N>(static_cast<I>(rest), p.batch_rank, p.batch_shape, p.batch, found.offset);
#pragma unroll
  for (int n = 0; n < N; ++n) found.offset[n] += static_cast<I>(chunk) * static_cast<I>(p.inner_strides[n]);
  return found;
}

// Offset of the position `at` of the spatial axes in operand n.
template <class I, class P> BARACUDA_D I space_offset(const P& p, int n, I a, I b, I c) {
  return a * static_cast<I>(p.space[n][0]) + b * static_cast<I>(p.space[n][1]) + c * static_cast<I>(p.space[n][2]);
}

// Stores N neighbours of operand n: in one access where they lie together.
template <int N, class T, class P> BARACUDA_D void put_neighbours(const P& p, int n, T* to, const Vec<T, N>& x) {
  if (N == 1 || p.together >> n & 1) store(to, x);
  else store_strided(to, static_cast<i64>(p.lane_strides[n]), x, N);
}

// ---- combining ------------------------------------------------------------------------------------------------------

// One pass over a window of N neighbouring outputs: x points to position (0, 0, 0), whose row-major place is `origin`;
// steps[a] is the way to the next position of axis a, in[a] its extent.
template <int PASS, class F, class State, int N, class I>
BARACUDA_D void window_pass(const F& f, const Window<I> (&w)[3], const I (&in)[3], I origin,
                            const typename F::element* x, const I (&steps)[3], State (&state)[N]) {
  using T = typename F::element;
  for (I k0 = w[0].first; k0 < w[0].last; ++k0) {
    const I a = w[0].start + k0 * w[0].step;
    for (I k1 = w[1].first; k1 < w[1].last; ++k1) {
      const I b = w[1].start + k1 * w[1].step;
      const T* row = x + (a * steps[0] + b * steps[1]);
      const I place = origin + (a * in[1] + b) * in[2];
      for (I k2 = w[2].first; k2 < w[2].last; k2 += window_loads) {
        Vec<T, N> v[window_loads];
#pragma unroll
        for (int u = 0; u < window_loads; ++u) {
          if (k2 + u < w[2].last) v[u] = load<N>(row + (w[2].start + (k2 + u) * w[2].step) * steps[2]);
        }
#pragma unroll
        for (int u = 0; u < window_loads; ++u) {
          if (k2 + u >= w[2].last) break;
          const I c = w[2].start + (k2 + u) * w[2].step;
#pragma unroll
          for (int n = 0; n < N; ++n) f.template add<PASS>(state[n], v[u][n], place + c);
        }
      }
    }
  }
}
template <class F, class State, int N, class I>
BARACUDA_D void window_combine(const F& f, const Window<I> (&w)[3], const I (&in)[3], I origin,
                               const typename F::element* x, const I (&steps)[3], State (&state)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) f.begin(state[n]);
  window_pass<0>(f, w, in, origin, x, steps, state);
  if constexpr (F::passes == 2) window_pass<1>(f, w, in, origin, x, steps, state);
}

// ---- any strides ----------------------------------------------------------------------------------------------------

// Operand 0 is x; the functor knows the others, N - 1 over the grid of windows.
template <class F, int VEC, class I, int N, class P> BARACUDA_D void window_points(const P& p, const F& f) {
  using T = typename F::element;
  const i64 item = static_cast<i64>(blockIdx.x) * window_threads + threadIdx.x;
  if (item >= p.items) return;
  auto found = window_item<I, N>(p, item);
  Window<I> w[3];
  I in[3], steps[3];
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    w[a] = window_of(p, a, found.at[a]);
    in[a] = static_cast<I>(p.in_extent[a]), steps[a] = static_cast<I>(p.space[0][a]);
  }
  typename F::template State<I> state[VEC];
  window_combine(f, w, in, I(0), static_cast<const T*>(p.x) + found.offset[0], steps, state);
#pragma unroll
  for (int n = 1; n < N; ++n) found.offset[n] += space_offset(p, n, found.at[0], found.at[1], found.at[2]);
  f.template put<VEC>(p, found.offset, state, w);
}

// ---- rows through shared memory -------------------------------------------------------------------------------------

// A block makes tile_out[a] outputs along each axis of `planes` planes. Its copy of x has tile_in[a] positions an axis,
// from low[a] on; along the last axis `low` is a multiple of VEC, and rows are whole chunks. Numbers of positions and of
// places in a plane are below 2^31.
template <class F, int VEC, int N, class P> BARACUDA_D void window_tile(const P& p, const F& f) {
  using T = typename F::element;
  BARACUDA_DYNAMIC_SMEM(T, tile);
  u32 block = blockIdx.x;
  int first[3], low[3], left[3],
      in[3];  // the first output, the first position, the positions that are there from it on
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    u32 part;
    block = divmod(block, p.tiles[a], 0, part);
    first[a] = static_cast<int>(part) * p.tile_out[a];
    in[a] = static_cast<int>(p.in_extent[a]);
    const int last = min(first[a] + p.tile_out[a], static_cast<int>(p.out_extent[a])) - 1;
    const Window<int> one = window_of(p, a, first[a]), other = window_of(p, a, last);
    low[a] = max(one.start, 0);
    if (a == 2) low[a] = low[a] / VEC * VEC;
    left[a] = min(other.start + other.reach, in[a]) - low[a];
  }
  const i64 plane = static_cast<i64>(block) * p.planes;
  const int end = p.planes * p.tile_in[0] * p.tile_in[1] * (p.tile_in[2] / VEC);
  for (int item = threadIdx.x; item < end; item += window_threads * window_loads) {
    Vec<T, VEC> v[window_loads];
    bool some[window_loads];
#pragma unroll
    for (int u = 0; u < window_loads; ++u) {
      u32 a, b, c, rest = divmod(static_cast<u32>(item + u * window_threads), p.tile_by[0], 0, c);
      rest = divmod(divmod(rest, p.tile_by[1], 0, b), p.tile_by[2], 0, a);
      const int at[3] = {static_cast<int>(a), static_cast<int>(b), static_cast<int>(c) * VEC};
      some[u] = item + u * window_threads < end && plane + rest < p.batch_count;
#pragma unroll
      for (int n = 0; n < 3; ++n) some[u] = some[u] && at[n] < left[n];
      if (some[u]) {
        i64 from[1];
        offsets<i64, 1>(plane + rest, p.batch_rank, p.batch_shape, p.batch, from);
        from[0] += space_offset<i64>(p, 0, low[0] + at[0], low[1] + at[1], low[2] + at[2]);
        v[u] = load<VEC>(static_cast<const T*>(p.x) + from[0]);
      }
    }
#pragma unroll
    for (int u = 0; u < window_loads; ++u) {
      if (some[u]) store(tile + (item + u * window_threads) * VEC, v[u]);
    }
  }
  __syncthreads();

  const int steps[3] = {p.tile_in[1] * p.tile_in[2], p.tile_in[2], 1};
  const int outputs = p.planes * p.tile_out[0] * p.tile_out[1] * p.tile_out[2];
  for (int item = threadIdx.x; item < outputs; item += window_threads) {
    u32 rest = static_cast<u32>(item);
    int at[3], origin = 0;
    Window<int> w[3];
    bool some = true;
#pragma unroll
    for (int a = 2; a >= 0; --a) {
      u32 c;
      rest = divmod(rest, p.tile_by[3 + a], 0, c);
      at[a] = first[a] + static_cast<int>(c);
      some = some && at[a] < p.out_extent[a];
    }
    if (!some || plane + rest >= p.batch_count) continue;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      w[a] = window_of(p, a, at[a]);
      w[a].start -= low[a];  // positions of the tile
      origin = origin * in[a] + low[a];
    }
    typename F::template State<int> state[1];
    window_combine(f, w, in, origin, tile + static_cast<int>(rest) * p.tile_in[0] * steps[0], steps, state);
    i64 offset[N];
    offsets<i64, N>(plane + rest, p.batch_rank, p.batch_shape, p.batch, offset);
#pragma unroll
    for (int n = 1; n < N; ++n) offset[n] += space_offset<i64>(p, n, at[0], at[1], at[2]);
    f.template put<1>(p, offset, state, w);
  }
}

// Which launch it is: a policy of the page's kernels.
template <int VEC, class I> struct Points {
  template <class F, int N, class P> static BARACUDA_D void run(const P& p) { window_points<F, VEC, I, N>(p, F(p)); }
};
template <int VEC> struct Tile {
  template <class F, int N, class P> static BARACUDA_D void run(const P& p) { window_tile<F, VEC, N>(p, F(p)); }
};
// Combine with F, which is made from p; N operands, x first.
template <class F, int N, class L, class P> BARACUDA_D void window(const P& p) { L::template run<F, N>(p); }

// ---- the way back ---------------------------------------------------------------------------------------------------

// The windows [first, last) of an axis between whose first and last position `at` lies.
template <class I> struct Covering {
  I first, last;
};
template <class I, class P> BARACUDA_D Covering<I> windows_over(const P& p, int axis, I at) {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  const I out = static_cast<I>(p.out_extent[axis]);
  if (p.adaptive) {
    const U in = static_cast<U>(p.in_extent[axis]);
    return {static_cast<I>(static_cast<U>(at) * static_cast<U>(out) / in),
            static_cast<I>((static_cast<U>(at + 1) * static_cast<U>(out) + in - 1) / in)};
  }
  const I stride = static_cast<I>(p.stride[axis]), from = at + static_cast<I>(p.padding[axis]);
  const I reach = static_cast<I>(p.kernel[axis] - 1) * static_cast<I>(p.dilation[axis]) + 1;
  return {from < reach ? 0 : (from - reach) / stride + 1, min(out, from / stride + 1)};
}
// Whether the window has the position `at`.
template <class I> BARACUDA_D bool holds(const Window<I>& w, I at) {
  const I distance = at - w.start;
  return distance >= 0 && distance < w.reach && (w.step == 1 || distance % w.step == 0);
}

// Operands 0 … OWN - 1 lie over x, the first being dx, the others up to N over the windows. ACROSS: VEC neighbours along
// the inner batch axis, each with windows of its own; else VEC neighbours along the last spatial axis, which share them.
template <class G, int VEC, bool ACROSS, class I, int OWN, int N, class P>
BARACUDA_D void window_backward(const P& p, const G& g) {
  using T = typename G::element;
  using A = acc_t<T>;
  constexpr int READ = ACROSS ? VEC : 1, LOADS = 2;
  const i64 item = static_cast<i64>(blockIdx.x) * window_threads + threadIdx.x;
  if (item >= p.items) return;
  auto found = window_item<I, N>(p, item);
  if (!ACROSS) found.at[2] *= VEC;
  const I(&at)[3] = found.at;
#pragma unroll
  for (int n = 0; n < OWN; ++n) found.offset[n] += space_offset(p, n, at[0], at[1], at[2]);
  const I place = (at[0] * static_cast<I>(p.in_extent[1]) + at[1]) * static_cast<I>(p.in_extent[2]) + at[2];
  const auto own = g.template own<VEC>(p, found.offset);
  const Covering<I> r0 = windows_over(p, 0, at[0]), r1 = windows_over(p, 1, at[1]), low = windows_over(p, 2, at[2]);
  const I end = ACROSS ? low.last : windows_over(p, 2, at[2] + (VEC - 1)).last;
  Vec<A, VEC> sum;
#pragma unroll
  for (int n = 0; n < VEC; ++n) sum[n] = A(0);
  for (I o0 = r0.first; o0 < r0.last; ++o0) {
    Window<I> w[LOADS][3];
    w[0][0] = window_of(p, 0, o0);
    if (!holds(w[0][0], at[0])) continue;
    for (I o1 = r1.first; o1 < r1.last; ++o1) {
      w[0][1] = window_of(p, 1, o1);
      if (!holds(w[0][1], at[1])) continue;
      for (I o2 = low.first; o2 < end; o2 += LOADS) {
        typename G::template Part<READ> part[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; ++u) {
          w[u][0] = w[0][0], w[u][1] = w[0][1], w[u][2] = window_of(p, 2, min(o2 + u, end - 1));
          if (o2 + u < end) {
            I offset[N];
#pragma unroll
            for (int n = OWN; n < N; ++n) offset[n] = found.offset[n] + space_offset(p, n, o0, o1, o2 + u);
            part[u] = g.template read<READ>(p, offset, w[u]);
          }
        }
#pragma unroll
        for (int u = 0; u < LOADS; ++u) {
          if (o2 + u >= end) break;
#pragma unroll
          for (int n = 0; n < VEC; ++n) {
            const int beside = ACROSS ? 0 : n;
            if (holds(w[u][2], at[2] + beside)) {
              sum[n] += g.slope(part[u], ACROSS ? n : 0, own, n, static_cast<i64>(place + beside));
            }
          }
        }
      }
    }
  }
  store(static_cast<T*>(p.dx) + found.offset[0], from_acc<T>(sum));
}

}  // namespace baracuda
