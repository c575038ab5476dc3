// flash_sdpa    y[i] = sum_j softmax_j(s[i,j]) v[j];   lse[i] = log sum_j exp(s[i,j]);   s = scale q[i] k[j]
//   With TERMS also the terms of terms.cuh, each a branch that all threads take alike.
//
// Without tensor cores. A block has a tile of queries of one head. It holds q in shared memory and walks the keys in
// tiles of 64: scores in chunks of columns, the online softmax (Milakov and Gimelshein 2018), then p v in pieces of
// value rows. Tiles that no query of the block sees are skipped. The order of every sum is fixed by (element, D) and by
// where the tiles start, so neither the batch nor alignment changes a bit.
//
// c = |scale| log2(e); a weight is 2^((s - max(s)) c): taking the difference first keeps the low bits of large scores.
#include "attention/block_pattern.cuh"
#include "attention/paged.cuh"
#include "attention/terms.cuh"

namespace baracuda {

template <class T, int D, class Where, int TERMS, class P> BARACUDA_D void flash_sdpa(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int R = (sizeof(A) == 8 ? 4 : 8) / (D > 256 ? 2 : 1), ROWS = 8 * R;
  constexpr int DV = min(D, 256);  // past 256 columns blockIdx.y selects 256 columns of v
  constexpr int CHUNK = chunk<A, D>, VALUES = value_rows<A, DV, 16384>();
  constexpr int AHEAD = is_same<T, float> && D == 256 ? 4 : 8;  // loads in flight; with 4, outputs have the registers
  constexpr int QP = D + pad<A>, KP = CHUNK + pad<A>;
  constexpr int KEYS = max(tile_keys * KP, ROWS * score_pitch<A>);
  BARACUDA_DYNAMIC_SMEM(A, queries);    // [ROWS][QP]
  A* const keys = queries + ROWS * QP;  // [64][KP], and once the scores are known [ROWS][score_pitch]
  A* const values = keys + KEYS;        // [VALUES][DV]
  const int col0 = D > DV ? static_cast<int>(blockIdx.y) * DV : 0, cols = p.d_v - col0;

  const Work work = Where::template find<ROWS>(p);
  if (Where::surplus && work.query_len == 0) return;
  const T* const q = work.template queries<T>(p.q, p.stride[0]);
  const typename Where::template Keys<P, 0> source(p, work);
  const auto k = source.template keys<T>(), v = source.template values<T>().columns(col0);
  T* const y = work.template outputs<T>(p.y, p.stride[3]) + col0;

  const int rows = inside<ROWS>(work.query_len, work.first);
  const Span<ROWS> span(p, work);
  const int last = span.end(rows);
  TermsOf<TERMS, A, false, P> terms(p, work);
  const A c = terms.c, sign = static_cast<A>(p.sign);
  const BlocksOf<Where, P> blocks(p, work.b, work.h);
  const bool sparse = blocks.template cuts<ROWS, tile_keys>();
  Search search;
  const auto visit = [&](int k0) {
    return static_cast<int>(blocks.template visit<tile_keys, false>(search, work.first, ROWS, k0, last));
  };

  stage<ROWS, D, QP>(queries, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
  A acc[R][DV / 16], top[R], sum[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    top[i] = -numeric<A>::infinity();
    sum[i] = A(0);
    if constexpr (TERMS != 0) {
      top[i] = terms.sink;
      sum[i] = thread_col() == 0 ? terms.sink_weight() : A(0);
    }
#pragma unroll
    for (int n = 0; n < DV / 16; ++n) acc[i][n] = A(0);
  }

#pragma unroll 1
  for (int k0 = visit(span.template first<tile_keys>()); k0 < last; k0 = visit(k0 + tile_keys)) {
    const u32 hidden = sparse ? blocks.template hidden<R, false>(work.first, k0) : 0;
    blocks.settle(terms, work.first, ROWS, k0, tile_keys);
    const int left = min(tile_keys, span.key_len - k0);
    // The thread's first row sees keys of this tile up to `past`; each next row of the thread 8 further.
    const int past = span.high - k0 + thread_row();
    const int i0 = static_cast<int>(work.first) + thread_row(), j0 = k0 + thread_col();
    A s[R][4];
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = A(0);
    }
#pragma unroll 1
    for (int d = 0; d == 0 || d < p.d_k; d += CHUNK) {
      __syncthreads();
      stage<tile_keys, CHUNK, KP, AHEAD, T>(keys, k.from(k0).columns(d), left, p.d_k - d, p.wide & 2);
      if (d == 0) stage<VALUES, DV, DV, AHEAD, T>(values, v.from(k0), left, cols, p.wide & 4);
      __syncthreads();
      multiply_scores<R, CHUNK, QP, KP>(s, queries + d, keys);
    }

    __syncthreads();  // all have read the keys
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) f(s[i][j], 8 * i, 16 * j);
      }
    };
    each([&](A& x, int, int) { x *= sign; });
    if constexpr (TERMS != 0) terms.add_to(each, i0, j0);
    A* const factors = keys + thread_row() * score_pitch<A> + tile_keys;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int limit = min(left, past + 8 * i), from = span.low - k0 + thread_row() + 8 * i;
      A high = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool seen =
            thread_col() + 16 * j < limit && thread_col() + 16 * j >= from && !(hidden >> (4 * i + j) & 1);
        if (!seen) s[i][j] = -numeric<A>::infinity();
        high = math::maximum(high, s[i][j]);
      }
      high = group_reduce<Max, 16>(high);
      const A base = high == -numeric<A>::infinity() ? A(0) : high;  // the row may have seen no key yet
      const A factor = exp2_fast((top[i] - base) * c);               // rescales what was summed under the old maximum
      top[i] = high;
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = exp2_fast((s[i][j] - base) * c);
      sum[i] = math::fma(sum[i], factor, (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]));
      if constexpr (TERMS != 0) {
        if (terms.drops()) {
#pragma unroll
          for (int j = 0; j < 4; ++j) s[i][j] = terms.kept(i0 + 8 * i, j0 + 16 * j) ? s[i][j] : A(0);
        }
      }
      if (thread_col() < 2) factors[8 * i * score_pitch<A> + thread_col()] = thread_col() == 0 ? factor : A(1);
    }
    put_scores<R>(keys, s);
    __syncwarp();

    bool cut = span.bounded && span.template cuts<tile_keys>(k0);  // some row sees fewer keys than there are
    if constexpr (TERMS != 0) cut |= terms.masked();
#pragma unroll 1
    for (int n = 0; n < tile_keys && k0 + n < last; n += VALUES) {
      if (n > 0) {
        __syncthreads();
        const i64 at = static_cast<i64>(k0) + n;
        stage<VALUES, DV, DV, AHEAD, T>(values, v.from(at), left - n, cols, p.wide & 4);
        __syncthreads();
      }
      const A* factor = factors + (n > 0);
      const bool odd = sparse && !all_finite<VALUES * DV>(values);
      const auto seen = [&](int i, int row) {
        const int key = k0 + n + row, first = static_cast<int>(work.first);
        const bool within = key >= span.low + i0 + 8 * i - first && key < span.high + i0 + 8 * i - first;
        if constexpr (TERMS != 0) return within && !terms.hides(i0 + 8 * i, key);
        else return within && !(odd && blocks.hides(i0 + 8 * i, key));
      };
      if (cut || odd) multiply_values<R, DV, VALUES, true, true>(acc, keys + n, factor, values, seen);
      else multiply_values<R, DV, VALUES, false, true>(acc, keys + n, factor, values, AllSeen{});
    }
  }

  A factor[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const A total = group_reduce<Sum, 16>(sum[i]);
    factor[i] = total == A(0) ? A(0) : terms.again / total;
    const int r = thread_row() + 8 * i;
    if (p.lse != nullptr && col0 == 0 && thread_col() == 0 && r < rows) {
      const A lse = math::fma(top[i], terms.natural, math::log(total));
      static_cast<A*>(p.lse)[work.stat + r] = total == A(0) ? -numeric<A>::infinity() : lse;
    }
  }
  put_output<R, DV>(y, p.stride[3][2], acc, factor, rows, cols, p.wide & 8);
}

}  // namespace baracuda
