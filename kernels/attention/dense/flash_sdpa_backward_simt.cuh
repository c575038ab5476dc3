#pragma once
// flash_sdpa_backward_simt.cuh    what the backward kernels without tensor cores share: products of staged chunks, the
//   weight of a pair, exp(score - lse), and flash_delta, delta[i] = dy[i] y[i] - dlse[i].
//
// The weight of a pair that mask or window hides is -0, which exp2 never gives; such a pair adds nothing, even if dy v
// is infinite or NaN.
#include "attention/dense/lse_rests.cuh"

namespace baracuda {
namespace attention {

template <class A, int D> struct BackwardTile {
  static constexpr bool single = sizeof(A) == 4;
  static constexpr int most = single ? backward_single_rows : backward_double_rows;
  static constexpr int narrow = single ? backward_single_columns : backward_double_columns;
  static constexpr int rows = D <= narrow ? most : D <= backward_columns ? most / 2 : most / 4;
  static constexpr int R = rows / 8, columns = chunk<A, D>, pitch = columns + pad<A>;
  static constexpr int values = value_rows<A, D, backward_staged>();
  static constexpr int operands = (rows + tile_keys) * pitch;
  static constexpr int staged = max(operands, values* D);  // the larger of both; two score tiles follow
};

template <int R, int N, class A> BARACUDA_D void clear(A (&x)[R][N]) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[i][n] = A(0);
  }
}

template <class T> struct Operands {  // of a product of scores: rows of x by 64 rows of y, both of d columns
  const T* x;
  i64 x_stride;
  int x_rows;
  int x_wide;
  const T* y;
  i64 y_stride;
  int y_rows;
  int y_wide;
  int d;
};

// s[i][j] = x[row i] y[row j]. Other threads may still read the staging area when this begins and when it ends. PARTS:
// each chunk is summed by itself and the chunks are added, which has half the error of one long chain.
template <int D, bool PARTS = false, class T, class A, int R>
BARACUDA_D void product(A (&s)[R][4], A* staging, const Operands<T>& o) {
  using B = BackwardTile<A, D>;
  A* const left = staging;
  A* const right = staging + B::rows * B::pitch;
  clear(s);
#pragma unroll 1
  for (int at = 0; at < o.d; at += B::columns) {
    __syncthreads();
    stage<B::rows, B::columns, B::pitch>(left, o.x + at, o.x_stride, o.x_rows, o.d - at, o.x_wide);
    stage<tile_keys, B::columns, B::pitch>(right, o.y + at, o.y_stride, o.y_rows, o.d - at, o.y_wide);
    __syncthreads();
    if constexpr (PARTS) {
      A part[R][4];
      clear(part);
      multiply_scores<R, B::columns, B::pitch, B::pitch>(part, left, right);
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] += part[i][j];
      }
    } else {
      multiply_scores<R, B::columns, B::pitch, B::pitch>(s, left, right);
    }
  }
}

BARACUDA_D bool is_hidden(float weight) { return __float_as_uint(weight) == 0x80000000u; }
BARACUDA_D bool is_hidden(double weight) { return weight == 0.0 && math::signbit(weight); }

// Whether the row of that lse or base has one.
template <class A, class P> BARACUDA_D bool is_resummed(const P& p, A lse) {
  if constexpr (takes_rests<P>) return p.resummed && is_far_base(lse) && has_rest(lse);
  else return false;
}
// What a row's scores are lowered by: replay_base(lse), or where its sum was found again lse and the rest.
template <class A> struct RowBase {
  A base, rest;

  template <class P> static BARACUDA_D RowBase of(const P& p, i64 row) {
    const A lse = static_cast<const A*>(p.lse)[row];
    if constexpr (takes_rests<P>) {
      if (is_resummed(p, lse)) return {lse, static_cast<const A*>(p.rests)[row]};
    }
    return {replay_base(lse), A(0)};
  }
};

// The weight of a score that lies `above` its row's base, and the weight that ds is made of: see is_far_base. lone:
// whether a key that has all of its row is looked for.
template <class A> BARACUDA_D A replayed(A& of_ds, A above, A score, A base, bool lone) {
  // the part of a score that rounding may have taken
  constexpr A room = static_cast<A>(sizeof(A) == 8 ? 0x1p-49 : 0x1p-20);
  const bool whole = above >= -room * (A(1) + math::abs(score) + math::abs(base));
  const A found = replayed_weight(above);
  of_ds = whole && lone ? A(0) : found;
  return found;
}

// As Pairs::weight. Where the row's sum was found again, scores are rounded as they were for that.
template <class Pairs, class P, class A>
BARACUDA_D A weight_of(const Pairs& pairs, const P& p, A& of_ds, A& through, A x, int i, int j, const RowBase<A>& row) {
  const A before = pairs.before(through, x, i, j), product = before * pairs.out;
  const bool resummed = is_resummed(p, row.base);
  const A rounds = resummed && !pairs.adds_to_product ? A(0) : product;  // what may have been summed in another order
  A above;
  if (resummed) above = above_sum(biased(pairs, before, i, j) - row.base, row.rest, rounds);
  else above = pairs.above(row.base, before, i, j);
  if (above == -numeric<A>::infinity() && pairs.hides(i, j)) {
    through = A(1);
    return of_ds = A(-0.0);
  }
  const bool lone = p.spares && (pairs.drops() || is_far_base(row.base));
  return replayed(of_ds, above, rounds, resummed ? A(0) : row.base, lone);
}

// The weights of pairs of one head. scale multiplies a product on its way to a score, and a score's gradient on its way
// to dq and dk.
template <int LEVEL, class A, class P> struct Pairs : Terms<LEVEL, A, false, P> {
  enum : bool { adds_to_product = true };  // what biases are added to is the product, or a soft cap of it
  using Base = Terms<LEVEL, A, false, P>;
  A scale, sign;

  BARACUDA_D explicit Pairs(const P& p) : Base(p, p.query_len, p.key_len, p.shift) {
    scale = static_cast<A>(p.signed_scale), sign = static_cast<A>(p.sign);
  }
  // What biases are added to for query i and key j, whose product is x. Sets through, the factor of the score's
  // gradient (the soft cap's derivative).
  BARACUDA_D A before(A& through, A x, int, int) const {
    x *= sign;
    if (this->capped()) x = this->squash(x);
    through = Base::through(x);
    return x;
  }
  // The score: -inf where the mask hides it.
  BARACUDA_D A score(A x, int i, int j) const {
    A through;
    return biased(*this, before(through, x, i, j), i, j);
  }
  // The pair's weight. Sets of_ds, the weight that ds is made of, and through.
  BARACUDA_D A weight(A& of_ds, A& through, A x, int i, int j, const RowBase<A>& row) const {
    return weight_of(*this, this->p, of_ds, through, x, i, j, row);
  }
};
template <class A, class P> struct Pairs<0, A, P> {
  static constexpr A again = A(1);
  A scale;
  bool spares;

  BARACUDA_D explicit Pairs(const P& p) : scale(static_cast<A>(p.signed_scale)), spares(p.spares) {}
  BARACUDA_D void enter(u32, u32) {}
  BARACUDA_D A weight(A& of_ds, A& through, A x, int, int, const RowBase<A>& row) const {
    through = A(1);
    return replayed(of_ds, x * scale - row.base, x * scale, row.base, spares && is_far_base(row.base));
  }
  BARACUDA_D bool drops() const { return false; }
  BARACUDA_D bool kept(int, int) const { return true; }
};

}  // namespace attention

// delta of the rows of y and dy, less the gradients of their lse. Where T accumulates in itself, a thread adds a row's
// products in the order in which flash_dq and flash_dkv add those of dy v, in chains of `p.each`: where a row sees one
// key, whose v is the row's y, the difference is then 0.
template <class T, class P> BARACUDA_D void flash_delta(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, LANES = is_same<T, A> ? 1 : warp_size;
  const i64 thread = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x, row = thread / LANES;
  if (row >= p.rows) return;  // whole warps where a warp shares a row
  const i64 head = row / p.query_len, i = row % p.query_len, b = head / p.num_heads, h = head % p.num_heads;
  const T* y = static_cast<const T*>(p.y) + b * p.stride[0][0] + h * p.stride[0][1] + i * p.stride[0][2];
  const T* dy = static_cast<const T*>(p.dy) + b * p.stride[1][0] + h * p.stride[1][1] + i * p.stride[1][2];
  A sum = 0, part = 0;
  int left = p.each;  // of the current chain
  for (int c = static_cast<int>(thread % LANES) * VEC; c < p.d_v; c += LANES * VEC) {
    const auto a =
        to_acc(p.wide & 1 ? load_vec<T, VEC, true>(y + c, p.d_v - c) : load_vec<T, VEC, false>(y + c, p.d_v - c));
    const auto g =
        to_acc(p.wide & 2 ? load_vec<T, VEC, true>(dy + c, p.d_v - c) : load_vec<T, VEC, false>(dy + c, p.d_v - c));
#pragma unroll
    for (int k = 0; k < VEC; ++k) part = math::fma(a[k], g[k], part);
    if ((left -= VEC) == 0) sum += part, part = 0, left = p.each;
  }
  sum += part;
  if constexpr (LANES > 1) sum = warp_reduce<Sum>(sum);
  if (thread % LANES == 0) {
    static_cast<A*>(p.delta)[row] = sum - attention::lse_gradient(p, static_cast<const A*>(p.lse)[row], row);
  }
}

}  // namespace baracuda
