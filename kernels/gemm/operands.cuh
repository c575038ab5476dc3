#pragma once
// operands   where the operands of a matrix product begin for a batch index.
#include <baracuda/index.cuh>

namespace baracuda {

// Where the matrices of a batch index begin, in elements.
struct BatchOffsets {
  i64 batch, at[8];
  template <class P> BARACUDA_D BatchOffsets(const P& p, i64 batch) : batch(batch) {
    offsets<i64, 8>(batch, p.batch_rank, p.batch_shape, p.batch, at);
  }
};

}  // namespace baracuda
