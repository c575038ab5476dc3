// block_select_backward_mma    the gradients of block_select_mma.
//
// dq: as the forward, a warp with 16 heads of a query walks its blocks; scores and their gradients stay in registers. dkv: a
// block has KEYS keys of a block and takes the rows that chose it, 32 at a time: the heads of a query that share the key
// head, then those of the next. Scores are computed transposed, keys along the warps, so that weights and ds in registers
// are the left operands of dv and dk. Past head_dim 128 two blocks share the columns. The order of every sum is fixed by
// (element, D, KEYS) and by the lists.
#include "attention/dense/flash_sdpa_backward_mma.cu"
#include "attention/flash.cuh"
#include "attention/sparse/selected.cuh"

namespace baracuda {
namespace attention {

// Turns a score into a weight and dp into ds. The highest key of a row far from 0 has all of its weight, and ds = 0 if
// lse has no gradient.
template <class T, class P>
BARACUDA_D void replay(const P& p, float& s, float& dp, const RowState<float>& row, float scale) {
  s = replayed_weight(math::fma(s, scale, -row.base));
  const bool sole = p.dlse == nullptr && is_far_base(row.base) && rounds_to_one<T>(s);
  dp = sole ? 0.0f : s * (dp - row.delta);
}

}  // namespace attention

template <class T, int D, int KEYS, class P> BARACUDA_D void block_select_dq(const P& p) {
  using namespace attention;
  constexpr int ROWS = 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);    // [ROWS][D], at the end dq
  T* const grads = queries + ROWS * D;  // [ROWS][D]: dy
  T* const keys = grads + ROWS * D;     // [KEYS][D]
  T* const values = keys + KEYS * D;    // [KEYS][D]

  const Choice choice = Choice::of<ROWS>(p, blockIdx.x);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const T* const v = static_cast<const T*>(p.v) + choice.b * p.stride[2][0] + choice.kv * p.stride[2][1];
  const auto load_keys = [&](const BlockWalk& w) {
    copy_rows<KEYS, D, warp_size>(keys, k + w.at * p.stride[1][2], p.stride[1][2], w.left(), p.d_k, p.wide & 2);
  };
  const auto load_values = [&](const BlockWalk& w) {
    copy_rows<KEYS, D, warp_size>(values, v + w.at * p.stride[2][2], p.stride[2][2], w.left(), p.d_v, p.wide & 4);
  };
  copy_rows<ROWS, D, warp_size>(queries, choice.row<T>(p.q, p.stride[0]), p.stride[0][1], choice.heads, p.d_k,
                                p.wide & 1);
  copy_rows<ROWS, D, warp_size>(grads, choice.row<T>(p.dy, p.stride[3]), p.stride[3][1], choice.heads, p.d_v,
                                p.wide & 8);
  BlockWalk walk = choice.walk(p);
  bool more = walk.enter();
  if (more) {
    load_keys(walk);
    load_values(walk);
  }
  cp_async_commit();

  RowState<float> state[2];  // of rows g and g + 8
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = 8 * half + lane_id() / 4;
    state[half] = {0.0f, 0.0f, 0, 0};
    if (r < choice.heads)
      state[half] = static_cast<const RowState<float>*>(p.states)[choice.state(p) + r * p.query_len];
  }
  const tile::Reader<D, false> query(queries), grad(grads), key(keys);
  const tile::Reader<D, true> key_row(keys), value_row(values);
  const float scale = static_cast<float>(p.scale);
  float acc[1][D / 8][4] = {};
#pragma unroll 1
  while (more) {
    cp_async_wait<0>();
    __syncwarp();  // this tile is loaded
    const int left = walk.left();
    float s[1][KEYS / 8][4], ds[1][KEYS / 8][4];
    score<T, D, 1, KEYS>(s, query, key_row, 0);
    score<T, D, 1, KEYS>(ds, grad, value_row, 0);
    more = walk.step(KEYS);
    __syncwarp();  // all have read the values
    if (more) load_values(walk);
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        replay<T>(p, s[0][n][e], ds[0][n][e], state[e / 2], scale);
        if (8 * n + lane_id() % 4 * 2 + e % 2 >= left) ds[0][n][e] = 0.0f;
      }
    }
    u32 ds16[1][KEYS / 16][4];
    to_fragments<T>(ds16[0], ds[0]);
    multiply<T, D, 1, KEYS>(acc, ds16, key, 0);
    __syncwarp();  // all have read the keys
    if (more) load_keys(walk);
    cp_async_commit();
  }
  cp_async_wait<0>();
  __syncwarp();  // other lanes' copies of q must not meet dq where no tile was visited
#pragma unroll
  for (int n = 0; n < D / 8; ++n) tile::put<D>(queries, 0, 8 * n, acc[0][n], scale, scale);
  __syncwarp();
  tile::copy_out<ROWS, D, warp_size>(choice.row<T>(p.dq, p.stride[4]), p.stride[4][1], queries, lane_id(), choice.heads,
                                     p.d_k, p.wide & 16);
}

template <class T, int D, int COLS, int KEYS, int STAGES, class P> BARACUDA_D void block_select_dkv(const P& p) {
  using namespace attention;
  constexpr int THREADS = 2 * KEYS, ROWS = 32, TILE = ROWS * D;
  constexpr u32 SIZE = sizeof(T);
  using State = RowState<float>;
  BARACUDA_DYNAMIC_SMEM(T, keys);                                         // [KEYS][D]
  T* const values = keys + KEYS * D;                                      // [KEYS][D]
  T* const queries = values + KEYS * D;                                   // [STAGES][ROWS][D]
  T* const grads = queries + STAGES * TILE;                               // [STAGES][ROWS][D]: dy
  State* const states = reinterpret_cast<State*>(grads + STAGES * TILE);  // [STAGES][ROWS]

  const i64 pieces = (p.block_size + KEYS - 1) / KEYS, units = p.max_parts + p.key_blocks;
  const i64 within = blockIdx.x / pieces, owner = within / units;
  const BlockQueries chosen = BlockQueries::of(p, owner, static_cast<int>(within % units));
  const int in_block = static_cast<int>(blockIdx.x % pieces) * KEYS;
  const int k0 = chosen.block * p.block_size + in_block;
  const int left = static_cast<int>(min<i64>(p.block_size - in_block, p.key_len - k0));
  if (chosen.count < 0 || left <= 0) return;
  const u32 b = static_cast<u32>(owner / p.kv_heads), kv = static_cast<u32>(owner % p.kv_heads);
  const auto of_keys = [&](const void* x, const i64(&stride)[3]) {
    return const_cast<T*>(static_cast<const T*>(x)) + b * stride[0] + kv * stride[1] + k0 * stride[2];
  };
  copy_rows<KEYS, D, THREADS>(keys, of_keys(p.k, p.stride[1]), p.stride[1][2], left, p.d_k, p.wide & 2);
  copy_rows<KEYS, D, THREADS>(values, of_keys(p.v, p.stride[2]), p.stride[2][2], left, p.d_v, p.wide & 4);
  cp_async_commit();

  const u32 group = static_cast<u32>(p.group);
  const i64 count = static_cast<i64>(chosen.count) * p.group;
  const auto load = [&](i64 first, int stage) {
    const int rows = static_cast<int>(min<i64>(ROWS, count - first));
    const auto of = [&](const void* x, const i64(&stride)[3]) {
      const T* const from = static_cast<const T*>(x) + b * stride[0] + static_cast<i64>(kv) * p.group * stride[1];
      return [=, &chosen, &stride](int r) {
        const u64 at = static_cast<u64>(first + r);
        return from + at % group * stride[1] + chosen.first[at / group] * stride[2];
      };
    };
    copy_rows<ROWS, D, THREADS>(queries + stage * TILE, of(p.q, p.stride[0]), rows, p.d_k, p.wide & 1);
    copy_rows<ROWS, D, THREADS>(grads + stage * TILE, of(p.dy, p.stride[3]), rows, p.d_v, p.wide & 8);
    if (threadIdx.x < ROWS) {
      const int r = static_cast<int>(threadIdx.x);
      const u64 at = static_cast<u64>(first + (r < rows ? r : 0));
      const i64 head = static_cast<i64>(b) * p.num_heads + static_cast<i64>(kv) * p.group + at % group;
      const State* const from = static_cast<const State*>(p.states) + head * p.query_len + chosen.first[at / group];
      cp_async_16(states + stage * ROWS + r, from, r < rows);
    }
    cp_async_commit();
  };

  const int lane = lane_id(), key0 = static_cast<int>(threadIdx.x) / warp_size * 16,
            col0 = static_cast<int>(blockIdx.y) * COLS;
  const tile::Reader<D, false> mine(keys + key0 * D), query(queries);
  const tile::Reader<D, true> query_row(queries);
  constexpr u32 to_values = SIZE * KEYS * D, to_grads = SIZE * STAGES * TILE;
  const float scale = static_cast<float>(p.scale);
  float dk[1][COLS / 8][4] = {}, dv[1][COLS / 8][4] = {};
  int stage = 0;
  if (STAGES == 2 && count > 0) load(0, 0);
#pragma unroll 1
  for (i64 first = 0; first < count; first += ROWS) {
    if (STAGES == 1) load(first, 0);
    cp_async_wait<0>();
    __syncthreads();  // these rows are loaded, and all have read those before
    if (STAGES == 2 && first + ROWS < count) load(first + ROWS, stage ^ 1);
    const u32 here = stage * TILE * SIZE;
    const State* const state = states + stage * ROWS;
    float s[1][ROWS / 8][4], ds[1][ROWS / 8][4];
    multiply_rows<T>(s, mine, 0, query_row, 0, here);
    multiply_rows<T>(ds, mine, to_values, query_row, 0, here + to_grads);
    const bool cut = p.causal && state[0].query + p.shift < k0 + KEYS - 1;  // queries only rise
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const State& row = state[8 * n + lane % 4 * 2 + e % 2];
        replay<T>(p, s[0][n][e], ds[0][n][e], row, scale);
        if (cut && k0 + key0 + e / 2 * 8 + lane / 4 > row.query + p.shift) s[0][n][e] = ds[0][n][e] = 0.0f;
      }
    }
    u32 p16[1][ROWS / 16][4], ds16[1][ROWS / 16][4];
    to_fragments<T>(p16[0], s[0]);
    to_fragments<T>(ds16[0], ds[0]);
#pragma unroll
    for (int n = 0; n < ROWS / 16; ++n) {
      const u32(&weights)[1][4] = reinterpret_cast<const u32(&)[1][4]>(p16[0][n]);
      const u32(&slopes)[1][4] = reinterpret_cast<const u32(&)[1][4]>(ds16[0][n]);
      add_rows<T>(dv, weights, query, 16 * n, col0, here + to_grads);
      add_rows<T>(dk, slopes, query, 16 * n, col0, here);
    }
    if (STAGES == 2) stage ^= 1;
    else __syncthreads();
  }

  cp_async_wait<0>();
  const int rows = left - key0;
  if (chosen.slot >= 0) {
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = lane / 4 + e / 2 * 8, column = col0 + 8 * n + lane % 4 * 2 + e % 2;
        if (r >= rows) continue;
        float* const sums = sums_of<float>(p, chosen.slot, in_block + key0 + r);
        if (column < p.d_k) sums[column] = dk[0][n][e];
        if (column < p.d_v) sums[p.d_k + column] = dv[0][n][e];
      }
    }
    return;
  }
  const auto store = [&](void* out, const i64(&stride)[3], const float(&x)[COLS / 8][4], float factor, int cols) {
    if (out == nullptr) return;
    T* const to = of_keys(out, stride) + key0 * stride[2] + col0;
    put_rows<false>({to, to + 8 * stride[2]}, stride[2], rows, cols - col0, x, {factor, factor});
  };
  store(p.dk, p.stride[5], dk[0], scale, p.d_k);
  store(p.dv, p.stride[6], dv[0], 1.0f, p.d_v);
}

}  // namespace baracuda
