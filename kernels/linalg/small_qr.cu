// small_qr    a = q r, q of orthonormal columns, r upper triangular, for up to 64 rows and columns. Schedule small.
//
// Householder's reflectors H = I - tau v vᴴ, one a column, as LAPACK's geqrf makes them: r's diagonal has the sign opposite
// to the column's own element. q is their product with the columns of a unit matrix, the last reflector first. The matrix
// is scaled by a power of two that brings its largest element to 1; what is below 2^-62 of that in a column's square
// counts as nothing.
#include "linalg/small.cuh"

namespace baracuda {

// x - tau v (vᴴ x) for the column of a matrix: v is 1 in row k, and in column k of `reflectors` below.
template <class T> BARACUDA_D void reflect(T tau, const T* reflectors, T* column, int k, int rows, int pitch) {
  T along = column[k * pitch];
  for (int i = k + 1; i < rows; ++i) {
    along = plus_product(along, adjoint(reflectors[i * pitch + k]), column[i * pitch]);
  }
  const T much = plus_product(T{}, tau, along);
  column[k * pitch] = column[k * pitch] - much;
  for (int i = k + 1; i < rows; ++i) {
    column[i * pitch] = minus_product(column[i * pitch], much, adjoint(reflectors[i * pitch + k]));
  }
}

template <class T, int G> BARACUDA_D void small_qr(const SmallQrParams& p) {
  using R = part_t<T>;
  const SmallMatrices<T, G, SmallQrParams> s(p);
  const int rows = p.rows, columns = p.inner, rank = p.rank, pitch = p.pitch, steps = min(rows, columns);
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) { s.tile_of(0, matrix)[row * pitch + column] = a[from]; });

  T* const m = s.tile(0);
  T* const taus = s.beside(1);
  const R most = s.largest(rows, [&](int row) {
    R x(0);
    for (int j = 0; j < columns; ++j) x = math::maximum(x, largest_part(m[row * pitch + j]));
    return x;
  });
  const int exponent = math::isfinite(most) ? math::exponent(most) : 0;
  s.lines(0, rows, [&](int row) {
    for (int j = 0; j < columns; ++j) m[row * pitch + j] = math::scaled(m[row * pitch + j], -exponent);
  });
  s.sync();

  const R nothing = numeric<R>::tiny() / numeric<R>::epsilon();
  for (int k = 0; k < steps; ++k) {
    const R below = s.sum(rows, [&](int row) { return row > k ? squared(m[row * pitch + k]) : R(0); });
    const T alpha = m[k * pitch + k];
    const R square = squared(alpha) + below;
    const bool real = imaginary_of(alpha) == R(0);
    const bool reflects = !(square <= nothing || (below <= nothing && real));
    const R beta = -math::copysign(math::sqrt(square), real_of(alpha));
    const T tau = reflects ? divided(T(beta) - alpha, beta) : T{};
    s.sync();  // all have read the column's own element
    s.lines(k, rows, [&](int row) {
      T& element = m[row * pitch + k];
      if (row > k) element = reflects ? element / (alpha - T(beta)) : T{};
      else if (reflects) element = T(beta), taus[k] = tau;
      else taus[k] = tau;
    });
    s.sync();
    if (reflects) {
      s.lines(k + 1, columns, [&](int column) { reflect(adjoint(tau), m, m + column, k, rows, pitch); });
      s.sync();
    }
  }

  T* const q = static_cast<T*>(p.q);
  if (q != nullptr) {
    T* const made = s.tile(1);
    s.lines(0, rank, [&](int column) {
      for (int i = 0; i < rows; ++i) made[i * pitch + column] = T(i == column ? R(1) : R(0));
      for (int k = steps - 1; k >= 0; --k) reflect(taus[k], m, made + column, k, rows, pitch);
    });
  }
  s.sync();
  s.lines(0, rows, [&](int row) {  // r in its own size, zeros below its diagonal
    for (int j = 0; j < columns; ++j) {
      T& element = m[row * pitch + j];
      element = row <= j ? math::scaled(element, exponent) : T{};
    }
  });

  __syncthreads();
  if (q != nullptr) {
    s.each(1, [&](int matrix, int row, int column, i64 to) { q[to] = s.tile_of(1, matrix)[row * pitch + column]; });
  }
  T* const r = static_cast<T*>(p.r);
  s.each(2, [&](int matrix, int row, int column, i64 to) { r[to] = s.tile_of(0, matrix)[row * pitch + column]; });
}

}  // namespace baracuda
