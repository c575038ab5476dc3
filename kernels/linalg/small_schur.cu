// small_schur    A = Z T Zᴴ, T upper triangular and Z unitary, of complex matrices of up to 64 rows. Schedule small.
//
// The matrix, scaled by a power of two that brings its largest element to 1, is brought to Hessenberg's form by
// reflectors, then steps of the QR iteration with Wilkinson's shift chase a bulge down it, a rotation at a time, and leave
// off a row where the element before its diagonal is below eps of its neighbours (LAPACK's lahqr), or its square has no
// digits: a shift made of such would not be one. A thread has a column
// where rows turn, and a row where columns do; sums are in the order of rows and columns. info: 0, or n of a matrix that
// has numbers that are not finite, or whose steps, 30 a row, ran out; t and z are NaN then.
#include "linalg/jacobi.cuh"

namespace baracuda {

constexpr int schur_steps = 30;

// c x + s y and c y - conj(s) x, which is 0 of the pair that the rotation is made of.
template <class T> struct PlaneTurn {
  using R = part_t<T>;
  R c;
  T s;
  BARACUDA_D PlaneTurn(T x, T y) {
    const R along = magnitude(x), beside = magnitude(y), size = math::hypot(along, beside);
    const T phase = along == R(0) ? T(R(1)) : divided(x, along);
    c = size == R(0) ? R(1) : along / size;
    s = size == R(0) ? T{} : minus_product(T{}, -phase, divided(y, size));
  }
  BARACUDA_D void rows(T& x, T& y) const {
    const T before = x;
    x = plus_product(times_real(x, c), s, y);
    y = minus_product(times_real(y, c), before, s);
  }
  BARACUDA_D void columns(T& x, T& y) const {
    const T before = x;
    x = minus_product(times_real(x, c), -y, s);
    y = plus_product(times_real(y, c), -s, before);
  }
};

// The root whose real part is not negative, of a number whose square is in the range.
template <class R> BARACUDA_D complex<R> plain_root(complex<R> x) {
  const R along = math::sqrt(half(math::abs(x.re) + math::hypot(x.re, x.im)));
  if (along == R(0)) return {R(0), R(0)};
  const R beside = half(x.im) / along;
  return x.re >= R(0) ? complex<R>{along, beside} : complex<R>{math::abs(beside), math::copysign(along, x.im)};
}

template <class T, int G> BARACUDA_D void small_schur(const SmallSchurParams& p) {
  using R = part_t<T>;
  const SmallMatrices<T, G, SmallSchurParams> s(p);
  const int n = p.rows, pitch = p.pitch;
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) { s.tile_of(0, matrix)[row * pitch + column] = a[from]; });

  T* const m = s.tile(0);
  T* const z = s.tile(1);
  T* const v = s.beside(1);
  const R most = s.largest(n, [&](int line) {
    R x(0);
    for (int j = 0; j < n; ++j) x = math::maximum(x, largest_part(m[line * pitch + j]));
    return x;
  });
  const bool finite = math::isfinite(most);
  const int exponent = finite ? math::exponent(most) : 0;
  s.lines(0, n, [&](int row) {
    for (int j = 0; j < n; ++j) {
      m[row * pitch + j] = finite ? math::scaled(m[row * pitch + j], -exponent) : T{};
      z[row * pitch + j] = T(row == j ? R(1) : R(0));
    }
  });
  s.sync();

  for (int k = 0; k + 2 < n; ++k) {  // Hessenberg's form
    const R off = s.told(
        n, [&](int row) { return row < k + 2 ? R(0) : squared(m[row * pitch + k]); }, [](R x, R y) { return x + y; });
    if (off < numeric<R>::tiny()) {  // of a matrix whose largest number is 1: its squares have no digits left
      s.lines(k + 2, n, [&](int row) { m[row * pitch + k] = T{}; });
      s.sync();
      continue;
    }
    const T head = m[(k + 1) * pitch + k];
    const R own = magnitude(head), size = math::sqrt(math::fma(own, own, off));
    const T phase = own == R(0) ? T(R(1)) : divided(head, own);
    const R share = R(2) / math::fma(own + size, own + size, off);
    s.lines(k + 1, n, [&](int row) { v[row] = row == k + 1 ? times_real(phase, own + size) : m[row * pitch + k]; });
    s.sync();
    s.lines(k, n, [&](int column) {
      T along{};
      for (int i = k + 1; i < n; ++i) along = minus_product(along, -m[i * pitch + column], v[i]);
      along = times_real(along, share);
      for (int i = k + 1; i < n; ++i) {
        m[i * pitch + column] = minus_product(m[i * pitch + column], along, adjoint(v[i]));
        if (column == k) m[i * pitch + k] = i == k + 1 ? times_real(phase, -size) : T{};
      }
    });
    s.sync();
    s.lines(0, n, [&](int row) {
      for (T* const x : {m + row * pitch, z + row * pitch}) {
        T along{};
        for (int j = k + 1; j < n; ++j) along = plus_product(along, x[j], v[j]);
        along = times_real(along, share);
        for (int j = k + 1; j < n; ++j) x[j] = minus_product(x[j], along, v[j]);
      }
    });
    s.sync();
  }

  int left = schur_steps * n, end = n - 1, tried = 0;
  while (end > 0 && left > 0) {
    int begin = end;
    for (; begin > 0; --begin) {  // where the part that is not yet done begins
      const R near = magnitude(m[begin * (pitch + 1)]) + magnitude(m[(begin - 1) * (pitch + 1)]);
      const R size = magnitude(m[begin * pitch + begin - 1]);
      if (size <= numeric<R>::epsilon() * near || size * size < numeric<R>::tiny()) break;
    }
    if (begin == end) {
      --end, tried = 0;
      continue;
    }
    --left, ++tried;
    const T low = m[end * (pitch + 1)], high = m[(end - 1) * (pitch + 1)];
    const T product = m[end * pitch + end - 1] * m[(end - 1) * pitch + end], apart = half(high - low);
    T root = plain_root(plus_product(product, apart, apart));
    if (real_of(minus_product(T{}, -apart, root)) < R(0)) root = -root;
    T shift = low;  // the eigenvalue of the last two rows that is nearer to the last number
    if (apart + root != T{}) shift = low - product / (apart + root);
    if (tried % 10 == 0) shift = low + T(magnitude(m[end * pitch + end - 1]));
    s.sync();
    if (s.lane == 0 && begin > 0) m[begin * pitch + begin - 1] = T{};
    T x = m[begin * (pitch + 1)] - shift, y = m[(begin + 1) * pitch + begin];
    for (int k = begin; k < end; ++k) {
      const PlaneTurn<T> by(x, y);
      s.sync();
      s.lines(max(k - 1, begin), n, [&](int column) {
        by.rows(m[k * pitch + column], m[(k + 1) * pitch + column]);
        if (k > begin && column == k - 1) m[(k + 1) * pitch + column] = T{};
      });
      s.sync();
      s.lines(0, n, [&](int row) {
        if (row <= min(k + 2, end)) by.columns(m[row * pitch + k], m[row * pitch + k + 1]);
        by.columns(z[row * pitch + k], z[row * pitch + k + 1]);
      });
      s.sync();
      if (k + 2 <= end) x = m[(k + 1) * pitch + k], y = m[(k + 2) * pitch + k];
    }
  }
  const bool found = finite && end <= 0;
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(3, s.group)] = found ? 0 : n;
  s.sync();
  s.lines(0, n, [&](int row) {
    const T none(numeric<R>::nan());
    for (int j = 0; j < n; ++j) {
      T& x = m[row * pitch + j];
      x = !found ? none : j < row ? T{} : math::scaled(x, exponent);
      if (!found) z[row * pitch + j] = none;
    }
  });

  __syncthreads();
  T* const out = static_cast<T*>(p.t);
  s.each(1, [&](int matrix, int row, int column, i64 to) { out[to] = s.tile_of(0, matrix)[row * pitch + column]; });
  T* const vectors = static_cast<T*>(p.z);
  if (vectors == nullptr) return;
  s.each(2, [&](int matrix, int row, int column, i64 to) { vectors[to] = s.tile_of(1, matrix)[row * pitch + column]; });
}

}  // namespace baracuda
