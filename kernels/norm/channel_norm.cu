// channel_norm   y = (x - mean) rstd weight + bias, statistics over a batch and space, or over groups of channels.
//
// Three steps. The schedule reduce makes the moments of every channel (of one sample, or of the whole batch), each in the
// order of reduce_axes.cuh; `fold` merges those of a group's channels, lane by lane in order and the lanes as a tree, and
// makes of them what y takes; a map over x writes y, or where channels lie last a walk across them. So no order depends on layout, alignment or the device. Moments are
// Chan's (reduce/spread.cuh), in double.
#include <baracuda/reduce_axes.cuh>
#include "norm/across.cuh"
#include "norm/channel.cuh"
#include <baracuda/map.cuh>
#include "reduce/spread.cuh"

namespace baracuda {

namespace kinds {

// The moments themselves, of which `fold` makes statistics.
template <class T> struct ChannelMoments : MeanSpread<T> {
  using Result = Spread;
  static BARACUDA_D Result finish(Spread s, const Reduced&) { return s; }
};

}  // namespace kinds

// A group of `lanes` lanes takes the `members` moments of a statistic.
template <class T, class P> BARACUDA_D void channel_norm_fold(const P& p) {
  using A = acc_t<T>;
  using K = kinds::MeanSpread<T>;
  const int lanes = log2_of(p.lanes), first = lane_id() & (p.lanes - 1);
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) >> lanes;
  const bool mine = row < p.rows;
  const kinds::Spread* const partials = static_cast<const kinds::Spread*>(p.partials) + (mine ? row * p.members : 0);
  kinds::Spread s = K::empty();
  for (i64 k = first; mine && k < p.members; k += p.lanes) s = K::merge(s, partials[k]);
  s = merge_lanes<K>(s, p.lanes);
  if (!mine || first != 0) return;
  const double base = s.n == 0 ? numeric<double>::nan() : s.base, variance = s.m2 / s.n;
  const double rstd = 1.0 / math::sqrt(variance + p.eps);
  if (p.table != nullptr) static_cast<norm::Centre<A>*>(p.table)[row] = norm::centre_of<A>(base, s.offset, rstd);
  if (p.mean != nullptr) static_cast<A*>(p.mean)[row] = static_cast<A>(base);
  if (p.rstd != nullptr) static_cast<A*>(p.rstd)[row] = static_cast<A>(rstd);
  if (p.var != nullptr) static_cast<A*>(p.var)[row] = static_cast<A>(variance);
}

// Statistics that are given: mean and variance, or (`inverse`) mean and rstd.
template <class T, class P> BARACUDA_D void channel_norm_given(const P& p) {
  using A = acc_t<T>;
  const i64 row = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  const double mean = norm::affine_at<T>(p.mean, row * p.mean_stride, p.mean_wide);
  const double var = norm::affine_at<T>(p.var, row * p.var_stride, p.var_wide);
  const double rstd = p.inverse ? var : 1.0 / math::sqrt(var + p.eps);
  static_cast<norm::Centre<A>*>(p.table)[row] = norm::centre_of<A>(mean, 0.0, rstd);
  if (p.saved_mean != nullptr) static_cast<A*>(p.saved_mean)[row] = static_cast<A>(mean);
  if (p.saved_rstd != nullptr) static_cast<A*>(p.saved_rstd)[row] = static_cast<A>(rstd);
}

namespace norm {

enum ForwardOperand { AT_Y, AT_X, AT_TABLE, AT_WEIGHT, AT_BIAS, FORWARD_OPERANDS };

template <class T, class P> struct Applied {
  using A = acc_t<T>;
  const P& p;

  template <int V> struct Chunk {
    Vec<T, V> x;
    Centre<A> centre;  // of the first element, and of all that share it
    A weight, bias;
  };
  BARACUDA_D Centre<A> centre(i64 at) const { return static_cast<const Centre<A>*>(p.table)[at]; }
  BARACUDA_D A weight(i64 at) const { return p.weight == nullptr ? A(1) : affine_at<T>(p.weight, at, p.wide); }
  BARACUDA_D A bias(i64 at) const { return p.bias == nullptr ? A(0) : affine_at<T>(p.bias, at, p.wide); }

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, FORWARD_OPERANDS>& place) const {
    return {place.load(static_cast<const T*>(p.x), AT_X), centre(place.at[AT_TABLE]), weight(place.at[AT_WEIGHT]),
            bias(place.at[AT_BIAS])};
  }
  template <int V>
  BARACUDA_D void write(const MapPlace<V, FORWARD_OPERANDS>& place, const Chunk<V>& in, bool wanted) const {
    Centre<A> c = in.centre;
    A w = in.weight, b = in.bias;
    Vec<A, V> y = to_acc(in.x);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (k > 0) {
        if (moves(place, AT_TABLE)) c = centre(beside(place, AT_TABLE, k));
        if (moves(place, AT_WEIGHT)) w = weight(beside(place, AT_WEIGHT, k));
        if (moves(place, AT_BIAS)) b = bias(beside(place, AT_BIAS, k));
      }
      y[k] = math::fma((math::fma(y[k], c.scale, -c.mean) - c.low) * c.rstd, w, b);
    }
    if (wanted) place.store(static_cast<T*>(p.y), AT_Y, from_acc<T>(y));
  }
};

}  // namespace norm

template <class T, class L, class P> BARACUDA_D void channel_norm_apply(const P& p) {
  map_chunks<L, norm::FORWARD_OPERANDS>(p, norm::Applied<T, P>{p});
}

template <class T, class P> BARACUDA_D void channel_norm_across(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  norm::Centre<A> c[V];
  Vec<A, V> w, b;
  const T* const x[1] = {static_cast<const T*>(p.x)};
  norm::across<T, 1>(
      p, x, static_cast<T*>(p.y),
      [&](i64 n, i64 channel) {
        norm::each_statistic<V>(p, n, channel,
                                [&](int k, i64 at) { c[k] = static_cast<const norm::Centre<A>*>(p.table)[at]; });
        w = norm::affine_chunk<T>(p, p.weight, channel, p.weight_step, A(1));
        b = norm::affine_chunk<T>(p, p.bias, channel, p.bias_step, A(0));
      },
      [&](const Vec<T, V>(&in)[1]) {
        Vec<A, V> y = to_acc(in[0]);
#pragma unroll
        for (int k = 0; k < V; ++k) {
          y[k] = math::fma((math::fma(y[k], c[k].scale, -c[k].mean) - c[k].low) * c[k].rstd, w[k], b[k]);
        }
        return from_acc<T>(y);
      });
}

}  // namespace baracuda
