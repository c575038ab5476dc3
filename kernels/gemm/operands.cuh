#pragma once
// operands   where the operands of a matrix product are among its parameters, and where those of a batch index begin.
#include <baracuda/index.cuh>

namespace baracuda {

// Places of the matrices in the parameters' arrays.
namespace gemm_matrix {
enum { a, b, up, c, residual, y, pre, up_pre };
}
namespace gemm_vector {
enum { bias, up_bias, row_bias, scale_a, scale_b };
}

// Where the matrices of a batch index begin, in elements.
struct BatchOffsets {
  i64 batch, at[8];
  template <class P> BARACUDA_D BatchOffsets(const P& p, i64 batch) : batch(batch) {
    offsets<i64, 8>(batch, p.batch_rank, p.batch_shape, p.batch, at);
  }
};

}  // namespace baracuda
