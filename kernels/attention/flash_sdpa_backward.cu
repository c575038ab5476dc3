// flash_sdpa_backward    p[i,j] = exp(scale q[i] k[j] - lse[i]);   ds[i,j] = p[i,j] (dy[i] v[j] - delta[i]),
//   delta[i] = dy[i] y[i];   dv[j] = sum_i p[i,j] dy[i];   dk[j] = scale sum_i ds[i,j] q[i];
//   dq[i] = scale sum_j ds[i,j] k[j]
//
// Three kernels, each with parameters P of its own. flash_delta: a warp a row. flash_dq: a block a tile of queries,
// walking the keys. flash_dkv: a block a tile of keys of one key head, walking the query heads that share it and, in
// each, the queries; so a gradient is summed by one block in one order. Both recompute the scores, both operands of
// each product staged by chunks of columns; the score tile then goes through shared memory as the left operand of the
// second product, whose right operand is staged by rows. Blocks: every one, or those of a pattern.
#include <baracuda/block_pattern.cuh>

namespace baracuda {
namespace attention {

template <class A, int D> struct BackwardTile {
  static constexpr int R = sizeof(A) == 4 ? (D <= 128 ? 8 : 4) : (D <= 64 ? 4 : 2);
  static constexpr int rows = 8 * R, columns = chunk<A, D>, pitch = columns + pad<A>;
  static constexpr int values = value_rows<A, D, 32768>();
  static constexpr int staged = max((rows + tile_keys) * pitch, values * D);  // then two score tiles
};

template <int R, int N, class A> BARACUDA_D void clear(A (&x)[R][N]) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[i][n] = A(0);
  }
}

template <class T> struct Operands {  // of a product of scores: rows of x by 64 rows of y, both of d columns
  const T* x;
  i64 x_stride;
  int x_rows;
  int x_wide;
  const T* y;
  i64 y_stride;
  int y_rows;
  int y_wide;
  int d;
};

// s[i][j] = x[row i] y[row j]. Other threads may still read the staging area when it begins and when it ends.
template <int D, class T, class A, int R> BARACUDA_D void product(A (&s)[R][4], A* staging, const Operands<T>& o) {
  using B = BackwardTile<A, D>;
  A* const left = staging;
  A* const right = staging + B::rows * B::pitch;
  clear(s);
#pragma unroll 1
  for (int at = 0; at < o.d; at += B::columns) {
    __syncthreads();
    stage<B::rows, B::columns, B::pitch>(left, o.x + at, o.x_stride, o.x_rows, o.d - at, o.x_wide);
    stage<tile_keys, B::columns, B::pitch>(right, o.y + at, o.y_stride, o.y_rows, o.d - at, o.y_wide);
    __syncthreads();
    multiply_scores<R, B::columns, B::pitch, B::pitch>(s, left, right);
  }
}

// acc[i] += scores[row i] values, 64 rows of them, staged by pieces.
template <int D, class T, class A, int R>
BARACUDA_D void add_values(A (&acc)[R][D / 16], A* staging, const A* scores, const T* values, i64 stride, int rows, int d,
                           bool wide) {
  using B = BackwardTile<A, D>;
#pragma unroll 1
  for (int n = 0; n < tile_keys && n < rows; n += B::values) {
    __syncthreads();
    stage<B::values, D, D>(staging, values + n * stride, stride, rows - n, d, wide);
    __syncthreads();
    multiply_values<R, D, B::values, false, false>(acc, scores + n, static_cast<const A*>(nullptr), staging, AllSeen{});
  }
}

// Where score (i, j) of this thread stands in a tile of A.
template <class A> BARACUDA_D int score_index(int i, int j) {
  return (thread_row() + 8 * i) * score_pitch<A> + thread_col() + 16 * j;
}

template <class A> BARACUDA_D A weight_of(A score, A scale, A lse) {
  return exp2_fast(math::fma(score, scale, -lse) * log2_e<A>);
}

}  // namespace attention

template <class T, class P> BARACUDA_D void flash_delta(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  const i64 row = blockIdx.x * static_cast<i64>(blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (row >= p.rows) return;  // whole warps
  const i64 head = row / p.query_len, i = row % p.query_len, b = head / p.num_heads, h = head % p.num_heads;
  const T* y = static_cast<const T*>(p.y) + b * p.stride[0][0] + h * p.stride[0][1] + i * p.stride[0][2];
  const T* dy = static_cast<const T*>(p.dy) + b * p.stride[1][0] + h * p.stride[1][1] + i * p.stride[1][2];
  A sum = 0;
  for (int c = lane_id() * VEC; c < p.d_v; c += warp_size * VEC) {
    const auto a = to_acc(p.wide & 1 ? load_vec<T, VEC, true>(y + c, p.d_v - c) : load_vec<T, VEC, false>(y + c, p.d_v - c));
    const auto g = to_acc(p.wide & 2 ? load_vec<T, VEC, true>(dy + c, p.d_v - c) : load_vec<T, VEC, false>(dy + c, p.d_v - c));
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum = math::fma(a[k], g[k], sum);
  }
  sum = warp_reduce<Sum>(sum);
  if (lane_id() == 0) static_cast<A*>(p.delta)[row] = sum;
}

template <class T, int D, template <class> class Blocks = attention::EveryBlock, class P>
BARACUDA_D void flash_dq(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  A* const scores = staging + B::staged;

  const u32 block = blockIdx.x, tiles = static_cast<u32>(p.tiles), heads = gridDim.x / tiles;  // the grid fits 31 bits
  const u32 tile = p.causal ? tiles - 1 - block / heads : block % tiles, head = p.causal ? block % heads : block / tiles;
  const u32 b = head / p.num_heads, h = head % p.num_heads, kv = h / p.group;
  const i64 q0 = static_cast<i64>(tile) * B::rows;
  const int rows = inside<B::rows>(p.query_len, q0);
  const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + q0 * p.stride[0][2];
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1];
  const T* dy = static_cast<const T*>(p.dy) + b * p.stride[3][0] + h * p.stride[3][1] + q0 * p.stride[3][2];
  T* dq = static_cast<T*>(p.dq) + b * p.stride[4][0] + h * p.stride[4][1] + q0 * p.stride[4][2];
  const A scale = static_cast<A>(p.scale);

  A acc[R][D / 16], lse[R], delta[R];
  clear(acc);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int r = thread_row() + 8 * i;
    const i64 at = head * p.query_len + q0 + r;
    lse[i] = r < rows ? static_cast<const A*>(p.lse)[at] : -numeric<A>::infinity();
    delta[i] = r < rows ? static_cast<const A*>(p.delta)[at] : A(0);
  }
  const i64 last = p.causal ? min(p.key_len, q0 + rows + p.shift) : p.key_len;
  const Blocks<P> blocks(p, b, h);
  const bool cuts = blocks.template cuts<B::rows, tile_keys>();
  Search search;
#pragma unroll 1
  for (i64 k0 = 0; (k0 = blocks.template visit<tile_keys, false>(search, q0, B::rows, k0, last)) < last; k0 += tile_keys) {
    const u32 hidden = cuts ? blocks.template hidden<R, false>(q0, k0) : 0;
    const int left = inside<tile_keys>(p.key_len, k0);
    const int past = (p.causal ? inside<tile_keys>(q0 + p.shift + 1, k0) : tile_keys) + thread_row();
    const T* const keys = k + k0 * p.stride[1][2];
    const T* const vs = v + k0 * p.stride[2][2];
    Operands<T> operands;
    __syncwarp();  // the last tile's scores have been read by this half-warp
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // the weights, then the gradients of the scores in their place
      A s[R][4];
      if (pass == 0) operands = {q, p.stride[0][2], rows, p.wide & 1, keys, p.stride[1][2], left, p.wide & 2, p.d_k};
      else operands = {dy, p.stride[3][2], rows, p.wide & 8, vs, p.stride[2][2], left, p.wide & 4, p.d_v};
      product<D>(s, staging, operands);
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int limit = lse[i] == -numeric<A>::infinity() ? 0 : min(left, past + 8 * i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          A& score = scores[score_index<A>(i, j)];
          const A x = pass == 0 ? weight_of(s[i][j], scale, lse[i]) : score * (s[i][j] - delta[i]);
          score = thread_col() + 16 * j < limit && !(hidden >> (4 * i + j) & 1) ? x : A(0);
        }
      }
    }
    add_values<D>(acc, staging, scores, keys, p.stride[1][2], left, p.d_k, p.wide & 2);
  }
  A factor[R];
#pragma unroll
  for (int i = 0; i < R; ++i) factor[i] = scale;
  put_output<R, D>(dq, p.stride[4][2], acc, factor, rows, p.d_k, p.wide & 16);
}

template <class T, int D, template <class> class Blocks = attention::EveryBlock, class P>
BARACUDA_D void flash_dkv(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  A* const weights = staging + B::staged;
  A* const scores = weights + B::rows * score_pitch<A>;

  // Causal: the first keys are seen by the most queries, and those tiles come first.
  const u32 block = blockIdx.x, tiles = static_cast<u32>(p.tiles), heads = gridDim.x / tiles;  // the grid fits 31 bits
  const u32 tile = p.causal ? block / heads : block % tiles, kv_head = p.causal ? block % heads : block / tiles;
  const u32 kv_heads = p.num_heads / p.group, b = kv_head / kv_heads, kv = kv_head % kv_heads;
  const i64 k0 = static_cast<i64>(tile) * B::rows;
  const int rows = inside<B::rows>(p.key_len, k0);
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1] + k0 * p.stride[1][2];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1] + k0 * p.stride[2][2];
  const A scale = static_cast<A>(p.scale);

  A dk[R][D / 16], dv[R][D / 16];
  clear(dk);
  clear(dv);
  const i64 first = p.causal ? max<i64>(0, k0 - p.shift) / tile_keys * tile_keys : 0;  // its tile sees the first key
#pragma unroll 1
  for (int g = 0; g < p.group; ++g) {
    const u32 h = kv * p.group + g;
    const i64 row0 = (static_cast<i64>(b) * p.num_heads + h) * p.query_len, end = p.query_len;
    const Blocks<P> blocks(p, b, h);
    const bool cuts = blocks.template cuts<tile_keys, B::rows>();
    Search search;
#pragma unroll 1
    for (i64 q0 = first; (q0 = blocks.template visit<tile_keys, true>(search, k0, B::rows, q0, end)) < end; q0 += tile_keys) {
      const u32 hidden = cuts ? blocks.template hidden<R, true>(q0, k0) : 0;
      const int left = inside<tile_keys>(p.query_len, q0);
      const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + q0 * p.stride[0][2];
      const T* dy = static_cast<const T*>(p.dy) + b * p.stride[3][0] + h * p.stride[3][1] + q0 * p.stride[3][2];
      __syncwarp();  // the last tile's scores have been read by this half-warp
      Operands<T> operands;
#pragma unroll 1
      for (int pass = 0; pass < (p.dk == nullptr ? 1 : 2); ++pass) {  // the weights, then the gradients of the scores
        A s[R][4];
        if (pass == 0) operands = {k, p.stride[1][2], rows, p.wide & 2, q, p.stride[0][2], left, p.wide & 1, p.d_k};
        else operands = {v, p.stride[2][2], rows, p.wide & 4, dy, p.stride[3][2], left, p.wide & 8, p.d_v};
        product<D>(s, staging, operands);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = thread_col() + 16 * j;
          const i64 row = row0 + q0 + at;
          const A lse = at < left ? static_cast<const A*>(p.lse)[row] : -numeric<A>::infinity();
          const A delta = pass == 1 && at < left ? static_cast<const A*>(p.delta)[row] : A(0);
          // Keys of this block that the query sees: k0 + r <= q0 + at + shift.
          const int past = p.causal ? inside<2 * tile_keys>(q0 + at + p.shift + 1, k0) : rows;
          const int limit = lse == -numeric<A>::infinity() ? 0 : min(rows, past);
#pragma unroll
          for (int i = 0; i < R; ++i) {
            const A x = pass == 0 ? weight_of(s[i][j], scale, lse) : weights[score_index<A>(i, j)] * (s[i][j] - delta);
            const bool seen = thread_row() + 8 * i < limit && !(hidden >> (4 * i + j) & 1);
            (pass == 0 ? weights : scores)[score_index<A>(i, j)] = seen ? x : A(0);
          }
        }
      }
      if (p.dk != nullptr) {
        add_values<D>(dk, staging, scores, q, p.stride[0][2], left, p.d_k, p.wide & 1);
      }
      if (p.dv != nullptr) add_values<D>(dv, staging, weights, dy, p.stride[3][2], left, p.d_v, p.wide & 8);
    }
  }
  A factor[R];
  if (p.dk != nullptr) {
    T* out = static_cast<T*>(p.dk) + b * p.stride[4][0] + kv * p.stride[4][1] + k0 * p.stride[4][2];
#pragma unroll
    for (int i = 0; i < R; ++i) factor[i] = scale;
    put_output<R, D>(out, p.stride[4][2], dk, factor, rows, p.d_k, p.wide & 16);
  }
  if (p.dv != nullptr) {
    T* out = static_cast<T*>(p.dv) + b * p.stride[5][0] + kv * p.stride[5][1] + k0 * p.stride[5][2];
#pragma unroll
    for (int i = 0; i < R; ++i) factor[i] = A(1);
    put_output<R, D>(out, p.stride[5][2], dv, factor, rows, p.d_v, p.wide & 32);
  }
}

}  // namespace baracuda
