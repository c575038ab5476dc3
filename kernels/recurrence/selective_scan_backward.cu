// selective_scan_backward   with g = ∂L/∂h from the end: g = dy c + exp(dt a)' g', du = Σ_n g dt b + dy d, and so on.
//
// `states` walks forward and leaves the state before every scan_interval-th step. `slopes` takes these intervals from the
// last to the first: it makes the states before each tile anew, then those of a tile, and walks the tile back. Parts of
// the gradients of b and c are added over the channels of a block in order, and over blocks by `fold_inputs` in order;
// those of a, d and delta_bias over time from the end, and over sequences by `fold_channels` in order.
#include "recurrence/selective_scan.cuh"

namespace baracuda {

template <class T, int NS, bool WIDE, bool COMPLEX = false>
BARACUDA_D void selective_scan_states(const SelectiveScanBackwardParams& p) {
  selective::scan<T, NS, COMPLEX, WIDE>(p, scan_interval);
}

namespace selective {

constexpr int pitch = steps + 1;  // of a state's slopes in shared memory

// Where the block's part of the slopes of state n is: [batch, groups, tiles, states, length].
template <class P, class C> BARACUDA_D i64 part_of(const P& p, const C& c, i64 n) {
  return (((c.b * p.groups + c.group) * p.tiles + c.tile) * p.states + n) * p.length;
}
// Zeros for the steps of no sequence.
template <class N, class P, class C> BARACUDA_D void clear_parts(const P& p, const C& c, void* parts) {
  using A = typename C::A;
  if (p.bounds == nullptr || parts == nullptr || !c.there) return;
  for (i64 n = 0; n < p.states; ++n) {
    N* const part = static_cast<N*>(parts) + part_of(p, c, n);
    for (i64 t = threadIdx.x; c.n == 0 && t < c.begin; t += scan_threads) part[t] = A(0);
    for (i64 t = c.end + threadIdx.x; t < c.gap; t += scan_threads) part[t] = A(0);
  }
}

// Adds what the block's channels hold, and leaves it as the block's part.
template <class T, int NS, class P, class C, class N>
BARACUDA_D void add_channels(const P& p, const C& c, const N* held, void* parts, i64 t) {
  const int width = p.lanes * NS * pitch, rows = scan_threads / p.lanes;
  __syncthreads();
  for (int i = threadIdx.x; i < p.lanes * NS * steps; i += scan_threads) {
    const int n = i / steps, s = i % steps;
    if (n >= p.states || !c.inside(t + s)) continue;
    N sum = N(typename C::A(0));
    for (int r = 0; r < rows; ++r) sum = sum + held[r * width + n * pitch + s];
    static_cast<N*>(parts)[part_of(p, c, n) + t + s] = sum;
  }
  __syncthreads();
}

// What a thread carries from tile to tile: g of its states, and its parts of the gradients of a, d and delta_bias.
template <class T, int NS, bool COMPLEX> struct Slopes {
  using A = acc_t<T>;
  number_t<T, COMPLEX> g[NS], da[NS];
  A dskip = A(0), dbias = A(0);
};

// The states after the eight steps from t on.
template <class T, int NS, bool COMPLEX, bool WIDE, bool WHOLE, class P>
BARACUDA_D void advance_tile(const P& p, const Channel<T, NS, COMPLEX>& c, i64 t, number_t<T, COMPLEX> (&h)[NS]) {
  Tile<T, NS, COMPLEX, WIDE, WHOLE> in;
  in.load(p, c, t);
  number_t<T, COMPLEX> decay[NS];
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    if (in.inside(c, t + s)) in.advance(c, s, h, decay);
  }
}

// Walks the eight steps from t on back; `first` are the states before them, at a pitch of the block's threads.
template <class T, int NS, bool COMPLEX, bool WIDE, bool WHOLE, class P>
BARACUDA_D void slopes_tile(const P& p, const Channel<T, NS, COMPLEX>& c, i64 t, const number_t<T, COMPLEX>* first,
                            number_t<T, COMPLEX>* held, Slopes<T, NS, COMPLEX>& slopes) {
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  using In = Tile<T, NS, COMPLEX, WIDE, WHOLE>;
  constexpr A twice = COMPLEX ? A(2) : A(1);  // y is twice the real part
  N* const own = held + c.row * p.lanes * NS * pitch;
  In in;
  in.load(p, c, t);
  Inputs<T, COMPLEX> out_of[NS];
  N states[steps + 1][NS], decay[steps][NS];
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    out_of[k] = In::of_state(p, c, p.c, p.c_strides, k, t);
    states[0][k] = first[k * scan_threads];
  }
  Vec<A, steps> dy = cast_vec<A>(In::of_channel(p, c, p.dy, p.dy_strides, t));
  Vec<A, steps> y;
#pragma unroll
  for (int s = 0; s < steps; ++s) {
    y[s] = A(0);
#pragma unroll
    for (int k = 0; k < NS; ++k) states[s + 1][k] = states[s][k], decay[s][k] = N(A(1));
    if (!In::inside(c, t + s)) continue;
    in.advance(c, s, states[s + 1], decay[s]);
    if (p.z == nullptr) continue;
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      if (In::has(p, c, k)) y[s] = add_real_product(states[s + 1][k], out_of[k][s], y[s]);
    }
  }
  if (p.z != nullptr) {
    const Vec<A, steps> z = cast_vec<A>(In::of_channel(p, c, p.z, p.z_strides, t));
    Vec<A, steps> dz;
    over_lanes(y, p.lanes);
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const A gate = sigmoid_of<T>(z[s]);
      y[s] = c.skipped(p, COMPLEX ? twice * y[s] : y[s], in.u[s]);
      dz[s] = dy[s] * y[s] * (gate * math::fma(z[s], A(1) - gate, A(1)));
      dy[s] = In::inside(c, t + s) ? dy[s] * (z[s] * gate) : A(0);
    }
    if (p.dz != nullptr && c.mine && c.lane == 0) {
      c.template put<WIDE>(p.dz, p.dz_strides, t, cast_vec<T>(dz));
    }
  }
  Vec<A, steps> du, ddelta;
#pragma unroll
  for (int s = steps - 1; s >= 0; --s) {
    du[s] = ddelta[s] = A(0);
    const bool there = In::inside(c, t + s);
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      N db = N(A(0));
      if (there && In::has(p, c, k)) {
        const N b = in.b[k][s];
        N& g = slopes.g[k];
        g = add_scaled(COMPLEX ? twice * dy[s] : dy[s], conjugate(out_of[k][s]), g);
        db = scaled(g, in.dt[s] * in.u[s]);
        const N past = product(g, conjugate(product(states[s][k], decay[s][k])));
        slopes.da[k] = add_scaled(in.dt[s], past, slopes.da[k]);
        du[s] = add_real_product(g, conjugate(scaled(b, in.dt[s])), du[s]);
        ddelta[s] += add_real_product(g, conjugate(scaled(b, in.u[s])), real_product(past, conjugate(c.a[k])));
        g = product(g, conjugate(decay[s][k]));
      }
      own[c.state(p, k) * pitch + s] = db;
    }
  }
  over_lanes(du, p.lanes);
  over_lanes(ddelta, p.lanes);
#pragma unroll
  for (int s = steps - 1; s >= 0; --s) {
    du[s] = c.skipped(p, du[s], dy[s]);
    if (p.softplus) ddelta[s] = times_sigmoid<T>(ddelta[s], in.raw[s]);
    if (In::inside(c, t + s)) slopes.dskip = math::fma(dy[s], in.u[s], slopes.dskip), slopes.dbias += ddelta[s];
  }
  if (c.mine && c.lane == 0) {
    if (p.du != nullptr) c.template put<WIDE>(p.du, p.du_strides, t, cast_vec<T>(du));
    if (p.ddelta != nullptr) c.template put<WIDE>(p.ddelta, p.ddelta_strides, t, cast_vec<T>(ddelta));
  }
  if (p.b_parts != nullptr) add_channels<T, NS>(p, c, held, p.b_parts, t);
  if (p.c_parts == nullptr) return;
#pragma unroll
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      const bool there = In::has(p, c, k) && In::inside(c, t + s);
      own[c.state(p, k) * pitch + s] = there ? scaled(conjugate(states[s + 1][k]), twice * dy[s]) : N(A(0));
    }
  }
  add_channels<T, NS>(p, c, held, p.c_parts, t);
}

}  // namespace selective

template <class T, int NS, bool WIDE, bool COMPLEX = false>
BARACUDA_D void selective_scan_slopes(const SelectiveScanBackwardParams& p) {
  using namespace selective;
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  constexpr int tiles = scan_interval / steps, pair = COMPLEX ? 2 : 1;
  N* const held = dynamic_smem<N>();                                 // slopes of b or c: [channel][state][step]
  N* const before = held + scan_threads * NS * pitch + threadIdx.x;  // the states before the tiles of an interval
  const Channel<T, NS, COMPLEX> c(p);
  const bool full = c.full(p);
  Slopes<T, NS, COMPLEX> slopes;
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    slopes.da[k] = N(A(0));
    slopes.g[k] = c.has(p, k) && p.dlast_state != nullptr
                      ? number_at<A, COMPLEX>(p.dlast_state, c.n * p.last_strides[0] + c.d * p.last_strides[1] +
                                                                 c.state(p, k) * p.last_strides[2])
                      : N(A(0));
  }
  clear_parts<N>(p, c, p.b_parts);
  clear_parts<N>(p, c, p.c_parts);
  c.clear(p, p.du, p.du_strides);
  c.clear(p, p.ddelta, p.ddelta_strides);
  c.clear(p, p.dz, p.dz_strides);
  const i64 chunks = c.begin < c.end ? div_up(c.end - c.first(), static_cast<i64>(scan_interval)) : 0;
#pragma unroll 1
  for (i64 chunk = chunks - 1; chunk >= 0; --chunk) {
    const i64 first = c.first() + chunk * scan_interval;
    const int count = static_cast<int>(min<i64>(tiles, div_up(c.end - first, static_cast<i64>(steps))));
    N h[NS];
#pragma unroll
    for (int k = 0; k < NS; ++k) {
      const i64 at = c.checkpoint(p, chunk, scan_interval) + c.state(p, k);
      h[k] = c.has(p, k) ? number_at<A, COMPLEX>(p.checkpoints, pair * at) : N(A(0));
    }
#pragma unroll 1
    for (int tile = 0; tile < count; ++tile) {
      const i64 t = first + tile * steps;
#pragma unroll
      for (int k = 0; k < NS; ++k) before[(tile * NS + k) * scan_threads] = h[k];
      if (tile + 1 == count) break;
      if (full && c.whole(t)) advance_tile<T, NS, COMPLEX, WIDE, true>(p, c, t, h);
      else advance_tile<T, NS, COMPLEX, WIDE, false>(p, c, t, h);
    }
#pragma unroll 1
    for (int tile = count - 1; tile >= 0; --tile) {
      const i64 t = first + tile * steps;
      const N* const from = before + tile * NS * scan_threads;
      if (full && c.whole(t)) slopes_tile<T, NS, COMPLEX, WIDE, true>(p, c, t, from, held, slopes);
      else slopes_tile<T, NS, COMPLEX, WIDE, false>(p, c, t, from, held, slopes);
    }
  }
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    if (!c.has(p, k)) continue;
    const int n = c.state(p, k);
    if (p.a_parts != nullptr) {
      put_number(p.a_parts, (c.n * p.dim + c.d) * (pair * p.states + 2) + pair * n, slopes.da[k]);
    }
    if (p.dinitial_state != nullptr) {
      put_number(p.dinitial_state, c.n * p.initial_strides[0] + c.d * p.initial_strides[1] + n * p.initial_strides[2],
                 slopes.g[k]);
    }
  }
  if (c.mine && c.known && c.lane == 0 && p.a_parts != nullptr) {
    A* const last = static_cast<A*>(p.a_parts) + (c.n * p.dim + c.d) * (pair * p.states + 2) + pair * p.states;
    last[0] = slopes.dskip, last[1] = slopes.dbias;
  }
}

// dB or dC[b, group, n, t] from the blocks' parts.
template <class T> BARACUDA_D void selective_scan_fold_inputs(const SelectiveScanFoldParams& p) {
  using A = acc_t<T>;
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 length = p.length * p.pair;  // parts of a complex number stand side by side
  const i64 t = i % length, n = i / length % p.states, rest = i / length / p.states;
  const i64 group = rest % p.groups, b = rest / p.groups;
  if (b >= p.batch) return;
  const A* const parts = static_cast<const A*>(p.parts) + (rest * p.tiles * p.states + n) * length + t;
  A sum = A(0);
  for (i64 k = 0; k < p.tiles; ++k) sum += parts[k * p.states * length];
  const i64 at = b * p.strides[0] + group * p.strides[1] + n * p.strides[2] + t / p.pair * p.strides[3] + t % p.pair;
  static_cast<T*>(p.to)[at] = from_acc<T>(sum);
}

// dA[d, n], dD[d] and ddelta_bias[d] of the parts of each sequence.
template <class T> BARACUDA_D void selective_scan_fold_channels(const SelectiveScanBackwardParams& p) {
  using A = acc_t<T>;
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 numbers = p.pair * p.states, n = i % (numbers + 2), d = i / (numbers + 2);
  if (d >= p.dim) return;
  A sum = A(0);
  for (i64 s = 0; s < p.sequences; ++s) sum += static_cast<const A*>(p.a_parts)[s * p.dim * (numbers + 2) + i];
  if (n < numbers) {
    if (p.da != nullptr) static_cast<A*>(p.da)[d * p.da_strides[0] + n / p.pair * p.da_strides[1] + n % p.pair] = sum;
  } else if (n == numbers) {
    if (p.dd != nullptr) static_cast<A*>(p.dd)[d * p.dd_step] = sum;
  } else if (p.ddelta_bias != nullptr) {
    static_cast<A*>(p.ddelta_bias)[d * p.dbias_step] = sum;
  }
}

}  // namespace baracuda
