// flash_sdpa    y[i] = sum_j softmax_j(scale q[i] k[j]) v[j];   lse[i] = log sum_j exp(scale q[i] k[j])
//
// One block a tile of queries of one head. It holds q in shared memory and walks the keys in tiles of 64: scores by
// chunks of columns, the running maximum and sum (Milakov and Gimelshein 2018), then p v by pieces of value rows. Tiles
// that no query of the block sees are not visited. The order of every sum is fixed by (element, D) and by where the tiles
// start, so neither the batch nor alignment changes a bit. Blocks: every one, or those of a pattern.
//
// c = |scale| log2(e); a weight is 2^(s c - base) with base = max(s) c rounded, one fma and one exp2. The rounding of
// base cancels in y, and the lse takes it back out.
#include <baracuda/block_pattern.cuh>

namespace baracuda {

template <class T, int D, template <class> class Blocks = attention::EveryBlock, class P> BARACUDA_D void flash_sdpa(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int R = sizeof(A) == 8 ? 4 : 8, ROWS = 8 * R;
  constexpr int CHUNK = chunk<A, D>, VALUES = value_rows<A, D, 16384>();
  constexpr int AHEAD = is_same<T, float> && D == 256 ? 4 : 8;  // loads in flight: other registers hold outputs
  constexpr int QP = D + pad<A>, KP = CHUNK + pad<A>;
  constexpr int KEYS = max(tile_keys * KP, ROWS * score_pitch<A>);
  BARACUDA_DYNAMIC_SMEM(A, queries);   // [ROWS][QP]
  A* const keys = queries + ROWS * QP;  // [64][KP], and once the scores are known [ROWS][score_pitch]
  A* const values = keys + KEYS;        // [VALUES][D]

  const Place place(p);
  const u32 b = place.head / p.num_heads, h = place.head % p.num_heads, kv = h / p.group;
  const i64 q0 = static_cast<i64>(place.tile) * ROWS;
  const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + q0 * p.stride[0][2];
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1];
  T* y = static_cast<T*>(p.y) + b * p.stride[3][0] + h * p.stride[3][1] + q0 * p.stride[3][2];

  const int rows = inside<ROWS>(p.query_len, q0);
  const i64 last = p.causal ? min(p.key_len, q0 + rows + p.shift) : p.key_len;  // keys the last query sees; may be <= 0
  const A c = static_cast<A>(p.scale * 1.4426950408889634), sign = static_cast<A>(p.sign);
  const Blocks<P> blocks(p, b, h);
  const bool cuts = blocks.template cuts<ROWS, tile_keys>();
  Search search;

  stage<ROWS, D, QP>(queries, q, p.stride[0][2], rows, p.d_k, p.wide & 1);
  A acc[R][D / 16], top[R], sum[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    top[i] = -numeric<A>::infinity();
    sum[i] = A(0);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) acc[i][n] = A(0);
  }

#pragma unroll 1
  for (i64 k0 = 0; (k0 = blocks.template visit<tile_keys, false>(search, q0, ROWS, k0, last)) < last; k0 += tile_keys) {
    const int left = inside<tile_keys>(p.key_len, k0);
    // Keys of this tile that the thread's first row sees; its next rows see 8 more each.
    const int past = (p.causal ? inside<max(tile_keys, ROWS)>(q0 + p.shift + 1, k0) : tile_keys) + thread_row();
    A s[R][4];
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = A(0);
    }
#pragma unroll 1
    for (int d = 0; d == 0 || d < p.d_k; d += CHUNK) {
      __syncthreads();
      stage<tile_keys, CHUNK, KP, AHEAD>(keys, k + k0 * p.stride[1][2] + d, p.stride[1][2], left, p.d_k - d, p.wide & 2);
      if (d == 0) stage<VALUES, D, D, AHEAD>(values, v + k0 * p.stride[2][2], p.stride[2][2], left, p.d_v, p.wide & 4);
      __syncthreads();
      multiply_scores<R, CHUNK, QP, KP>(s, queries + d, keys);
    }

    __syncthreads();  // all have read the keys
    const u32 hidden = cuts ? blocks.template hidden<R, false>(q0, k0) : 0;
    A* const factors = keys + thread_row() * score_pitch<A> + tile_keys;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int limit = min(left, past + 8 * i);
      A high = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] *= sign;
        if (thread_col() + 16 * j >= limit || (hidden >> (4 * i + j) & 1)) s[i][j] = -numeric<A>::infinity();
        high = math::maximum(high, s[i][j]);
      }
      high = group_reduce<Max, 16>(high);
      const A base = high == -numeric<A>::infinity() ? A(0) : high * c;  // the row may have seen nothing yet
      const A factor = exp2_fast(top[i] * c - base);  // of what was summed under the old maximum
      top[i] = high;
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = exp2_fast(math::fma(s[i][j], c, -base));
      sum[i] = math::fma(sum[i], factor, (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]));
      if (thread_col() < 2) factors[8 * i * score_pitch<A> + thread_col()] = thread_col() == 0 ? factor : A(1);
    }
    put_scores<R>(keys, s);
    __syncwarp();

    const bool cut = past - thread_row() < left;  // some row sees fewer keys than there are
#pragma unroll 1
    for (int n = 0; n < tile_keys && k0 + n < last; n += VALUES) {
      if (n > 0) {
        __syncthreads();
        const i64 at = k0 + n;
        stage<VALUES, D, D, AHEAD>(values, v + at * p.stride[2][2], p.stride[2][2], left - n, p.d_v, p.wide & 4);
        __syncthreads();
      }
      const A* factor = factors + (n > 0);
      const bool odd = cuts && !all_finite<VALUES * D>(values);
      const auto seen = [&](int i, int j) {
        return j < past - n + 8 * i && !(odd && blocks.hides(q0 + thread_row() + 8 * i, k0 + n + j));
      };
      if (cut || odd) multiply_values<R, D, VALUES, true, true>(acc, keys + n, factor, values, seen);
      else multiply_values<R, D, VALUES, false, true>(acc, keys + n, factor, values, AllSeen{});
    }
  }

  A factor[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const A total = group_reduce<Sum, 16>(sum[i]);
    factor[i] = total == A(0) ? A(0) : A(1) / total;
    const int r = thread_row() + 8 * i;
    if (p.lse != nullptr && thread_col() == 0 && r < rows) {
      const A rest = math::fma(top[i], c, -(top[i] * c));  // what rounding took from base
      const A lse = math::fma(top[i], static_cast<A>(p.scale), math::fma(rest, -ln_2<A>, math::log(total)));
      static_cast<A*>(p.lse)[place.head * p.query_len + q0 + r] = total == A(0) ? -numeric<A>::infinity() : lse;
    }
  }
  put_output<R, D>(y, p.stride[3][2], acc, factor, rows, p.d_v, p.wide & 8);
}

}  // namespace baracuda
