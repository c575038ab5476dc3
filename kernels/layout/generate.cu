// generate   y[i, j, …] = f(number), a number being a sum of indices times steps; schedule map without inputs.
//
// The second operand of the map has no memory: its offset is the number. Floats are computed in double and rounded once.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

enum class Form { counted, spaced, powers, ratio, equal, below, cosine, tent, reciprocal };

// From begin to end in `last` equal steps, counted from the nearer end; without `ends` from begin alone.
template <class P> BARACUDA_D double spaced(const P& p, i64 n) {
  const double a = p.begin(), b = p.end();
  if (p.last <= 0) return a;
  const double step = (b - a) / static_cast<double>(p.last);
  if (!p.ends || 2 * n < p.last) return a + static_cast<double>(n) * step;
  return b - static_cast<double>(p.last - n) * step;
}

template <class T, class P> BARACUDA_D T generated(const P& p, Form form, i64 n) {
  if (form == Form::equal) return cast<T>(n == p.diagonal);
  if (form == Form::below) return cast<T>(n <= p.diagonal);
  if constexpr (!is_floating<T> && !is_complex<T>) {
    if (form == Form::counted) return cast<T>(p.first() + n * p.stride());
    return cast<T>(spaced(p, n));
  } else {
    const double at = static_cast<double>(n), last = static_cast<double>(p.last);
    double value = 0;
    switch (form) {
      case Form::counted: value = p.begin() + at * p.end(); break;
      case Form::spaced: value = spaced(p, n); break;
      case Form::powers: value = pow(p.base(), spaced(p, n)); break;
      case Form::ratio:
        value = n == 0 ? p.begin() : n == p.last && p.ends ? p.end() : p.begin() * pow(p.end() / p.begin(), at / last);
        break;
      case Form::cosine:
        value = p.last <= 0 ? 1.0 : p.begin() - p.end() * cospi(2 * at / last) + p.base() * cospi(4 * at / last);
        break;
      case Form::tent: value = p.last <= 0 ? 1.0 : 1 - abs(2 * at / last - 1); break;
      case Form::reciprocal: value = 1 / (at + 1); break;
      default: break;
    }
    return cast<T>(value);
  }
}

template <class T, class P> struct Generate {
  const P& p;
  template <int V> struct Chunk {};
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 2>&) const { return {}; }
  template <int V> BARACUDA_D void write(const MapPlace<V, 2>& place, const Chunk<V>&, bool wanted) const {
    if (!wanted) return;
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = generated<T>(p, static_cast<Form>(p.form), place.at[1] + k * p.along);
    place.store(static_cast<T*>(p.y), 0, out);
  }
};

template <class T, class L, class P> BARACUDA_D void generate(const P& p) { map_chunks<L, 2>(p, Generate<T, P>{p}); }

}  // namespace baracuda
