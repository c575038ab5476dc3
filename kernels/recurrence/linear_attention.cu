// linear_attention    y[t] = scale S[t]^T q[t] of S[t] = D[t] S[t - 1] + k[t] v[t]^T, step by step, every kind of decay and
//                     rule; also its decode step in place over slots, and states on the way.
//
// Schedule: a block walks the steps of one sequence in order with 32 columns of one head's state in registers, as
// recurrence.cuh says, and stages the operands of some steps in shared memory. Nothing but the step's place in its
// sequence and d_k has a say in the order of any sum, so a sequence has the same bits alone, in a batch, packed, and
// continued from a state.
#include "recurrence/recurrence.cuh"

namespace baracuda {

// Zeros for rows of no sequence, and for those of a sequence without a slot.
template <class T, class P> BARACUDA_D void clear_rows(const P& p, i64 batch, i64 from, i64 to, i64 head, i64 column) {
  const int left = static_cast<int>(min<i64>(recurrence::tile_columns, p.d_v - column));
  for (i64 n = threadIdx.x; n < (to - from) * recurrence::tile_columns; n += recurrence::threads) {
    const i64 row = from + n / recurrence::tile_columns;
    const int c = static_cast<int>(n % recurrence::tile_columns);
    if (c < left) recurrence::row_at<T>(p.y, p.stride[4], batch, row, head)[column + c] = from_acc<T>(acc_t<T>(0));
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
  for (i64 i = threadIdx.x; i < n; i += recurrence::threads) taken |= slot(i) == own;
  return __syncthreads_or(taken) ? -1 : own;
}

template <class T, int DK, class P> BARACUDA_D void linear_attention(const P& p) {
  using namespace recurrence;
  using A = acc_t<T>;
  constexpr int R = DK / group_lanes, most = Steps<T, A, DK>::most;
  BARACUDA_DYNAMIC_SMEM(A, shared);
  __shared__ A factors[most], betas[most];
  Steps<T, A, DK> tile;
  A* const bonus = tile.place(p, shared);
  const i64 tiles = div_up(p.d_v, tile_columns), column = blockIdx.x % tiles * tile_columns;
  const i64 head = blockIdx.x / tiles % p.num_heads, n = blockIdx.x / tiles / p.num_heads;
  const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column));
  if (p.num_states == 0) {
    for (i64 b = 0; b < p.batch_size; ++b) clear_rows<T>(p, b, 0, p.seq_len, head, column);
    return;
  }
  const i64 batch = p.bounds == nullptr ? n : 0, slot = slot_of(p, n);
  const Rows rows = rows_of(p, n);
  if (p.y != nullptr && p.bounds != nullptr) {
    if (n == 0) clear_rows<T>(p, 0, 0, rows.begin, head, column);
    if (n == p.num_states - 1) clear_rows<T>(p, 0, rows.end, p.seq_len, head, column);
  }
  const auto save = [&](i64 at, const State<A, DK>& state) {
    state.write(static_cast<A*>(p.states) + (at * p.num_heads + head) * p.d_k * p.d_v + column, p.d_v, p.d_k, left);
  };
  State<A, DK> state;
  state.clear();
  if (slot < 0) {
    clear_rows<T>(p, batch, rows.begin, rows.end, head, column);
    if (p.states != nullptr)
      for (i64 t = 0; t < p.seq_len; ++t) save(batch * p.seq_len + t, state);
    return;
  }
  if (p.initial_state != nullptr) {
    const A* const from = row_at<A>(p.initial_state, p.initial_stride, slot, head, 0);
    state.read(from + column, p.initial_stride[2], p.d_k, left);
  }
  if (p.bonus != nullptr) {
    for (int d = threadIdx.x; d < DK; d += threads)
      bonus[d] = d < p.d_k ? static_cast<const A*>(p.bonus)[head * p.bonus_stride + d] : A(0);
  }
  const A scale = static_cast<A>(p.scale);
  const i64 first_state = p.bounds == nullptr ? batch * (p.seq_len / p.every) : rows.begin / p.every;
#pragma unroll 1
  for (i64 row = rows.begin; row < rows.end; row += most) {
    const int steps = static_cast<int>(min<i64>(most, rows.end - row));
    __syncthreads();  // all have read the tile before
    tile.load(p, factors, betas, batch, row, head, column, steps);
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      A q[R], y[columns];
      Update<A, DK> update;
      A* const v = tile.v + s * tile_columns + first_column();
      if (p.bonus != nullptr) {  // y = q^T (S[t - 1] + diag(u) k v^T)
        A k[R], u[R];
        read_rows<DK>(q, tile.q + s * DK);
        read_rows<DK>(k, tile.k + s * DK);
        read_rows<DK>(u, bonus);
        State<A, DK> seen = state;
        const A own[columns] = {v[0], v[1]};
#pragma unroll
        for (int r = 0; r < R; ++r) k[r] *= u[r];
        seen.add(k, own);
        seen.dot(y, q);
      }
      update.step(p, state, tile, factors, betas, s);
      if (p.bonus == nullptr) {
        read_rows<DK>(q, tile.q + s * DK);
        state.dot(y, q);
      }
      __syncwarp();  // the group has read v
      if (group_lane() == 0) v[0] = scale * y[0], v[1] = scale * y[1];
      const i64 done = row + s + 1 - rows.begin;
      if (p.states != nullptr && done % p.every == 0) save(first_state + done / p.every - 1, state);
    }
    __syncthreads();
    if (p.y == nullptr) continue;
    for (int i = threadIdx.x; i < steps * tile_columns; i += threads) {
      const int c = i % tile_columns;
      if (c < left)
        row_at<T>(p.y, p.stride[4], batch, row + i / tile_columns, head)[column + c] = from_acc<T>(tile.v[i]);
    }
  }
  if (p.final_state != nullptr) {
    A* const to = row_at<A>(p.final_state, p.final_stride, slot, head, 0);
    state.write(to + column, p.final_stride[2], p.d_k, left);
  }
}

}  // namespace baracuda
