// flash_sdpa_backward    p[i,j] = exp(scale q[i] k[j] - lse[i]);   ds[i,j] = p[i,j] (dy[i] v[j] - delta[i]),
//   delta[i] = dy[i] y[i];   dv[j] = sum_i p[i,j] dy[i];   dk[j] = scale sum_i ds[i,j] q[i];
//   dq[i] = scale sum_j ds[i,j] k[j]
//
//   With TERMS (terms.cuh): p = exp(s - lse), 0 in dv where dropped; ds[i,j] = p[i,j] (keep dy[i] v[j] - delta[i]),
//   times the soft cap's derivative on its way to dq and dk.
//
// Three kernels without tensor cores, each with parameters P of its own. flash_delta: a thread a row. flash_dq: a block
// has a tile of queries and walks the keys. flash_dkv: a block has a tile of keys of one key head and walks the query
// heads that share it and, in each, the queries. So every gradient is summed by one block in one order. Both recompute
// the scores, both operands of each product staged in chunks of columns; the score tile then goes through shared memory
// as the left operand of the second product, whose right operand is staged by rows.
#include "attention/dense/flash_sdpa_backward_simt.cuh"
#include "attention/block_pattern.cuh"
#include "attention/ragged.cuh"

namespace baracuda {
namespace attention {

// acc[i] += scores[row i] values, for 64 rows of values, staged in pieces.
template <int D, class T, class A, int R>
BARACUDA_D void add_values(A (&acc)[R][D / 16], A* staging, const A* scores, const T* values, i64 stride, int rows,
                           int d, bool wide) {
  using B = BackwardTile<A, D>;
#pragma unroll 1
  for (int n = 0; n < tile_keys && n < rows; n += B::values) {
    __syncthreads();
    stage<B::values, D, D>(staging, values + n * stride, stride, rows - n, d, wide);
    __syncthreads();
    multiply_values<R, D, B::values, false, false>(acc, scores + n, static_cast<const A*>(nullptr), staging, AllSeen{});
  }
}

// Index of this thread's score (i, j) in a tile of A.
template <class A> BARACUDA_D int score_index(int i, int j) {
  return (thread_row() + 8 * i) * score_pitch<A> + thread_col() + 16 * j;
}

}  // namespace attention

template <class T, int D, class Where, int TERMS, class P> BARACUDA_D void flash_dq(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  A* const scores = staging + B::staged;

  const Work work = Where::template find<B::rows>(p);
  if (Where::surplus && work.query_len == 0) return;
  const Span<B::rows> span(p, work);
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  const T* const k = work.template keys<T>(p.k, p.stride[1]);
  const T* const v = work.template keys<T>(p.v, p.stride[2]);
  const T* const dy = work.template queries<T>(p.dy, p.stride[3]);
  const int rows = inside<B::rows>(work.query_len, work.first), i0 = static_cast<int>(work.first) + thread_row();
  Pairs<TERMS, A, P> pairs(p);
  if constexpr (TERMS != 0) pairs.settle(work.query_len, work.key_len, work.shift);
  pairs.enter(work.b, work.h);

  A acc[R][D / 16], delta[R];
  RowBase<A> base[R];
  clear(acc);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int r = thread_row() + 8 * i;
    base[i] = r < rows ? RowBase<A>::of(p, work.stat + r) : RowBase<A>{};
    delta[i] = r < rows ? static_cast<const A*>(p.delta)[work.stat + r] : A(0);
  }
  const int last = span.end(rows);
  const BlocksOf<Where, P> blocks(p, work.b, work.h);
  const bool sparse = blocks.template cuts<B::rows, tile_keys>();
  Search search;
  const auto visit = [&](i64 k0) {
    return blocks.template visit<tile_keys, false>(search, work.first, B::rows, k0, last);
  };
#pragma unroll 1
  for (i64 k0 = visit(span.template first<tile_keys>()); k0 < last; k0 = visit(k0 + tile_keys)) {
    const u32 hidden = sparse ? blocks.template hidden<R, false>(work.first, k0) : 0;
    blocks.settle(pairs, work.first, B::rows, k0, tile_keys);
    const int left = inside<tile_keys>(span.key_len, k0), j0 = static_cast<int>(k0) + thread_col();
    // The thread's first row sees this tile's keys from `from` up to `past`; each next row of the thread 8 further.
    const int past = inside<tile_keys>(span.high, k0) + thread_row(),
              from = inside<tile_keys>(span.low, k0) + thread_row();
    const T* const keys = k + k0 * p.stride[1][2];
    const T* const vs = v + k0 * p.stride[2][2];
    Operands<T> operands;
    __syncwarp();  // the last tile's scores have been read by this half-warp
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // first the weights, then the gradients of the scores in their place
      A s[R][4];
      if (pass == 0) operands = {q, p.stride[0][2], rows, p.wide & 1, keys, p.stride[1][2], left, p.wide & 2, p.d_k};
      else operands = {dy, p.stride[3][2], rows, p.wide & 8, vs, p.stride[2][2], left, p.wide & 4, p.d_v};
      product<D, sizeof(A) == 8>(s, staging, operands);
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int end = thread_row() + 8 * i < rows ? min(left, past + 8 * i) : 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          A& score = scores[score_index<A>(i, j)];
          if (pass == 0) {
            const int at = thread_col() + 16 * j;
            A weight, through;
            pairs.weight(weight, through, s[i][j], i0 + 8 * i, j0 + 16 * j, base[i]);
            const bool seen = at >= from + 8 * i && at < end && !(hidden >> (4 * i + j) & 1);
            score = seen ? weight * through : A(-0.0);
          } else {
            if (pairs.drops()) s[i][j] *= pairs.kept(i0 + 8 * i, j0 + 16 * j) ? pairs.again : A(0);
            score = is_hidden(score) ? A(0) : score * (s[i][j] - delta[i]);
          }
        }
      }
    }
    add_values<D>(acc, staging, scores, keys, p.stride[1][2], left, p.d_k, p.wide & 2);
  }
  A factor[R];
#pragma unroll
  for (int i = 0; i < R; ++i) factor[i] = pairs.scale;
  put_output<R, D>(work.template outputs<T>(p.dq, p.stride[4]), p.stride[4][2], acc, factor, rows, p.d_k, p.wide & 16);
}

template <class T, int D, class Where, int TERMS, class P> BARACUDA_D void flash_dkv(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  BARACUDA_DYNAMIC_SMEM(A, staging);
  A* const weights = staging + B::staged;  // p, 0 where dropped
  A* const scores = weights + B::rows * score_pitch<A>;

  const KeyTile block = Where::template key_tile<tile_keys, B::rows>(p, blockIdx.x);
  if (Where::surplus && block.left == 0) return;
  const u32 b = block.b, kv = block.kv;
  const i64 k0 = static_cast<i64>(block.tile) * B::rows, key_row = block.of.key_row + k0;
  const int rows = block.left, j0 = static_cast<int>(k0) + thread_row();
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1] + key_row * p.stride[1][2];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1] + key_row * p.stride[2][2];
  Pairs<TERMS, A, P> pairs(p);
  if constexpr (TERMS != 0) pairs.settle(block.of);

  A dk[R][D / 16], dv[R][D / 16];
  clear(dk);
  clear(dv);
#pragma unroll 1
  for (int g = 0; g < p.group; ++g) {
    const u32 h = kv * p.group + g;
    const i64 row0 = (static_cast<i64>(block.batch(p)) * p.num_heads + h) * p.query_len + block.of.query_row;
    pairs.enter(b, h);
    const BlocksOf<Where, P> blocks(p, b, h);
    const bool sparse = blocks.template cuts<tile_keys, B::rows>();
    Search search;
    const auto visit = [&](i64 q0) {
      return blocks.template visit<tile_keys, true>(search, k0, B::rows, q0,
                                                    static_cast<i64>(block.last + 1) * tile_keys);
    };
#pragma unroll 1
    for (i64 q0 = visit(static_cast<i64>(block.first) * tile_keys); q0 <= static_cast<i64>(block.last) * tile_keys;
         q0 = visit(q0 + tile_keys)) {
      const u32 hidden = sparse ? blocks.template hidden<R, true>(q0, k0) : 0;
      blocks.settle(pairs, q0, tile_keys, k0, B::rows);
      const int left = inside<tile_keys>(block.of.query_len, q0), i0 = static_cast<int>(q0);
      const i64 row = block.of.query_row + q0, place = q0 + block.of.shift;
      // The first query sees this block's keys from `from` up to `past`; each next query one further.
      const int past = inside<2 * tile_keys>(place + p.right + 1, k0), from = inside<2 * tile_keys>(place - p.left, k0);
      const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + row * p.stride[0][2];
      const T* dy = static_cast<const T*>(p.dy) + b * p.stride[3][0] + h * p.stride[3][1] + row * p.stride[3][2];
      __syncwarp();  // the last tile's scores have been read by this half-warp
      Operands<T> operands;
#pragma unroll 1
      // first the weights, then the gradients of the scores
      for (int pass = 0; pass < (p.dk == nullptr ? 1 : 2); ++pass) {
        A s[R][4];
        if (pass == 0) operands = {k, p.stride[1][2], rows, p.wide & 2, q, p.stride[0][2], left, p.wide & 1, p.d_k};
        else operands = {v, p.stride[2][2], rows, p.wide & 4, dy, p.stride[3][2], left, p.wide & 8, p.d_v};
        product<D, sizeof(A) == 8>(s, staging, operands);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = thread_col() + 16 * j;
          const i64 row = row0 + q0 + at;
          const auto base = at < left ? RowBase<A>::of(p, row) : RowBase<A>{};
          const A delta = pass == 1 && at < left ? static_cast<const A*>(p.delta)[row] : A(0);
          const int limit = at < left ? min(rows, past + at) : 0;
#pragma unroll
          for (int i = 0; i < R; ++i) {
            A& weight = weights[score_index<A>(i, j)];
            A& score = scores[score_index<A>(i, j)];
            const int key = thread_row() + 8 * i;
            if (pass == 0) {
              A of_ds, through;
              const A x = pairs.weight(of_ds, through, s[i][j], i0 + at, j0 + 8 * i, base);
              const bool seen = key < limit && key >= from + at && !(hidden >> (4 * i + j) & 1);
              score = seen ? of_ds * through : A(-0.0);
              weight = is_hidden(score) || (pairs.drops() && !pairs.kept(i0 + at, j0 + 8 * i)) ? A(-0.0) : x;
            } else {
              if (pairs.drops()) s[i][j] *= is_hidden(weight) ? A(0) : pairs.again;
              score = is_hidden(score) ? A(0) : score * (s[i][j] - delta);
            }
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
    T* out = static_cast<T*>(p.dk) + b * p.stride[4][0] + kv * p.stride[4][1] + key_row * p.stride[4][2];
#pragma unroll
    for (int i = 0; i < R; ++i) factor[i] = pairs.scale;
    put_output<R, D>(out, p.stride[4][2], dk, factor, rows, p.d_k, p.wide & 16);
  }
  if (p.dv != nullptr) {
    T* out = static_cast<T*>(p.dv) + b * p.stride[5][0] + kv * p.stride[5][1] + key_row * p.stride[5][2];
#pragma unroll
    for (int i = 0; i < R; ++i) factor[i] = pairs.again;
    put_output<R, D>(out, p.stride[5][2], dv, factor, rows, p.d_v, p.wide & 32);
  }
}

}  // namespace baracuda
