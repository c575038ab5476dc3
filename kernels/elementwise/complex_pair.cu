// complex_pair   z = a (cos b + i sin b) or a + i b, and the gradients for a and b; schedule map.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

struct Polar {
  template <class R> static BARACUDA_D complex<R> value(R a, R b) {
    R s, c;
    math::sincos(b, &s, &c);
    return {a * c, a * s};
  }
  template <class R> static BARACUDA_D complex<R> gradients(complex<R> dz, R a, R b) {
    R s, c;
    math::sincos(b, &s, &c);
    return {dz.re * c + dz.im * s, a * (dz.im * c - dz.re * s)};
  }
};
struct Complex {
  template <class R> static BARACUDA_D complex<R> value(R a, R b) { return {a, b}; }
  template <class R> static BARACUDA_D complex<R> gradients(complex<R> dz, R, R) { return dz; }
};

template <class F, class R, class L, class P> BARACUDA_D void complex_pair(const P& p) {
  complex<R>* const z[1] = {static_cast<complex<R>*>(p.z)};
  const R* const given[2] = {static_cast<const R*>(p.a), static_cast<const R*>(p.b)};
  map<L>(p, z, given, [](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) out[0][k] = F::value(in[0][k], in[1][k]);
  });
}

template <class F, class R> struct PairGradients {
  R *da, *db;  // null where unwanted
  const complex<R>* dz;
  const R *a, *b;

  template <int V> struct Chunk {
    Vec<complex<R>, V> dz;
    Vec<R, V> a, b;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 5>& place) const {
    return {place.load(dz, 2), place.load(a, 3), place.load(b, 4)};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    Vec<R, V> first, second;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const complex<R> both = F::gradients(in.dz[k], in.a[k], in.b[k]);
      first[k] = both.re, second[k] = both.im;
    }
    if (wanted && da != nullptr) place.store(da, 0, first);
    if (wanted && db != nullptr) place.store(db, 1, second);
  }
};

template <class F, class R, class L, class P> BARACUDA_D void complex_pair_backward(const P& p) {
  map_chunks<L, 5>(
      p, PairGradients<F, R>{static_cast<R*>(p.da), static_cast<R*>(p.db), static_cast<const complex<R>*>(p.dz),
                             static_cast<const R*>(p.a), static_cast<const R*>(p.b)});
}

}  // namespace baracuda
