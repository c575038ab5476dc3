#pragma once
// indexer    the keys of a query of the lightning indexer: numbers begin … end - 1, and where their cells are.
//
// logit[t, s] = k_scale[s] sum_h w[t, h] max(q[t, h] · k[s], 0); -inf for numbers outside the query's range and for those
// that are no cells. Launches of indexer_topk have queries from first_query on, and logits for them alone.
#include "attention/listed.cuh"

#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {
namespace indexer {

enum IndexerList { list_starts = own_lists, list_ends };

struct Query {
  i64 t, sequence, begin, end;
  template <class P> BARACUDA_D Query(const P& p, i64 number) : t(p.first_query + number), sequence(sequence_of(p, t)) {
    begin = p.starts == nullptr ? 0 : max<i64>(0, read_list(p, list_starts, p.starts, t));
    end = p.ends == nullptr ? p.keys : min(p.keys, read_list(p, list_ends, p.ends, t));
    if (sequence < 0) end = begin;
  }
  BARACUDA_D bool sees(i64 s) const { return begin <= s && s < end; }
};

// The offset of key s in k, and its scale; false where there is none.
template <class A, class P> BARACUDA_D bool find_key(const P& p, i64 sequence, i64 s, i64& at, A& scale) {
  i64 cell;
  const i64 page = sequence < 0 || s >= p.keys ? -1 : page_of(p, sequence, static_cast<i32>(s), cell);
  at = 0, scale = A(1);
  if (page < 0) return false;
  at = page * p.k_stride[0] + cell * p.k_stride[1];
  if (p.k_scale != nullptr) {
    scale = static_cast<A>(static_cast<const float*>(p.k_scale)[page * p.scale_stride[0] + cell * p.scale_stride[1]]);
  }
  return true;
}

template <class A, class P> BARACUDA_D A weight_at(const P& p, i64 t, int h) {
  return static_cast<const A*>(p.w)[t * p.w_stride[0] + h * p.w_stride[1]];
}

}  // namespace indexer
}  // namespace baracuda
