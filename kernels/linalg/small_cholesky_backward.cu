// small_cholesky_backward    da = (S + Sᴴ) / 2, S = L⁻ᴴ P L⁻¹, for matrices of up to 64 rows. Schedule small.
//
// P is half of Lᴴ dL below its diagonal, half of the real part on it, and Hermitian. Sums go along rows from the
// diagonal down where L is multiplied by, and from the last row up where it is solved for.
#include "linalg/small.cuh"

namespace baracuda {

template <class T, int G> BARACUDA_D void small_cholesky_backward(const SmallCholeskyBackwardParams& p) {
  const SmallMatrices<T, G, SmallCholeskyBackwardParams> s(p);
  const T* const y = static_cast<const T*>(p.y);
  const T* const dy = static_cast<const T*>(p.dy);
  s.each(0, [&](int matrix, int row, int column, i64 from) {
    s.tile_of(0, matrix)[row * p.pitch + column] = column <= row ? y[from] : T{};
  });
  s.each(1, [&](int matrix, int row, int column, i64 from) {
    s.tile_of(1, matrix)[row * p.pitch + column] = column <= row ? dy[from] : T{};
  });

  const int n = p.rows, pitch = p.pitch;
  const T* const l = s.tile(0);
  T* const w = s.tile(1);
  s.lines(0, n, [&](int column) {  // the lower triangle of Lᴴ dL, in dL's place: what is below is not yet overwritten
    for (int row = column; row < n; ++row) {
      T sum{};
      for (int k = row; k < n; ++k) sum = minus_product(sum, -w[k * pitch + column], l[k * pitch + row]);
      w[row * pitch + column] = row == column ? real_part(half(sum)) : half(sum);
    }
  });
  s.sync();
  s.lines(0, n, [&](int column) {
    for (int row = 0; row < column; ++row) w[row * pitch + column] = adjoint(w[column * pitch + row]);
  });
  s.sync();
  s.lines(0, n, [&](int column) {  // L⁻ᴴ P
    for (int row = n - 1; row >= 0; --row) {
      T left = w[row * pitch + column];
      for (int k = n - 1; k > row; --k) left = minus_product(left, w[k * pitch + column], l[k * pitch + row]);
      w[row * pitch + column] = left / adjoint(l[row * pitch + row]);
    }
  });
  s.sync();
  s.lines(0, n, [&](int row) {  // and that by L⁻¹
    for (int column = n - 1; column >= 0; --column) {
      T left = w[row * pitch + column];
      for (int k = n - 1; k > column; --k) {
        left = minus_product(left, w[row * pitch + k], adjoint(l[k * pitch + column]));
      }
      w[row * pitch + column] = left / l[column * pitch + column];
    }
  });

  __syncthreads();
  T* const da = static_cast<T*>(p.da);
  s.each(2, [&](int matrix, int row, int column, i64 to) {
    const T* const made = s.tile_of(1, matrix);
    da[to] = half(made[row * pitch + column] + adjoint(made[column * pitch + row]));
  });
}

}  // namespace baracuda
