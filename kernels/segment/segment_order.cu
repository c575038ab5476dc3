// segment_order   tokens in the order of their ids: a stable sort (places.cuh), and what it tells
//
// fill    -1 in all that is written by token or place: tokens of no segment have no place.
// emit    order[i] the token at place i, rows[i] the row of `fan` tokens it is of, places[token] = i, and the bounds.
#include "segment/places.cuh"

namespace baracuda {

template <class T> BARACUDA_D void segment_order_fill(const SegmentOrderParams& p) {
  const i64 i = thread_index();
  if (i >= p.tokens) return;
  static_cast<T*>(p.order_out)[i * p.order_step] = T(-1);
  if (p.rows_out != nullptr) static_cast<T*>(p.rows_out)[i * p.rows_step] = T(-1);
  if (p.places_out != nullptr) static_cast<T*>(p.places_out)[i * p.places_step] = T(-1);
}

template <class T> BARACUDA_D void segment_order_emit(const SegmentOrderParams& p) {
  const i64 i = thread_index();
  const i32* starts = static_cast<const i32*>(p.starts);
  if (i <= p.segments)
    static_cast<T*>(p.offsets_out)[i * p.offsets_step] = static_cast<T>(p.tokens > 0 ? starts[i] : 0);
  if (i >= p.tokens || i >= starts[p.segments]) return;
  const i32 token = static_cast<const i32*>(p.order)[i];
  static_cast<T*>(p.order_out)[i * p.order_step] = static_cast<T>(token);
  if (p.rows_out != nullptr) static_cast<T*>(p.rows_out)[i * p.rows_step] = static_cast<T>(token / p.fan);
  if (p.places_out != nullptr) static_cast<T*>(p.places_out)[token * p.places_step] = static_cast<T>(i);
}

}  // namespace baracuda
