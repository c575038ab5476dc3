#pragma once
// score_formula    terms.cuh with a formula that changes scores and hides keys. The formula is text made at run time
//                  (baracuda_py/expressions/score_shape.py), which defines ScoreFormula<P> behind this file in the
//                  unit, and before what the rows add to it (score_formula_*.cuh):
//
//   changes, hides         whether it changes scores, and whether it hides keys
//   change(s, slope, b, h, q, k)    the score of a batch, query head, query and key; slope: its derivative by s
//   seen(b, h, q, k)       whether the query sees the key
//   spread(s, b, h, q, k, add)      calls add(dt, sums, place, slope) for each element of a table that the score has a
//                                   derivative by: the table's gradient, its sums, the element's place among them
//
// Scores are in natural units: s = scale q k, soft-capped; then the formula; then slopes, mask and window.
#include "attention/block_mask.cuh"
#include "attention/terms.cuh"
// Formulas call the tables' functors, whose schedule has a layout of the name that attention's row source has.
#define Strided StridedLayout
#include "elementwise/expression.cuh"
#undef Strided

namespace baracuda {

// The element of a table at an index for each of its R axes, of which negative ones count from the end; 0 where there
// is none. Indices of up to 32 bits are compared as such: the host sees to it that extents are, too.
template <class T, int R, class... I>
BARACUDA_D value_t<T> table_at(const void* table, const i64 (&shape)[R], const i64 (&stride)[R], I... index) {
  static_assert(sizeof...(I) == R, "an index for each axis");
  using Wide = conditional<((sizeof(I) == 8 || is_same<I, u32>) || ...), i64, i32>;
  const Wide given[R] = {static_cast<Wide>(index)...};
  i64 at = 0;
  bool inside = true;
#pragma unroll
  for (int n = 0; n < R; ++n) {
    const Wide extent = static_cast<Wide>(shape[n]), i = given[n] < 0 ? given[n] + extent : given[n];
    inside &= i >= 0 && i < extent;
    at += i * stride[n];
  }
  return inside ? cast<value_t<T>>(static_cast<const T*>(table)[at]) : value_t<T>(0);
}

// Where that element stands in a dense table, -1 where there is none.
template <int R, class... I> BARACUDA_D i64 table_place(const i64 (&shape)[R], I... index) {
  using Wide = conditional<((sizeof(I) == 8 || is_same<I, u32>) || ...), i64, i32>;
  const Wide given[R] = {static_cast<Wide>(index)...};
  i64 at = 0;
  bool inside = true;
#pragma unroll
  for (int n = 0; n < R; ++n) {
    const Wide extent = static_cast<Wide>(shape[n]), i = given[n] < 0 ? given[n] + extent : given[n];
    inside &= i >= 0 && i < extent;
    at = at * shape[n] + i;
  }
  return inside ? at : -1;
}

namespace attention {

template <class P> struct ScoreFormula;

// Whether P says, by having the field, that the formula is the only term beside sinks: then kernels have no code for
// soft caps, slopes, masks and dropout.
template <class P, class = void> constexpr bool formula_alone = false;
template <class P> constexpr bool formula_alone<P, decltype(static_cast<void>(P::alone))> = true;

template <class A, class P> struct FormulaTerms : Terms<2, A, false, P> {
  using Base = Terms<2, A, false, P>;
  static constexpr bool alone = formula_alone<P>;
  static constexpr bool may_hide = ScoreFormula<P>::hides || TileMask<P>::may_hide;
  ScoreFormula<P> formula;
  TileMask<P> tile;
  A unit;  // of the products, or of what the soft cap makes of them; Base::out is 1, as the formula takes them so
  int batch, head;

  BARACUDA_D FormulaTerms(const P& p, i64 queries, i64 keys, i64 ahead)
      : Base(p, queries, keys, ahead), formula(p), batch(0), head(0) {
    unit = this->out, this->out = A(1);
  }
  BARACUDA_D FormulaTerms(const P& p, const Work& work) : Base(p, work), formula(p) {
    unit = this->out, this->out = A(1);
    batch = static_cast<int>(work.b), head = static_cast<int>(work.h);
    tile.enter(p, work.b, work.h);
  }
  BARACUDA_D void enter(u32 b, u32 h) {
    Base::enter(b, h);
    batch = static_cast<int>(b), head = static_cast<int>(h);
    tile.enter(this->p, b, h);
  }

  // x, a product or what the soft cap made of it, becomes the score of query i and key j; the result is its derivative
  // by x unit. Queries and keys that do not exist count as the last, so that tables are read where a pair is.
  BARACUDA_D A change(A& x, int i, int j) const {
    A slope = A(1);
    x *= unit;
    formula.change(x, slope, batch, head, min(i, this->query_len - 1), min(j, this->key_len - 1));
    return slope;
  }
  BARACUDA_D bool sees(int i, int j) const {
    i = min(i, this->query_len - 1), j = min(j, this->key_len - 1);
    if (tile.kind == TileKind::whole) return true;
    if (tile.kind == TileKind::mixed) {
      const u32 byte = tile.byte(this->p, i, j);
      if (byte != 1) return byte != 0;
    }
    return formula.seen(batch, head, i, j);
  }
  // Whether a pair of the tile may be hidden by the formula or its block mask.
  BARACUDA_D bool may_be_hidden() const {
    return tile.kind == TileKind::mixed || (formula.hides && tile.kind == TileKind::partial);
  }
  // Calls ask(seen) where pairs of the tile may be hidden; seen(i, j) is `sees`. The tile's kind is looked at once for all
  // pairs, so that what the formula reads of a row or of a column is read once for all that have it.
  template <class Ask> BARACUDA_D void where_hidden(const Ask& ask) const {
    if constexpr (may_hide) {
      if (tile.kind == TileKind::mixed) {
        ask([&](int i, int j) { return sees(i, j); });
      } else if (formula.hides && tile.kind == TileKind::partial) {
        ask([&](int i, int j) {
          return formula.seen(batch, head, min(i, this->query_len - 1), min(j, this->key_len - 1));
        });
      }
    }
  }
  BARACUDA_D bool capped() const { return !alone && Base::capped(); }
  BARACUDA_D bool sloped() const { return !alone && Base::sloped(); }
  BARACUDA_D bool drops() const { return !alone && Base::drops(); }
  BARACUDA_D A through(A x) const { return capped() ? Base::through(x) : A(1); }
  BARACUDA_D bool biased() const { return !alone && Base::masked(); }  // by an operand
  BARACUDA_D bool masked() const { return may_be_hidden() || biased(); }
  BARACUDA_D bool hides(int i, int j) const { return !sees(i, j) || (!alone && Base::hides(i, j)); }

  template <class Each> BARACUDA_D void add_to(const Each& each, int i, int j) const {
    if constexpr (!alone) this->cap(each);
    each([&](A& x, int r, int c) { change(x, i + r, j + c); });
    if constexpr (!alone) this->add_biases(each, i, j);
    where_hidden([&](const auto& seen) {
      each([&](A& x, int r, int c) { x = seen(i + r, j + c) ? x : -numeric<A>::infinity(); });
    });
  }
};

// LEVEL 3: the terms of LEVEL 2 and a formula.
template <class A, bool FAST, class P> struct Terms<3, A, FAST, P> : FormulaTerms<A, P> {
  using FormulaTerms<A, P>::FormulaTerms;
};

}  // namespace attention
}  // namespace baracuda
