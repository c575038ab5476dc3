// small_cholesky    y = L with A = L Lᴴ, for matrices of up to 64 rows. Schedule small.
//
// Column after column: what is left of A's column when the products of the columns before it are taken off, one after
// another from the first, divided by the root of its own diagonal element. Only the lower triangle is read. info: the
// number, from 1, of the first column whose diagonal element is not positive there (NaN included), else 0.
#include "linalg/small.cuh"

namespace baracuda {

template <class T, int G> BARACUDA_D void small_cholesky(const SmallCholeskyParams& p) {
  using R = part_t<T>;
  const SmallMatrices<T, G, SmallCholeskyParams> s(p);
  const T* const a = static_cast<const T*>(p.a);
  s.each(0, [&](int matrix, int row, int column, i64 from) {
    s.tile_of(0, matrix)[row * p.pitch + column] = column <= row ? a[from] : T{};
  });

  T* const l = s.tile();
  int info = 0;
  for (int k = 0; k < p.rows; ++k) {
    s.lines(k, p.rows, [&](int row) {
      T left = l[row * p.pitch + k];
      for (int j = 0; j < k; ++j) left = minus_product(left, l[row * p.pitch + j], l[k * p.pitch + j]);
      l[row * p.pitch + k] = row == k ? real_part(left) : left;
    });
    s.sync();
    const R pivot = real_of(l[k * p.pitch + k]);
    if (!(pivot > R(0)) && info == 0) info = k + 1;
    const R root = math::sqrt(pivot);
    s.sync();  // all have read the pivot
    s.lines(k, p.rows, [&](int row) {
      T& mine = l[row * p.pitch + k];
      mine = row == k ? T(root) : divided(mine, root);
    });
    s.sync();
  }
  if (p.info != nullptr && s.leads()) static_cast<i32*>(p.info)[s.begin(2, s.group)] = info;

  __syncthreads();
  T* const y = static_cast<T*>(p.y);
  s.each(1, [&](int matrix, int row, int column, i64 to) { y[to] = s.tile_of(0, matrix)[row * p.pitch + column]; });
}

}  // namespace baracuda
