// linear_attention_gradients    gradients of a chunk's operands from the state before it, S, and the gradient of the state
//                               after it, H.
//
// With P = tril(q k^T * D), F = tril(dy u^T * D) and w = exp(G[63] - G):
//   dq = diag(exp G) dy S^T + F k,   dk = diag(w) u H^T + F^T q,   dv = P^T dy + diag(w) k H,
// q with the scale. Of the delta rule, X = R^T du, R and du as in linear_attention_local.cu and _slopes.cu, and
// M = tril(diag(-beta) X u^T * D, -1):
//   dv = diag(beta) X,   dk += M k + M^T k - diag(beta exp(G)) X S^T,   dbeta = rows of X * (v - exp(G) k S - A u / beta).
// dg of a step is the sum of what G has of it and of all later steps; what G has are sums of rows less sums of columns of
// F * P / D and its like, in float32, so that they cancel where they should.
//
// Schedule: a block of eight warps has a chunk of one head, and goes through its columns 64 at a time. Every sum is a chain
// over columns or steps, then a butterfly over lanes, then over warps in order: fixed by the step's place in its sequence.
#include "recurrence/chunk_gradients.cuh"
#include "recurrence/chunk_solve.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_gradients(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int N = DK / 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);  // [64][DK]; of the delta rule both parts of R while there are columns left
  T* const keys = queries + (DELTA && DK < 128 ? 2 * area : chunk * DK);  // [64][DK]
  T* const outputs = keys + chunk * DK;  // [64][64]: dy; from here on at last four matrices [64][64]
  T* const values = outputs + area;      // [64][64]: v, or u
  T* const memory = values + area;       // [DK][64]: S
  T* const slopes = memory + DK * 64;    // [DK][64]: H
  T* const scores = slopes + DK * 64;    // [64][64]: P, or du and X
  T* const high = queries;               // [64][64]: R
  T* const low = high + area;            // [64][64]
  __shared__ float sums[chunk], of_query[chunk], of_key[chunk], betas[chunk];
  __shared__ float by_row[4][2][chunk], by_col[4][chunk], of_states[crew / warp_size];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32, half = warp / 4 * (DK / 2), steps = here.steps;
  const auto place_in = [&](void* x, const i64(&stride)[3], bool whole, i64 width, i64 batch, i64 row) -> void* {
    if (x == nullptr) return nullptr;
    if (whole) return row_at<T>(x, stride, batch, row, head);
    return static_cast<float*>(x) + ((batch * p.seq_len + row) * p.num_heads + head) * width;
  };
  const bool whole_q = p.whole & 1, whole_k = p.whole & 2, whole_v = p.whole & 4;
  const auto step_of = [&](bool whole, const i64(&stride)[3], i64 width) {
    return whole ? stride[1] : p.num_heads * width;
  };
  const auto nothing = [&](i64 first, i64 end) {  // rows of no sequence
    for (i64 row = first; row < end; ++row) {
      const auto zeros = [&](void* x, const i64(&stride)[3], bool whole, i64 width) {
        void* const to = place_in(x, stride, whole, width, 0, row);
        for (i64 d = thread; to != nullptr && d < width; d += crew) {
          if (whole) static_cast<T*>(to)[d] = from_acc<T>(0.0f);
          else static_cast<float*>(to)[d] = 0.0f;
        }
      };
      zeros(p.dq, p.dq_stride, whole_q, p.d_k), zeros(p.dk, p.dk_stride, whole_k, p.d_k);
      zeros(p.dv, p.dv_stride, whole_v, p.d_v);
      if (thread == 0 && p.dg != nullptr) *row_at<float>(p.dg, p.dg_stride, 0, row, head) = 0.0f;
      if (thread == 0 && p.dbeta != nullptr) *row_at<float>(p.dbeta, p.dbeta_stride, 0, row, head) = 0.0f;
    }
  };
  if (p.bounds != nullptr && place == 0) {
    nothing(0, bound_of(p, 0));
    nothing(bound_of(p, p.num_states), p.seq_len);
  }
  if (steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  const float scale = static_cast<float>(p.scale);
  const auto load_queries = [&] {
    tile::copy<chunk, DK, crew>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k, p.wide & 1);
  };
  if constexpr (!DELTA) load_queries();
  tile::copy<chunk, DK, crew>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
  cp_async_commit();
  if (warp == 0) sum_logs(sums, p, here.batch, here.start, head, steps);
  if constexpr (DELTA) {
    if (thread < chunk) betas[thread] = beta_of(p, here.batch, here.start, head, thread, steps);
    split_columns(high, low, static_cast<const float*>(p.inverse) + own * area, [](int) { return 1.0f; });
  }
  cp_async_wait<0>();
  __syncthreads();
  if (!DELTA && thread < chunk) of_query[thread] = norm_of<DK>(p, queries, thread);
  if (thread >= chunk && thread < 2 * chunk) of_key[thread - chunk] = norm_of<DK>(p, keys, thread - chunk);
  __syncthreads();
  const auto fade = [&](int i, int j) { return fade_of(p, sums[i] - sums[j]); };
  const auto since = [&](int i) { return fade_of(p, sums[i]); };
  const auto until = [&](int i) { return fade_of(p, sums[chunk - 1] - sums[i]); };
  float weight[4][4], alike[4][4], dweight[4][4], xu[4][4], dq[N][4], dk[N][4], dx[N][4], products = 0.0f;
  float of_x[2] = {0.0f, 0.0f};                                // rows of X * v
  const auto alike_rows = [&](float(&to)[4][4], const T* x) {  // x k^T
    clear(to);
    multiply<T, DK>(to, tile::Reader<DK, false>(x + row0 * DK), moved(tile::Reader<DK, true>(keys), col0, 0));
  };
  const auto find_weights = [&] {
    alike_rows(weight, queries);
    each(weight, row0, col0,
         [&](float& x, int i, int j) { x = j <= i ? x * (scale * of_query[i] * of_key[j]) * fade(i, j) : 0.0f; });
  };
  if constexpr (!DELTA) {
    find_weights();
    put_all<64>(scores, row0, col0, weight);
  }
  clear(dweight), clear(xu), clear(dq), clear(dk), clear(dx);
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    const i64 column = n * width, at = own * tiles + n;
    const int left = static_cast<int>(min<i64>(width, p.d_v - column));
    __syncthreads();  // all have read the tiles before
    tile::copy<chunk, 64, crew>(outputs, row_at<T>(p.y, p.stride[4], here.batch, here.start, head) + column,
                                p.stride[4][1], steps, left, p.wide & 16);
    const T* const v = from(p.v, p.stride[2], p.v_heads) + column;
    if constexpr (DELTA) {
      tile::copy<chunk, 64, crew>(values, static_cast<const T*>(p.u) + at * area, 64, chunk, width, true);
      tile::copy<chunk, 64, crew>(scores, static_cast<const T*>(p.du) + at * area, 64, chunk, width, true);
    } else {
      tile::copy<chunk, 64, crew>(values, v, p.stride[2][1], steps, left, p.wide & 4);
    }
    tile::copy<DK, 64, crew>(memory, static_cast<const T*>(p.memory) + at * (DK * 64), 64, DK, width, true);
    tile::copy<DK, 64, crew>(slopes, static_cast<const T*>(p.slopes) + at * (DK * 64), 64, DK, width, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    void* const to = place_in(p.dv, p.dv_stride, whole_v, p.d_v, here.batch, here.start);
    void* const dv = to == nullptr ? nullptr
                     : whole_v     ? static_cast<void*>(static_cast<T*>(to) + column)
                                   : static_cast<void*>(static_cast<float*>(to) + column);
    float x[4][4];
    clear(x);
    if constexpr (DELTA) {
      const tile::Reader<64, false> written = moved(tile::Reader<64, false>(scores), 0, col0);
      multiply<T, chunk>(x, moved(tile::Reader<64, true>(high), 0, row0), written);
      multiply<T, chunk>(x, moved(tile::Reader<64, true>(low), 0, row0), written);
      __syncthreads();  // all have read du
      put_all<64>(scores, row0, col0, x);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = row0 + lane_id() / 4 + e / 2 * 8, j = col0 + 8 * c + lane_id() % 4 * 2 + e % 2;
          if (i < steps && j < left) of_x[e / 2] = math::fma(x[c][e], to_acc(v[i * p.stride[2][1] + j]), of_x[e / 2]);
          x[c][e] *= betas[i];
        }
      }
      __syncthreads();
      if (n + 1 == tiles) load_queries(), cp_async_commit();  // R has been read for the last time
      const tile::Reader<64, false> found(scores + row0 * 64);
      multiply<T, width>(xu, found, moved(tile::Reader<64, true>(values), col0, 0));
      multiply<T, width>(dx, found, moved(tile::Reader<64, true>(memory), half, 0));
    } else {
      multiply<T, DK>(x, tile::Reader<DK, false>(keys + row0 * DK), moved(tile::Reader<64, false>(slopes), 0, col0));
      each(x, row0, col0, [&](float& y, int i, int) { y *= of_key[i] * until(i); });
      multiply<T, chunk>(x, moved(tile::Reader<64, true>(scores), 0, row0),
                         moved(tile::Reader<64, false>(outputs), 0, col0));
    }
    put_gradient<T>(dv, whole_v, step_of(whole_v, p.dv_stride, p.d_v), steps, left, row0, col0, x);
    const tile::Reader<64, false> output(outputs + row0 * 64);
    multiply<T, width>(dweight, output, moved(tile::Reader<64, true>(values), col0, 0));
    multiply<T, width>(dq, output, moved(tile::Reader<64, true>(memory), half, 0));
    multiply<T, width>(dk, tile::Reader<64, false>(values + row0 * 64), moved(tile::Reader<64, true>(slopes), half, 0));
    if (p.dg != nullptr) {
      for (int i = thread; i < DK * 8; i += crew) {
        const auto a = load<8>(memory + 8 * i), b = load<8>(slopes + 8 * i);
#pragma unroll
        for (int e = 0; e < 8; ++e) products = math::fma(to_acc(a[e]), to_acc(b[e]), products);
      }
    }
  }
  if constexpr (DELTA) cp_async_wait<0>();
  __syncthreads();  // all have read the last tiles
  if constexpr (DELTA) {
    if (thread < chunk) of_query[thread] = norm_of<DK>(p, queries, thread);
    __syncthreads();
  }
  // What each row knows of G, with w and for beta; and the factors of k and q.
  float of_log[2] = {0.0f, 0.0f}, of_total[2] = {0.0f, 0.0f}, of_beta[2] = {of_x[0], of_x[1]}, columns[4][2];
#pragma unroll
  for (int c = 0; c < N; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane_id() / 4 + e / 2 * 8, d = half + 8 * c + lane_id() % 4 * 2 + e % 2;
      const float q = element_of<DK>(queries, i, d) * of_query[i], k = element_of<DK>(keys, i, d) * of_key[i];
      dq[c][e] *= since(i);
      dk[c][e] *= until(i);
      of_log[e / 2] = math::fma(scale * q, dq[c][e], of_log[e / 2]);
      of_total[e / 2] = math::fma(k, dk[c][e], of_total[e / 2]);
      of_log[e / 2] = math::fma(-k, dk[c][e], of_log[e / 2]);
      if constexpr (DELTA) {
        const float seen = since(i) * dx[c][e];
        of_beta[e / 2] = math::fma(-k, seen, of_beta[e / 2]);
        of_log[e / 2] = math::fma(-k * betas[i], seen, of_log[e / 2]);
        dk[c][e] = math::fma(-betas[i], seen, dk[c][e]);
      }
    }
  }
  if constexpr (DELTA) {
    find_weights();
    alike_rows(alike, keys);
    each(alike, row0, col0,
         [&](float& x, int i, int j) { x = j < i ? x * (of_key[i] * of_key[j]) * fade(i, j) : 0.0f; });
  }
  T* const of_keys = outputs;            // F with the factors of k in its columns
  T* const of_queries = outputs + area;  // F with those of q in its rows
  T* const of_later = outputs + 2 * area;
  T* const of_earlier = outputs + 3 * area;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    columns[c][0] = columns[c][1] = 0.0f;
    float a[4], b[4], later[4], earlier[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane_id() / 4 + e / 2 * 8, j = col0 + 8 * c + lane_id() % 4 * 2 + e % 2;
      const float faded = j <= i ? fade(i, j) : 0.0f, f = j <= i ? dweight[c][e] * faded : 0.0f;
      a[e] = f * of_key[j], b[e] = f * (scale * of_query[i]);
      float own_log = dweight[c][e] * weight[c][e];
      if constexpr (DELTA) {
        const float m = j < i ? -betas[i] * xu[c][e] * faded : 0.0f;
        later[e] = m * of_key[j], earlier[e] = m * of_key[i];
        own_log = math::fma(-betas[i] * xu[c][e], alike[c][e], own_log);
        of_beta[e / 2] = math::fma(-alike[c][e], xu[c][e], of_beta[e / 2]);
      }
      of_log[e / 2] += own_log;
      columns[c][e % 2] += own_log;
    }
    tile::put<64>(of_keys, row0, col0 + 8 * c, a, 1.0f, 1.0f);
    tile::put<64>(of_queries, row0, col0 + 8 * c, b, 1.0f, 1.0f);
    if constexpr (DELTA) {
      tile::put<64>(of_later, row0, col0 + 8 * c, later, 1.0f, 1.0f);
      tile::put<64>(of_earlier, row0, col0 + 8 * c, earlier, 1.0f, 1.0f);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = columns[c][e];
#pragma unroll
      for (int lane = 4; lane < warp_size; lane *= 2) sum += __shfl_xor_sync(full_warp, sum, lane);
      if (lane_id() < 4) by_col[warp % 4][col0 + 8 * c + lane_id() * 2 + e] = sum;
    }
  }
  put_rows(by_row[0], row0, of_log), put_rows(by_row[1], row0, of_total), put_rows(by_row[2], row0, of_beta);
#pragma unroll
  for (int lane = 1; lane < warp_size; lane *= 2) products += __shfl_xor_sync(full_warp, products, lane);
  if (lane_id() == 0) of_states[warp] = products;
  __syncthreads();
  if (warp == 0 && p.dg != nullptr) {
    float x[2], total = both(by_row[1], lane_id()) + both(by_row[1], lane_id() + warp_size), states = 0.0f;
#pragma unroll
    for (int lane = 1; lane < warp_size; lane *= 2) total += __shfl_xor_sync(full_warp, total, lane);
#pragma unroll
    for (int w = 0; w < crew / warp_size; ++w) states += of_states[w];
    float later = math::fma(fade_of(p, sums[chunk - 1]), states, total);
#pragma unroll
    for (int h = 1; h >= 0; --h) {
      const int i = lane_id() + h * warp_size;
      x[h] = both(by_row[0], i);
#pragma unroll
      for (int w = 0; w < 4; ++w) x[h] -= by_col[w][i];
#pragma unroll
      for (int lane = 1; lane < warp_size; lane *= 2) {
        const float next = __shfl_down_sync(full_warp, x[h], lane);
        if (lane_id() + lane < warp_size) x[h] += next;
      }
      const float all = __shfl_sync(full_warp, x[h], 0);
      if (i < steps) *row_at<float>(p.dg, p.dg_stride, here.batch, here.start + i, head) = x[h] + later;
      later += all;
    }
  }
  if (DELTA && p.dbeta != nullptr && thread >= crew - chunk) {
    const int i = thread - (crew - chunk);
    if (i < steps) *row_at<float>(p.dbeta, p.dbeta_stride, here.batch, here.start + i, head) = both(by_row[2], i);
  }
  const tile::Reader<DK, false> some_keys = moved(tile::Reader<DK, false>(keys), 0, half);
  multiply<T, chunk>(dq, tile::Reader<64, false>(of_keys + row0 * 64), some_keys);
  multiply<T, chunk>(dk, moved(tile::Reader<64, true>(of_queries), 0, row0),
                     moved(tile::Reader<DK, false>(queries), 0, half));
  if constexpr (DELTA) {
    multiply<T, chunk>(dk, tile::Reader<64, false>(of_later + row0 * 64), some_keys);
    multiply<T, chunk>(dk, moved(tile::Reader<64, true>(of_earlier), 0, row0), some_keys);
  }
  each(dq, row0, half, [&](float& x, int, int) { x *= scale; });
  // Through the normalisation of rows, where the output is no part of a sum: there recurrence_sum does it.
  if (p.normalised && (whole_q || whole_k)) {
    __syncthreads();  // the sums of rows have been read
    float q_dots[2] = {0.0f, 0.0f}, k_dots[2] = {0.0f, 0.0f};
#pragma unroll
    for (int c = 0; c < N; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = row0 + lane_id() / 4 + e / 2 * 8, d = half + 8 * c + lane_id() % 4 * 2 + e % 2;
        q_dots[e / 2] = math::fma(element_of<DK>(queries, i, d), dq[c][e], q_dots[e / 2]);
        k_dots[e / 2] = math::fma(element_of<DK>(keys, i, d), dk[c][e], k_dots[e / 2]);
      }
    }
    put_rows(by_row[0], row0, q_dots), put_rows(by_row[1], row0, k_dots);
    __syncthreads();
    const auto through = [&](float(&acc)[N][4], const T* x, const float* factor, const float(&dots)[2][chunk]) {
      each(acc, row0, half, [&](float& y, int i, int d) {
        const float by = factor[i];
        y = by * (y - element_of<DK>(x, i, d) * (both(dots, i) * by * by));
      });
    };
    if (whole_q) through(dq, queries, of_query, by_row[0]);
    if (whole_k) through(dk, keys, of_key, by_row[1]);
  }
  put_gradient<T>(place_in(p.dq, p.dq_stride, whole_q, p.d_k, here.batch, here.start), whole_q,
                  step_of(whole_q, p.dq_stride, p.d_k), steps, p.d_k, row0, half, dq);
  put_gradient<T>(place_in(p.dk, p.dk_stride, whole_k, p.d_k, here.batch, here.start), whole_k,
                  step_of(whole_k, p.dk_stride, p.d_k), steps, p.d_k, row0, half, dk);
}

}  // namespace baracuda
