// dynamic_quantize_transpose   y = the codes of x and yt = those of x transposed, fp8, each with scales by the sizes of what
// shares one: a whole matrix, lines of it, 128 neighbours of a line, or blocks of 128 x 128.
//
// A block of threads has a tile of 128 x 128 of x in registers, a thread 8 rows of 8 columns, and turns codes of 8 rows at
// once in shared memory. Sizes of whole lines and of the matrix come by a launch before. A maximum depends on no order.
#include "quantize/turned_tile.cuh"

namespace baracuda {

BARACUDA_D void quantize_turned_clear(const QuantizeTurnedClearParams& p) {
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * turned::threads + threadIdx.x;
  if (i < p.count) static_cast<float*>(p.sizes)[i] = 0.0f;
}

// The largest sizes: of all, of each row, of each column, one after the other.
template <class T, bool WIDE> BARACUDA_D void quantize_turned_sizes(const QuantizeTurnedParams& p) {
  using namespace turned;
  __shared__ Sizes<T> sizes;
  const Place place(p);
  Tile<T, WIDE> tile;
  tile.load(p, place);
  sizes.take(tile);
  __syncthreads();
  const int t = static_cast<int>(threadIdx.x);
  const float most = t < side ? sizes.row(t) : sizes.column(t - side);
  float* const to = static_cast<float*>(p.sizes);
  if (p.scope == scope_tensor || p.scope_t == scope_tensor) {
    const float all = block_reduce<Max, threads>(most);
    if (t == 0) raise(to, all);
  }
  if (t < side) {
    if (p.scope == scope_rows && place.top + t < p.rows) raise(to + 1 + place.top + t, most);
  } else if (p.scope_t == scope_rows && place.left + t - side < p.cols) {
    raise(to + 1 + p.rows + place.left + t - side, most);
  }
}

template <class T, bool WIDE> BARACUDA_D void quantize_turned(const QuantizeTurnedParams& p) {
  using namespace turned;
  __shared__ Sizes<T> sizes;
  __shared__ Line lines[2 * side];  // of rows, and of columns
  __shared__ uint4 codes[side * side / 16];
  const Place place(p);
  Tile<T, WIDE> tile;
  tile.load(p, place);
  const bool near = scales_of(p, place, tile, sizes, lines);
  if (!near) return put_one_by_one<T>(p, place, lines);
  if (p.code == quantize::to_e4m3) put_codes<quantize::E4M3Coder>(p, place, tile, lines, codes);
  else put_codes<quantize::E5M2Coder>(p, place, tile, lines, codes);
}

}  // namespace baracuda
