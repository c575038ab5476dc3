// linear_attention_chunks    linear_attention in chunks of 64 steps on tensor cores in one launch: no decay or one a head.
//
// With G the running sum of g within a chunk, S the state before it and D[i][j] = exp(G[i] - G[j]) for j <= i:
//   y = scale (diag(exp G) q S + (q k^T * D) v),   S' = exp(G[63]) S + k^T diag(exp(G[63] - G)) v.
// Decays are exp of differences of sums that begin anew in every chunk, of logs of no less than -110, whose exp is 0: so
// what underflows is 0, and nothing overflows that does not step by step.
//
// Schedule: a block of four warps walks the chunks of one sequence with 64 columns of one head's state in registers, of
// which a warp has a quarter of the rows; of q, k and y it has 16. Sequences are cut as chunk_segments.cuh has it: every
// segment between two others is walked from zeros, too. The order of every sum is fixed by the step's place in
// its sequence and by d_k, and is that of linear_attention_states.cu and linear_attention_outputs.cu. q, k, v and the state
// are of 16 bits where they are multiplied.
#include "recurrence/chunk_segments.cuh"

namespace baracuda {
template <class T, int DK, class P> BARACUDA_D void linear_attention_chunks(const P& p) {
  using namespace recurrence;
  using namespace recurrence::chunked;
  constexpr int MT = DK / 64;               // pieces of 16 rows of the state that a warp has
  BARACUDA_DYNAMIC_SMEM(T, queries);        // [64][DK], at the end the outputs
  T* const keys = queries + chunk * DK;     // [64][DK]
  T* const values = keys + chunk * DK;      // [64][64]
  T* const weighted = values + chunk * 64;  // [64][64]: v as the state takes it
  T* const memory = weighted + chunk * 64;  // [DK][64]: the state
  // Where sequences are cut, the state at the next border, each thread's share of it.
  float* const carried = reinterpret_cast<float*>(memory + DK * 64) + threadIdx.x;
  __shared__ float sums[chunk], of_query[chunk], of_key[chunk];
  const i64 tiles = div_up(p.d_v, width), column = blockIdx.x % tiles * width;
  const i64 head = blockIdx.x / tiles % p.num_heads, n = blockIdx.x / tiles / p.num_heads;
  const int left = static_cast<int>(min<i64>(width, p.d_v - column)), thread = static_cast<int>(threadIdx.x);
  const int warp = thread / warp_size, row0 = 16 * warp, line = lane_id() / 4, pair = lane_id() % 4 * 2;
  const i64 batch = p.bounds == nullptr ? n : 0;
  const auto clear_outputs = [&](i64 batch, i64 from, i64 to) {
    for (i64 i = thread; i < (to - from) * width; i += threads) {
      const int c = static_cast<int>(i % width);
      if (c < left) row_at<T>(p.y, p.stride[4], batch, from + i / width, head)[column + c] = from_acc<T>(0.0f);
    }
  };
  if (p.num_states == 0) {
    for (i64 b = 0; b < p.batch_size; ++b) clear_outputs(b, 0, p.seq_len);
    return;
  }
  const Rows rows = rows_of(p, n);
  if (p.bounds != nullptr) {
    if (n == 0) clear_outputs(0, 0, rows.begin);
    if (n == p.num_states - 1) clear_outputs(0, rows.end, p.seq_len);
  }
  float state[MT][8][4];
  const auto each = [&](auto&& visit) {  // (row, column) of the state of every element that a thread has
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          visit(state[m][c][e], 16 * (warp * MT + m) + line + e / 2 * 8, 8 * c + pair + e % 2);
      }
    }
  };
  const float* const initial =
      p.initial_state == nullptr ? nullptr : row_at<float>(p.initial_state, p.initial_stride, n, head, 0) + column;
  each([&](float& x, int row, int c) {
    x = initial != nullptr && row < p.d_k && c < left ? initial[row * p.initial_stride[2] + c] : 0.0f;
  });
  const tile::Reader<DK, false> query(queries + row0 * DK);
  const tile::Reader<DK, true> all_keys(keys);
  const tile::Reader<64, false> written(values), kept(weighted), remembered(memory);
  const float scale = static_cast<float>(p.scale);
  const bool faded = p.g != nullptr;
  const int count = static_cast<int>(segments_of(p, rows.begin, rows.end)), walks = count == 1 ? 1 : 2 * count - 2;
#pragma unroll 1
  for (int walk = 0; walk < walks; ++walk) {  // of the first segment and the last, of each between them two
    const int segment = (walk + 1) / 2;
    const i64 first = rows.begin + segment * p.segment;
    const i64 end = count == 1 ? rows.end : min<i64>(rows.end, first + p.segment);
    const bool local = walk % 2 == 1 && segment + 1 < count;
    float fades = 1.0f;
    int i = 0;
    if (walk % 2 == 1) each([&](float& x, int, int) { x = local ? 0.0f : carried[i++ * threads]; });
#pragma unroll 1
    for (i64 start = first; start < end; start += chunk) {
      const int steps = static_cast<int>(min<i64>(chunk, end - start));
      const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
        return row_at<T>(x, stride, batch, start, head / (p.num_heads / heads));
      };
      __syncthreads();  // all have read the chunk before
      tile::copy<chunk, DK, threads>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, p.d_k,
                                     p.wide & 1);
      tile::copy<chunk, DK, threads>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, p.d_k, p.wide & 2);
      tile::copy<chunk, 64, threads>(values, from(p.v, p.stride[2], p.v_heads) + column, p.stride[2][1], steps, left,
                                     p.wide & 4);
      cp_async_commit();
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int c = 0; c < 8; ++c) tile::put<64>(memory, 16 * (warp * MT + m), 8 * c, state[m][c], 1.0f, 1.0f);
      }
      if (thread < chunk) {
        float x = 0.0f;
        if (faded && thread < steps)
          x = math::maximum(*row_at<float>(p.g, p.stride[7], batch, start + thread, head), least_log);
#pragma unroll
        for (int lane = 1; lane < warp_size; lane *= 2) {
          const float before = __shfl_up_sync(full_warp, x, lane);
          if (lane_id() >= lane) x += before;
        }
        sums[thread] = x;
      }
      cp_async_wait<0>();
      __syncthreads();
      if (thread < chunk) {
        of_query[thread] = scale * (p.normalised ? norm_factor<DK>(queries, thread, static_cast<float>(p.eps)) : 1.0f);
        if (thread >= warp_size) sums[thread] += sums[warp_size - 1];
      } else {
        of_key[thread - chunk] = p.normalised ? norm_factor<DK>(keys, thread - chunk, static_cast<float>(p.eps)) : 1.0f;
      }
      __syncthreads();
      float y[8][4], s[8][4];
      clear(y), clear(s);
      multiply<T, DK>(y, query, remembered);
      multiply<T, DK>(s, query, all_keys);
      u32 weights[4][4];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = row0 + line + e / 2 * 8, j = 8 * c + pair + e % 2;
          y[c][e] *= of_query[i] * fade_of(p, sums[i]);
          s[c][e] = j <= i ? s[c][e] * (of_query[i] * of_key[j]) * fade_of(p, sums[i] - sums[j]) : 0.0f;
        }
        weights[c / 2][c % 2 * 2] = pack_pair<T>(s[c][0], s[c][1]);
        weights[c / 2][c % 2 * 2 + 1] = pack_pair<T>(s[c][2], s[c][3]);
      }
      const float total = sums[chunk - 1];
      for (int i = thread; i < chunk * width; i += threads) {
        const int row = i / width, c = i % width, at = tile::at<64>(row, c / 8) + c % 8;
        const float factor = of_key[row] * fade_of(p, total - sums[row]);
        weighted[at] = from_acc<T>(to_acc(values[at]) * factor);
      }
      __syncthreads();
      const float whole = fade_of(p, total);
      fades *= whole;
      each([&](float& x, int, int) { x *= whole; });
#pragma unroll
      for (int j = 0; j < chunk; j += 16) {
        u32 a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; ++m) all_keys.read_transposed(a[m], j, 16 * (warp * MT + m));
#pragma unroll
        for (int c = 0; c < 8; c += 2) {
          written.read_transposed(b, j, 8 * c);
          mma_m16n8k16<T>(y[c], weights[j / 16], {b[0], b[1]});
          mma_m16n8k16<T>(y[c + 1], weights[j / 16], {b[2], b[3]});
          kept.read_transposed(b, j, 8 * c);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            mma_m16n8k16<T>(state[m][c], a[m], {b[0], b[1]});
            mma_m16n8k16<T>(state[m][c + 1], a[m], {b[2], b[3]});
          }
        }
      }
      if (local) continue;
      T* const mine = queries + row0 * DK;  // read by this warp alone
#pragma unroll
      for (int c = 0; c < 8; ++c) tile::put<64>(mine, 0, 8 * c, y[c], 1.0f, 1.0f);
      __syncwarp();
      T* const to = row_at<T>(p.y, p.stride[4], batch, start + row0, head) + column;
      tile::copy_out<16, 64, warp_size>(to, p.stride[4][1], mine, lane_id(), steps - row0, left, p.wide & 16);
    }
    i = 0;
    if (count > 1 && walk == 0) each([&](float& x, int, int) { carried[i++ * threads] = x; });
    if (local)
      each([&](float& x, int, int) {
        float& border = carried[i++ * threads];
        const float before = border;
        border = math::fma(fades, before, x);
        x = before;
      });
  }
  if (p.final_state != nullptr) {
    float* const to = row_at<float>(p.final_state, p.final_stride, n, head, 0) + column;
    each([&](float& x, int row, int c) {
      if (row < p.d_k && c < left) to[row * p.final_stride[2] + c] = x;
    });
  }
}

}  // namespace baracuda
