// gated_rms_norm_backward   with n = rms_norm(a), g the slope of n * weight: da = rstd (g weight - n mean(g weight n)),
//                           dweight = sum over rows of g n; a is x, or x silu(z) where the gate comes first.
//
// Statistics are made anew. A block takes a share of the rows of one group of columns, LANES lanes a row; a lane adds the
// parts of dweight of its rows in order, a block those of its lanes in order, and `fold` those of blocks: eight lanes take
// every eighth part in order, and are added in order. Shapes fix it all. With CHUNKS 0 rows are read several times, and a
// block adds its parts in the workspace.
#include "gated_rms_norm.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, bool WIDE>
BARACUDA_D void gated_rms_norm_slopes(const GatedRMSNormBackwardParams& p) {
  using namespace gated;
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, subs = THREADS / LANES, kept = CHUNKS ? CHUNKS : 1;
  constexpr int warps = LANES > warp_size ? LANES / warp_size : 1;
  enum { DY, X, Z, WEIGHT, DX, DZ };
  __shared__ A board[3 * warp_size];
  const i64 group = blockIdx.x % p.groups, split = blockIdx.x / p.groups, shares = p.rows / p.groups;
  const int lane = static_cast<int>(threadIdx.x) % LANES, sub = static_cast<int>(threadIdx.x) / LANES;
  A total[kept][VEC];
#pragma unroll
  for (int i = 0; i < kept; ++i) {
#pragma unroll
    for (int k = 0; k < VEC; ++k) total[i][k] = A(0);
  }
  A* const parts = static_cast<A*>(p.parts) + blockIdx.x * p.cols;
  const i64 end = min<i64>((split + 1) * p.share, shares);
  if constexpr (CHUNKS == 0) {
    for (i64 col = threadIdx.x; p.parts != nullptr && col < p.cols; col += THREADS) parts[col] = A(0);
    __syncthreads();
  }
#pragma unroll 1
  for (i64 first = split * p.share; first < end; first += subs) {
    const bool live = first + sub < end;
    const RowAt<WIDE> at(p, live ? (first + sub) * p.groups + group : 0);
    using H = Held<T, LANES, CHUNKS, WIDE>;
    const H x(p, X, p.x, at.offset(p, X), lane, live), z(p, Z, p.z, at.offset(p, Z), lane, live);
    const H dy(p, DY, p.dy, at.offset(p, DY), lane, live);
    const Statistics<A> s = statistics<T, LANES, CHUNKS, WIDE>(p, x, z, lane, board);
    const W* const weights = static_cast<const W*>(p.weight) + at.offset(p, WEIGHT);
    const auto weight_at = [&](i64 col) {
      if (p.weight != nullptr) return norm::load_weights<T, W, WIDE>(p, WEIGHT, weights, col, p.cols - col);
      Vec<A, VEC> one;
#pragma unroll
      for (int k = 0; k < VEC; ++k) one[k] = A(1);
      return one;
    };
    A dot = A(0);
    chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
      const auto slope = dy.at(p, i, col), gate = z.at(p, i, col), w = weight_at(col);
      const auto a = normalised<T, VEC>(p.before, x.at(p, i, col), gate);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A n = a[k] * s.scale * s.rstd;
        A g = p.before ? slope[k] * (gate[k] * sigmoid<T>(gate[k])) : slope[k];
        if (col + k >= p.cols || !live) continue;
        dot = math::fma(g * w[k], n, dot);
        if constexpr (CHUNKS > 0) total[i][k] = math::fma(g, n, total[i][k]);
        else if (p.parts != nullptr) parts[col + k] = math::fma(g, n, parts[col + k]);
      }
    });
    const A mean = norm::lanes_reduce<Sum, LANES>(dot, board + 2 * warps) / static_cast<A>(p.cols);
    if (live && (p.dx != nullptr || p.dz != nullptr)) {
      T* const dx = static_cast<T*>(p.dx) + at.offset(p, DX);
      T* const dz = static_cast<T*>(p.dz) + at.offset(p, DZ);
      chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
        const auto slope = dy.at(p, i, col), gate = z.at(p, i, col), w = weight_at(col), from = x.at(p, i, col);
        const auto a = normalised<T, VEC>(p.before, from, gate);
        Vec<A, VEC> to_x, to_z;
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          const A sig = sigmoid<T>(gate[k]), silu = gate[k] * sig;
          const A bend = sig * math::fma(gate[k], A(1) - sig, A(1));  // the slope of silu
          const A n = a[k] * s.scale * s.rstd, g = (p.before ? slope[k] * silu : slope[k]) * w[k];
          const A da = (g - n * mean) * s.rstd * s.scale;
          to_x[k] = p.before ? da : da * silu;
          to_z[k] = p.before ? slope[k] * (n * w[k]) * bend : da * from[k] * bend;
        }
        if (p.dx != nullptr) store_chunk<T, WIDE>(p, DX, dx, col, pack<T>(from_acc<T>(to_x)), p.cols - col);
        if (p.dz != nullptr) store_chunk<T, WIDE>(p, DZ, dz, col, pack<T>(from_acc<T>(to_z)), p.cols - col);
      });
    }
    if constexpr (LANES > warp_size) __syncthreads();  // the board is written again
  }
  if constexpr (CHUNKS > 0) {
    if (p.parts == nullptr) return;
    if constexpr (subs == 1) {
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          const i64 col = (static_cast<i64>(i) * LANES + lane) * VEC + k;
          if (col < p.cols) parts[col] = total[i][k];
        }
      }
    } else {
      __shared__ A held[subs][LANES * CHUNKS * VEC];
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int k = 0; k < VEC; ++k) held[sub][(i * LANES + lane) * VEC + k] = total[i][k];
      }
      __syncthreads();
      for (int col = threadIdx.x; col < LANES * CHUNKS * VEC && col < p.cols; col += THREADS) {
        A sum = held[0][col];
#pragma unroll
        for (int r = 1; r < subs; ++r) sum += held[r][col];
        parts[col] = sum;
      }
    }
  }
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
