#pragma once
// channel_chunks    chunks of 64 steps whose decays are of every channel: their sums, and operands times their exp.
#include "recurrence/chunk_products.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

// logs[64][DK]: sums of logs of decays from the chunk's first step on, of pieces of steps and then of pieces. All threads
// of the block call it; the caller synchronises.
template <int DK, class P>
BARACUDA_D void sum_channels(float* logs, const P& p, i64 batch, i64 start, i64 head, int steps) {
  constexpr int pieces = crew / DK, length = chunk / pieces;
  const int d = static_cast<int>(threadIdx.x) % DK, piece = static_cast<int>(threadIdx.x) / DK;
  const float* const from = row_at<float>(p.g_channel, p.stride[3], batch, start, head) + d;
  float sum = 0.0f, before = 0.0f;
#pragma unroll 8
  for (int i = 0; i < length; ++i) {
    const int step = piece * length + i;
    if (d < p.d_k && step < steps) sum += math::maximum(from[step * p.stride[3][1]], least_log);
    logs[step * DK + d] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < pieces - 1; ++n) {
    if (n < piece) before += logs[((n + 1) * length - 1) * DK + d];
  }
  __syncthreads();
#pragma unroll 8
  for (int i = 0; i < length; ++i) logs[(piece * length + i) * DK + d] += before;
}

// to[row][d] = from[row][d] factor(row, d) for rows first ... end - 1 of tiles of DK channels. All threads call it.
template <int DK, class T, class F>
BARACUDA_D void scale_channels(T* to, const T* from, int first, int end, F&& factor) {
  constexpr int pieces = DK / 8;
  for (int i = first * pieces + static_cast<int>(threadIdx.x); i < end * pieces; i += crew) {
    const int row = i / pieces, piece = i % pieces, at = tile::at<DK>(row, piece);
    auto x = load<8>(from + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = from_acc<T>(to_acc(x[e]) * factor(row, 8 * piece + e));
    store(to + at, x);
  }
}

// What walks along a sequence take of a chunk, kept in the workspace: exp G[63], k exp(G[63] - G), and q exp Q, where Q is
// G or G of the step before. All threads of the block call them; scaled, [64][DK], may be the operand.
template <int DK, class P> BARACUDA_D void keep_total(const P& p, i64 own, const float* logs) {
  const int d = static_cast<int>(threadIdx.x);
  if (d < DK) static_cast<float*>(p.totals)[own * DK + d] = fade(logs[(chunk - 1) * DK + d]);
}
template <int DK, class T, class F> BARACUDA_D void keep_rows(void* to, i64 own, T* scaled, const T* from, F&& factor) {
  scale_channels<DK>(scaled, from, 0, chunk, factor);
  __syncthreads();
  tile::copy_out<chunk, DK, crew>(static_cast<T*>(to) + own * chunk * DK, DK, scaled, static_cast<int>(threadIdx.x),
                                  chunk, DK, true);
  __syncthreads();
}
template <int DK, class T, class P>
BARACUDA_D void keep_keys(const P& p, i64 own, T* scaled, const T* keys, const float* of_key, const float* logs) {
  const float* const last = logs + (chunk - 1) * DK;
  keep_rows<DK>(p.kept_keys, own, scaled, keys,
                [&](int i, int d) { return of_key[i] * fade(last[d] - logs[i * DK + d]); });
}
template <int DK, class T, class P>
BARACUDA_D void keep_queries(const P& p, i64 own, T* queries, const float* of_query, const float* logs, bool before) {
  keep_rows<DK>(p.kept_queries, own, queries, queries, [&](int i, int d) {
    return of_query[i] * fade(!before ? logs[i * DK + d] : i > 0 ? logs[(i - 1) * DK + d] : 0.0f);
  });
}

// put(i, j, x[i] k[j] with their decays) for j <= i: products of exp(Q[i] - logs[j]), where Q is logs, or with a bonus that of
// the step before, and the bonus stands for the decay where j is i. Between blocks of 16 steps the decay is a product of
// exp(Q[i] - R) and exp(R - logs[j]), R being the logs at the end of the block before i's, of which neither is more than 1;
// within a block it is one exp, in float32. scaled: [64][DK] to work in.
template <int DK, class T, class Put>
BARACUDA_D void decayed_products(T* scaled, const T* x, const T* keys, const float* logs, const float* of_x,
                                 const float* of_key, const float* bonus, int d_k, Put&& put) {
  constexpr int block = 16, lower = block * (block - 1) / 2, blocks = chunk / block, fours = DK / 4;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, before = bonus != nullptr;
  // A thread has pairs (i, j) within a block; row r of one has those that its row 15 - r leaves of 15. It begins at four
  // channels of its own, so that rows meet in no bank.
#pragma unroll 1
  for (int pair = thread; pair < blocks * (lower + block); pair += crew) {
    const bool apart = pair < blocks * lower;
    const int short_row = pair % lower / (block - 1), place = pair % (block - 1), others = block - 1 - short_row;
    int i = pair - blocks * lower, j = i;
    if (apart) {
      i = pair / lower * block + (place < others ? others : short_row);
      j = pair / lower * block + (place < others ? place : place - others);
    }
    const float* const late = logs + (apart ? i - before : 0) * DK;
    const float* const early = logs + (apart ? j : 0) * DK;
    float sum = 0.0f;
#pragma unroll 4
    for (int n = 0; n < fours; ++n) {
      const int four = (n + thread) % fours, at = four % 2 * 4;
      const auto a = load<4>(x + tile::at<DK>(i, four / 2) + at), b = load<4>(keys + tile::at<DK>(j, four / 2) + at);
      const auto since = load<4>(late + 4 * four), until = load<4>(early + 4 * four);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float decay = fade(since[e] - until[e]);
        if (!apart) decay = !before ? 1.0f : 4 * four + e < d_k ? bonus[4 * four + e] : 0.0f;
        sum = math::fma(to_acc(a[e]) * to_acc(b[e]), decay, sum);
      }
    }
    put(i, j, sum * (of_x[i] * of_key[j]));
  }
  // Between blocks, a block of rows at a time; a warp has 16 columns.
#pragma unroll 1
  for (int first = block; first < chunk; first += block) {
    const float* const reference = logs + (first - 1) * DK;
    __syncthreads();  // all have read the block before
    scale_channels<DK>(scaled, keys, 0, first,
                       [&](int j, int d) { return of_key[j] * fade(reference[d] - logs[j * DK + d]); });
    scale_channels<DK>(scaled, x, first, first + block,
                       [&](int i, int d) { return of_x[i] * fade(logs[(i - before) * DK + d] - reference[d]); });
    __syncthreads();
    if (warp * block < first) {
      float s[2][4];
      clear(s);
      multiply<T, DK>(s, tile::Reader<DK, false>(scaled + first * DK),
                      tile::Reader<DK, true>(scaled + warp * block * DK));
      each(s, first, warp * block, [&](float& y, int i, int j) { put(i, j, y); });
    }
  }
  __syncthreads();
}

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
