// qkv_int8_few   q, k, v = scale (x @ W) + bias by int8 W [k, n], for few rows of x of f16 or bf16: each W is read
//                once, its values become exact numbers of x's element in registers, and tensor cores multiply.
//
// A block has 32 columns of one of the products and 8 NT rows of x. Wᵀ is the left operand of mma.sync: lane (g, q) has
// the columns 4 g … 4 g + 3, two for each of two tiles of 16, and of a chunk of 64 of k the run 16 q … 16 q + 15, of
// which product j of 4 takes 4 j … 4 j + 3. Chunk c is warp c % 8's; a warp adds its chunks in order, each 16 of them a
// chain of their own, then the chains, and the warps are added as a tree. So the order depends on k alone.
#include <baracuda/async_copy.cuh>
#include <baracuda/byte_numbers.cuh>
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int int8_threads = int8_warps * warp_size, int8_chunk = 64, int8_chain = 16, int8_ahead = 3;

template <class T, T VALUE> struct Constant {
  static constexpr T value = VALUE;
};

// How rows of W lie, an `Int8Layout` of the page: neighbours along n in words, along k in runs of 16 bytes, or anyhow.

// A lane's 16 of k of 4 columns as words, signs flipped: along k, word [4 column + k / 4]; else word [k] has the columns.
template <Int8Layout LAYOUT>
BARACUDA_D void load_run(const i8* w, i64 along_k, const i64 (&column)[4], int left_k, u32 (&words)[int8_run]) {
  if constexpr (LAYOUT == Int8Layout::along_k) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const auto run = load_readonly<4>(reinterpret_cast<const u32*>(w + column[c]));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * c + i] = flip_signs(run[i]);
    }
  } else if constexpr (LAYOUT == Int8Layout::along_n) {
#pragma unroll
    for (int k = 0; k < int8_run; ++k) {
      words[k] = flip_signs(__ldg(reinterpret_cast<const u32*>(w + column[0] + k * along_k)));
    }
  } else {
#pragma unroll
    for (int k = 0; k < int8_run; ++k) {
      u32 word = 0;
      if (k < left_k) {
#pragma unroll
        for (int c = 0; c < 4; ++c)
          word |= static_cast<u32>(static_cast<u8>(__ldg(w + column[c] + k * along_k))) << 8 * c;
      }
      words[k] = flip_signs(word);
    }
  }
}

template <class T, int NT, class P> BARACUDA_D void qkv_int8_few(const P& p) {
  constexpr int rows = 8 * NT, own_sums = 2 * NT * 4;
  BARACUDA_DYNAMIC_SMEM(float, totals);  // [warp][number of a lane's sum][lane]
  const u32 block = blockIdx.x, tiles_m = div_up(p.m, i64(rows));
  const int i = (block >= p.first[1]) + (block >= p.first[2]);
  const u32 tile = block - static_cast<u32>(p.first[i]);
  const i64 m0 = i64(tile % tiles_m) * rows, n0 = i64(tile / tiles_m) * int8_columns, n = p.n[i];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id(), g = lane / 4, q = lane % 4;
  const int left_m = static_cast<int>(min<i64>(rows, p.m - m0)),
            left_n = static_cast<int>(min<i64>(int8_columns, n - n0));
  const i8* const w = static_cast<const i8*>(i == 0 ? p.w_q : i == 1 ? p.w_k : p.w_v);
  const T* const x = static_cast<const T*>(p.x) + m0 * p.x_steps[0];
  const i64 along_k = p.w_steps[i][0], along_x = p.x_steps[1];
  // Of columns and rows that are not there others are read: nobody takes their sums.
  i64 column[4], x_row[NT];
#pragma unroll
  for (int c = 0; c < 4; ++c) column[c] = (n0 + min(4 * g + c, left_n - 1)) * p.w_steps[i][1];
#pragma unroll
  for (int t = 0; t < NT; ++t) x_row[t] = min(8 * t + g, left_m - 1) * p.x_steps[0];
  float acc[2][NT][4] = {};
  float* const own = totals + warp * own_sums * warp_size + lane;
#pragma unroll
  for (int e = 0; e < own_sums; ++e) own[e * warp_size] = 0.0f;
  const auto fold = [&] {
#pragma unroll
    for (int e = 0; e < own_sums; ++e) {
      float& sum = acc[e / 4 / NT][e / 4 % NT][e % 4];
      own[e * warp_size] += sum;
      sum = 0.0f;
    }
  };
  // The products of a run from `k` on; WHOLE: it is there, and rows of x are read in accesses of 16 bytes.
  const auto multiply = [&](auto layout, auto whole, i64 k) {
    constexpr Int8Layout LAYOUT = decltype(layout)::value;
    constexpr bool WHOLE = decltype(whole)::value;
    u32 words[int8_run];
    const int left_k = static_cast<int>(max<i64>(0, min<i64>(int8_run, p.k - k)));
    load_run<LAYOUT>(w + k * along_k, along_k, column, left_k, words);
    const auto pair = [&](int c, int at) {
      if constexpr (LAYOUT == Int8Layout::along_k) {
        const u32 word = words[4 * c + at / 4];
        return pack_pair<T>(flipped_byte(word, at % 4), flipped_byte(word, at % 4 + 1));
      } else {
        return pack_pair<T>(flipped_byte(words[at], c), flipped_byte(words[at + 1], c));
      }
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 of_w[2][2][4];  // [product][tile][word of the fragment]
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
          for (int e = 0; e < 4; ++e) of_w[j][s][e] = pair(2 * s + e % 2, 8 * half + 4 * j + e / 2 * 2);
        }
      }
#pragma unroll
      for (int t = 0; t < NT; ++t) {
        const T* const from = x + x_row[t] + (k + 8 * half) * along_x;
        Vec<T, 8> of_x;
        if constexpr (WHOLE) of_x = load_readonly<8>(from);
        else of_x = load_strided<T, 8>(from, along_x, left_k - 8 * half);
        const u32* const right = reinterpret_cast<const u32*>(&of_x);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const u32 both[2] = {right[2 * j], right[2 * j + 1]};
#pragma unroll
          for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(acc[s][t], of_w[j][s], both);
        }
      }
    }
  };
  const auto along = [&](auto layout) {
    const i64 whole = p.wide_x ? p.k / int8_chunk : 0;
    // Of a later chunk of the warp, which goes to the L2 cache, a lane has two sectors of 32 bytes.
    const auto prefetch = [&](i64 chunk) {
      constexpr Int8Layout LAYOUT = decltype(layout)::value;
      if (LAYOUT == Int8Layout::any || chunk >= whole) return;
#pragma unroll
      for (int sector = 0; sector < 2; ++sector) {
        const i64 k = chunk * int8_chunk + 32 * sector;
        if constexpr (LAYOUT == Int8Layout::along_n) prefetch_l2(w + (k + lane) * along_k + n0);
        else prefetch_l2(w + k + (n0 + min(lane, left_n - 1)) * p.w_steps[i][1]);
      }
    };
#pragma unroll
    for (int later = 1; later < int8_ahead; ++later) prefetch(warp + later * int8_warps);
    int taken = 0;  // chunks
#pragma unroll 1
    for (i64 chunk = warp; chunk * int8_chunk < p.k; chunk += int8_warps) {
      prefetch(chunk + int8_ahead * int8_warps);
      const i64 k = chunk * int8_chunk + int8_run * q;
      if (chunk < whole) multiply(layout, Constant<bool, true>(), k);
      else multiply(Constant<Int8Layout, Int8Layout::any>(), Constant<bool, false>(), k);
      if (++taken % int8_chain == 0) fold();
    }
  };
  const auto how = static_cast<Int8Layout>(p.layout[i]);
  if (how == Int8Layout::along_k) along(Constant<Int8Layout, Int8Layout::along_k>());
  else if (how == Int8Layout::along_n && left_n == int8_columns) along(Constant<Int8Layout, Int8Layout::along_n>());
  else along(Constant<Int8Layout, Int8Layout::any>());
  fold();
  __syncthreads();
  const float* const scales = static_cast<const float*>(i == 0 ? p.scales_q : i == 1 ? p.scales_k : p.scales_v);
  const T* const bias = static_cast<const T*>(i == 0 ? p.bias_q : i == 1 ? p.bias_k : p.bias_v);
  T* const y = static_cast<T*>(i == 0 ? p.y_q : i == 1 ? p.y_k : p.y_v);
  const float scale = static_cast<float>(i == 0 ? p.scale_q() : i == 1 ? p.scale_k() : p.scale_v());
  for (int e = threadIdx.x; e < rows * int8_columns; e += int8_threads) {
    const int c = e % int8_columns, row = e / int8_columns;
    if (row >= left_m || c >= left_n) continue;
    // Column c is row c / 4 + 8 (c % 2) of tile c / 2 % 2.
    const int place = (c / 2 % 2 * NT + row / 8) * 4 + c % 2 * 2 + row % 2, from = c / 4 * 4 + row % 8 / 2;
    Vec<float, int8_warps> all;
#pragma unroll
    for (int k = 0; k < int8_warps; ++k) all[k] = totals[(k * own_sums + place) * warp_size + from];
    float sum = tree_reduce<Sum>(all) * scale;
    if (scales != nullptr) sum *= scales[(n0 + c) * p.scale_steps[i]];
    if (bias != nullptr) sum += to_acc(bias[(n0 + c) * p.bias_steps[i]]);
    y[(m0 + row) * p.y_steps[i][0] + (n0 + c) * p.y_steps[i][1]] = from_acc<T>(sum);
  }
}

}  // namespace baracuda
