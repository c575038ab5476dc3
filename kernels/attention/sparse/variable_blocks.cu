// variable_blocks    the tables of VariableGrid (block_pattern.cuh): which block each query and each key of a key head is in.
//
// A block of threads has one side of one head. Ends of blocks are sums of their sizes, of which negative ones are 0; each
// token then finds the first block that ends behind it.
#include <baracuda/reduce.cuh>

namespace baracuda {

template <int THREADS, class P> BARACUDA_D void variable_blocks(const P& p) {
  __shared__ i64 scratch[THREADS / warp_size], total;
  const bool of_keys = blockIdx.x % 2 != 0;
  const i64 head = blockIdx.x / 2;
  const int thread = static_cast<int>(threadIdx.x);
  const i64 count = of_keys ? p.pattern_columns : p.pattern_rows, tokens = of_keys ? p.key_len : p.query_len;
  const void* const sizes = of_keys ? p.column_sizes : p.row_sizes;
  const i64 stride = of_keys ? p.column_stride[1] : p.row_stride[1];
  const i64 first = head * (of_keys ? p.column_stride[0] : p.row_stride[0]);
  i32* const table = static_cast<i32*>(of_keys ? p.column_of : p.row_of) + head * tokens;
  i32* const ends = static_cast<i32*>(of_keys ? p.column_ends : p.row_ends) + head * count;
  i64 before = 0;
  for (i64 start = 0; start < count; start += THREADS) {
    const i64 block = start + thread, at = first + block * stride;
    i64 size = 0;
    if (block < count) {
      const bool wide = of_keys ? p.wide_columns : p.wide_rows;
      size = wide ? static_cast<const i64*>(sizes)[at] : static_cast<const i32*>(sizes)[at];
      size = max<i64>(0, min(size, tokens));
    }
    const i64 end = before + block_scan<Sum, THREADS>(size, scratch);
    if (block < count) ends[block] = static_cast<i32>(min(end, tokens));
    if (thread == THREADS - 1) total = end;
    __syncthreads();
    before = total;
  }
  for (i64 token = thread; token < tokens; token += THREADS) {
    i64 low = 0, high = count;  // the first block that ends behind the token
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (ends[middle] <= token) low = middle + 1;
      else high = middle;
    }
    table[token] = static_cast<i32>(low);
  }
}

}  // namespace baracuda
