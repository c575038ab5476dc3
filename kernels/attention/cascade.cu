// cascade    merges states of attention over parts of the keys, state i being (v[i], lse[i]):
//   lse = log sum_i exp(lse[i]);   v = sum_i exp(lse[i] - lse) v[i]
//
// A thread has a chunk of 16 bytes of ROWS rows, a row being one token's head; all threads of a row lie in one block,
// where every state has been read before the lse is written, which may be in place. BATCH states are loaded at once, and
// with them the lse of all; STATES is their number, or 0 where p.states says it. Sums run over the states in order, so
// nothing but the states themselves changes a bit.
//
// lse -inf or a weight that vanishes: the state adds nothing, whatever its v. NaN or +inf: v is NaN, lse what it is.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

template <class A, class P> BARACUDA_D A cascade_exp(const P& p, A x) { return p.base2 ? math::exp2(x) : math::exp(x); }
template <class A, class P> BARACUDA_D A cascade_log(const P& p, A x) { return p.base2 ? math::log2(x) : math::log(x); }

// Where the states of one row lie; the first has pointers of its own, as it may be where the result goes.
template <class T> struct RowStates {
  const T *first, *others;
  const acc_t<T> *first_lse, *others_lse;

  template <class P> BARACUDA_D RowStates(const P& p, i64 token, u32 head) {
    first = static_cast<const T*>(p.v) + token * p.stride[0][0] + head * p.stride[0][1];
    others = static_cast<const T*>(p.others) + token * p.stride[1][0] + head * p.stride[1][1];
    first_lse = static_cast<const acc_t<T>*>(p.lse) + token * p.lse_stride[0][0] + head * p.lse_stride[0][1];
    others_lse = static_cast<const acc_t<T>*>(p.others_lse) + token * p.lse_stride[1][0] + head * p.lse_stride[1][1];
  }
  template <class P> BARACUDA_D const T* values(const P& p, i64 state) const {
    return state == 0 ? first : others + (state - 1) * p.state_stride;
  }
  template <class P> BARACUDA_D acc_t<T> lse(const P& p, i64 state) const {
    return state == 0 ? *first_lse : others_lse[(state - 1) * p.state_lse_stride];
  }
};

template <class T, int THREADS, int STATES, int BATCH, int ROWS, bool WIDE, class P> BARACUDA_D void cascade(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  const A none = -numeric<A>::infinity();
  const i64 states = STATES > 0 ? STATES : p.states;
  const u32 lanes = static_cast<u32>(p.lanes), groups = THREADS / lanes, group = threadIdx.x / lanes;
  const u32 lane = threadIdx.x - group * lanes;

  u64 head0;  // of the block's first row
  const u64 row0 = static_cast<u64>(blockIdx.x) * (groups * ROWS), heads = static_cast<u64>(p.heads);
  const u64 token0 = divmod(row0, heads, head0);
  i64 token[ROWS];
  u32 head[ROWS];
  bool live[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const u32 within = group + r * groups;
    token[r] = static_cast<i64>(token0) + divmod(static_cast<u32>(head0) + within, static_cast<u32>(heads), head[r]);
    live[r] = group < groups && row0 + within < static_cast<u64>(p.rows);
    if constexpr (STATES > 0) {  // two states, and some rows left as they are
      if (live[r] && p.mask != nullptr) live[r] = static_cast<const u8*>(p.mask)[token[r] * p.mask_stride] != 0;
    }
  }
  A merged[ROWS];
#pragma unroll 1
  for (i64 col = lane * VEC; col == 0 || col < p.cols; col += static_cast<i64>(lanes) * VEC) {  // of no columns: the lse
    const i64 left = p.cols - col;
    Chunk x[ROWS][BATCH];
    A lse[ROWS][BATCH], top[ROWS], sum[ROWS];
    Vec<A, VEC> acc[ROWS];
    const auto load_states = [&](int r, i64 first) {
      const RowStates<T> row(p, token[r], head[r]);
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        lse[r][b] = none;
        x[r][b] = Chunk{};
        if (!live[r] || first + b >= states) continue;
        const T* const from = row.values(p, first + b) + col * (WIDE ? 1 : p.stride[first + b > 0][2]);
        lse[r][b] = row.lse(p, first + b);
        if constexpr (WIDE) x[r][b] = load<4, Access::streaming>(reinterpret_cast<const u32*>(from));
        else x[r][b] = pack<T>(load_strided<T, VEC>(from, p.stride[first + b > 0][2], left));
      }
    };
#pragma unroll
    for (int r = 0; r < ROWS; ++r) load_states(r, 0);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      top[r] = none;
      sum[r] = A(0);
#pragma unroll
      for (int k = 0; k < VEC; ++k) acc[r][k] = A(0);
#pragma unroll
      for (int b = 0; b < BATCH; ++b) top[r] = math::maximum(top[r], lse[r][b]);
      if constexpr (STATES == 0) {
        if (!live[r]) continue;
        const RowStates<T> row(p, token[r], head[r]);
#pragma unroll 4
        for (i64 i = BATCH; i < states; ++i) top[r] = math::maximum(top[r], row.lse(p, i));
      }
    }
#pragma unroll 1
    for (i64 first = 0; first < states; first += BATCH) {
      if (first > 0) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) load_states(r, first);
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
          const A weight = lse[r][b] == none ? A(0) : cascade_exp(p, lse[r][b] - top[r]);
          if (weight == A(0)) continue;
          sum[r] += weight;
          const auto value = to_acc(unpack<T>(x[r][b]));
#pragma unroll
          for (int k = 0; k < VEC; ++k) acc[r][k] = math::fma(weight, value[k], acc[r][k]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const A factor = sum[r] == A(0) ? A(0) : A(1) / sum[r];
      merged[r] = sum[r] == A(0) || top[r] == numeric<A>::infinity() ? top[r] : top[r] + cascade_log(p, sum[r]);
      if (!live[r]) continue;
#pragma unroll
      for (int k = 0; k < VEC; ++k) acc[r][k] *= factor;
      const auto out = from_acc<T>(acc[r]);
      T* const to = static_cast<T*>(p.y) + token[r] * p.stride[2][0] + head[r] * p.stride[2][1];
      if constexpr (WIDE) store<Access::streaming>(reinterpret_cast<u32*>(to + col), pack<T>(out));
      else store_strided(to + col * p.stride[2][2], p.stride[2][2], out, left);
    }
  }
  __syncthreads();  // all have read the lse
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (lane != 0 || !live[r]) continue;
    static_cast<A*>(p.y_lse)[token[r] * p.lse_stride[2][0] + head[r] * p.lse_stride[2][1]] = merged[r];
  }
}

}  // namespace baracuda
