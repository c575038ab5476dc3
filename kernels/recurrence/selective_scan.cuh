#pragma once
// selective_scan   what the kernels of Mamba's scan share: a thread's channel and states, a tile of time, a sum over states.
//
// A group of `lanes` lanes has a channel of a sequence, each of them NS of its states, n = lane + lanes k. A sum over
// states adds those of a lane in order, and the lanes as a tree. Time is walked eight steps at a time, from a multiple of
// eight on, also where sequences are packed: steps of others are passed over.
#include <baracuda/reduce.cuh>

#include "recurrence/selective_numbers.cuh"

namespace baracuda::selective {

// Eight steps, of which `left` exist; WHOLE: all do.
template <bool WIDE, bool WHOLE, class T>
BARACUDA_D Vec<T, steps> tile_at(const void* from, i64 offset, i64 step, i64 left) {
  const T* const p = static_cast<const T*>(from) + offset;
  if constexpr (WHOLE && WIDE) return load<steps>(p);
  else if constexpr (WHOLE) return load_strided<T, steps>(p, step, steps);
  else if constexpr (WIDE) return load_vec<T, steps, true>(p, left);
  else return load_strided<T, steps>(p, step, left);
}
template <bool WIDE, class T>
BARACUDA_D void put_tile(void* to, i64 offset, i64 step, const Vec<T, steps>& x, i64 left) {
  T* const p = static_cast<T*>(to) + offset;
  if constexpr (WIDE) store_vec<T, steps, true>(p, x, left);
  else store_strided(p, step, x, left);
}

// The sum over a channel's lanes; all lanes of the warp call, and each of the group gets it.
template <class A> BARACUDA_D A over_lanes(A x, int lanes) {
  for (int mask = 1; mask < lanes; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}
template <class A> BARACUDA_D void over_lanes(Vec<A, steps>& x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
    for (int s = 0; s < steps; ++s) x[s] += shuffle_xor(x[s], mask);
  }
}

// 1 / (1 + exp(-z)), z times it, and x times it, for 16-bit operands to about 2^-21.
template <class T, class A = acc_t<T>> BARACUDA_D A sigmoid_of(A z) {
  if constexpr (is_half<T>) return math::fast_rcp(1.0f + math::fast_exp2(z * -1.44269504f));
  else return A(1) / (A(1) + math::exp(-z));
}
template <class T, class A = acc_t<T>> BARACUDA_D A times_sigmoid(A x, A z) {
  if constexpr (is_half<T>) return x * sigmoid_of<T>(z);
  else return x / (A(1) + math::exp(-z));
}

// softplus of eight steps that all lanes of a channel have: of four or more, each makes two.
template <class A> BARACUDA_D Vec<A, steps> softplus_of(const Vec<A, steps>& x, int lanes) {
  Vec<A, steps> y;
  if (lanes < 4) {
#pragma unroll
    for (int s = 0; s < steps; ++s) y[s] = math::softplus(x[s]);
    return y;
  }
  const int own = static_cast<int>(threadIdx.x) & 3, first = static_cast<int>(threadIdx.x) & (warp_size - 4);
#pragma unroll
  for (int half = 0; half < steps; half += 4) {
    const A low = own & 1 ? x[half + 1] : x[half], high = own & 1 ? x[half + 3] : x[half + 2];
    const A made = math::softplus(own & 2 ? high : low);
#pragma unroll
    for (int s = 0; s < 4; ++s) y[half + s] = shuffle(made, first | s);
  }
  return y;
}

// Bound n: clamped to [0, length] and to the largest bound before it. All lanes of the warp call it.
template <class P> BARACUDA_D i64 settled(const P& p, i64 n) {
  i64 most = 0;
  for (i64 i = threadIdx.x & (warp_size - 1); i <= n; i += warp_size) {
    const i64 at = i * p.bound_step;
    const i64 bound = p.wide_bounds ? static_cast<const i64*>(p.bounds)[at] : static_cast<const i32*>(p.bounds)[at];
    most = max<i64>(most, min<i64>(bound, p.length));
  }
  for (int mask = 1; mask < warp_size; mask *= 2) most = max<i64>(most, shuffle_xor(most, mask));
  return most;
}

template <class T, int NS, bool COMPLEX> struct Channel {
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  i64 n, b, group, tile, d;  // n: the sequence, in item b of the batch
  i64 begin, end;            // its steps
  i64 gap;                   // of no sequence are steps 0 … begin - 1 and end … gap - 1 beside it
  int lane, row;             // among the channel's lanes; of the block's channels
  bool mine, known, there;   // known: there is such a sequence; there: or the first block has steps of none
  N a[NS];
  A skip, bias;

  template <class P> BARACUDA_D explicit Channel(const P& p) {
    const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, rest = block / p.tiles;
    const int i = static_cast<int>(threadIdx.x), rows = static_cast<int>(blockDim.x) / p.lanes;
    lane = i & (p.lanes - 1), row = i / p.lanes;
    tile = block % p.tiles, group = rest % p.groups, n = rest / p.groups;
    const i64 of_group = tile * rows + row;
    known = n < p.sequences;
    there = known || (n == 0 && p.bounds != nullptr);
    mine = there && of_group < p.per_group;
    d = mine ? group * p.per_group + of_group : 0;
    if (!known) n = 0;
    b = p.bounds == nullptr ? n : 0;
    begin = 0, end = p.length, gap = 0;
    if (p.bounds != nullptr) {
      begin = known ? settled(p, n) : p.length;
      end = known ? settled(p, n + 1) : p.length;
      gap = n == p.sequences - 1 ? p.length : 0;
    }
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      a[k] = has(p, k) ? number_at<A, COMPLEX>(p.a, d * p.a_strides[0] + state(p, k) * p.a_strides[1]) : N(A(0));
    }
    skip = mine && p.d != nullptr ? static_cast<const A*>(p.d)[d * p.d_step] : A(0);
    bias = mine && p.delta_bias != nullptr ? static_cast<const A*>(p.delta_bias)[d * p.bias_step] : A(0);
  }
  template <class P> BARACUDA_D int state(const P& p, int k) const { return lane + p.lanes * k; }
  template <class P> BARACUDA_D bool has(const P& p, int k) const { return mine && known && state(p, k) < p.states; }
  // Whether every lane has all of its states, so that tiles inside the sequence need no checks.
  template <class P> BARACUDA_D bool full(const P& p) const {
    return __ballot_sync(full_warp, mine && known && p.states == p.lanes * NS) == full_warp;
  }
  BARACUDA_D bool whole(i64 t) const { return t >= begin && t + steps <= end; }
  BARACUDA_D bool inside(i64 t) const { return t >= begin && t < end; }
  BARACUDA_D i64 first() const { return begin & ~static_cast<i64>(steps - 1); }
  // Where the states of this sequence are kept, one in `interval` steps: sequences have room for two more than they need.
  template <class P> BARACUDA_D i64 checkpoint(const P& p, i64 number, int interval) const {
    const i64 base = p.bounds == nullptr ? 0 : begin / interval + 2 * n;
    return ((b * p.dim + d) * p.chunks + base + number) * p.states;
  }
  // Eight steps from t on, of which those of other sequences stay as they are.
  template <bool WIDE> BARACUDA_D void put(void* to, const i64 (&strides)[3], i64 t, const Vec<T, steps>& x) const {
    const i64 offset = b * strides[0] + d * strides[1] + t * strides[2];
    if (t >= begin) {
      put_tile<WIDE, T>(to, offset, strides[2], x, end - t);
      return;
    }
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      if (inside(t + s)) static_cast<T*>(to)[offset + s * strides[2]] = x[s];
    }
  }
  // Zeros for the steps of no sequence, by the channel's lanes: those before the first, and after the last.
  template <class P> BARACUDA_D void clear(const P& p, void* to, const i64 (&strides)[3]) const {
    if (p.bounds == nullptr || !mine || to == nullptr) return;
    T* const x = static_cast<T*>(to) + b * strides[0] + d * strides[1];
    for (i64 t = lane; n == 0 && t < begin; t += p.lanes) x[t * strides[2]] = from_acc<T>(A(0));
    for (i64 t = end + lane; t < gap; t += p.lanes) x[t * strides[2]] = from_acc<T>(A(0));
  }
  // y + d u, where there is a d: without one an infinite u makes no NaN.
  template <class P> static BARACUDA_D A plus(const P& p, A y, A skip, A u) {
    return p.d != nullptr ? math::fma(skip, u, y) : y;
  }
  template <class P> BARACUDA_D A skipped(const P& p, A y, A u) const { return plus(p, y, skip, u); }
  // What precedes the first element.
  template <class P> BARACUDA_D void initial(const P& p, N (&h)[NS]) const {
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      h[k] = has(p, k) && p.initial_state != nullptr
                 ? number_at<A, COMPLEX>(p.initial_state, n * p.initial_strides[0] + d * p.initial_strides[1] +
                                                              state(p, k) * p.initial_strides[2])
                 : N(A(0));
    }
  }
};

// Eight steps of the operands. dt is delta after bias and softplus, raw before the latter. WHOLE: all of the sequence,
// and every lane has all of its states.
template <class T, int NS, bool COMPLEX, bool WIDE, bool WHOLE> struct Tile {
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  using C = Channel<T, NS, COMPLEX>;
  Vec<A, steps> u, dt, raw;
  Inputs<T, COMPLEX> b[NS];

  template <class P>
  static BARACUDA_D Vec<T, steps> of_channel(const P& p, const C& c, const void* from, const i64 (&strides)[3], i64 t) {
    return tile_at<WIDE, WHOLE, T>(from, c.b * strides[0] + c.d * strides[1] + t * strides[2], strides[2],
                                   c.mine ? p.length - t : 0);
  }
  template <class P>
  static BARACUDA_D Inputs<T, COMPLEX> of_state(const P& p, const C& c, const void* from, const i64 (&strides)[4],
                                                int k, i64 t) {
    const i64 at = c.b * strides[0] + c.group * strides[1] + c.state(p, k) * strides[2] + t * strides[3];
    const i64 left = c.mine && c.state(p, k) < p.states ? p.length - t : 0;
    Inputs<T, COMPLEX> x;
    if constexpr (COMPLEX && WIDE) {  // parts alternate
      const Vec<T, steps> low = tile_at<true, WHOLE, T>(from, at, 1, 2 * left);
      const Vec<T, steps> high = tile_at<true, WHOLE, T>(from, at + steps, 1, 2 * left - steps);
#pragma unroll
      for (int s = 0; s < steps; ++s) {
        x.re[s] = 2 * s < steps ? low[2 * s % steps] : high[2 * s % steps];
        x.im[s] = 2 * s < steps ? low[2 * s % steps + 1] : high[2 * s % steps + 1];
      }
    } else {
      x.re = tile_at<WIDE, WHOLE, T>(from, at, strides[3], left);
      if constexpr (COMPLEX) x.im = tile_at<WIDE, WHOLE, T>(from, at + 1, strides[3], left);
    }
    return x;
  }
  template <class P> BARACUDA_D void load(const P& p, const C& c, i64 t) {
    u = cast_vec<A>(of_channel(p, c, p.u, p.u_strides, t));
    raw = cast_vec<A>(of_channel(p, c, p.delta, p.delta_strides, t));
#pragma unroll
    for (int k = 0; k < NS; ++k) b[k] = of_state(p, c, p.b, p.b_strides, k, t);
#pragma unroll
    for (int s = 0; s < steps; ++s) raw[s] += c.bias;
    dt = raw;
    if (p.softplus) dt = softplus_of(raw, p.lanes);
  }
  static BARACUDA_D bool inside(const C& c, i64 t) { return WHOLE || c.inside(t); }
  template <class P> static BARACUDA_D bool has(const P& p, const C& c, int k) { return WHOLE || c.has(p, k); }
  // h after step s; decay: exp(dt a).
  BARACUDA_D void advance(const C& c, int s, N (&h)[NS], N (&decay)[NS]) const {
    const A input = dt[s] * u[s];
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      decay[k] = decay_of<T>(scaled(c.a[k], dt[s]));
      h[k] = add_product(decay[k], h[k], scaled(b[k][s], input));
    }
  }
};

// Eight steps from t on: the states after them, and y where it is wanted.
template <class T, int NS, bool COMPLEX, bool WIDE, bool WHOLE, class P>
BARACUDA_D void scan_tile(const P& p, const Channel<T, NS, COMPLEX>& c, i64 t, number_t<T, COMPLEX> (&h)[NS]) {
  using A = acc_t<T>;
  using In = Tile<T, NS, COMPLEX, WIDE, WHOLE>;
  In in;
  number_t<T, COMPLEX> decay[NS];
  in.load(p, c, t);
  if (p.y == nullptr) {
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      if (In::inside(c, t + s)) in.advance(c, s, h, decay);
    }
    return;
  }
  Inputs<T, COMPLEX> out_of[NS];
#pragma unroll
  for (int k = 0; k < NS; ++k) out_of[k] = In::of_state(p, c, p.c, p.c_strides, k, t);
  Vec<A, steps> y;
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    y[s] = A(0);
    if (!In::inside(c, t + s)) continue;
    in.advance(c, s, h, decay);
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      if (In::has(p, c, k)) y[s] = add_real_product(h[k], out_of[k][s], y[s]);
    }
  }
  over_lanes(y, p.lanes);
#pragma unroll
  for (int s = 0; s < steps; ++s) y[s] = c.skipped(p, COMPLEX ? A(2) * y[s] : y[s], in.u[s]);
  if (!c.mine || c.lane != 0) return;
  if (p.z != nullptr) {
    const Vec<A, steps> z = cast_vec<A>(In::of_channel(p, c, p.z, p.z_strides, t));
#pragma unroll
    for (int s = 0; s < steps; ++s) y[s] *= times_sigmoid<T>(z[s], z[s]);
  }
  c.template put<WIDE>(p.y, p.y_strides, t, cast_vec<T>(y));
}

// y, the last state, and (for the gradient) the state before every `interval`-th step.
template <class T, int NS, bool COMPLEX, bool WIDE, class P> BARACUDA_D void scan(const P& p, int interval) {
  constexpr int pair = COMPLEX ? 2 : 1;
  const Channel<T, NS, COMPLEX> c(p);
  number_t<T, COMPLEX> h[NS];
  c.initial(p, h);
  if (p.y != nullptr) c.clear(p, p.y, p.y_strides);
  const i64 first = c.first();
  const bool full = c.full(p);
#pragma unroll 1
  for (i64 t = first; t < c.end; t += steps) {
    if (p.checkpoints != nullptr && (t - first) % interval == 0) {
#pragma unroll
      for (int k = 0; k < NS; ++k) {
        const i64 at = c.checkpoint(p, (t - first) / interval, interval) + c.state(p, k);
        if (c.has(p, k)) put_number(p.checkpoints, pair * at, h[k]);
      }
    }
    if (full && c.whole(t)) scan_tile<T, NS, COMPLEX, WIDE, true>(p, c, t, h);
    else scan_tile<T, NS, COMPLEX, WIDE, false>(p, c, t, h);
  }
  if (p.last_state == nullptr) return;
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    const i64 at = c.n * p.last_strides[0] + c.d * p.last_strides[1] + c.state(p, k) * p.last_strides[2];
    if (c.has(p, k)) put_number(p.last_state, at, h[k]);
  }
}

}  // namespace baracuda::selective
