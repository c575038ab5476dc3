// cascade    merges attention over parts of the keys; state i is (v[i], lse[i]):
//   lse = log sum_i exp(lse[i]);   v = sum_i exp(lse[i] - lse) v[i]
//
// A row is one head of one token. A thread has CHUNKS 16-byte chunks of a row, which share the work on weights and
// addresses. All threads of a row are in one block, where every lse has been read before the new one is written, which
// may be in place. BATCH states are loaded at once; STATES is their number, or 0 where p.states has it. Sums run over
// the states in order, so nothing but the states changes a bit.
//
// lse -inf, or a weight that underflows to 0: the state adds nothing, whatever its v. NaN or +inf: v is NaN, lse is
// kept.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

template <bool BASE2, class A> BARACUDA_D A cascade_exp(A x) { return BASE2 ? math::exp2(x) : math::exp(x); }
template <bool BASE2, class A> BARACUDA_D A cascade_log(A x) { return BASE2 ? math::log2(x) : math::log(x); }

// Element `head` of token `token` of operand n: a row of values, or an lse.
template <class T, class X> BARACUDA_D T* cascade_row(X* x, const i64* stride, u32 token, u32 head) {
  return const_cast<T*>(static_cast<const T*>(x)) + token * stride[0] + head * stride[1];
}

template <class T, int THREADS, int STATES, int BATCH, int CHUNKS, bool BASE2, bool WIDE, class P>
BARACUDA_D void cascade(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  const A none = -numeric<A>::infinity();
  const int states = STATES > 0 ? STATES : p.states;
  const u32 lanes = static_cast<u32>(p.lanes), groups = THREADS / lanes, group = threadIdx.x / lanes;
  const u32 lane = threadIdx.x - group * lanes, row = blockIdx.x * groups + group;
  u32 head;
  const u32 token = divmod(row, static_cast<u32>(p.heads), head);
  bool live = group < groups && row < p.rows;
  if constexpr (STATES > 0) {  // two states; tokens outside the mask are skipped
    if (live && p.mask != nullptr) live = static_cast<const u8*>(p.mask)[token * p.mask_stride] != 0;
  }
  // The first state has its own operand, as the result may overwrite it.
  const T* const first = cascade_row<T>(p.v, p.stride[0], token, head);
  const T* const others = cascade_row<T>(p.others, p.stride[1], token, head);
  const A* const first_lse = cascade_row<A>(p.lse, p.lse_stride[0], token, head);
  const A* const others_lse = cascade_row<A>(p.others_lse, p.lse_stride[1], token, head);
  const auto lse_of = [&](int i) { return i == 0 ? *first_lse : others_lse[(i - 1) * p.state_lse_stride]; };

  A top = none, sum = 0;
#pragma unroll 1
  for (i64 col0 = lane * VEC; live && (col0 == 0 || col0 < p.cols); col0 += static_cast<i64>(lanes) * (CHUNKS * VEC)) {
    const auto col = [&](int c) { return col0 + static_cast<i64>(c * lanes) * VEC; };
    Chunk x[BATCH][CHUNKS];
    A lse[BATCH];
    Vec<A, VEC> acc[CHUNKS];
    const auto load_states = [&](int from) {
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int i = from + b;
        lse[b] = none;
        if (i >= states) continue;
        const T* const values = i == 0 ? first : others + (i - 1) * p.state_stride;
        lse[b] = lse_of(i);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const i64 left = p.cols - col(c), step = WIDE ? 1 : p.stride[i > 0][2];
          if constexpr (!WIDE) x[b][c] = pack<T>(load_strided<T, VEC>(values + col(c) * step, step, left));
          else if (left > 0) x[b][c] = load<4, Access::streaming>(reinterpret_cast<const u32*>(values + col(c)));
        }
      }
    };
    load_states(0);
    top = none;
    sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) acc[c][k] = A(0);
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) top = math::maximum(top, lse[b]);
    if constexpr (STATES == 0) {
#pragma unroll 4
      for (int i = BATCH; i < states; ++i) top = math::maximum(top, lse_of(i));
    }
#pragma unroll 1
    for (int from = 0; from < states; from += BATCH) {
      if (from > 0) load_states(from);
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const A weight = lse[b] == none ? A(0) : cascade_exp<BASE2>(lse[b] - top);
        if (weight == A(0)) continue;
        sum += weight;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const auto value = to_acc(unpack<T>(x[b][c]));
#pragma unroll
          for (int k = 0; k < VEC; ++k) acc[c][k] = math::fma(weight, value[k], acc[c][k]);
        }
      }
    }
    const A factor = sum == A(0) ? A(0) : A(1) / sum;
    T* const to = cascade_row<T>(p.y, p.stride[2], token, head);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) acc[c][k] *= factor;
      const auto out = from_acc<T>(acc[c]);
      const i64 left = p.cols - col(c);
      if constexpr (!WIDE) store_strided(to + col(c) * p.stride[2][2], p.stride[2][2], out, left);
      else if (left > 0) store<Access::streaming>(reinterpret_cast<u32*>(to + col(c)), pack<T>(out));
    }
  }
  __syncthreads();  // all have read the lse
  if (live && lane == 0) {
    const A merged = sum == A(0) || top == numeric<A>::infinity() ? top : top + cascade_log<BASE2>(sum);
    *cascade_row<A>(p.y_lse, p.lse_stride[2], token, head) = merged;
  }
}

}  // namespace baracuda
