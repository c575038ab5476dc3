#pragma once
// extend_tables   page tables, lengths and bounds of operands that have none, so that the kernels of batch_paged_extend
//                 read them too: a row of a dense cache is a page, and of packed keys each one is a page.
#include "attention/paged/extend.cuh"

namespace baracuda {

// A thread writes what sequence b has: its page of the cache, which is b or the one of batch_index; as many keys as
// that holds, where no lengths are given; and query_len queries.
template <int THREADS, class P> BARACUDA_D void extend_dense_tables(const P& p) {
  const i64 b = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
  if (b > p.batch) return;
  static_cast<i32*>(p.made_bounds)[b] = static_cast<i32>(b * p.query_len);
  if (b == p.batch) return;
  i64 page = b;
  if (p.batch_index != nullptr) {
    const i64 at = b * p.index_stride;
    page = p.wide_index ? static_cast<const i64*>(p.batch_index)[at] : static_cast<const i32*>(p.batch_index)[at];
  }
  const bool there = page >= 0 && page < p.cache_batch;
  if (!there && p.status != nullptr) atomicOr(p.status, 1u);
  static_cast<i32*>(p.made_pages)[b] = there ? static_cast<i32>(page) : -1;
  static_cast<i32*>(p.made_lengths)[b] = static_cast<i32>(p.key_len);
}

// Packed keys as pages of one key each: page n is row n, and sequence b has the pages of its bounds. One of more keys
// than promised, for whose sums there is no room, has length -1. A warp settles a bound.
template <int THREADS, class P> BARACUDA_D void extend_packed_tables(const P& p) {
  using namespace attention;
  const i64 n = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x, b = n / warp_size;
  if (n < p.total_k) static_cast<i32*>(p.made_pages)[n] = static_cast<i32>(n);
  if (b > p.batch) return;
  const Bounds bounds{p.bounds_k, p.bound_stride, p.total_k, p.wide_bounds != 0};
  const i64 begin = bounds.settled(b), end = b < p.batch ? max(begin, bounds.clamped(b + 1)) : begin;
  if (lane_id() != 0) return;
  static_cast<i32*>(p.made_bounds)[b] = static_cast<i32>(begin);
  const i64 keys = end - begin <= p.max_keys ? end - begin : -1;
  if (b < p.batch) static_cast<i32*>(p.made_lengths)[b] = static_cast<i32>(keys);
  if (p.status != nullptr && (bounds.given(b) != begin || keys < 0)) atomicOr(p.status, 1u);
}

}  // namespace baracuda
