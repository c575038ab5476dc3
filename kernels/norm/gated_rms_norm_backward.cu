// gated_rms_norm_backward   with n = rms_norm(a), g the slope of n * weight: da = rstd (g weight - n mean(g weight n)),
//                           dweight = sum over rows of g n; a is x, or x silu(z) where the gate comes first.
//
// Statistics are made anew. A block takes a share of the rows of one group of columns, LANES lanes a row; a lane adds the
// parts of dweight of its rows in order, a block those of its lanes in order, and `fold` those of blocks: eight lanes take
// every eighth part in order, and are added in order. Shapes and the number of multiprocessors fix it all. Rows in
// registers are asked for while those before them are computed. With CHUNKS 0 rows are read several times, and a block adds
// its parts in the workspace.
#include "gated_slopes.cuh"

namespace baracuda {

namespace gated {

// Rows that registers hold.
template <class T, class W, int THREADS, int LANES, int CHUNKS, bool WIDE>
BARACUDA_D void slopes_held(const GatedRMSNormBackwardParams& p) {
  using A = acc_t<T>;
  using H = Held<T, LANES, CHUNKS, WIDE>;
  constexpr int VEC = vec_elems<T>, subs = THREADS / LANES, warps = LANES > warp_size ? LANES / warp_size : 1;
  constexpr bool keep = CHUNKS == 1;  // the weights, too, stay in registers
  using V = Vec<A, VEC>;
  __shared__ A tops[warps];
  __shared__ norm::Pair<A> sums[warps];
  const i64 group = blockIdx.x % p.groups, split = blockIdx.x / p.groups, shares = p.rows / p.groups;
  const int lane = static_cast<int>(threadIdx.x) % LANES, sub = static_cast<int>(threadIdx.x) / LANES;
  const i64 begin = split * p.share, end = min<i64>(begin + p.share, shares);
  const W* const weights = static_cast<const W*>(p.weight) + RowAt<WIDE>(p, group).offset(p, WEIGHT);
  V total[CHUNKS], held[keep ? CHUNKS : 1];
  chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
    total[i] = V{};
    if constexpr (keep) held[i] = weights_or_ones<T, W, WIDE>(p, weights, col);
  });
  const auto weight_at = [&](int i, i64 col) {
    if constexpr (keep) return held[i];
    else return weights_or_ones<T, W, WIDE>(p, weights, col);
  };
  const auto row_of = [&](i64 first) { return first + sub < end ? (first + sub) * p.groups + group : group; };
  const auto read = [&](int operand, const void* from, i64 first) {
    const i64 offset = RowAt<WIDE>(p, row_of(first)).offset(p, operand);
    return H(p, operand, from, offset, lane, first + sub < end);
  };

  H x = read(X, p.x, begin), z = read(Z, p.z, begin), dy = read(DY, p.dy, begin);
#pragma unroll 1
  for (i64 first = begin; first < end; first += subs) {
    const bool live = first + sub < end;
    H x_next = x, z_next = z, dy_next = dy;
    if constexpr (WIDE) {
      x_next = read(X, p.x, first + subs), z_next = read(Z, p.z, first + subs), dy_next = read(DY, p.dy, first + subs);
    }
    V b[CHUNKS];  // what is normalised, then scaled
    A top = A(0);
    chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
      b[i] = normalised<T, VEC>(p.before, x.at(p, i, col), z.at(p, i, col));
#pragma unroll
      for (int k = 0; k < VEC; ++k) top = math::maximum(top, math::abs(b[i][k]));
    });
    Statistics<A> s;
    s.scale = scale_of(norm::lanes_reduce<Max, LANES>(top, tops), p.eps);
    norm::Pair<A> both{A(0), A(0)};  // of squares, and of g w b
    chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
      V g = dy.at(p, i, col);
      if (p.before) {
        const V gate = z.at(p, i, col);
#pragma unroll
        for (int k = 0; k < VEC; ++k) g[k] *= gate[k] * sigmoid<T>(gate[k]);
      }
      const V w = weight_at(i, col);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        b[i][k] *= s.scale;
        both.a = math::fma(b[i][k], b[i][k], both.a), both.b = math::fma(g[k] * w[k], b[i][k], both.b);
      }
    });
    both = norm::lanes_reduce<norm::SumPair, LANES>(both, sums);
    const A count = static_cast<A>(p.cols);
    s.rstd = A(1) / math::sqrt(both.a / count + static_cast<A>(p.eps) * s.scale * s.scale);
    const A mean = both.b * s.rstd / count;
    if (live) {
      const RowAt<WIDE> at(p, row_of(first));
      T* const dx = static_cast<T*>(p.dx) + at.offset(p, DX);
      T* const dz = static_cast<T*>(p.dz) + at.offset(p, DZ);
      chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
        const V slope = dy.at(p, i, col), gate = z.at(p, i, col);
        V to_x, to_z;
        gradients_of<T, VEC>(p.before, slope, gate, x.at(p, i, col), b[i], weight_at(i, col), s, mean, to_x, to_z);
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          const A g = p.before ? slope[k] * (gate[k] * sigmoid<T>(gate[k])) : slope[k];
          total[i][k] = math::fma(g, b[i][k] * s.rstd, total[i][k]);
        }
        if (p.dx != nullptr) store_chunk<T, WIDE>(p, DX, dx, col, pack<T>(from_acc<T>(to_x)), p.cols - col);
        if (p.dz != nullptr) store_chunk<T, WIDE>(p, DZ, dz, col, pack<T>(from_acc<T>(to_z)), p.cols - col);
      });
    }
    if constexpr (WIDE) x = x_next, z = z_next, dy = dy_next;
    else if (first + subs < end)
      x = read(X, p.x, first + subs), z = read(Z, p.z, first + subs), dy = read(DY, p.dy, first + subs);
  }
  if (p.parts == nullptr) return;
  A* const parts = static_cast<A*>(p.parts) + blockIdx.x * p.cols;
  if constexpr (subs == 1) {
    chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
#pragma unroll
      for (int k = 0; k < VEC; ++k)
        if (col + k < p.cols) parts[col + k] = total[i][k];
    });
  } else {
    __shared__ A board[subs][LANES * CHUNKS * VEC];
    chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) board[sub][col + k] = total[i][k];
    });
    __syncthreads();
    for (int col = threadIdx.x; col < LANES * CHUNKS * VEC && col < p.cols; col += THREADS) {
      A sum = board[0][col];
#pragma unroll
      for (int r = 1; r < subs; ++r) sum += board[r][col];
      parts[col] = sum;
    }
  }
}

// Rows of any length, one at a time.
template <class T, class W, int THREADS, bool WIDE> BARACUDA_D void slopes_read(const GatedRMSNormBackwardParams& p) {
  using A = acc_t<T>;
  using H = Held<T, THREADS, 0, WIDE>;
  constexpr int VEC = vec_elems<T>, warps = THREADS / warp_size;
  __shared__ A board[3 * warps];
  const i64 group = blockIdx.x % p.groups, split = blockIdx.x / p.groups, shares = p.rows / p.groups;
  const int lane = static_cast<int>(threadIdx.x);
  A* const parts = static_cast<A*>(p.parts) + blockIdx.x * p.cols;
  const i64 end = min<i64>((split + 1) * p.share, shares);
  for (i64 col = lane; p.parts != nullptr && col < p.cols; col += THREADS) parts[col] = A(0);
  __syncthreads();
#pragma unroll 1
  for (i64 row = split * p.share; row < end; ++row) {
    const RowAt<WIDE> at(p, row * p.groups + group);
    const H x(p, X, p.x, at.offset(p, X), lane, true), z(p, Z, p.z, at.offset(p, Z), lane, true);
    const H dy(p, DY, p.dy, at.offset(p, DY), lane, true);
    const Statistics<A> s = statistics<T, THREADS, 0, WIDE>(p, x, z, lane, board);
    const W* const weights = static_cast<const W*>(p.weight) + at.offset(p, WEIGHT);
    A dot = A(0);
    chunks_of<VEC, THREADS, 0>(p, lane, [&](int i, i64 col) {
      const auto slope = dy.at(p, i, col), gate = z.at(p, i, col), w = weights_or_ones<T, W, WIDE>(p, weights, col);
      const auto a = normalised<T, VEC>(p.before, x.at(p, i, col), gate);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A n = a[k] * s.scale * s.rstd, g = p.before ? slope[k] * (gate[k] * sigmoid<T>(gate[k])) : slope[k];
        if (col + k >= p.cols) continue;
        dot = math::fma(g * w[k], n, dot);
        if (p.parts != nullptr) parts[col + k] = math::fma(g, n, parts[col + k]);
      }
    });
    const A mean = norm::lanes_reduce<Sum, THREADS>(dot, board + 2 * warps) / static_cast<A>(p.cols);
    T* const dx = static_cast<T*>(p.dx) + at.offset(p, DX);
    T* const dz = static_cast<T*>(p.dz) + at.offset(p, DZ);
    chunks_of<VEC, THREADS, 0>(p, lane, [&](int i, i64 col) {
      const auto gate = z.at(p, i, col), from = x.at(p, i, col);
      auto b = normalised<T, VEC>(p.before, from, gate);
#pragma unroll
      for (int k = 0; k < VEC; ++k) b[k] *= s.scale;
      Vec<A, VEC> to_x, to_z;
      gradients_of<T, VEC>(p.before, dy.at(p, i, col), gate, from, b, weights_or_ones<T, W, WIDE>(p, weights, col), s,
                           mean, to_x, to_z);
      if (p.dx != nullptr) store_chunk<T, WIDE>(p, DX, dx, col, pack<T>(from_acc<T>(to_x)), p.cols - col);
      if (p.dz != nullptr) store_chunk<T, WIDE>(p, DZ, dz, col, pack<T>(from_acc<T>(to_z)), p.cols - col);
    });
    __syncthreads();  // the board is written again
  }
}

}  // namespace gated

template <class T, class W, int THREADS, int LANES, int CHUNKS, bool WIDE>
BARACUDA_D void gated_rms_norm_slopes(const GatedRMSNormBackwardParams& p) {
  if constexpr (CHUNKS > 0) gated::slopes_held<T, W, THREADS, LANES, CHUNKS, WIDE>(p);
  else gated::slopes_read<T, W, THREADS, WIDE>(p);
}

// dweight[group, col] of the parts [split, group, col].
template <class T, class W, int THREADS> BARACUDA_D void gated_rms_norm_fold(const GatedRMSNormFoldParams& p) {
  using A = acc_t<T>;
  constexpr int items = THREADS / 8;
  __shared__ A held[8][items];
  const int item = static_cast<int>(threadIdx.x) % items, lane = static_cast<int>(threadIdx.x) / items;
  const i64 i = static_cast<i64>(blockIdx.x) * items + item, all = p.groups * p.cols;
  A s = A(0);
  for (i64 part = lane; i < all && part < p.splits; part += 8) s += static_cast<const A*>(p.parts)[part * all + i];
  held[lane][item] = s;
  __syncthreads();
  if (lane != 0 || i >= all) return;
#pragma unroll
  for (int k = 1; k < 8; ++k) s += held[k][item];
  static_cast<W*>(p.dweight)[i / p.cols * p.strides[0] + i % p.cols * p.strides[1]] = from_acc<W>(s);
}

}  // namespace baracuda
