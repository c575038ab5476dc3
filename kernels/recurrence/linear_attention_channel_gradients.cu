// linear_attention_channel_gradients    gradients of a chunk's operands from the state before it, S, and the gradient of the
//                                       state after it, H, where every channel has its decay.
//
// With W as in linear_attention_channel_outputs.cu, F = tril(dy u^T), e(i, j) = exp(Q[i] - G[j]) of every channel:
//   dq[i] = exp(Q[i]) * (dy S^T)[i] + sum over j of F[i][j] k[j] e(i, j),
//   dk[j] = exp(G[63] - G[j]) * (u H^T)[j] + sum over i of F[i][j] q[i] e(i, j),   dv = W^T dy + (k * exp(G[63] - G)) H,
// q with the scale. Of the delta rule, X = R^T du with R, K and du of linear_attention_channel_local.cu and _slopes.cu,
// M = tril(diag(-beta) X u^T, -1), and e with G in the place of Q:
//   dv = diag(beta) X,   dbeta = rows of X * v - k * exp G * (X S^T) - K * (X u^T),
//   dk[i] += sum over j of M[i][j] k[j] e(i, j) - beta exp(G[i]) * (X S^T)[i],   dk[j] += sum over i of M[i][j] k[i] e(i, j).
// What G has of a step is q dq + k dk of the sums over j, less k dk of the sums over i; dg is the sum of that of the step and
// of all later ones, and of what exp(G[63]) has. With a bonus Q is G of the step before, and the diagonal apart.
//
// Of the rank-one rule this runs for each pair of q or a and k or b, a and b in the places of q and k, and what steps read
// of their states and its gradient in those of v and dy; then S or H may be absent, as it counts once, and what leaves are
// parts of sums (schedules/recurrence_chunks.py).
//
// Within blocks of 16 steps a thread has a channel of a block, in float32: e of the next j is e times a decay, so nothing is
// divided, and both sides of a pair have the same product. Between blocks e is exp(Q[i] - R) exp(R - G[j]), R the logs at
// the end of the block before i's, neither factor above 1.
//
// Schedule: a block of eight warps has a chunk of one head, and goes through its columns 64 at a time. The order of every
// sum is fixed by the step's place in its sequence.
#include "recurrence/channel_chunks.cuh"
#include "recurrence/chunk_gradients.cuh"
#include "recurrence/chunk_solve.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

constexpr int block = 16;

// acc[i][d] += factor(i, d) sum over k < 16 of x y, for a warp's 16 rows and half of the channels.
template <class T, int N, bool XT, int DK, class F>
BARACUDA_D void add_scaled(float (&acc)[N][4], int row0, int half, const tile::Reader<64, XT>& x,
                           const tile::Reader<DK, false>& y, int blocks, F&& factor) {
  float sum[N][4];
  clear(sum);
#pragma unroll 1
  for (int n = 0; n < blocks; ++n) multiply<T, block>(sum, moved(x, 0, n * block), moved(y, n * block, half));
#pragma unroll
  for (int c = 0; c < N; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane_id() / 4 + e / 2 * 8, d = half + 8 * c + lane_id() % 4 * 2 + e % 2;
      acc[c][e] = math::fma(sum[c][e], factor(i, d), acc[c][e]);
    }
  }
}
// to[i][d - first] = acc for WIDTH channels from `first` on.
template <int WIDTH, int N> BARACUDA_D void dump(float* to, int row0, int half, int first, float (&acc)[N][4]) {
  each(acc, row0, half, [&](float& x, int i, int d) {
    if (d >= first && d < first + WIDTH) to[i * WIDTH + d - first] = x;
  });
}

}  // namespace chunked
}  // namespace recurrence

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_channel_gradients(const P& p) {
  using namespace recurrence::chunked;
  using recurrence::row_at;
  constexpr int N = DK / 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);  // [64][DK]; while there are columns left k * exp(G[63] - G), or both parts of R
  T* const keys = queries + chunk * DK;                          // [64][DK]
  T* const scores = keys + chunk * DK;                           // [64][64]: W, or du and X; then F
  T* const outputs = scores + area;                              // [64][64]: dy; then M
  T* const values = outputs + area;                              // [64][64]: v, or u
  T* const memory = values + area;                               // [DK][64]: S
  T* const slopes = memory + DK * 64;                            // [DK][64]: H
  T* const high = queries;                                       // [64][64]: R
  T* const low = high + area;                                    // [64][64]
  float* const logs = reinterpret_cast<float*>(values);          // [64][DK], before and after the columns
  T* const scaled = reinterpret_cast<T*>(logs + chunk * DK);     // [64][DK]
  float* const by_warp = reinterpret_cast<float*>(scaled);       // [4][DK]
  float* const for_queries = reinterpret_cast<float*>(queries);  // [64][DK]: at last the gradients
  float* const for_keys = reinterpret_cast<float*>(values);      // [64][DK]: those of the later steps of pairs
  float* const for_earlier = for_keys + chunk * DK;              // [64][64]: of the delta rule, of the earlier steps
  __shared__ float of_query[chunk], of_key[chunk], betas[chunk], total[DK], held[4][chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32, half = warp / 4 * (DK / 2), steps = here.steps;
  const bool whole_q = p.whole & 1, whole_k = p.whole & 2, whole_v = p.whole & 4, whole_g = p.whole & 8;
  const auto part_of = [&](void* x, i64 width, i64 row) {
    return static_cast<float*>(x) + ((here.batch * p.seq_len + row) * p.num_heads + head) * width;
  };
  const auto place_in = [&](void* x, const i64(&stride)[3], bool whole, i64 width, i64 row) -> void* {
    if (x == nullptr) return nullptr;
    return whole ? static_cast<void*>(row_at<T>(x, stride, here.batch, row, head)) : part_of(x, width, row);
  };
  const auto step_of = [&](bool whole, const i64(&stride)[3], i64 width) {
    return whole ? stride[1] : p.num_heads * width;
  };
  const auto logs_at = [&](i64 row) {
    return whole_g ? row_at<float>(p.dg_channel, p.dg_channel_stride, here.batch, row, head)
                   : part_of(p.dg_channel, p.d_k, row);
  };
  const auto nothing = [&](i64 first, i64 end) {  // rows of no sequence
    for (i64 row = first; row < end; ++row) {
      const auto zeros = [&](void* x, const i64(&stride)[3], bool whole, i64 width) {
        void* const to = place_in(x, stride, whole, width, row);
        for (i64 d = thread; to != nullptr && d < width; d += crew) {
          if (whole) static_cast<T*>(to)[d] = from_acc<T>(0.0f);
          else static_cast<float*>(to)[d] = 0.0f;
        }
      };
      zeros(p.dq, p.dq_stride, whole_q, p.d_k), zeros(p.dk, p.dk_stride, whole_k, p.d_k);
      zeros(p.dv, p.dv_stride, whole_v, p.d_v);
      for (int d = thread; p.dg_channel != nullptr && d < p.d_k; d += crew) logs_at(row)[d] = 0.0f;
      if (thread == 0 && p.dbeta != nullptr) *row_at<float>(p.dbeta, p.dbeta_stride, 0, row, head) = 0.0f;
    }
  };
  if (p.bounds != nullptr && place == 0) {
    nothing(0, bound_of(p, 0));
    nothing(bound_of(p, p.num_states), p.seq_len);
  }
  const i64 own = place * p.num_heads + head;
  float* const dbonus = p.dbonus == nullptr ? nullptr : static_cast<float*>(p.dbonus) + own * p.d_k;
  if (steps == 0) {
    for (int d = thread; dbonus != nullptr && d < p.d_k; d += crew) dbonus[d] = 0.0f;
    return;
  }
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  const bool strict = p.whole & 64, before = strict || p.bonus != nullptr;  // strict: no step reads what it writes
  const float* const bonus = strict   ? logs
                             : before ? static_cast<const float*>(p.bonus) + head * p.bonus_stride
                                      : nullptr;
  const float* const end_logs = logs + (chunk - 1) * DK;
  const auto query_log = [&](int i, int d) {
    return !before ? logs[i * DK + d] : i > 0 ? logs[(i - 1) * DK + d] : 0.0f;
  };
  // q, k, their factors and the logs.
  const auto load_rows = [&] {
    tile::copy<chunk, DK, crew>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k, p.wide & 1);
    tile::copy<chunk, DK, crew>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
    cp_async_commit();
    sum_channels<DK>(logs, p, here.batch, here.start, head, steps);
    cp_async_wait<0>();
    __syncthreads();
    if (thread < chunk)
      of_query[thread] = static_cast<float>(p.scale) * (p.whole & 16 ? 1.0f : norm_of<DK>(p, queries, thread));
    else if (thread < 2 * chunk) of_key[thread - chunk] = p.whole & 32 ? 1.0f : norm_of<DK>(p, keys, thread - chunk);
    __syncthreads();
  };
  if constexpr (DELTA) {
    if (thread < chunk) betas[thread] = beta_of(p, here.batch, here.start, head, thread, steps);
    split_columns(high, low, static_cast<const float*>(p.inverse) + own * area, [](int) { return 1.0f; });
  } else {
    for (int i = thread; i < area / 8; i += crew) store(scores + 8 * i, Vec<T, 8>{});
    load_rows();
    const auto put = [&](int i, int j, float x) {
      if (j < i || !strict) scores[tile::at<64>(i, j / 8) + j % 8] = from_acc<T>(x);
    };
    decayed_products<DK>(scaled, queries, keys, logs, of_query, of_key, bonus, p.d_k, put);
    scale_channels<DK>(queries, keys, 0, chunk,
                       [&](int i, int d) { return of_key[i] * fade(end_logs[d] - logs[i * DK + d]); });
  }
  float dweight[4][4], xu[4][4], dq[N][4], dk[N][4], dx[N][4], products[DK / 32];
  float of_beta[2] = {0.0f, 0.0f};
  clear(dweight), clear(xu), clear(dq), clear(dk), clear(dx);
#pragma unroll
  for (int n = 0; n < DK / 32; ++n) products[n] = 0.0f;
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
    tile::copy<DK, 64, crew>(memory, static_cast<const T*>(p.memory) + at * (DK * 64), 64, p.memory == nullptr ? 0 : DK,
                             width, true);
    tile::copy<DK, 64, crew>(slopes, static_cast<const T*>(p.slopes) + at * (DK * 64), 64, p.slopes == nullptr ? 0 : DK,
                             width, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
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
          if (i < steps && j < left)
            of_beta[e / 2] = math::fma(x[c][e], to_acc(v[i * p.stride[2][1] + j]), of_beta[e / 2]);
          x[c][e] *= betas[i];
        }
      }
      __syncthreads();
      const tile::Reader<64, false> found(scores + row0 * 64);
      multiply<T, width>(xu, found, moved(tile::Reader<64, true>(values), col0, 0));
      multiply<T, width>(dx, found, moved(tile::Reader<64, true>(memory), half, 0));
    } else {
      multiply<T, DK>(x, tile::Reader<DK, false>(queries + row0 * DK), moved(tile::Reader<64, false>(slopes), 0, col0));
      multiply<T, chunk>(x, moved(tile::Reader<64, true>(scores), 0, row0),
                         moved(tile::Reader<64, false>(outputs), 0, col0));
    }
    void* const to = place_in(p.dv, p.dv_stride, whole_v, p.d_v, here.start);
    void* const dv = to == nullptr ? nullptr
                     : whole_v     ? static_cast<void*>(static_cast<T*>(to) + column)
                                   : static_cast<void*>(static_cast<float*>(to) + column);
    put_gradient<T>(dv, whole_v, step_of(whole_v, p.dv_stride, p.d_v), steps, left, row0, col0, x);
    const tile::Reader<64, false> output(outputs + row0 * 64);
    multiply<T, width>(dweight, output, moved(tile::Reader<64, true>(values), col0, 0));
    multiply<T, width>(dq, output, moved(tile::Reader<64, true>(memory), half, 0));
    multiply<T, width>(dk, tile::Reader<64, false>(values + row0 * 64), moved(tile::Reader<64, true>(slopes), half, 0));
#pragma unroll
    for (int m = 0; m < DK / 32; ++m) {  // rows of S * H, eight threads a row
      const int piece = thread + m * crew, place_of = tile::at<64>(piece / 8, piece % 8);
      const auto a = load<8>(memory + place_of), b = load<8>(slopes + place_of);
#pragma unroll
      for (int e = 0; e < 8; ++e) products[m] = math::fma(to_acc(a[e]), to_acc(b[e]), products[m]);
    }
  }
  __syncthreads();  // all have read the last tiles
  if (p.dq == nullptr && p.dk == nullptr && p.dg_channel == nullptr && p.dbeta == nullptr && dbonus == nullptr) return;
#pragma unroll
  for (int m = 0; m < DK / 32; ++m) {
#pragma unroll
    for (int lane = 1; lane < 8; lane *= 2) products[m] += __shfl_xor_sync(full_warp, products[m], lane);
    if (thread % 8 == 0) total[(thread + m * crew) / 8] = products[m];
  }
  load_rows();
  // Their states' parts with decays; what exp(G[63]) has of them; rows of beta.
#pragma unroll
  for (int c = 0; c < N; ++c) {
    float of_end[2] = {0.0f, 0.0f};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane_id() / 4 + e / 2 * 8, d = half + 8 * c + lane_id() % 4 * 2 + e % 2;
      const float k = element_of<DK>(keys, i, d) * of_key[i];
      dq[c][e] *= fade(query_log(i, d));
      dk[c][e] *= fade(end_logs[d] - logs[i * DK + d]);
      of_end[e % 2] = math::fma(k, dk[c][e], of_end[e % 2]);
      if constexpr (DELTA) {
        const float seen = fade(logs[i * DK + d]) * dx[c][e];
        of_beta[e / 2] = math::fma(-k, seen, of_beta[e / 2]);
        dx[c][e] = -betas[i] * seen;
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int lane = 4; lane < warp_size; lane *= 2) of_end[e] += __shfl_xor_sync(full_warp, of_end[e], lane);
      if (lane_id() < 4) by_warp[warp % 4 * DK + half + 8 * c + lane_id() * 2 + e] = of_end[e];
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float f[4], m[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane_id() / 4 + e / 2 * 8, j = col0 + 8 * c + lane_id() % 4 * 2 + e % 2;
      f[e] = j <= i ? dweight[c][e] : 0.0f;
      if constexpr (DELTA) {
        m[e] = j < i ? -betas[i] * xu[c][e] : 0.0f;
        if (j < i)
          of_beta[e / 2] =
              math::fma(-static_cast<const float*>(p.alike)[own * area + i * chunk + j], xu[c][e], of_beta[e / 2]);
      }
    }
    tile::put<64>(scores, row0, col0 + 8 * c, f, 1.0f, 1.0f);
    if constexpr (DELTA) tile::put<64>(outputs, row0, col0 + 8 * c, m, 1.0f, 1.0f);
  }
  if constexpr (DELTA) {
    float(&by_row)[2][chunk] = reinterpret_cast<float(&)[2][chunk]>(held);
    put_rows(by_row, row0, of_beta);
  }
  __syncthreads();
  if (thread < DK) {
    float sum = fade(end_logs[thread]) * total[thread];
#pragma unroll
    for (int w = 0; w < 4; ++w) sum += by_warp[w * DK + thread];
    total[thread] = sum;
  } else if (DELTA && p.dbeta != nullptr && thread >= crew - chunk) {
    const int i = thread - (crew - chunk);
    if (i < steps) *row_at<float>(p.dbeta, p.dbeta_stride, here.batch, here.start + i, head) = held[0][i] + held[1][i];
  }
  // Between blocks of 16 steps, a block of later steps at a time: its rows lie behind those of the earlier.
#pragma unroll 1
  for (int late = 1; late < chunk / block; ++late) {
    const int first = late * block;
    const float* const reference = logs + (first - 1) * DK;
    T* const later = scaled + (chunk - block) * DK;
    T* const shifted = later - first * DK;
    const auto since = [&](int i, int d) { return fade(query_log(i, d) - reference[d]); };
    const auto until = [&](int j, int d) { return fade(reference[d] - logs[j * DK + d]); };
    const auto key_since = [&](int i, int d) { return fade(logs[i * DK + d] - reference[d]); };
    __syncthreads();  // all have read the block before
    scale_channels<DK>(scaled, keys, 0, first, [&](int j, int d) { return of_key[j] * until(j, d); });
    scale_channels<DK>(shifted, queries, first, first + block, [&](int i, int d) { return of_query[i] * since(i, d); });
    __syncthreads();
    const tile::Reader<DK, false> earlier_rows(scaled), later_rows(later);
    if (warp % 4 == late) {
      add_scaled<T>(dq, row0, half, tile::Reader<64, false>(scores + row0 * 64), earlier_rows, late, since);
      if constexpr (DELTA)
        add_scaled<T>(dx, row0, half, tile::Reader<64, false>(outputs + row0 * 64), earlier_rows, late, key_since);
    } else if (warp % 4 < late) {
      add_scaled<T>(dk, row0, half, moved(tile::Reader<64, true>(scores), first, row0), later_rows, 1, until);
    }
    if constexpr (DELTA) {
      __syncthreads();  // all have read the queries
      scale_channels<DK>(shifted, keys, first, first + block,
                         [&](int i, int d) { return of_key[i] * key_since(i, d); });
      __syncthreads();
      if (warp % 4 < late)
        add_scaled<T>(dk, row0, half, moved(tile::Reader<64, true>(outputs), first, row0), later_rows, 1, until);
    }
  }
  // Within blocks, and what leaves: a thread has a channel of a block.
  __syncthreads();  // all have read the rows and the logs
  dump<DK>(for_queries, row0, half, 0, dq);
  if constexpr (DELTA) dump<DK>(for_keys, row0, half, 0, dx);
  else dump<DK>(for_keys, row0, half, 0, dk);
#pragma unroll 1
  for (int first = 0; first < DK; first += width) {
    const int own_block = thread / width, lane = thread % width, d = first + lane, start = own_block * block;
    const bool there = d < p.d_k;
    if constexpr (DELTA) {
      __syncthreads();  // all have read the channels before
      dump<width>(for_earlier, row0, half, first, dk);
    }
    __syncthreads();
    float q[block], k[block], decay[block], to_q[block], as_later[block], as_earlier[block];
    const float* g = row_at<float>(p.g_channel, p.stride[3], here.batch, here.start + start, head) + d;
    const T* some_q = from(p.q, p.stride[0], p.q_heads) + start * p.stride[0][1] + d;
    const T* some_k = from(p.k, p.stride[1], p.k_heads) + start * p.stride[1][1] + d;
#pragma unroll
    for (int i = 0; i < block; ++i) {
      const int row = start + i, at = row * DK + d;
      q[i] = k[i] = 0.0f, decay[i] = 1.0f;
      if (there && row < steps) {
        q[i] = to_acc(*some_q) * of_query[row];
        k[i] = to_acc(*some_k) * of_key[row];
        decay[i] = fade(math::maximum(*g, least_log));
      }
      some_q += p.stride[0][1], some_k += p.stride[1][1], g += p.stride[3][1];
      to_q[i] = for_queries[at];
      as_later[i] = DELTA ? for_keys[at] : 0.0f;
      as_earlier[i] = DELTA ? for_earlier[row * width + lane] : for_keys[at];
    }
    const auto pair_of = [&](const T* x, int i, int j) { return element_of<64>(x, start + i, start + j); };
#pragma unroll
    for (int i = 0; i < block; ++i) {
      float fade = 1.0f;  // of a step to the next one's query with a bonus, else of a step to itself
      if (!before) {
        const float f = pair_of(scores, i, i);
        to_q[i] = math::fma(f, k[i], to_q[i]), as_earlier[i] = math::fma(f, q[i], as_earlier[i]);
        fade = decay[i];
      }
#pragma unroll
      for (int j = i - 1; j >= 0; --j) {
        const float f = pair_of(scores, i, j) * fade;
        to_q[i] = math::fma(f, k[j], to_q[i]), as_earlier[j] = math::fma(f, q[i], as_earlier[j]);
        if constexpr (DELTA) {
          const float m = pair_of(outputs, i, j) * fade;
          as_later[i] = math::fma(m, k[j], as_later[i]), as_earlier[j] = math::fma(m, k[i], as_earlier[j]);
        }
        fade *= decay[j];
      }
    }
    float sum = 0.0f, dg[block];
#pragma unroll
    for (int i = block - 1; i >= 0; --i) {
      if (!before) sum = math::fma(q[i], to_q[i], sum);
      if constexpr (DELTA) sum = math::fma(k[i], as_later[i], sum);
      sum = math::fma(-k[i], as_earlier[i], sum);
      dg[i] = sum;
      if (before) sum = math::fma(q[i], to_q[i], sum);
    }
    __syncthreads();  // all have read what was held before
    held[own_block][lane] = sum;
    if (before) {
      const float u = there && !strict ? bonus[d] : 0.0f;
      float of_bonus = 0.0f;
#pragma unroll
      for (int i = 0; i < block; ++i) {
        const float f = pair_of(scores, i, i);
        to_q[i] = math::fma(f * u, k[i], to_q[i]), as_earlier[i] = math::fma(f * u, q[i], as_earlier[i]);
        of_bonus = math::fma(f * q[i], k[i], of_bonus);
      }
      for_queries[start * DK + d] = of_bonus;
    }
    __syncthreads();
    if (!there) continue;
    float after = total[d];
    for (int b = chunk / block - 1; b > own_block; --b) after += held[b][lane];
    const auto leave = [&](void* x, const i64(&stride)[3], bool whole, auto&& value) {
      void* const to = place_in(x, stride, whole, p.d_k, here.start + start);
      if (to == nullptr) return;
      const i64 step = step_of(whole, stride, p.d_k);
      i64 at = d;
#pragma unroll
      for (int i = 0; i < block; ++i, at += step) {
        if (start + i >= steps) break;
        if (whole) static_cast<T*>(to)[at] = from_acc<T>(value(i));
        else static_cast<float*>(to)[at] = value(i);
      }
    };
    leave(p.dq, p.dq_stride, whole_q, [&](int i) { return to_q[i] * static_cast<float>(p.scale); });
    leave(p.dk, p.dk_stride, whole_k, [&](int i) { return DELTA ? as_earlier[i] + as_later[i] : as_earlier[i]; });
    if (p.dg_channel != nullptr) {
      float* to = logs_at(here.start + start) + d;
      const i64 step = step_of(whole_g, p.dg_channel_stride, p.d_k);
#pragma unroll
      for (int i = 0; i < block; ++i, to += step) {
        if (start + i < steps) *to = dg[i] + after;
      }
    }
    if (dbonus != nullptr && own_block == 0) {
      float of_bonus = 0.0f;
#pragma unroll
      for (int b = 0; b < chunk / block; ++b) of_bonus += for_queries[b * block * DK + d];
      dbonus[d] = of_bonus;
    }
  }
}

}  // namespace baracuda
