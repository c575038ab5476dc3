// segment_index   numbers that go between tokens, segments and rows of one length
//
// ids      the segment of every token, or -1.
// padded   [segments, each]: the token at a place of a segment, or -1 behind its end.
// spread   the place of every token in that array, or -1.
#include "segment/places.cuh"

namespace baracuda {

template <class T> BARACUDA_D void segment_ids(const SegmentIndexParams& p) {
  const i64 token = thread_index();
  if (token < p.tokens) static_cast<T*>(p.y)[token * p.y_row] = static_cast<T>(token_segment(p, token));
}
template <class T> BARACUDA_D void segment_padded(const SegmentIndexParams& p) {
  const i64 item = thread_index();
  if (item >= p.segments * p.length) return;
  u64 rank;
  const i64 segment = static_cast<i64>(divmod(static_cast<u64>(item), static_cast<u64>(p.length), rank));
  const i64 token = segment_edge(p, segment) + static_cast<i64>(rank);
  const i64 found = token < segment_edge(p, segment + 1) ? token : -1;
  static_cast<T*>(p.y)[segment * p.y_row + static_cast<i64>(rank) * p.y_column] = static_cast<T>(found);
}
template <class T> BARACUDA_D void segment_spread(const SegmentIndexParams& p) {
  const i64 token = thread_index();
  if (token >= p.tokens) return;
  const i64 segment = token_segment(p, token);
  const i64 rank = segment < 0 ? 0 : token - segment_edge(p, segment);
  const i64 found = segment < 0 || rank >= p.length ? -1 : segment * p.length + rank;
  static_cast<T*>(p.y)[token * p.y_row] = static_cast<T>(found);
}

}  // namespace baracuda
