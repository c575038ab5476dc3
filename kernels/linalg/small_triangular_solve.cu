// small_triangular_solve    x with A x = b, A triangular, for up to 64 rows and right sides. Schedule small.
//
// Substitution from the diagonal's end that stands alone: what is left of a row of b when the rows found before it are
// taken off by their elements of A, one after another, divided by the diagonal. Threads have columns of b, or where there
// are few rows of it; the products come off in the same order.
//
// small_triangular_vector    the same for one right side and 5 to 32 rows. A group of G lanes has a matrix, each lane a
// row of the solution in a register, which shuffles tell the others. All elements of the matrix are under way before the
// first is used, along whichever axis is dense; shared memory turns them so that a lane has its row.
#include "linalg/small.cuh"

namespace baracuda {

template <class T, int G> BARACUDA_D void small_triangular_solve(const SmallTriangularSolveParams& p) {
  const SmallMatrices<T, G, SmallTriangularSolveParams> s(p);
  const int n = p.rows, pitch = p.pitch, sides = p.sides;
  const T* const a = static_cast<const T*>(p.a);
  const T* const b = static_cast<const T*>(p.b);
  s.each(0, [&](int matrix, int row, int column, i64 from) {  // of A what x is solved with; the conjugate of that
    const bool kept = p.upper ? column >= row : column <= row;
    const T x = !kept || (p.unit && row == column) ? T(part_t<T>(1)) : a[from];
    s.tile_of(0, matrix)[row * pitch + column] = p.conjugate ? x : adjoint(x);
  });
  s.each(1, [&](int matrix, int row, int column, i64 from) { s.tile_of(1, matrix)[row * pitch + column] = b[from]; });

  const T* const m = s.tile(0);
  T* const x = s.tile(1);
  const auto row_of = [&](int step) { return p.upper ? n - 1 - step : step; };
  if (2 * sides > n) {
    s.lines(0, sides, [&](int side) {
      for (int step = 0; step < n; ++step) {
        const int row = row_of(step);
        T left = x[row * pitch + side];
        for (int before = 0; before < step; ++before) {
          const int k = row_of(before);
          left = minus_product(left, x[k * pitch + side], m[row * pitch + k]);
        }
        x[row * pitch + side] = p.unit ? left : left / adjoint(m[row * pitch + row]);
      }
    });
  } else {
    for (int step = 0; step < n; ++step) {
      const int k = row_of(step);
      s.lines(0, n, [&](int row) {
        if (row != k || p.unit) return;
        for (int side = 0; side < sides; ++side) x[k * pitch + side] = x[k * pitch + side] / adjoint(m[k * pitch + k]);
      });
      s.sync();
      s.lines(0, n, [&](int row) {
        if (p.upper ? row >= k : row <= k) return;
        for (int side = 0; side < sides; ++side) {
          T& left = x[row * pitch + side];
          left = minus_product(left, x[k * pitch + side], m[row * pitch + k]);
        }
      });
      s.sync();
    }
  }

  __syncthreads();
  T* const out = static_cast<T*>(p.x);
  s.each(2, [&](int matrix, int row, int column, i64 to) { out[to] = s.tile_of(1, matrix)[row * pitch + column]; });
}

template <class T, int G> BARACUDA_D void small_triangular_vector(const SmallTriangularSolveParams& p) {
  constexpr int pitch = G | 1;
  const int lane = static_cast<int>(threadIdx.x) % G, n = p.rows;
  const i64 matrix = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / G;
  const i64 held = min<i64>(matrix, p.count - 1);  // lanes past the last matrix compute with it, and store nothing
  const auto begin = [&](int operand) { return offset<i64>(held, p.batch_rank, p.batch_shape, p.batch[operand]); };
  T* const m = dynamic_smem<T>() + static_cast<int>(threadIdx.x) / G * (G * pitch);
  const T* const a = static_cast<const T*>(p.a) + begin(0);
  const bool by_columns = p.by_columns & 1;
  T found[G];
#pragma unroll
  for (int i = 0; i < G; ++i) {
    const int row = by_columns ? lane : i, column = by_columns ? i : lane;
    const bool kept = row < n && column < n && (p.upper ? column >= row : column <= row);
    found[i] = T(part_t<T>(1));
    if (kept && !(p.unit && row == column)) found[i] = a[row * p.strides[0][0] + column * p.strides[0][1]];
  }
  T left{};
  if (lane < n) left = static_cast<const T*>(p.b)[begin(1) + lane * p.strides[1][0]];
#pragma unroll
  for (int i = 0; i < G; ++i) {
    m[by_columns ? lane * pitch + i : i * pitch + lane] = p.conjugate ? found[i] : adjoint(found[i]);
  }
  __syncwarp();
#pragma unroll 4
  for (int step = 0; step < n; ++step) {
    const int k = p.upper ? n - 1 - step : step;
    const T factor = m[lane * pitch + k];
    if (lane == k && !p.unit) left = left / adjoint(factor);
    const T solved = shuffle<G>(left, k);
    if (p.upper ? lane < k : lane > k) left = minus_product(left, solved, factor);
  }
  if (matrix < p.count && lane < n) static_cast<T*>(p.x)[begin(2) + lane * p.strides[2][0]] = left;
}

}  // namespace baracuda
