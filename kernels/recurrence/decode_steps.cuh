#pragma once
// decode_steps    what the walks of linear attention over sequences and over slots share: the slot of a sequence, rows of
//                 zeros, one step with its y, and the rows of a tile stored.
#include <baracuda/index.cuh>

#include "recurrence/recurrence.cuh"

namespace baracuda {
namespace recurrence {

// What a block has: sequence n, a head, columns from `column` on, of which `left` exist. Blocks are below 2^31, so that
// no quotient needs 64 bits: those took longer than the steps of a short sequence.
struct Share {
  i64 n, head, column;
  int left;
  template <class P> BARACUDA_D explicit Share(const P& p) {
    u32 tile, of_heads;
    const u32 tiles = static_cast<u32>(div_up(p.d_v, tile_columns));
    const u32 rest = divmod(blockIdx.x, tiles, tile);
    n = divmod(rest, static_cast<u32>(p.num_heads), of_heads);
    head = of_heads, column = static_cast<i64>(tile) * tile_columns;
    left = static_cast<int>(min<i64>(tile_columns, p.d_v - column));
  }
};

// Zeros for rows of no sequence, and for those of a sequence without a slot.
template <class T, class P> BARACUDA_D void clear_rows(const P& p, i64 batch, i64 from, i64 to, i64 head, i64 column) {
  const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column));
  for (i64 n = threadIdx.x; n < (to - from) * tile_columns; n += threads) {
    const i64 row = from + n / tile_columns;
    const int c = static_cast<int>(n % tile_columns);
    if (c < left) row_at<T>(p.y, p.stride[4], batch, row, head)[column + c] = from_acc<T>(acc_t<T>(0));
  }
}

// The state of sequence n: its slot, or -1 where that is none or an earlier sequence has it.
template <class P> BARACUDA_D i64 slot_of(const P& p, i64 n) {
  if (p.slots == nullptr) return n;
  const auto slot = [&](i64 i) -> i64 {
    return p.wide_slots ? static_cast<const i64*>(p.slots)[i * p.slot_stride]
                        : static_cast<const i32*>(p.slots)[i * p.slot_stride];
  };
  const i64 own = slot(n);
  bool taken = own < 0 || own >= p.num_slots;
  for (i64 i = threadIdx.x; i < n; i += threads) taken |= slot(i) == own;
  return __syncthreads_or(taken) ? -1 : own;
}

// Step s of a tile, whose y takes the place of v. bonus: in shared memory.
template <class T, class A, int DK, class P>
BARACUDA_D void step_with_output(const P& p, State<A, DK>& state, const Steps<T, A, DK>& tile, const A* factors,
                                 const A* betas, const A* bonus, A scale, int s) {
  constexpr int R = DK / group_lanes;
  A q[R], y[columns];
  Update<A, DK> update;
  A* const v = tile.v + s * tile_columns + first_column();
  if (p.bonus != nullptr) {  // y = q^T (S[t - 1] + diag(u) k v^T)
    A k[R];
    read_rows<DK>(k, bonus);
    read_rows<DK>(q, tile.k + s * DK);
    const A own[columns] = {v[0], v[1]};
#pragma unroll
    for (int r = 0; r < R; ++r) k[r] *= q[r];
    read_rows<DK>(q, tile.q + s * DK);
    state.dot(y, q, k, own);
  }
  update.step(p, state, tile, factors, betas, s);
  if (p.bonus == nullptr) {
    read_rows<DK>(q, tile.q + s * DK);
    state.dot(y, q);
  }
  __syncwarp();  // the group has read v
  if (group_lane() == 0) v[0] = scale * y[0], v[1] = scale * y[1];
}

// The y of a tile's steps, which stand in the place of v.
template <class T, class A, class P>
BARACUDA_D void store_rows(const P& p, const A* v, i64 batch, i64 row, i64 head, i64 column, int steps) {
  const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column));
  for (int i = threadIdx.x; i < steps * tile_columns; i += threads) {
    const int c = i % tile_columns;
    if (c < left) row_at<T>(p.y, p.stride[4], batch, row + i / tile_columns, head)[column + c] = from_acc<T>(v[i]);
  }
}

// The bonus of a head, zeros behind d_k.
template <int DK, class A, class P> BARACUDA_D void load_bonus(const P& p, A* bonus, i64 head) {
  if (p.bonus == nullptr) return;
  for (int d = threadIdx.x; d < DK; d += threads)
    bonus[d] = d < p.d_k ? static_cast<const A*>(p.bonus)[head * p.bonus_stride + d] : A(0);
}

}  // namespace recurrence
}  // namespace baracuda
