// learnable_sums  the gradients of the scale and the zero point of every block, learned step sizes (Esser et al., 2020):
//                 dscale = factor · sum of dy (round(v) - v), where v = x / scale, of dy low or dy high where round(v) is
//                 beyond them; dzero = -factor · scale · sum of dy beyond the range.
//
// Schedule reduce over blocks, of which reduce_axes.cuh fixes the order of both sums, the parts of a complex number; a
// thread for each block then makes the gradients of them.
#include <baracuda/reduce_axes.cuh>
#include "quantize/learnable.cuh"
#include "quantize/put_float.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

namespace affine {

// Of dy and x; what a block shares belongs to a row of the reduction, or to each of neighbouring rows.
template <class T> struct LearnableTerm {
  using Value = complex<acc_t<T>>;
  template <class P> BARACUDA_D explicit LearnableTerm(const P&) {}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[2]) { x[0] = p.dy, x[1] = p.x; }
};

template <class T> struct LearnableTerms : Mapped<LearnableTerm<T>, T, T> {
  using A = acc_t<T>;
  using Base = Mapped<LearnableTerm<T>, T, T>;
  using typename Base::Value;
  static constexpr int operands = 4;  // dy, x, and where the scale and the zero point are
  const LearnableSumsParams& p;
  i64 scale, zero;
  Learned<A> step;
  Quotient<A> by;

  BARACUDA_D LearnableTerms(const LearnableSumsParams& p, const i64* at)
      : Base(p, at), p(p), scale(at[2]), zero(at[3]), step(learned_at<A>(p, scale, zero)), by(step.scale) {}

  static BARACUDA_D Value term(const Learned<A>& step, const Quotient<A>& by, T stored, T x) {
    const A dy = to_acc(stored), v = by(to_acc(x)), held = step.held(v);
    const bool inside = step.inside(v);
    return {dy * (inside ? held - v : held), inside ? A(0) : dy};
  }
  template <class C> BARACUDA_D Vec<Value, Base::width> values(const C& x, i64 left, Value fill) const {
    Vec<Value, Base::width> out;
#pragma unroll
    for (int k = 0; k < Base::width; ++k) out[k] = k < left ? term(step, by, x.first[k], x.rest.first[k]) : fill;
    return out;
  }
  // Of row k of neighbouring ones, along the last kept axis.
  template <int N> BARACUDA_D Value value(const Chunks<N, T, T>& x, int k, bool exists, Value fill) const {
    const int last = p.outer_rank - 1;
    const i64 along = last < 0 ? 0 : k * p.outer[2][last], other = last < 0 ? 0 : k * p.outer[3][last];
    const Learned<A> own = learned_at<A>(p, scale + along, zero + other);
    return exists ? term(own, Quotient<A>(own.scale), x.first[k], x.rest.first[k]) : fill;
  }
};

enum FinishedPlace { at_sums, at_scales, at_dscales, at_dzeros, finished_places };

template <class T> struct LearnableFinish {
  using A = acc_t<T>;
  const LearnableFinishParams& p;
  template <int V> using Chunk = complex<A>;
  template <int V> BARACUDA_D complex<A> read(const MapPlace<V, finished_places>& place) const {
    return static_cast<const complex<A>*>(p.sums)[place.at[at_sums]];
  }
  template <int V>
  BARACUDA_D void write(const MapPlace<V, finished_places>& place, const complex<A>& sum, bool wanted) const {
    if (!wanted) return;
    const A factor = static_cast<A>(p.grad_factor());
    const A scale = scales_at<A, 1>(p.scales, p.scale_code, place.at[at_scales])[0];
    if (p.dscales != nullptr) put_float(p.dscales, p.scale_code, place.at[at_dscales], sum.re * factor);
    if (p.dzeros != nullptr) put_float(p.dzeros, p.scale_code, place.at[at_dzeros], -(scale * sum.im) * factor);
  }
};

}  // namespace affine

template <class T> BARACUDA_D void learnable_finish(const LearnableFinishParams& p) {
  map_chunks<Strided<1, 1>, affine::finished_places>(p, affine::LearnableFinish<T>{p});
}

}  // namespace baracuda
