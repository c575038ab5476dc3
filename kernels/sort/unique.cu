// unique     the runs of equal neighbours in a row: values, counts, first places, and which run each element is in.
//
// A tile of the row a block, read once: runs begin where an element differs from the one before it, and are numbered by
// decoupled look-back (radix_sort.cuh), whose counts are integers. unique_finish takes lengths from where runs begin and
// end, and fills up what is left of the results.
#include <baracuda/radix_sort.cuh>

namespace baracuda {

template <class P> BARACUDA_D i64 unique_step(const P& p, UniqueStep of) { return p.step[static_cast<int>(of)]; }

// Indices need not name every entry of inverse.
template <class P> BARACUDA_D void unique_clear(const P& p) {
  for (i64 i = thread_index(); i < p.tiles; i += thread_count()) static_cast<u64*>(p.states)[i] = 0;
  if (p.inverse == nullptr || p.indices == nullptr) return;
  for (i64 i = thread_index(); i < p.n; i += thread_count()) {
    static_cast<i64*>(p.inverse)[i * unique_step(p, UniqueStep::inverse)] = -1;
  }
}

template <class U> struct Runs {
  const U* x;
  i64 n, step;
  bool nan_alone;  // whether a NaN equals none
  KeyOrder<U> order;
  BARACUDA_D U rank(i64 i) const { return order.rank(order.code(x[i * step])); }
  BARACUDA_D bool differ(U a, U b) const { return a != b || (nan_alone && a == static_cast<U>(~U(0))); }
};

// Where element i of the row stood before a sort, or stands.
BARACUDA_D i64 unique_place(const UniqueParams& p, i64 i) {
  if (p.indices == nullptr) return i;
  const i64 at = i * unique_step(p, UniqueStep::indices);
  return p.wide ? static_cast<const i64*>(p.indices)[at] : static_cast<const i32*>(p.indices)[at];
}

template <class U, int THREADS, int ITEMS, class P> BARACUDA_D void unique_mark(const P& p) {
  __shared__ u32 scratch[THREADS / warp_size];
  __shared__ u32 ahead;
  const Runs<U> runs{static_cast<const U*>(p.x), p.n, unique_step(p, UniqueStep::x), p.nan_alone != 0,
                     KeyOrder<U>(p.order)};
  const i64 tile = blockIdx.x, first = tile * (THREADS * ITEMS) + threadIdx.x * ITEMS;
  const auto kept = [&](i64 i) {
    return p.keep == nullptr || static_cast<const u8*>(p.keep)[i * unique_step(p, UniqueStep::keep)] != 0;
  };
  u32 begins = 0, ends = 0, keeps = 0;  // a bit for each item
  U before = first > 0 && first < p.n ? runs.rank(first - 1) : U(0), here = first < p.n ? runs.rank(first) : U(0);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const i64 i = first + k;
    if (i >= p.n) break;
    const U after = i + 1 < p.n ? runs.rank(i + 1) : U(0);
    const u32 own = kept(i);
    keeps |= own << k;
    begins |= (own & static_cast<u32>(i == 0 || runs.differ(before, here))) << k;
    ends |= (own & static_cast<u32>(i + 1 == p.n || runs.differ(here, after))) << k;
    before = here, here = after;
  }
  const u32 own = __popc(begins), up = block_scan<Sum, THREADS>(own, scratch);
  if (threadIdx.x == THREADS - 1) {
    const TileStates<1> states{static_cast<u64*>(p.states) + tile, 1, 2};
    if (tile > 0) states.leave(states.own, up);
    ahead = tile > 0 ? states.look_back(tile) : 0;
    states.leave(states.up_to, ahead + up);
    if (tile == p.tiles - 1) {
      if (p.number != nullptr) *static_cast<i64*>(p.number) = ahead + up;
      *static_cast<u32*>(p.total) = ahead + up;
    }
  }
  __syncthreads();
  u32 run = ahead + up - own;  // runs that began before the item
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const i64 i = first + k;
    if (i >= p.n) break;
    run += begins >> k & 1;
    const u32 r = run - 1;
    const i64 place = unique_place(p, i);
    if ((begins >> k & 1) && r < p.size) {
      if (p.values != nullptr)
        static_cast<U*>(p.values)[r * unique_step(p, UniqueStep::values)] = runs.x[i * runs.step];
      if (p.first != nullptr) static_cast<i64*>(p.first)[r * unique_step(p, UniqueStep::first)] = place;
      static_cast<u32*>(p.starts)[r] = static_cast<u32>(i);
    }
    if ((ends >> k & 1) && r < p.size) static_cast<u32*>(p.ends)[r] = static_cast<u32>(i + 1);
    if (p.inverse != nullptr && place >= 0 && place < p.n) {
      static_cast<i64*>(p.inverse)[place * unique_step(p, UniqueStep::inverse)] =
          keeps >> k & 1 ? static_cast<i64>(r) : i64(-1);
    }
  }
}

template <class U, class P> BARACUDA_D void unique_finish(const P& p) {
  const i64 r = thread_index();
  if (r == 0 && p.n == 0 && p.number != nullptr) *static_cast<i64*>(p.number) = 0;
  if (r >= p.size) return;
  const u32 total = p.n > 0 ? *static_cast<const u32*>(p.total) : 0;
  const u32* const starts = static_cast<const u32*>(p.starts);
  if (r < total) {
    const i64 count = static_cast<i64>(static_cast<const u32*>(p.ends)[r]) - starts[r];
    if (p.counts != nullptr) static_cast<i64*>(p.counts)[r * unique_step(p, UniqueStep::counts)] = count;
    return;
  }
  // Of what is left over, values are `fill` or, without one, what the first run has.
  const i64 at = total > 0 ? starts[0] : 0;
  U fill = U(0);
  i64 first = 0;
  if (p.fill != nullptr) fill = *static_cast<const U*>(p.fill);
  else if (total > 0) fill = static_cast<const U*>(p.x)[at * unique_step(p, UniqueStep::x)];
  if (total > 0) first = unique_place(p, at);
  if (p.values != nullptr) static_cast<U*>(p.values)[r * unique_step(p, UniqueStep::values)] = fill;
  if (p.counts != nullptr) static_cast<i64*>(p.counts)[r * unique_step(p, UniqueStep::counts)] = 0;
  if (p.first != nullptr) static_cast<i64*>(p.first)[r * unique_step(p, UniqueStep::first)] = first;
}

}  // namespace baracuda
