#pragma once
// rank_chunks    where chunks of 64 steps keep what the rank-one rule reads and writes.
//
// What a step reads, a^T S of the state before it, is kept by rows, [batch, step, head, 64 columns a tile], so that it may
// stand for an operand; rows of no sequence are not written.
#include "recurrence/channel_chunks.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

template <class P> BARACUDA_D i64 read_stride(const P& p) { return p.num_heads * div_up(p.d_v, width) * width; }
template <class T, class P> BARACUDA_D T* reads_at(const P& p, const void* x, i64 batch, i64 row, i64 head, i64 tile) {
  return const_cast<T*>(static_cast<const T*>(x)) + (batch * p.seq_len + row) * read_stride(p) +
         (head * div_up(p.d_v, width) + tile) * width;
}

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
