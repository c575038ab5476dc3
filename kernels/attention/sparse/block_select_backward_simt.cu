// block_select_backward_simt    the gradients of block_select_simt, and what rows of any backward need.
//
// states: of every row its base (attention.cuh) and delta = dy y - dlse. dq: a warp has a row and takes the keys of its blocks.
// dkv: a warp has a key and takes the rows that chose its block, 32 at a time.
#include "attention/sparse/block_select_simt.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void block_select_states(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  const i64 row = static_cast<i64>(blockIdx.x) * select_warps + threadIdx.x / warp_size;
  if (row >= p.num_rows) return;
  const i64 query = row % p.query_len, head = row / p.query_len % p.num_heads, b = row / p.query_len / p.num_heads;
  const auto of = [&](const void* x, const i64(&stride)[3]) {
    return static_cast<const T*>(x) + b * stride[0] + head * stride[1] + query * stride[2];
  };
  const T *const y = of(p.y, p.stride[7]), *const dy = of(p.dy, p.stride[3]);
  A sum = A(0);
  for (int d = lane_id(); d < p.d_v; d += warp_size) sum = math::fma(to_acc(dy[d]), to_acc(y[d]), sum);
  sum = warp_reduce<Sum>(sum);
  if (lane_id() != 0) return;
  const A lse = static_cast<const A*>(p.lse)[row];
  const A delta = sum - lse_gradient(p, lse, row);
  static_cast<RowState<A>*>(p.states)[row] = {replay_base(lse), delta, static_cast<i32>(query), 0};
}

namespace attention {

// A score's weight, and ds = weight (dp - delta).
template <class A> struct Replayed {
  A weight, ds;
  BARACUDA_D Replayed(A score, A dp, const RowState<A>& row, A scale)
      : weight(replayed_weight(math::fma(score, scale, -row.base))), ds(weight * (dp - row.delta)) {}
};

}  // namespace attention

template <class T, int D, class P> BARACUDA_D void block_select_dq_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A rows[select_warps][2][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + warp;
  if (unit >= p.units) return;
  const Choice choice = Choice::of<1>(p, unit);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const T* const v = static_cast<const T*>(p.v) + choice.b * p.stride[2][0] + choice.kv * p.stride[2][1];
  load_row(rows[warp][0], choice.row<T>(p.q, p.stride[0]), p.d_k);
  load_row(rows[warp][1], choice.row<T>(p.dy, p.stride[3]), p.d_v);
  __syncwarp();
  const RowState<A> state = static_cast<const RowState<A>*>(p.states)[choice.state(p)];
  const A scale = static_cast<A>(p.scale);
  A acc[D / warp_size] = {};
  BlockWalk walk = choice.walk(p);
#pragma unroll 1
  for (bool more = walk.enter(); more; more = walk.step(warp_size)) {
    const int left = min(walk.left(), warp_size), key = walk.at + lane_id();
    A ds = A(0);
    if (lane_id() < left) {
      const A s = product(rows[warp][0], k + key * p.stride[1][2], p.d_k);
      ds = Replayed<A>(s, product(rows[warp][1], v + key * p.stride[2][2], p.d_v), state, scale).ds;
    }
#pragma unroll 1
    for (int j = 0; j < left; ++j) {
      add_row<D>(acc, __shfl_sync(full_warp, ds, j), k + (walk.at + j) * p.stride[1][2], p.d_k);
    }
  }
  put_row<D>(choice.row<T>(p.dq, p.stride[4]), acc, scale, p.d_k);
}

template <class T, int D, class P> BARACUDA_D void block_select_dkv_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A rows[select_warps][2][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 pieces = (p.block_size + select_warps - 1) / select_warps, units = p.max_parts + p.key_blocks;
  const i64 within = blockIdx.x / pieces, owner = within / units;
  const BlockQueries chosen = BlockQueries::of(p, owner, static_cast<int>(within % units));
  const int in_block = static_cast<int>(blockIdx.x % pieces) * select_warps + warp;
  const i64 key = static_cast<i64>(chosen.block) * p.block_size + in_block;
  if (chosen.count < 0 || in_block >= p.block_size || key >= p.key_len) return;
  const u32 b = static_cast<u32>(owner / p.kv_heads), kv = static_cast<u32>(owner % p.kv_heads);
  const auto of_key = [&](const void* x, const i64(&stride)[3]) {
    return const_cast<T*>(static_cast<const T*>(x)) + b * stride[0] + kv * stride[1] + key * stride[2];
  };
  load_row(rows[warp][0], of_key(p.k, p.stride[1]), p.d_k);
  load_row(rows[warp][1], of_key(p.v, p.stride[2]), p.d_v);
  __syncwarp();
  const A scale = static_cast<A>(p.scale);
  A dk[D / warp_size] = {}, dv[D / warp_size] = {};
  const i64 count = static_cast<i64>(chosen.count) * p.group;
#pragma unroll 1
  for (i64 first = 0; first < count; first += warp_size) {
    const i64 mine = first + lane_id();
    const int query = mine < count ? chosen.first[mine / p.group] : -1;
    const i64 head = static_cast<i64>(kv) * p.group + mine % p.group;
    const auto of = [&](const void* x, const i64(&stride)[3]) {
      return static_cast<const T*>(x) + b * stride[0] + head * stride[1] + query * stride[2];
    };
    A weight = A(0), ds = A(0);
    const T *q = nullptr, *dy = nullptr;
    if (query >= 0 && key < end_of_keys(p, query)) {
      q = of(p.q, p.stride[0]), dy = of(p.dy, p.stride[3]);
      const RowState<A> state =
          static_cast<const RowState<A>*>(p.states)[(static_cast<i64>(b) * p.num_heads + head) * p.query_len + query];
      const Replayed<A> made(product(rows[warp][0], q, p.d_k), product(rows[warp][1], dy, p.d_v), state, scale);
      weight = made.weight, ds = made.ds;
    }
    const u32 there = __ballot_sync(full_warp, q != nullptr);
#pragma unroll 1
    for (u32 rest = there; rest != 0; rest &= rest - 1) {
      const int j = __ffs(rest) - 1;
      const auto from = [&](const T* x) {
        return reinterpret_cast<const T*>(__shfl_sync(full_warp, reinterpret_cast<unsigned long long>(x), j));
      };
      const T *const q_row = from(q), *const dy_row = from(dy);
      add_row<D>(dk, __shfl_sync(full_warp, ds, j), q_row, p.d_k);
      add_row<D>(dv, __shfl_sync(full_warp, weight, j), dy_row, p.d_v);
    }
  }
  if (chosen.slot >= 0) {
    A* const sums = sums_of<A>(p, chosen.slot, in_block);
    put_row<D>(sums, dk, A(1), p.d_k);
    put_row<D>(sums + p.d_k, dv, A(1), p.d_v);
    return;
  }
  if (p.dk != nullptr) put_row<D>(of_key(p.dk, p.stride[5]), dk, scale, p.d_k);
  if (p.dv != nullptr) put_row<D>(of_key(p.dv, p.stride[6]), dv, A(1), p.d_v);
}

// dk and dv of blocks in parts: the sums of the parts, added in their order.
template <class T, int THREADS, class P> BARACUDA_D void block_select_sum(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  const i64 owner = blockIdx.x / p.key_blocks;
  const int block = static_cast<int>(blockIdx.x % p.key_blocks), cols = p.d_k + p.d_v;
  const i32* const slots = static_cast<const i32*>(p.slots) + owner * (p.key_blocks + 1);
  const int first = slots[block], last = slots[block + 1];
  if (first == last) return;
  const u32 b = static_cast<u32>(owner / p.kv_heads), kv = static_cast<u32>(owner % p.kv_heads);
  const int keys = static_cast<int>(min<i64>(p.block_size, p.key_len - static_cast<i64>(block) * p.block_size));
  for (int n = threadIdx.x; n < keys * cols; n += THREADS) {
    const int in_block = n / cols, column = n % cols;
    A sum = A(0);
    for (int slot = first; slot < last; ++slot) sum += sums_of<A>(p, owner * p.max_parts + slot, in_block)[column];
    const bool of_keys = column < p.d_k;
    void* const out = of_keys ? p.dk : p.dv;
    if (out == nullptr) continue;
    const i64(&stride)[3] = of_keys ? p.stride[5] : p.stride[6];
    const i64 key = static_cast<i64>(block) * p.block_size + in_block;
    static_cast<T*>(out)[b * stride[0] + kv * stride[1] + key * stride[2] + column - (of_keys ? 0 : p.d_k)] =
        from_acc<T>(of_keys ? sum * static_cast<A>(p.scale) : sum);
  }
}

}  // namespace baracuda
