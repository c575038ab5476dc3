// channel_norm_backward   dx = rstd (g - mean(g) - xhat mean(g xhat)), dweight = sum of dy xhat, dbias = sum of dy;
// g = dy weight, xhat = (x - mean) rstd, the means over what a statistic was of (none where it was given).
//
// Three steps, as the forward's: the schedule reduce makes the sums of dy and of dy xhat of every channel (of one sample,
// or of the whole batch), in the order of reduce_axes.cuh; `fold` adds those of a group's channels for dx, and those of the
// samples for dweight and dbias, lane by lane in order and the lanes as a tree; a map writes dx, or where
// channels lie last a walk across them.
#include <baracuda/reduce_axes.cuh>
#include "norm/across.cuh"
#include "norm/channel.cuh"
#include <baracuda/map.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

namespace norm {

// Of dy and x; the statistics belong to a row of the reduction.
template <class T> struct Product {
  using Value = complex<acc_t<T>>;
  template <class P> BARACUDA_D explicit Product(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[2]) { x[0] = p.dy, x[1] = p.x; }
};

template <class T, class A = acc_t<T>> BARACUDA_D complex<A> slope(T dy, T x, A mean, A rstd) {
  const A d = to_acc(dy);
  return {d, d * ((to_acc(x) - mean) * rstd)};
}

// The source of the reduction along rows: (dy, dy xhat) as the two numbers of a complex one.
template <class T> struct Slopes : Mapped<Product<T>, T, T> {
  using A = acc_t<T>;
  using Base = Mapped<Product<T>, T, T>;
  using typename Base::Value;
  static constexpr int operands = 3;  // dy, x, and where the statistics are
  const A* mean;
  const A* rstd;

  template <class P>
  BARACUDA_D Slopes(const P& p, const i64* at)
      : Base(p, at), mean(static_cast<const A*>(p.mean) + at[2]), rstd(static_cast<const A*>(p.rstd) + at[2]) {}

  template <class C> BARACUDA_D Vec<Value, Base::width> values(const C& x, i64 left, Value fill) const {
    Vec<Value, Base::width> out;
#pragma unroll
    for (int k = 0; k < Base::width; ++k) out[k] = k < left ? slope(x.first[k], x.rest.first[k], *mean, *rstd) : fill;
    return out;
  }
};

// The same of ROWS neighbouring rows, along which dy and x move where there are several. Their statistics stay in
// registers, and no branch is between loads.
template <class T, int ROWS> struct SlopesAcross {
  using A = acc_t<T>;
  using Value = complex<A>;
  static constexpr int operands = 3, width = vec_elems<T>;
  template <int N> struct Chunk {
    Vec<T, N> dy, x;
    friend BARACUDA_D void keep_packed(Chunk& c) { baracuda::keep_packed(c.dy), baracuda::keep_packed(c.x); }
  };
  const T* dy;
  const T* x;
  A mean[ROWS], rstd[ROWS];

  template <class P>
  BARACUDA_D SlopesAcross(const P& p, const i64* at)
      : dy(static_cast<const T*>(p.dy) + at[0]), x(static_cast<const T*>(p.x) + at[1]) {
    const i64 step = p.outer[2][p.outer_rank - 1];  // from the statistics of a row to those of the next
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      mean[k] = static_cast<const A*>(p.mean)[at[2] + k * step];
      rstd[k] = static_cast<const A*>(p.rstd)[at[2] + k * step];
    }
  }
  template <int N, bool LINE, class P> BARACUDA_D Chunk<N> whole(const P& p, i64 r) const {
    i64 at[operands];
    if constexpr (LINE) at[0] = r * p.inner[0][0], at[1] = r * p.inner[1][0];
    else reduced_offsets<true>(p, r, at);
    return {load<N>(dy + at[0]), load<N>(x + at[1])};
  }
  template <int N> BARACUDA_D Chunk<N> beyond(Value) const { return {}; }
  template <int N> BARACUDA_D Value value(const Chunk<N>& c, int k, bool exists, Value fill) const {
    return exists ? slope(c.dy[k], c.x[k], mean[k], rstd[k]) : fill;
  }
};

// A statistic and what dx takes of its row: shift = mean(g), slope = mean(g xhat).
template <class A> struct alignas(16) Row {
  A mean, rstd, shift, slope;
};

// Over the aligned groups of `lanes` lanes, as a tree.
BARACUDA_D double lanes_sum(double x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

}  // namespace norm

// A group of `lanes` lanes for each of `rows` statistics, then for each of `affine` channels.
template <class T, class P> BARACUDA_D void channel_norm_fold_backward(const P& p) {
  using A = acc_t<T>;
  const complex<A>* const partials = static_cast<const complex<A>*>(p.partials);
  const int lanes = log2_of(p.lanes), first = lane_id() & (p.lanes - 1);
  const i64 job = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) >> lanes;
  const bool of_row = job < p.rows;
  const i64 channel = of_row ? job % p.groups * p.members : job - p.rows;
  double a = 0, b = 0;
  if (of_row) {
    for (i64 k = first; k < p.summed; k += p.lanes) {
      const complex<A> partial = partials[job * p.members + k];
      const double w =
          p.weight == nullptr ? 1.0 : norm::affine_at<T>(p.weight, (channel + k) * p.weight_stride, p.wide);
      a += w * static_cast<double>(partial.re), b += w * static_cast<double>(partial.im);
    }
  } else if (channel < p.affine) {
    for (i64 n = first; n < p.samples; n += p.lanes) {
      const complex<A> partial = partials[n * p.affine + channel];
      a += static_cast<double>(partial.re), b += static_cast<double>(partial.im);
    }
  }
  a = norm::lanes_sum(a, p.lanes), b = norm::lanes_sum(b, p.lanes);
  if (first != 0) return;
  if (of_row) {
    static_cast<norm::Row<A>*>(p.table)[job] = {static_cast<const A*>(p.mean)[job], static_cast<const A*>(p.rstd)[job],
                                                static_cast<A>(a * p.inverse), static_cast<A>(b * p.inverse)};
  } else if (channel < p.affine) {
    if (p.dweight != nullptr) norm::put_affine<T>(p.dweight, channel * p.dweight_stride, p.wide, b);
    if (p.dbias != nullptr) norm::put_affine<T>(p.dbias, channel * p.dbias_stride, p.wide, a);
  }
}

namespace norm {

enum BackwardOperand { AT_DX, AT_DY, AT_INPUT, AT_ROW, AT_GAMMA, BACKWARD_OPERANDS };

template <class T, class P> struct Gradient {
  using A = acc_t<T>;
  const P& p;

  template <int V> struct Chunk {
    Vec<T, V> dy, x;
    Row<A> row;  // of the first element, and of all that share it
    A weight;
  };
  BARACUDA_D Row<A> row(i64 at) const { return static_cast<const Row<A>*>(p.table)[at]; }
  BARACUDA_D A weight(i64 at) const { return p.weight == nullptr ? A(1) : affine_at<T>(p.weight, at, p.wide); }

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, BACKWARD_OPERANDS>& place) const {
    return {place.load(static_cast<const T*>(p.dy), AT_DY), place.load(static_cast<const T*>(p.x), AT_INPUT),
            row(place.at[AT_ROW]), weight(place.at[AT_GAMMA])};
  }
  template <int V>
  BARACUDA_D void write(const MapPlace<V, BACKWARD_OPERANDS>& place, const Chunk<V>& in, bool wanted) const {
    Row<A> r = in.row;
    A w = in.weight;
    const Vec<A, V> dy = to_acc(in.dy), x = to_acc(in.x);
    Vec<A, V> dx;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (k > 0) {
        if (moves(place, AT_ROW)) r = row(beside(place, AT_ROW, k));
        if (moves(place, AT_GAMMA)) w = weight(beside(place, AT_GAMMA, k));
      }
      const A g = dy[k] * w - r.shift;  // the difference comes first: it is exact where g equals its mean
      dx[k] = math::fma(-((x[k] - r.mean) * r.rstd), r.slope, g) * r.rstd;
    }
    if (wanted) place.store(static_cast<T*>(p.dx), AT_DX, from_acc<T>(dx));
  }
};

}  // namespace norm

template <class T, class L, class P> BARACUDA_D void channel_norm_apply_backward(const P& p) {
  map_chunks<L, norm::BACKWARD_OPERANDS>(p, norm::Gradient<T, P>{p});
}

template <class T, class P> BARACUDA_D void channel_norm_across_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  norm::Row<A> r[V];
  Vec<A, V> w;
  const T* const from[2] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.x)};
  norm::across<T, 2>(
      p, from, static_cast<T*>(p.dx),
      [&](i64 n, i64 channel) {
        norm::each_statistic<V>(p, n, channel,
                                [&](int k, i64 at) { r[k] = static_cast<const norm::Row<A>*>(p.table)[at]; });
        w = norm::affine_chunk<T>(p, p.weight, channel, p.weight_step, A(1));
      },
      [&](const Vec<T, V>(&in)[2]) {
        const Vec<A, V> dy = to_acc(in[0]), x = to_acc(in[1]);
        Vec<A, V> dx;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const A g = dy[k] * w[k] - r[k].shift;  // as Gradient
          dx[k] = math::fma(-((x[k] - r[k].mean) * r[k].rstd), r[k].slope, g) * r[k].rstd;
        }
        return from_acc<T>(dx);
      });
}

}  // namespace baracuda
