// small_ldl    P A Pᵀ = L D L* with D of blocks of 1 and 2 rows, packed, for up to 64 rows. Schedule small.
//
// Bunch and Kaufman's pivoting (1977), as LAPACK's sytf2 and hetf2 of a lower triangle: column after column, or two at
// once where the diagonal is small beside its column. The group keeps both triangles, so rows and columns are exchanged
// whole; a thread takes the multiples of the pivot rows off its own row, in the order of the columns. A: symmetric, or
// Hermitian, of which the lower triangle is read. pivots: the row, from 1, that was exchanged with each, negative for
// both rows of a block of two, of which the second one was exchanged. info: the number, from 1, of the first block of D
// that is 0, else 0; nothing is divided by it.
#include "linalg/small.cuh"

namespace baracuda {

template <class R> BARACUDA_D R summed_parts(R x) { return math::abs(x); }
template <class R> BARACUDA_D R summed_parts(complex<R> x) { return math::abs(x.re) + math::abs(x.im); }

template <class T, int G> BARACUDA_D void small_ldl(const SmallLdlParams& p) {
  using R = part_t<T>;
  const R share(0.6403882032022076);  // (1 + sqrt(17)) / 8, by which elements grow least
  const SmallMatrices<T, G, SmallLdlParams> s(p);
  const int n = p.rows, pitch = p.pitch;
  const bool hermitian = p.hermitian;
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) {
    if (column > row) return;
    const T x = row == column && hermitian ? real_part(a[from]) : a[from];
    T* const to = s.tile_of(0, matrix);
    to[row * pitch + column] = x;
    if (row != column) to[column * pitch + row] = hermitian ? adjoint(x) : x;
  });

  T* const m = s.tile();
  T* const sizes = s.beside();
  i32* const pivots = reinterpret_cast<i32*>(s.beside(1));
  int info = 0;
  // Of |x| of the lines from `from` on but `except` the largest, the first of these.
  const auto largest = [&](int from, int except, R& most, auto say) {
    s.lines(from, n, [&](int line) { sizes[line] = T(line == except ? R(0) : summed_parts(say(line))); });
    s.sync();
    int place = from;
    most = from < n ? real_of(sizes[from]) : R(0);
    for (int line = from + 1; line < n; ++line) {
      if (most < real_of(sizes[line])) most = real_of(sizes[line]), place = line;
    }
    s.sync();
    return place;
  };
  for (int k = 0; k < n;) {
    const R own = summed_parts(m[k * pitch + k]);
    R below, beside;
    const int low = largest(k + 1, -1, below, [&](int row) { return m[row * pitch + k]; });
    int pivot = k, width = 1;
    if (own < share * below) {
      largest(k, low, beside, [&](int column) { return m[low * pitch + column]; });
      if (own < share * below * (below / beside)) {
        pivot = low;
        width = summed_parts(m[low * pitch + low]) >= share * beside ? 1 : 2;
      }
    }
    const int moved = k + width - 1;
    s.sync();  // all have chosen, by numbers that are exchanged now
    if (pivot != moved) {
      s.lines(k, n, [&](int column) {
        const T upper = m[moved * pitch + column];
        m[moved * pitch + column] = m[pivot * pitch + column];
        m[pivot * pitch + column] = upper;
      });
      s.sync();
      s.lines(k, n, [&](int row) {
        const T left = m[row * pitch + moved];
        m[row * pitch + moved] = m[row * pitch + pivot];
        m[row * pitch + pivot] = left;
      });
    }
    if (s.lane == 0) {
      pivots[k] = width == 1 ? pivot + 1 : -(pivot + 1);
      if (width == 2) pivots[k + 1] = -(pivot + 1);
    }
    s.sync();
    const T first = m[k * pitch + k];
    if (width == 1 && first == T{}) info = info == 0 ? k + 1 : info;
    if (width == 1 && first != T{}) {
      s.lines(k + 1, n, [&](int row) {
        const T factor = m[row * pitch + k] / first;
        m[row * pitch + k] = factor;
        for (int j = k + 1; j < n; ++j) {
          m[row * pitch + j] = minus_product(m[row * pitch + j], factor, adjoint(m[k * pitch + j]));
        }
        if (hermitian) m[row * pitch + row] = real_part(m[row * pitch + row]);
      });
    } else if (width == 2) {  // by the inverse of the block, whose corner is the larger part of it
      const T corner = m[(k + 1) * pitch + k], other = m[k * pitch + k + 1];
      const T p0 = first / other, p1 = m[(k + 1) * pitch + k + 1] / corner;
      const T less = minus_product(T(R(-1)), -p0, adjoint(p1));  // p0 p1 - 1
      s.lines(k + 2, n, [&](int row) {
        const T x = m[row * pitch + k], y = m[row * pitch + k + 1];
        const T f = minus_product(-y, -x, adjoint(p1)) / less / other;
        const T g = minus_product(-x, -y, adjoint(p0)) / less / corner;
        m[row * pitch + k] = f, m[row * pitch + k + 1] = g;
        for (int j = k + 2; j < n; ++j) {
          T& left = m[row * pitch + j];
          left = minus_product(left, f, adjoint(m[k * pitch + j]));
          left = minus_product(left, g, adjoint(m[(k + 1) * pitch + j]));
        }
        if (hermitian) m[row * pitch + row] = real_part(m[row * pitch + row]);
      });
    }
    s.sync();
    k += width;
  }
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(3, s.group)] = info;

  __syncthreads();
  T* const ld = static_cast<T*>(p.ld);
  s.each(1, [&](int matrix, int row, int column, i64 to) {
    ld[to] = column > row ? T{} : s.tile_of(0, matrix)[row * pitch + column];
  });
  i32* const out = static_cast<i32*>(p.pivots);
  s.each(2, [&](int matrix, int, int k, i64 to) { out[to] = reinterpret_cast<const i32*>(s.beside_of(1, matrix))[k]; });
}

}  // namespace baracuda
