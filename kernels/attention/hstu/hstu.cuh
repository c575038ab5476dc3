#pragma once
// hstu   attention with silu in place of softmax over packed sequences: rows are tokens, which are queries and keys alike.
//
// Each row sees the keys [low, high) of the rows of its sequence. Both only rise from row to row, so tiles of rows may hold
// several sequences, and the rows that see a key follow each other. A row of no sequence sees none.
#include "attention/sparse/block_select_simt.cuh"

namespace baracuda {
namespace attention {

struct RowKeys {
  i32 low, high;
  BARACUDA_D bool sees(i64 key) const { return key >= low && key < high; }
};

template <class P> BARACUDA_D const RowKeys* rows_keys(const P& p) { return static_cast<const RowKeys*>(p.row_keys); }

// The first row whose `high` is above `key`, and the first whose `low` is: the rows that see it stand between.
template <bool HIGH, class P> BARACUDA_D i64 first_row(const P& p, i64 key) {
  i64 from = 0, end = p.total;
  while (from < end) {
    const i64 middle = (from + end) / 2;
    const RowKeys at = rows_keys(p)[middle];
    if ((HIGH ? at.high : at.low) <= key) from = middle + 1;
    else end = middle;
  }
  return from;
}

// silu(x) = x / (1 + exp(-x)), and its derivative.
template <class A> struct Silu {
  A value, slope;
  BARACUDA_D explicit Silu(A x) {
    const A sigmoid = A(1) / (A(1) + math::exp(-x));
    value = x * sigmoid;
    slope = sigmoid * math::fma(x, A(1) - sigmoid, A(1));
  }
};

template <class T> BARACUDA_D T* head_row(const void* x, const i64 (&stride)[2], i64 row, u32 head) {
  return const_cast<T*>(static_cast<const T*>(x)) + row * stride[0] + head * stride[1];
}

}  // namespace attention
}  // namespace baracuda
