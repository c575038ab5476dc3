// tridiagonal_solve    x with A x = b, A of three diagonals. Gaussian elimination with exchanges of neighbouring rows.
//
// tridiagonal_factor: a thread has a system and walks down its rows: U, of three diagonals, the multiplier of each row
// and whether it was exchanged with the next go to the workspace. tridiagonal_substitute: a thread has a right side, and
// walks down, then up. Everything of a system, or of a right side, is in the order of its rows.
#include <baracuda/index.cuh>

#include "linalg/numbers.cuh"

namespace baracuda {

// The workspace, where neighbouring systems are neighbours: U's diagonals and the multipliers, row by row.
template <class T> struct Eliminated {
  T* const u;
  int* const exchanged;
  const i64 count, whole;
  BARACUDA_D explicit Eliminated(const TridiagonalParams& p)
      : u(static_cast<T*>(p.u)), exchanged(static_cast<int*>(p.exchanged)), count(p.count), whole(p.n * p.count) {}
  BARACUDA_D T& diagonal(int which, i64 row, i64 system) const { return u[which * whole + row * count + system]; }
  BARACUDA_D T& multiplier(i64 row, i64 system) const { return diagonal(3, row, system); }
  BARACUDA_D int& exchange(i64 row, i64 system) const { return exchanged[row * count + system]; }
};

// What operand i has of a system.
template <class T> struct Line {
  T* const at;
  const i64 step;
  BARACUDA_D Line(const TridiagonalParams& p, const void* of, int i, i64 system, i64 beside = 0)
      : at(static_cast<T*>(const_cast<void*>(of)) + offset<i64>(system, p.batch_rank, p.batch_shape, p.batch[i]) +
           beside),
        step(p.steps[i]) {}
  BARACUDA_D T& operator[](i64 row) const { return at[row * step]; }
};

template <class T> BARACUDA_D T less_product(T c, T a, T b) { return minus_product(c, a, adjoint(b)); }

template <class T> BARACUDA_D void tridiagonal_factor(const TridiagonalParams& p) {
  const i64 system = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (system >= p.count) return;
  const Eliminated<T> made(p);
  const Line<T> below(p, p.dl, 0, system), middle(p, p.d, 1, system), above(p, p.du, 2, system);
  const T zero(part_t<T>(0));
  T own = middle[0], right = p.n > 1 ? above[0] : zero;  // of the row that is not yet done
  for (i64 row = 0; row + 1 < p.n; ++row) {
    const T left = below[row + 1], next = middle[row + 1], beyond = row + 2 < p.n ? above[row + 1] : zero;
    const bool keep = largest_part(own) >= largest_part(left);
    const T share = keep ? (largest_part(left) == part_t<T>(0) ? zero : left / own) : own / left;
    made.diagonal(0, row, system) = keep ? own : left;
    made.diagonal(1, row, system) = keep ? right : next;
    made.diagonal(2, row, system) = keep ? zero : beyond;
    made.multiplier(row, system) = share;
    made.exchange(row, system) = keep ? 0 : 1;
    own = keep ? less_product(next, share, right) : less_product(right, share, next);
    right = keep ? beyond : less_product(zero, share, beyond);
  }
  made.diagonal(0, p.n - 1, system) = own;
}

template <class T> BARACUDA_D void tridiagonal_substitute(const TridiagonalParams& p) {
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x, system = thread / p.sides;
  if (system >= p.count) return;
  const i64 side = thread - system * p.sides;
  const Eliminated<T> made(p);
  const Line<T> b(p, p.b, 3, system, side * p.side_steps[0]), x(p, p.x, 4, system, side * p.side_steps[1]);
  T left = b[0];  // of the row that is not yet done
  for (i64 row = 0; row + 1 < p.n; ++row) {
    const T next = b[row + 1], share = made.multiplier(row, system);
    const bool exchanged = made.exchange(row, system) != 0;
    x[row] = exchanged ? next : left;
    left = exchanged ? less_product(left, share, next) : less_product(next, share, left);
  }
  T after = left / made.diagonal(0, p.n - 1, system), last(part_t<T>(0));  // of the row below, and of that below it
  x[p.n - 1] = after;
  for (i64 row = p.n - 2; row >= 0; --row) {
    T found = less_product(x[row], made.diagonal(1, row, system), after);
    if (row + 2 < p.n) found = less_product(found, made.diagonal(2, row, system), last);
    last = after;
    after = found / made.diagonal(0, row, system);
    x[row] = after;
  }
}

}  // namespace baracuda
