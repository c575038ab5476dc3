// linear_attention_replay    decode of linear attention whose states are written once in some steps: the steps since then
//                            stand in a ring beside each state, and are walked again from it.
//
// Schedule: that of linear_attention, with the steps of the ring before those of the call. The state goes through the
// same operations in the same order as where it is written at every step, so it has the same bits. New steps enter the
// ring behind those that are read, and no block writes what another reads.
#include <baracuda/async_copy.cuh>

#include "recurrence/decode_steps.cuh"

namespace baracuda {
namespace recurrence {

// The place of step `written` of the ring in its slot, and how many steps are pending from there on.
struct Pending {
  i64 first, count;
  template <class P> BARACUDA_D Pending(const P& p, i64 n) {
    const i64 written = static_cast<const i32*>(p.written)[n * p.written_stride];
    const i64 length = static_cast<const i32*>(p.length)[n * p.length_stride];
    first = written % p.ring;
    if (first < 0) first += p.ring;
    count = max<i64>(0, min<i64>(length - written, p.ring - p.seq_len));
  }
  // The place of step n of them.
  template <class P> BARACUDA_D i64 at(const P& p, i64 n) const {
    return first + n < p.ring ? first + n : first + n - p.ring;
  }
};

// Where `heads` rows of `width` of step `place` of a slot's ring begin.
template <class T, class P> BARACUDA_D T* ring_at(const P& p, void* ring, i64 slot, i64 place, i64 heads, i64 width) {
  return static_cast<T*>(ring) + (slot * p.ring + place) * heads * width;
}

// Asks for what a head reads of the pending steps, all of it at once: the loads of load_ring wait for one another.
template <class T, class A, class P>
BARACUDA_D void ask_for_ring(const P& p, i64 slot, const Pending& pending, i64 head, i64 column) {
  constexpr i64 line = 128 / sizeof(T);
  const i64 heads = p.num_heads, k_head = head_of(head, heads, p.k_heads), v_head = head_of(head, heads, p.v_heads);
  for (i64 n = threadIdx.x; n < pending.count; n += threads) {
    const i64 place = pending.at(p, n);
    const T* const k = ring_at<T>(p, p.ring_k, slot, place, p.k_heads, p.d_k) + k_head * p.d_k;
    for (i64 d = 0; d < p.d_k; d += line) prefetch_l2(k + d);
    prefetch_l2(ring_at<T>(p, p.ring_v, slot, place, p.v_heads, p.d_v) + v_head * p.d_v + column);
    if (p.g != nullptr) prefetch_l2(ring_at<A>(p, p.ring_g, slot, place, heads, 1) + head);
    if (p.beta != nullptr) prefetch_l2(ring_at<A>(p, p.ring_beta, slot, place, heads, 1) + head);
  }
}

// Steps `place` on of the ring, which do not go round it, as steps `at` on of the tile; of q there are none.
template <class T, class A, int DK, class P>
BARACUDA_D void load_ring(const P& p, const Steps<T, A, DK>& tile, A* factors, A* betas, i64 slot, i64 place, i64 head,
                          i64 column, int at, int steps) {
  const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column)), d_k = p.d_k;
  const i64 heads = p.num_heads, k_head = head_of(head, heads, p.k_heads), v_head = head_of(head, heads, p.v_heads);
  const auto rows = [&](A* to, void* ring) {
    load_rows<T, DK>(to + at * DK, ring_at<T>(p, ring, slot, place, heads, d_k) + head * d_k, heads * d_k, steps, d_k,
                     false, 0.0f);
  };
  load_rows<T, DK>(tile.k + at * DK, ring_at<T>(p, p.ring_k, slot, place, p.k_heads, d_k) + k_head * d_k,
                   p.k_heads * d_k, steps, d_k, p.normalised, p.eps);
  if (tile.decays != nullptr) {
    load_rows<A, DK, true>(tile.decays + at * DK, ring_at<A>(p, p.ring_g_channel, slot, place, heads, d_k) + head * d_k,
                           heads * d_k, steps, d_k, false, 0.0f);
  }
  if (tile.a != nullptr) rows(tile.a, p.ring_a);
  if (tile.b != nullptr) rows(tile.b, p.ring_b);
  load_columns<T>(tile.v + at * tile_columns,
                  ring_at<T>(p, p.ring_v, slot, place, p.v_heads, p.d_v) + v_head * p.d_v + column, p.v_heads * p.d_v,
                  steps, left);
  for (int n = threadIdx.x; n < steps; n += threads) {
    if (p.g != nullptr) factors[at + n] = math::exp(ring_at<A>(p, p.ring_g, slot, place + n, heads, 1)[head]);
    if (p.beta != nullptr) betas[at + n] = ring_at<A>(p, p.ring_beta, slot, place + n, heads, 1)[head];
  }
}

// `count` of the elements from `first` on of head `own`, of all steps of the call, into a ring of rows [heads, width].
template <class X, class P>
BARACUDA_D void append_rows(const P& p, void* ring, const void* from, const i64 (&stride)[3], i64 batch, i64 slot,
                            i64 place, i64 heads, i64 own, i64 width, i64 first, int count) {
  if (from == nullptr) return;
  for (i64 i = threadIdx.x; i < p.seq_len * count; i += threads) {
    const i64 step = i / count, at = first + i % count;
    const i64 to = place + step < p.ring ? place + step : place + step - p.ring;
    ring_at<X>(p, ring, slot, to, heads, width)[own * width + at] = row_at<X>(from, stride, batch, step, own)[at];
  }
}

// The call's steps into the ring from `place` on. A block has its columns of v; what heads share, and what the blocks of
// a head have alike, is written by the first of them.
template <class T, class A, class P>
BARACUDA_D void append(const P& p, i64 batch, i64 slot, i64 place, i64 head, i64 column) {
  const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column)), d_k = p.d_k;
  const i64 heads = p.num_heads, k_share = heads / p.k_heads, v_share = heads / p.v_heads;
  if (head % v_share == 0)
    append_rows<T>(p, p.ring_v, p.v, p.stride[2], batch, slot, place, p.v_heads, head / v_share, p.d_v, column, left);
  if (column != 0) return;
  if (head % k_share == 0)
    append_rows<T>(p, p.ring_k, p.k, p.stride[1], batch, slot, place, p.k_heads, head / k_share, d_k, 0, d_k);
  append_rows<T>(p, p.ring_a, p.a, p.stride[5], batch, slot, place, heads, head, d_k, 0, d_k);
  append_rows<T>(p, p.ring_b, p.b, p.stride[6], batch, slot, place, heads, head, d_k, 0, d_k);
  append_rows<A>(p, p.ring_g_channel, p.g_channel, p.stride[3], batch, slot, place, heads, head, d_k, 0, d_k);
  append_rows<A>(p, p.ring_g, p.g, p.stride[7], batch, slot, place, heads, head, 1, 0, 1);
  append_rows<A>(p, p.ring_beta, p.beta, p.stride[8], batch, slot, place, heads, head, 1, 0, 1);
}

}  // namespace recurrence

template <class T, int DK, class P> BARACUDA_D void linear_attention_replay(const P& p) {
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
  if (n >= p.num_states) return;
  const i64 slot = slot_of(p, n);
  const Pending pending(p, n);
  const bool writes = slot >= 0 && pending.count >= p.every;
  if (column == 0 && head == 0 && threadIdx.x == 0) {
    const i32 before = static_cast<const i32*>(p.written)[n * p.written_stride];
    static_cast<i32*>(p.now_written)[n * p.now_stride] = before + static_cast<i32>(writes ? pending.count : 0);
  }
  if (slot < 0) {
    clear_rows<T>(p, n, 0, p.seq_len, head, column);
    return;
  }
  ask_for_ring<T, A>(p, slot, pending, head, column);
  State<A, DK> state;
  A* const kept = row_at<A>(p.final_state, p.final_stride, slot, head, 0) + column;
  state.read(kept, p.final_stride[2], p.d_k, left);
  load_bonus<DK>(p, bonus, head);
  const A scale = static_cast<A>(p.scale);
  const i64 all = pending.count + p.seq_len;  // steps: those of the ring, then those of the call
#pragma unroll 1
  for (i64 done = 0; done < all; done += most) {
    const int steps = static_cast<int>(min<i64>(most, all - done));
    const int known = static_cast<int>(min<i64>(steps, max<i64>(0, pending.count - done)));
    const i64 place = pending.at(p, done);
    const int before_end = static_cast<int>(min<i64>(known, p.ring - place));
    const Steps<T, A, DK> fresh = tile.from(known);
    const i64 row = done + known - pending.count;
    __syncthreads();  // all have read the tile before
    if (known > 0) load_ring<T>(p, tile, factors, betas, slot, place, head, column, 0, before_end);
    if (before_end < known)
      load_ring<T>(p, tile, factors, betas, slot, 0, head, column, before_end, known - before_end);
    if (known < steps) fresh.load(p, factors + known, betas + known, n, row, head, column, steps - known);
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < known; ++s) {
      Update<A, DK> update;
      update.step(p, state, tile, factors, betas, s);
    }
    if (writes && known > 0 && done + known == pending.count) state.write(kept, p.final_stride[2], p.d_k, left);
    if (known == steps) continue;
#pragma unroll 1
    for (int s = known; s < steps; ++s) step_with_output(p, state, tile, factors, betas, bonus, scale, s);
    __syncthreads();
    store_rows<T>(p, fresh.v, n, row, head, column, steps - known);
  }
  append<T, A>(p, n, slot, pending.at(p, pending.count), head, column);
}

}  // namespace baracuda
