// linear_attention    y[t] = scale S[t]^T q[t] of S[t] = D[t] S[t - 1] + k[t] v[t]^T, step by step, every kind of decay and
//                     rule; also its decode step in place over slots, and states on the way.
//
// Schedule: a block walks the steps of one sequence in order with 32 columns of one head's state in registers, as
// recurrence.cuh says, and stages the operands of some steps in shared memory. Nothing but the step's place in its
// sequence and d_k has a say in the order of any sum, so a sequence has the same bits alone, in a batch, packed, and
// continued from a state.
#include "recurrence/decode_steps.cuh"

namespace baracuda {

template <class T, int DK, class P> BARACUDA_D void linear_attention(const P& p) {
  using namespace recurrence;
  using A = acc_t<T>;
  constexpr int most = Steps<T, A, DK>::most;
  BARACUDA_DYNAMIC_SMEM(A, shared);
  __shared__ A factors[most], betas[most];
  Steps<T, A, DK> tile;
  A* const bonus = tile.place(p, shared);
  const Share share(p);
  const i64 n = share.n, head = share.head, column = share.column;
  const int left = share.left;
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
  load_bonus<DK>(p, bonus, head);
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
      step_with_output(p, state, tile, factors, betas, bonus, scale, s);
      const i64 done = row + s + 1 - rows.begin;
      if (p.states != nullptr && done % p.every == 0) save(first_state + done / p.every - 1, state);
    }
    __syncthreads();
    if (p.y == nullptr) continue;
    store_rows<T>(p, tile.v, batch, row, head, column, steps);
  }
  if (p.final_state != nullptr) {
    A* const to = row_at<A>(p.final_state, p.final_stride, slot, head, 0);
    state.write(to + column, p.final_stride[2], p.d_k, left);
  }
}

}  // namespace baracuda
