// generate   y[i, j, …] = f(number), a number being a sum of indices times steps; schedule map without inputs.
//
// The second operand of the map has no memory: its offset is the number. Floats are computed in double and rounded once.
// The product and the sum of `along` are rounded one after the other: an fma might fall below a whole number, which an
// integer would then lose.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D double along(double begin, double number, double step) { return __dadd_rn(begin, __dmul_rn(number, step)); }

// From begin to end in `last` equal steps, counted from the nearer end; without `ends` from begin alone.
template <class P> BARACUDA_D double spaced(const P& p, i64 n) {
  const double a = p.begin(), b = p.end();
  if (p.last <= 0) return a;
  const double step = (b - a) / static_cast<double>(p.last);
  if (!p.ends || 2 * n < p.last) return along(a, static_cast<double>(n), step);
  return along(b, -static_cast<double>(p.last - n), step);
}

// The largest q with S(q) = q length + sign q (q - 1) / 2 <= t, for S that rises up to it: a root, made exact.
BARACUDA_D i64 triangle_row(i64 t, i64 length, int sign) {
  const double b = static_cast<double>(2 * length - sign),
               root = sqrt(max(b * b + 8.0 * sign * static_cast<double>(t), 0.0));
  i64 q = max(static_cast<i64>(sign > 0 ? (root - b) / 2 : (b - root) / 2), static_cast<i64>(0));
  const auto before = [&](i64 rows) { return rows * length + sign * (rows * (rows - 1) / 2); };
  while (q > 0 && before(q) > t) --q;
  while (before(q + 1) <= t) ++q;
  return q;
}

// The row (n < last) or the column of an element on and below, or above, diagonal k, the elements counted row by row.
template <class P> BARACUDA_D i64 triangle_index(const P& p, bool lower, i64 n) {
  const i64 k = p.diagonal, columns = p.columns, zero = 0;
  const bool row = n < p.last;
  const i64 t = row ? n : n - p.last;
  if (lower) {
    const i64 first = max(zero, -k), length = min(first + k + 1, columns), rising = columns - length;
    const i64 inside = rising * length + rising * (rising - 1) / 2;  // elements of the rows that are not whole
    if (t >= inside) return row ? first + rising + (t - inside) / columns : (t - inside) % columns;
    const i64 q = triangle_row(t, length, 1);
    return row ? first + q : t - (q * length + q * (q - 1) / 2);
  }
  const i64 whole = max(zero, -k);  // rows
  if (t < whole * columns) return row ? t / columns : t % columns;
  const i64 left = t - whole * columns, length = columns - max(zero, k), q = triangle_row(left, length, -1);
  return row ? whole + q : max(zero, k) + q + left - (q * length - q * (q - 1) / 2);
}

// a - b cos(π turn) + c cos(2π turn), by squares of sines: near 0, where a window is 0, no digits are lost.
template <class P> BARACUDA_D double cosines(const P& p, double turn) {
  const double one = sinpi(turn / 2), two = sinpi(turn);
  return p.begin() - p.end() + p.base() + 2 * p.end() * (one * one) - 2 * p.base() * (two * two);
}

template <class T, class P> BARACUDA_D T generated(const P& p, GenerateForm form, i64 n) {
  if (form == GenerateForm::equal) return cast<T>(n == p.diagonal);
  if (form == GenerateForm::below) return cast<T>(n <= p.diagonal);
  if constexpr (!is_floating<T> && !is_complex<T>) {
    if (form == GenerateForm::counted) return cast<T>(p.first() + n * p.stride());
    if (form >= GenerateForm::lower) return cast<T>(triangle_index(p, form == GenerateForm::lower, n));
    return cast<T>(spaced(p, n));
  } else {
    const double at = static_cast<double>(n), last = static_cast<double>(p.last);
    double value = 0;
    switch (form) {
      case GenerateForm::counted: value = along(p.begin(), at, p.end()); break;
      case GenerateForm::spaced: value = spaced(p, n); break;
      case GenerateForm::powers: value = pow(p.base(), spaced(p, n)); break;
      case GenerateForm::ratio:
        value = n == 0 ? p.begin() : n == p.last && p.ends ? p.end() : p.begin() * pow(p.end() / p.begin(), at / last);
        break;
      case GenerateForm::cosine: value = p.last <= 0 ? 1.0 : cosines(p, 2 * at / last); break;
      case GenerateForm::tent: value = p.last <= 0 ? 1.0 : 1 - abs(2 * at / last - 1); break;
      case GenerateForm::reciprocal: value = 1 / (at + 1); break;
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
    if constexpr (is_floating<T>) {
      if (static_cast<GenerateForm>(p.form) ==
          GenerateForm::counted) {  // a conversion for all: numbers below 2^53 have exact sums
        const double first = static_cast<double>(place.at[1]), next = static_cast<double>(p.along);
        const double begin = p.begin(), step = p.end();
#pragma unroll
        for (int k = 0; k < V; ++k) out[k] = cast<T>(along(begin, first + k * next, step));
        return place.store(static_cast<T*>(p.y), 0, out);
      }
    }
    const GenerateForm form = static_cast<GenerateForm>(p.form);
    if ((form == GenerateForm::equal || form == GenerateForm::below) &&
        p.along == 1) {  // one difference of 64 bits for all
      const i64 left = p.diagonal - place.at[1];
      const int last = static_cast<int>(min(max(left, static_cast<i64>(-1)), static_cast<i64>(V)));
      const T on = cast<T>(true), off = cast<T>(false);
      const bool below = form == GenerateForm::below;
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = k == last || (below && k < last) ? on : off;
      return place.store(static_cast<T*>(p.y), 0, out);
    }
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = generated<T>(p, form, place.at[1] + k * p.along);
    place.store(static_cast<T*>(p.y), 0, out);
  }
};

template <class T, class L, class P> BARACUDA_D void generate(const P& p) { map_chunks<L, 2>(p, Generate<T, P>{p}); }

}  // namespace baracuda
