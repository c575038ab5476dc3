// lora_matmul  y[t] = base[t] + scale[i] B[i] (A[i] x[t]) with the adapter i of token t, of a low rank.
//   lora_shrink  A[i] x[t] of a tile of tokens, over one piece of k or all of them
//   lora_expand  the rest: the sum of the pieces, B[i], scale and base
//
// A tile is p.tile tokens, 8 at most; neighbours of one adapter share the loads of its matrices. What fixes the order of
// sums: k is cut into pieces of 512; in a piece lane l of a warp has the elements 8 l …, 8 l + 256 … in the order of k, and
// the lanes are a tree of neighbours; pieces are added in their order, whether one block has them all (p.each) or the
// second kernel adds them. Over the rank a thread adds in its order. Sums are in A = acc_t<T>.
//
// p.wide: a bit for each matrix whose last axis has stride 1 and whose rows start 16-byte aligned; 8 where that holds of
// the adapters' other axis, the rank: eight rows at a time are transposed in shared memory.
#include "gemm/lora.cuh"

namespace baracuda {

constexpr int lora_warps = lora_threads / warp_size;

// N times eight elements, `apart` of them from one to the next, `left` of which exist: in flight together.
template <class T, int N>
BARACUDA_D void lora_load_all(Vec<T, lora_vec> (&x)[N], const T* from, i64 apart, i64 step, i64 left, bool wide) {
  if (wide && left >= (N - 1) * apart + lora_vec) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = load<lora_vec>(from + n * apart);
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = lora_load(from + n * apart * step, step, left - n * apart, wide);
  }
}

// p.copy: where x goes, too, if anywhere.
template <class T, class P> BARACUDA_D void lora_shrink(const P& p) {
  using A = acc_t<T>;
  constexpr int rows = 2, own = lora_chunk / (warp_size * lora_vec);  // of the rank, and eights of k, of a lane at once
  constexpr bool transposes = sizeof(T) <= 4;                         // others have no room for it
  __shared__ __align__(16) T xs[lora_tile][lora_chunk];
  __shared__ __align__(16) T transposed[transposes ? lora_vec : 1][lora_chunk];  // eight rows of an adapter
  static_assert(lora_vec == lora_warps, "a warp has one of them");
  const i64 index = blockIdx.x, split = index % p.splits;
  const LoraTile<lora_tile, lora_threads> tile(p, index / p.splits);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
  const i64 begin = split * p.each, end = min(p.chunks, begin + p.each);
  A* const partials = static_cast<A*>(p.parts) + (split * p.tokens + tile.first) * p.rank;
#pragma unroll 1
  for (i64 c = begin; c < end; ++c) {
    const i64 k0 = c * lora_chunk;
    __syncthreads();  // all warps are done with the piece before
#pragma unroll 1
    for (int e = threadIdx.x; e < tile.count * (lora_chunk / lora_vec); e += lora_threads) {
      const int i = e / (lora_chunk / lora_vec), k = e % (lora_chunk / lora_vec) * lora_vec;
      const i64 token = tile.first + i, left = p.k - k0 - k;
      const T* const from = static_cast<const T*>(p.x) + token * p.x_step[0] + (k0 + k) * p.x_step[1];
      const auto x = lora_load(from, p.x_step[1], left, p.wide & 1);
      store(&xs[i][k], x);
      if (p.copy == nullptr) continue;
      T* const to = static_cast<T*>(p.copy) + token * p.copy_step[0] + (k0 + k) * p.copy_step[1];
      if ((p.wide & 4) && left >= lora_vec) store(to, x);
      else store_strided(to, p.copy_step[1], x, left);
    }
    __syncthreads();
#pragma unroll 1
    for (int from = 0, to; from < tile.count; from = to) {
      to = tile.run(from);
      const i64 adapter = tile.adapters[from];
      const int rank = lora_rank(p, adapter), tokens = to - from;
      // Row r of the adapter, of which piece(n) is the lane's eight number n, times the tokens.
      const auto multiply = [&](int r, const auto& piece) {
        A sums[lora_tile] = {};
#pragma unroll
        for (int n = 0; n < own; ++n) {
          const auto row = to_acc(piece(n));
#pragma unroll
          for (int i = 0; i < lora_tile; ++i) {
            if (i >= tokens) break;
            const auto x = to_acc(load<lora_vec>(&xs[from + i][(n * warp_size + lane) * lora_vec]));
#pragma unroll
            for (int e = 0; e < lora_vec; ++e) sums[i] = math::fma(x[e], row[e], sums[i]);
          }
        }
#pragma unroll
        for (int i = 0; i < lora_tile; ++i) {
          if (i >= tokens) break;
          const A sum = warp_reduce<Sum>(sums[i]);
          A* const partial = partials + (from + i) * p.rank + r;
          if (lane == 0) *partial = c == begin ? sum : *partial + sum;  // the same thread wrote it
        }
      };
      const T* const matrix = static_cast<const T*>(p.a) + (adapter < 0 ? 0 : adapter * p.a_step[0]);
      if (transposes && (p.wide & 8)) {
        constexpr int each = lora_chunk / lora_threads;
#pragma unroll 1
        for (int r0 = 0; r0 < rank; r0 += lora_vec) {
          Vec<T, lora_vec> eights[each];
#pragma unroll
          for (int n = 0; n < each; ++n) {
            const i64 k = k0 + static_cast<int>(threadIdx.x) + n * lora_threads;
            eights[n] = lora_load(matrix + k * p.a_step[2] + r0, i64(1), k < p.k ? i64(rank - r0) : i64(0), true);
          }
          __syncthreads();  // all warps are done with the rows before
#pragma unroll
          for (int n = 0; n < each; ++n)
#pragma unroll
            for (int e = 0; e < lora_vec; ++e) transposed[e][threadIdx.x + n * lora_threads] = eights[n][e];
          __syncthreads();
          if (r0 + warp >= rank) continue;
          multiply(r0 + warp,
                   [&](int n) { return load<lora_vec>(&transposed[warp][(n * warp_size + lane) * lora_vec]); });
        }
        continue;
      }
#pragma unroll 1
      for (int r0 = warp; r0 < rank; r0 += rows * lora_warps) {
        Vec<T, lora_vec> a[rows][own];  // in flight together
#pragma unroll
        for (int n = 0; n < rows; ++n) {
          const T* const row = matrix + min(r0 + n * lora_warps, rank - 1) * p.a_step[1];
          lora_load_all(a[n], row + (k0 + lane * lora_vec) * p.a_step[2], warp_size * lora_vec, p.a_step[2],
                        p.k - k0 - lane * lora_vec, p.wide & 2);
        }
#pragma unroll
        for (int n = 0; n < rows; ++n) {
          if (r0 + n * lora_warps >= rank) break;
          multiply(r0 + n * lora_warps, [&](int k) { return a[n][k]; });
        }
      }
    }
  }
}

// The pieces in their order, several of them in flight.
template <class A> BARACUDA_D A lora_sum(const A* partial, i64 splits, i64 step) {
  constexpr int flight = 8;
  A sum = A(0);
#pragma unroll 1
  for (i64 s = 0; s < splits; s += flight) {
    A next[flight];
#pragma unroll
    for (int n = 0; n < flight; ++n) next[n] = partial[min(s + n, splits - 1) * step];
#pragma unroll
    for (int n = 0; n < flight; ++n) {
      if (s + n < splits) sum = s + n == 0 ? next[n] : sum + next[n];
    }
  }
  return sum;
}

template <class T, class P> BARACUDA_D void lora_expand(const P& p) {
  using A = acc_t<T>;
  constexpr int flight = 2;
  BARACUDA_DYNAMIC_SMEM(A, hs);  // [token][rank, to a multiple of 8]
  const i64 columns = div_up(p.n, i64(lora_threads)), index = blockIdx.x;
  const LoraTile<lora_tile, lora_threads> tile(p, index / columns);
  const int pitch = static_cast<int>(round_up(p.rank, i64(lora_vec)));
#pragma unroll 1
  for (int e = threadIdx.x; e < tile.count * pitch; e += lora_threads) {
    const int i = e / pitch, r = e % pitch;
    const A* const partial = static_cast<const A*>(p.parts) + (tile.first + i) * p.rank + r;
    hs[e] = r < lora_rank(p, tile.adapters[i]) ? lora_sum(partial, p.splits, p.tokens * p.rank) : A(0);
  }
  __syncthreads();
  const i64 n = index % columns * lora_threads + threadIdx.x;
  if (n >= p.n) return;
#pragma unroll 1
  for (int from = 0, to; from < tile.count; from = to) {
    to = tile.run(from);
    const i64 adapter = tile.adapters[from];
    const int rank = lora_rank(p, adapter), tokens = to - from;
    const T* const row = static_cast<const T*>(p.b) + (adapter < 0 ? 0 : adapter * p.b_step[0]) + n * p.b_step[1];
    A sums[lora_tile] = {};
#pragma unroll 1
    for (int r0 = 0; r0 < rank; r0 += flight * lora_vec) {
      Vec<T, lora_vec> b[flight];
      lora_load_all(b, row + r0 * p.b_step[2], i64(lora_vec), p.b_step[2], static_cast<i64>(rank - r0), p.wide & 1);
#pragma unroll
      for (int f = 0; f < flight; ++f) {
        const int r = r0 + f * lora_vec;
        if (r >= rank) break;
        const auto own = to_acc(b[f]);
#pragma unroll
        for (int i = 0; i < lora_tile; ++i) {
          if (i >= tokens) break;
          const auto h = load<lora_vec>(hs + (from + i) * pitch + r);
#pragma unroll
          for (int e = 0; e < lora_vec; ++e) sums[i] = math::fma(h[e], own[e], sums[i]);
        }
      }
    }
    const A scale = p.scale == nullptr || adapter < 0
                        ? A(1)
                        : static_cast<A>(static_cast<const float*>(p.scale)[adapter * p.scale_step]);
#pragma unroll
    for (int i = 0; i < lora_tile; ++i) {
      if (i >= tokens) break;
      const i64 t = tile.first + from + i;
      A y = scale * sums[i];
      if (p.base != nullptr) {
        const A base = to_acc(static_cast<const T*>(p.base)[t * p.base_step[0] + n * p.base_step[1]]);
        y = adapter < 0 ? base : math::fma(scale, sums[i], base);
      }
      static_cast<T*>(p.y)[t * p.y_step[0] + n * p.y_step[1]] = cast<T>(y);
    }
  }
}

}  // namespace baracuda
