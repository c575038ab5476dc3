#pragma once
// chunk_segments    long sequences cut into segments of p.segment steps, whose states are found side by side.
//
// A sequence of more than most_uncut segments is cut, so where depends on its own steps alone. First (p.local) every segment is
// walked from a state of zeros, in the direction of the walk the first one from what is given. Then the states at borders
// are found one after another, from the state at the border before times what the segment's steps make of it
// (linear_attention_join.cu). Then all segments are walked again, each from its own border.
//
// The border after segment s of a sequence has the number of the multiple of p.segment that lies in that segment: borders
// follow only whole segments, which hold one each. A block finds its segment from such a number, so that a launch needs
// no bound on how many sequences are cut.
#include "recurrence/chunk_products.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

template <class P> BARACUDA_D i64 segments_of(const P& p, i64 begin, i64 end) {
  return p.segment > 0 && end - begin > most_uncut * p.segment ? div_up(end - begin, p.segment) : 1;
}
// The sequence whose rows hold `row` of a packed batch, or the one before it.
template <class P> BARACUDA_D i64 packed_at(const P& p, i64 row) {
  i64 n = 0, end = p.num_states;
  while (end - n > 1) {
    const i64 middle = (n + end) / 2;
    if (bound_of(p, middle) <= row) n = middle;
    else end = middle;
  }
  return n;
}

// Where the state at a border lies: rows and columns that it has, `at` null where there is none.
struct Border {
  float* at;
  i64 stride;
  int rows, cols;
};
template <class P>
BARACUDA_D Border border_of(const P& p, const void* x, const i64 (&stride)[3], i64 n, i64 head, i64 tile) {
  const i64 column = tile * width;
  return {x == nullptr ? nullptr : row_at<float>(x, stride, n, head, 0) + column, stride[2], p.d_k,
          static_cast<int>(min<i64>(width, p.d_v - column))};
}
template <int DK, class P> BARACUDA_D Border carried_at(const P& p, i64 border, i64 head, i64 tile) {
  const i64 tiles = div_up(p.d_v, width);
  float* const at = static_cast<float*>(p.carried) + ((border * p.num_heads + head) * tiles + tile) * (DK * width);
  return {at, width, DK, width};
}
// What the steps of a segment make of a state: of the delta rule a matrix [DK][DK] by 64 columns, else a factor a row.
template <int DK, bool DELTA, class P> BARACUDA_D float* moves_at(const P& p, i64 border, i64 head) {
  return static_cast<float*>(p.moves) + (border * p.num_heads + head) * (DELTA ? DK * DK : DK);
}

// What a block walks. Its columns: those of v, behind them in a local walk those of the identity, if `moved` says so.
struct Walk {
  i64 n, head, tile, border;
  Sequence rows;
  Border from, to;
  i32 there, moved, notes;  // moved: columns of the identity; notes: the block that writes the factors of rows

  template <int DK> BARACUDA_D void begin(Part<DK>& state) const {
    state.read(from.at, from.stride, from.rows, from.cols);
    if (moved)
      each(state.x, state.row(), state.col(), [&](float& x, int r, int c) { x = r == from.cols + c ? 1.0f : 0.0f; });
  }
  template <int DK> BARACUDA_D void end(Part<DK>& state) const {
    if (to.at != nullptr) state.write(to.at, to.stride, to.rows, to.cols);
  }
};
// BACK: from the last segment to the first. MOVED: tiles of the identity in a local walk. given: the state at the end that
// walks begin at; made: where that at the other end goes.
template <int DK, bool BACK, int MOVED, class P>
BARACUDA_D Walk find_walk(const P& p, const void* given, const i64 (&given_stride)[3], const void* made,
                          const i64 (&made_stride)[3]) {
  const bool local = p.local != 0;
  const i64 tiles = div_up(p.d_v, width), each = tiles + (local ? MOVED : 0);
  i64 rest = blockIdx.x / each / p.num_heads, index = 0, count = 1;
  Walk walk{};
  walk.tile = blockIdx.x % each, walk.head = blockIdx.x / each % p.num_heads;
  const bool from_end = !local && rest < p.num_states;  // the walk that begins at what is given
  if (from_end) {
    walk.n = rest, walk.rows = sequence_of(p, rest);
    count = segments_of(p, walk.rows.begin, walk.rows.end);
    index = BACK ? count - 1 : 0;
  } else {
    walk.border = rest - (local ? 0 : p.num_states);
    const i64 row = walk.border % p.borders_each * p.segment;
    walk.n = p.bounds == nullptr ? walk.border / p.borders_each : packed_at(p, row);
    walk.rows = sequence_of(p, walk.n);
    count = segments_of(p, walk.rows.begin, walk.rows.end);
    if (count == 1 || row < walk.rows.begin || row >= walk.rows.end) return walk;
    index = (row - walk.rows.begin) / p.segment;
    if (index + 1 == count) return walk;
    index += local == BACK;
  }
  const bool first = index == (BACK ? count - 1 : 0), last = index == (BACK ? 0 : count - 1);
  walk.moved = walk.tile >= tiles;
  if (walk.moved && first) return walk;  // nobody asks
  walk.there = true;
  walk.notes = local && walk.tile == 0;
  if (count > 1) {
    walk.rows.begin += index * p.segment, walk.rows.place += index * (p.segment / chunk);
    walk.rows.end = min<i64>(walk.rows.end, walk.rows.begin + p.segment);
  }
  if (walk.moved) {
    const int column = static_cast<int>(walk.tile - tiles) * width;
    walk.from = {nullptr, 0, 0, column};
    walk.to = {moves_at<DK, true>(p, walk.border, walk.head) + column * DK, width, DK, width};
    return walk;
  }
  if (first) walk.from = border_of(p, given, given_stride, walk.n, walk.head, walk.tile);
  else if (!local) walk.from = carried_at<DK>(p, walk.border, walk.head, walk.tile);
  if (local) walk.to = carried_at<DK>(p, walk.border, walk.head, walk.tile);
  else if (last) walk.to = border_of(p, made, made_stride, walk.n, walk.head, walk.tile);
  return walk;
}
// The same in shared memory, so that no registers hold over a walk what its ends need. All threads of the block call it.
template <int DK, bool BACK, int MOVED, class P>
BARACUDA_D const Walk& walk_of(const P& p, const void* given, const i64 (&given_stride)[3], const void* made,
                               const i64 (&made_stride)[3]) {
  __shared__ Walk found;
  const Walk walk = find_walk<DK, BACK, MOVED>(p, given, given_stride, made, made_stride);
  if (threadIdx.x == 0) found = walk;
  __syncthreads();
  return found;
}

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
