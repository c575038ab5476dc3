// gemv_mma   products with few rows of a, of f16 or bf16 with sums in float: each right matrix is read once, by tensor
//            cores straight from memory.
//
// The right matrix is the left operand of mma.sync: 16 of its columns by 16 of k, times 16 of k of 8 rows of a. Which k
// stands in which place of a fragment is free as long as both agree: lane (g, t) has k = 8 t … 8 t + 7 of every 32, in
// the first product 8 t … 8 t + 3, in the second the rest. A step is 32 of k; warp w of 8 has the steps w, w + 8, … in
// order, each 32 of its steps a chain of their own, and these chains and then the warps are added in order, the warps as
// a tree. So the order depends on k alone: neither on the number of rows nor on how the matrices lie.
//
// A block has 32 columns. K_MAJOR: the right matrices are read along k, lane g has the columns g + 8 i; else along n,
// and it has the columns 4 g + i.
#include "gemm/gemv.cuh"
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// A step's part of a right matrix in one lane, for two tiles of 16 columns.
template <class T, bool K_MAJOR> struct GemvStep {
  u32 words[2][8];  // of the tiles: fragments of the first and the second product

  // WHOLE: the step's k are all there and matrices are wide. Of columns that are not there others are read then: nobody
  // takes their sums.
  template <bool WHOLE, class Rights>
  BARACUDA_D void load(const Rights& right, int r, i64 n0, i64 k, i64 terms, i64 left_n, bool wide) {
    const i64 k_step = right.k_step[r], n_step = right.n_step[r];
    const T* const from = right.start[r] + n0 * n_step;
    const int g = lane_id() / 4, t = lane_id() % 4;
    const i64 own = k + 8 * t;
    if constexpr (K_MAJOR) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const i64 column = 8 * i + g;
        Vec<T, 8> x;
        if constexpr (WHOLE) x = load_readonly<8>(from + own + min(column, left_n - 1) * n_step);
        else
          x = gemv_load<T, 8>(from + own * k_step + column * n_step, k_step, column < left_n ? terms - own : 0, wide);
#pragma unroll
        for (int e = 0; e < 4; ++e) words[i / 2][e / 2 * 4 + e % 2 * 2 + i % 2] = word(x, e);
      }
    } else {
      Vec<T, 4> x[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const T* const here = from + (own + j) * k_step + 4 * g * n_step;
        if constexpr (WHOLE) x[j] = load_readonly<4>(here);
        else x[j] = gemv_load<T, 4>(here, n_step, own + j < terms ? left_n - 4 * g : 0, wide);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const u32 low = word(x[2 * e], i / 2), high = word(x[2 * e + 1], i / 2);
          words[i / 2][e / 2 * 4 + e % 2 * 2 + i % 2] = __byte_perm(low, high, i % 2 ? 0x7632 : 0x5410);
        }
    }
  }
  static BARACUDA_D int column(int tile, int half) {
    const int g = lane_id() / 4;
    return K_MAJOR ? 16 * tile + 8 * half + g : 4 * g + 2 * tile + half;
  }
  template <int N> static BARACUDA_D u32 word(const Vec<T, N>& x, int e) { return reinterpret_cast<const u32*>(&x)[e]; }
};

// A step's part of the rows of a in one lane.
template <class T, int H> struct GemvRows {
  Vec<T, 8> x[H];
  template <bool WHOLE> BARACUDA_D void load(const T* a, const i64* step, i64 k, i64 terms, int rows, bool wide) {
    const i64 own = k + 8 * (lane_id() % 4);
#pragma unroll
    for (int h = 0; h < H; ++h) {
      const int m = 8 * h + lane_id() / 4;
      if constexpr (WHOLE) x[h] = load_readonly<8>(a + min(m, rows - 1) * step[0] + own);
      else x[h] = gemv_load<T, 8>(a + m * step[0] + own * step[1], step[1], m < rows ? terms - own : 0, wide);
    }
  }
};

template <class T, class U, bool GATED, int ROWS, bool K_MAJOR, class P> BARACUDA_D void gemv_mma(const P& p) {
  constexpr int warps = gemv_threads / warp_size, columns = 32, depth = 32, rights = GATED ? 2 : 1;
  constexpr int H = ROWS / 8, unroll = 4 / rights / H, chain = 32;
  using Step = GemvStep<T, K_MAJOR>;
  __shared__ float shared[rights][warps][ROWS][columns + 1];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, t = lane_id() % 4;
  const GemvBlock<ROWS, columns> block(p);
  const BatchOffsets begin(p, block.batch);
  const Epilogue<U, T, float, GATED, P> epilogue(p, begin);
  const GemvRights<T, GATED> right(p, begin);
  const i64* const step = p.strides[gemm_matrix::a];
  const T* const a = static_cast<const T*>(p.a) + begin.at[gemm_matrix::a] + block.m0 * step[0];
  const bool wide_a = p.wide >> gemm_matrix::a & 1, wide = p.right != gemv_narrow;
  const int rows = static_cast<int>(min<i64>(ROWS, p.m - block.m0));
  const i64 terms = epilogue.multiplies() ? p.k : 0, left_n = p.n - block.n0;

  float acc[rights][2][H][4] = {};
  const auto multiply = [&](const Step(&w)[rights], const GemvRows<T, H>& x) {
#pragma unroll
    for (int r = 0; r < rights; ++r)
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          const u32* const from = w[r].words[tile] + 4 * second;
          const u32 of_b[4] = {from[0], from[1], from[2], from[3]};
#pragma unroll
          for (int h = 0; h < H; ++h) {
            const u32 of_a[2] = {Step::word(x.x[h], 2 * second), Step::word(x.x[h], 2 * second + 1)};
            mma_m16n8k16<T>(acc[r][tile][h], of_b, of_a);
          }
        }
  };
  // Adds the chains that the accumulators are at to the warp's totals, which stand in shared memory.
  const auto fold = [&] {
#pragma unroll
    for (int r = 0; r < rights; ++r)
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
#pragma unroll
        for (int h = 0; h < H; ++h)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            shared[r][warp][8 * h + 2 * t + e % 2][Step::column(tile, e / 2)] += acc[r][tile][h][e];
            acc[r][tile][h][e] = 0.0f;
          }
  };
  for (int i = threadIdx.x; i < rights * warps * ROWS * (columns + 1); i += gemv_threads)
    (&shared[0][0][0][0])[i] = 0.0f;
  __syncthreads();
  // Whole steps, several under way together.
  int taken = 0;  // steps
  i64 k = warp * depth;
  constexpr i64 stride = warps * depth;
  if (wide_a && wide && (K_MAJOR || left_n >= columns)) {
#pragma unroll 1
    for (; k + (unroll - 1) * stride + depth <= terms; k += unroll * stride) {
      Step w[unroll][rights];
      GemvRows<T, H> x[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
#pragma unroll
        for (int r = 0; r < rights; ++r)
          w[u][r].template load<true>(right, r, block.n0, k + u * stride, terms, left_n, wide);
        x[u].template load<true>(a, step, k + u * stride, terms, rows, wide_a);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) multiply(w[u], x[u]);
      if ((taken += unroll) % chain == 0) fold();
    }
  }
  // The other steps.
#pragma unroll 1
  for (; k < terms; k += stride) {
    Step w[rights];
    GemvRows<T, H> x;
#pragma unroll
    for (int r = 0; r < rights; ++r) w[r].template load<false>(right, r, block.n0, k, terms, left_n, wide);
    x.template load<false>(a, step, k, terms, rows, wide_a);
    multiply(w, x);
    if (++taken % chain == 0) fold();
  }
  fold();
  __syncthreads();
  // Epilogue: the warps' sums of every output, added as a tree.
  for (int e = threadIdx.x; e < ROWS * columns; e += gemv_threads) {
    const int m = e / columns, column = e % columns;
    if (m >= rows || block.n0 + column >= p.n) continue;
    Vec<float, 1> sum, up;
    const auto add = [&](int r) {
      Vec<float, warps> x;
#pragma unroll
      for (int i = 0; i < warps; ++i) x[i] = shared[r][i][m][column];
      return tree_reduce<Sum>(x);
    };
    sum[0] = add(0);
    up[0] = GATED ? add(rights - 1) : 0.0f;
    epilogue.row(block.m0 + m, block.n0 + column, 1, sum, up);
  }
}

}  // namespace baracuda
