// small_eigh    eigenvalues w, ascending, and eigenvectors v of Hermitian matrices of up to 64 rows. Schedule small.
//
// Jacobi's method: sweeps of rotations from both sides until no element beside the diagonal is above eps ‖A‖; all
// disjoint pairs of a round are taken from the matrix as the round found it, so bits depend on the matrix alone. The
// matrix is scaled by a power of two that brings its largest element to 1. info: 0, or the size of a matrix that has
// numbers that are not finite, or whose sweeps ran out; w and v are NaN then.
#include "linalg/jacobi.cuh"

namespace baracuda {

constexpr int eigh_sweeps = 30;

template <class T, int G> BARACUDA_D void small_eigh(const SmallEighParams& p) {
  using R = part_t<T>;
  const SmallMatrices<T, G, SmallEighParams> s(p);
  const int n = p.rows, pitch = p.pitch;
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) {
    if (column > row) return;
    const T x = p.conjugate ? adjoint(a[from]) : a[from];
    T* const to = s.tile_of(0, matrix);
    to[row * pitch + column] = x;
    to[column * pitch + row] = row == column ? real_part(x) : adjoint(x);
  });

  T* const m = s.tile(0);
  T* const v = s.tile(1);
  T* const beside = s.beside();
  const bool vectors = p.v != nullptr;
  const R most = s.largest(n, [&](int line) {
    R x(0);
    for (int j = 0; j < n; ++j) x = math::maximum(x, largest_part(m[line * pitch + j]));
    return x;
  });
  const bool finite = math::isfinite(most);
  const int exponent = finite ? math::exponent(most) : 0;
  const R sum = s.sum(n, [&](int line) {
    R x(0);
    for (int j = 0; j < n; ++j) {
      T& element = m[line * pitch + j];
      element = math::scaled(element, -exponent);
      x += squared(element);
      if (vectors) v[line * pitch + j] = T(line == j ? R(1) : R(0));
    }
    return x;
  });
  const R least = numeric<R>::epsilon() * math::sqrt(sum);

  const Tournament tournament(n);
  bool turned = true;
  for (int sweep = 0; sweep < eigh_sweeps && s.any(turned); ++sweep) {
    turned = false;
    for (int round = 0; round < tournament.rounds(); ++round) {
      const auto each_pair = [&](auto act) {
        for (int number = 0, low, high; number < tournament.pairs(); ++number) {
          const Rotation<T> by{beside[2 * number], beside[2 * number + 1]};
          if (by.turns() && tournament.pair(round, number, low, high)) act(by, low, high);
        }
      };
      s.lines(0, tournament.pairs(), [&](int number) {
        Rotation<T> by{};
        int low, high;
        if (tournament.pair(round, number, low, high)) {
          const T gamma = m[low * pitch + high];
          const R size = magnitude(gamma);
          if (size > least) {
            by = rotation(real_of(m[low * pitch + low]), real_of(m[high * pitch + high]), gamma, size);
            turned = true;
          }
        }
        beside[2 * number] = by.share, beside[2 * number + 1] = by.s;
      });
      s.sync();
      s.lines(0, n, [&](int row) {
        each_pair([&](const Rotation<T>& by, int low, int high) {
          by.apply(m[row * pitch + low], m[row * pitch + high]);
          if (vectors) by.apply(v[row * pitch + low], v[row * pitch + high]);
        });
      });
      s.sync();
      s.lines(0, n, [&](int column) {
        each_pair([&](const Rotation<T>& by, int low, int high) {
          by.conjugate().apply(m[low * pitch + column], m[high * pitch + column]);
          if (column == low) m[high * pitch + column] = T{};
          if (column == high) m[low * pitch + column] = T{};
        });
      });
      s.sync();
    }
  }

  const bool found = !s.any(turned) && finite;
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(3, s.group)] = found ? 0 : n;

  // Of each place in ascending order the number of the value; equal ones keep their order.
  i32* const order = reinterpret_cast<i32*>(s.beside(1));
  s.lines(0, n, [&](int i) {
    const R mine = real_of(m[i * pitch + i]);
    int place = 0;
    for (int j = 0; j < n; ++j) {
      const R other = real_of(m[j * pitch + j]);
      place += other < mine || (j < i && !(mine < other));
    }
    order[found ? place : i] = i;
  });
  s.sync();
  s.lines(0, n, [&](int i) {
    T& mine = m[i * pitch + i];
    mine = T(found ? math::scaled(real_of(mine), exponent) : numeric<R>::nan());
    for (int j = 0; j < n && vectors && !found; ++j) v[i * pitch + j] = T(numeric<R>::nan());
  });

  __syncthreads();
  const auto source = [&](int matrix, int place) {
    return reinterpret_cast<const i32*>(s.beside_of(1, matrix))[place];
  };
  R* const w = static_cast<R*>(p.w);
  s.each(1, [&](int matrix, int, int place, i64 to) {
    w[to] = real_of(s.tile_of(0, matrix)[source(matrix, place) * (pitch + 1)]);
  });
  T* const out = static_cast<T*>(p.v);
  if (!vectors) return;
  s.each(2, [&](int matrix, int row, int column, i64 to) {
    out[to] = s.tile_of(1, matrix)[row * pitch + source(matrix, column)];
  });
}

}  // namespace baracuda
