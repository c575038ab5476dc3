// small_svd    a = u diag(s) vh, s descending, for matrices of up to 64 rows and columns, no wider than tall. Schedule small.
//
// Jacobi's one-sided method: sweeps of rotations of columns until each pair is orthogonal to sqrt(rows) eps of its
// lengths, which are then the singular values; the rotations of a unit matrix are V. The matrix is scaled by a power of
// two that brings its largest element to 1. Columns of no length get vectors orthogonal to the others. info: 0, or the
// number of singular values of a matrix that has numbers that are not finite, or whose sweeps ran out; all is NaN then.
#include "linalg/jacobi.cuh"

namespace baracuda {

constexpr int svd_sweeps = 30;

template <class T, int G> BARACUDA_D void small_svd(const SmallSvdParams& p) {
  using R = part_t<T>;
  const SmallMatrices<T, G, SmallSvdParams> s(p);
  const int rows = p.rows, columns = p.inner, vectors = p.vectors, pitch = p.pitch;  // columns of a, and of u
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) { s.tile_of(0, matrix)[row * pitch + column] = a[from]; });

  T* const m = s.tile(0);
  T* const v = s.tile(1);
  T* const beside = s.beside();
  const bool left = p.u != nullptr, right = p.vh != nullptr;
  const R most = s.largest(rows, [&](int line) {
    R x(0);
    for (int j = 0; j < columns; ++j) x = math::maximum(x, largest_part(m[line * pitch + j]));
    return x;
  });
  const bool finite = math::isfinite(most);
  const int exponent = finite ? math::exponent(most) : 0;
  s.lines(0, rows, [&](int row) {
    for (int j = 0; j < columns; ++j) {
      T& element = m[row * pitch + j];
      element = math::scaled(element, -exponent);
      if (right && row < columns) v[row * pitch + j] = T(row == j ? R(1) : R(0));
    }
  });
  s.sync();

  // Squares of lengths below this are of columns that count as none: their part of the matrix is far below its last bit.
  const R nothing = numeric<R>::tiny() / numeric<R>::epsilon();
  const R least = numeric<R>::epsilon() * math::sqrt(R(rows));
  const Tournament tournament(columns);
  bool turned = true;
  for (int sweep = 0; sweep < svd_sweeps && s.any(turned); ++sweep) {
    turned = false;
    for (int round = 0; round < tournament.rounds(); ++round) {
      s.lines(0, tournament.pairs(), [&](int number) {
        Rotation<T> by{};
        int low, high;
        if (tournament.pair(round, number, low, high)) {
          R alpha(0), beta(0);
          T gamma{};
          for (int i = 0; i < rows; ++i) {
            const T x = m[i * pitch + low], y = m[i * pitch + high];
            alpha += squared(x), beta += squared(y), gamma = plus_product(gamma, adjoint(x), y);
          }
          const R size = magnitude(gamma);
          if (alpha > nothing && beta > nothing && size > least * math::sqrt(alpha) * math::sqrt(beta)) {
            by = rotation(alpha, beta, gamma, size);
            turned = true;
          }
        }
        beside[2 * number] = by.share, beside[2 * number + 1] = by.s;
      });
      s.sync();
      s.lines(0, rows, [&](int row) {
        for (int number = 0, low, high; number < tournament.pairs(); ++number) {
          const Rotation<T> by{beside[2 * number], beside[2 * number + 1]};
          if (!by.turns() || !tournament.pair(round, number, low, high)) continue;
          by.apply(m[row * pitch + low], m[row * pitch + high]);
          if (right && row < columns) by.apply(v[row * pitch + low], v[row * pitch + high]);
        }
      });
      s.sync();
    }
  }
  const bool found = !s.any(turned) && finite;
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(4, s.group)] = found ? 0 : max(columns, 1);

  // Lengths of columns, which become of length 1, or zeros.
  T* const lengths = s.beside(1);
  s.lines(0, vectors, [&](int column) {
    R square(0);
    for (int i = 0; i < rows && column < columns; ++i) square += squared(m[i * pitch + column]);
    const R length = square > nothing ? math::sqrt(square) : R(0);
    lengths[column] = T(length);
    for (int i = 0; i < rows && left; ++i) {
      T& element = m[i * pitch + column];
      element = length > R(0) ? divided(element, length) : T{};
    }
  });
  s.sync();
  for (int column = 0; column < vectors && left; ++column) {
    if (!found || real_of(lengths[column]) > R(0)) continue;
    // The unit vector of which the columns that there are have least, without its part along them.
    const auto there = [&](int j) { return j < column || real_of(lengths[j]) > R(0); };
    const auto held = [&](int row) {
      R x(0);
      for (int j = 0; j < vectors; ++j) x += there(j) ? squared(m[row * pitch + j]) : R(0);
      return x;
    };
    int best = 0;
    s.lines(0, rows, [&](int row) { beside[row] = T(held(row)); });
    s.sync();
    for (int row = 1; row < rows; ++row) best = real_of(beside[row]) < real_of(beside[best]) ? row : best;
    s.sync();
    const R square = s.sum(rows, [&](int row) {
      T x = T(row == best ? R(1) : R(0));
      for (int j = 0; j < vectors; ++j) {
        if (there(j)) x = minus_product(x, m[row * pitch + j], m[best * pitch + j]);
      }
      s.beside(2)[row] = x;
      return squared(x);
    });
    s.lines(0, rows, [&](int row) { m[row * pitch + column] = divided(s.beside(2)[row], math::sqrt(square)); });
    s.sync();
  }

  // Of each place in descending order the number of the column; equal ones keep their order.
  i32* const order = reinterpret_cast<i32*>(s.beside(2));
  s.lines(0, vectors, [&](int i) {
    const R mine = real_of(lengths[i]);
    int place = 0;
    for (int j = 0; j < vectors; ++j) {
      const R other = real_of(lengths[j]);
      place += other > mine || (j < i && !(mine > other));
    }
    order[found ? place : i] = i;
  });
  s.sync();
  s.lines(0, rows, [&](int i) {
    if (i < columns) lengths[i] = T(found ? math::scaled(real_of(lengths[i]), exponent) : numeric<R>::nan());
    for (int j = 0; j < vectors && !found; ++j) m[i * pitch + j] = v[i * pitch + j] = T(numeric<R>::nan());
  });

  __syncthreads();
  const auto source = [&](int matrix, int place) {
    return reinterpret_cast<const i32*>(s.beside_of(2, matrix))[place];
  };
  R* const values = static_cast<R*>(p.s);
  s.each(2, [&](int matrix, int, int place, i64 to) {
    values[to] = real_of(s.beside_of(1, matrix)[source(matrix, place)]);
  });
  T* const u = static_cast<T*>(p.u);
  T* const vh = static_cast<T*>(p.vh);
  if (left) {
    s.each(1, [&](int matrix, int row, int column, i64 to) {
      u[to] = s.tile_of(0, matrix)[row * pitch + source(matrix, column)];
    });
  }
  if (right) {
    s.each(3, [&](int matrix, int row, int column, i64 to) {
      vh[to] = adjoint(s.tile_of(1, matrix)[column * pitch + source(matrix, row)]);
    });
  }
}

}  // namespace baracuda
