// small_lu    P A = L U with partial pivoting, packed, for matrices of up to 64 rows and columns. Schedule small.
//
// Column after column: of its elements on and below the diagonal the first with the largest |re| + |im| goes to the
// diagonal, the rows below it are divided by it and take their multiple of its row off theirs. pivots: the row, from 1,
// that was exchanged with each. info: the number, from 1, of the first diagonal element of U that is 0, else 0; nothing
// is divided by it.
#include "linalg/small.cuh"

namespace baracuda {

template <class R> BARACUDA_D R taxicab(R x) { return math::abs(x); }
template <class R> BARACUDA_D R taxicab(complex<R> x) { return math::abs(x.re) + math::abs(x.im); }

template <class T, int G> BARACUDA_D void small_lu(const SmallLuParams& p) {
  const SmallMatrices<T, G, SmallLuParams> s(p);
  const int rows = p.rows, columns = p.columns, pitch = p.pitch, steps = min(rows, columns);
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) { s.tile_of(0, matrix)[row * pitch + column] = a[from]; });

  T* const m = s.tile();
  T* const sizes = s.beside();
  i32* const pivots = reinterpret_cast<i32*>(s.beside(1));
  int info = 0;
  for (int k = 0; k < steps; ++k) {
    s.lines(k, rows, [&](int row) { sizes[row] = T(taxicab(m[row * pitch + k])); });
    s.sync();
    int pivot = k;
    for (int row = k + 1; row < rows; ++row) pivot = real_of(sizes[pivot]) < real_of(sizes[row]) ? row : pivot;
    s.lines(0, columns, [&](int column) {
      const T upper = m[k * pitch + column];
      m[k * pitch + column] = m[pivot * pitch + column];
      m[pivot * pitch + column] = upper;
    });
    s.sync();
    if (s.lane == 0) pivots[k] = pivot + 1;
    const T most = m[k * pitch + k];
    if (most == T{}) {
      info = info == 0 ? k + 1 : info;
      continue;
    }
    s.lines(k + 1, rows, [&](int row) {
      const T factor = m[row * pitch + k] / most;
      m[row * pitch + k] = factor;
      for (int j = k + 1; j < columns; ++j) {
        m[row * pitch + j] = minus_product(m[row * pitch + j], factor, adjoint(m[k * pitch + j]));
      }
    });
    s.sync();
  }
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(3, s.group)] = info;

  __syncthreads();
  T* const lu = static_cast<T*>(p.lu);
  s.each(1, [&](int matrix, int row, int column, i64 to) { lu[to] = s.tile_of(0, matrix)[row * pitch + column]; });
  i32* const out = static_cast<i32*>(p.pivots);
  s.each(2, [&](int matrix, int, int k, i64 to) { out[to] = reinterpret_cast<const i32*>(s.beside_of(1, matrix))[k]; });
}

}  // namespace baracuda
