// mxfp8_cast_transpose   y and yt as fp8 with a power of two for every 32 numbers of a row, of x and of x transposed, as OCP
// Microscaling Formats 1.0 has them: one read of x.
//
// A warp has a tile of 32 rows and 64 columns, which it copies to shared memory, and no other warp waits for it: lanes take
// 16 columns of a row, of which two have a block, and later all 32 rows of two columns, which are two blocks of yt. WIDE: rows
// of x, y and yt lie in whole aligned pieces of 16 elements.
#include <baracuda/async_copy.cuh>
#include <baracuda/quantize.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

namespace transposing {

constexpr int tile_rows = 32, tile_cols = 64, each = 16,
              warps = 4;  // `each`: columns of a lane, or rows it writes at once
constexpr int pieces = tile_cols / each, at_once = warp_size / pieces;
enum Operand { AT_CODES, AT_VALUES };

template <class T> constexpr int pitch = tile_cols + 16 / static_cast<int>(sizeof(T));  // rows begin in other banks

template <class T, class C, bool WIDE> struct MxTile {
  const Mxfp8TransposeParams& p;
  T* const tile;
  const i64 top, left;
  const int lane;
  const C coder;

  BARACUDA_D T* at(int row, int col) const { return tile + row * pitch<T> + col; }
  BARACUDA_D i64 offset(int operand, int row) const { return RowAt<WIDE>(p, top + row).offset(p, operand); }

  BARACUDA_D void enter() const {
    const T* const x = static_cast<const T*>(p.x);
    const int piece = lane % pieces * each;
    const bool there = left + piece < p.cols;
#pragma unroll WIDE ? tile_rows / at_once : 1
    for (int row = lane / pieces; row < tile_rows; row += at_once) {
      const T* const from = x + offset(AT_VALUES, row);
      if constexpr (WIDE) {
        constexpr int chunk = vec_elems<T>;
#pragma unroll
        for (int k = 0; k < each; k += chunk) {
          cp_async_16(at(row, piece + k), from + (there ? left + piece + k : 0), there);
        }
      } else {
        store(at(row, piece), load_columns<T, each>(p, AT_VALUES, from, left + piece, p.cols - left - piece));
      }
    }
    if constexpr (WIDE) cp_async_commit(), cp_async_wait<0>();
    __syncwarp();
  }
  BARACUDA_D quantize::BlockScale scale(float most) const {
    return quantize::block_scale(most, p.largest, quantize::scale_e8m0, 1.0f);
  }
  BARACUDA_D void put_rows() const {
    const int piece = lane % pieces * each;
    const i64 col = left + piece;
#pragma unroll 1
    for (int row = lane / pieces; row < tile_rows; row += at_once) {
      const Vec<float, each> v = to_acc(load<each>(static_cast<const T*>(at(row, piece))));
      const float most = quantize::block_most(quantize::most_of(v, each), 2);
      const quantize::BlockScale s = scale(most);
      if (col >= p.cols) continue;
      const Vec<u8, each> codes = quantize::codes_over(v, s.value, coder, most);
      u8* const y = static_cast<u8*>(p.y) + offset(AT_CODES, row);
      if constexpr (WIDE) {
        store(y + col, codes);
      } else {
#pragma unroll 1
        for (int k = 0; k < each; ++k) y[column_offset<false>(p, AT_CODES, col + k)] = codes[k];
      }
      if (piece % 32 == 0) static_cast<u8*>(p.scales)[(top + row) * (p.cols / 32) + col / 32] = s.code;
    }
  }
  BARACUDA_D void put_columns() const {
    const i64 first = left + 2 * lane;
    if (first >= p.cols) return;
    Vec<T, 2> pair[tile_rows];
#pragma unroll
    for (int row = 0; row < tile_rows; ++row) pair[row] = load<2>(static_cast<const T*>(at(row, 2 * lane)));
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = 0.0f;
#pragma unroll
      for (int row = 0; row < tile_rows; ++row) most = math::maximum(most, math::abs(to_acc(pair[row][c])));
      const quantize::BlockScale s = scale(most);
#pragma unroll
      for (int half = 0; half < tile_rows; half += each) {
        Vec<float, each> v;
#pragma unroll
        for (int k = 0; k < each; ++k) v[k] = to_acc(pair[half + k][c]);
        const Vec<u8, each> codes = quantize::codes_over(v, s.value, coder, most);
        u8* const yt = static_cast<u8*>(p.yt) + (first + c) * p.yt_column + (top + half) * p.yt_row;
        if constexpr (WIDE) store(yt, codes);
        else store_strided(yt, p.yt_row, codes, each);
      }
      static_cast<u8*>(p.scales_t)[(first + c) * (p.rows / 32) + top / 32] = s.code;
    }
  }
};

}  // namespace transposing

template <class T, bool WIDE> BARACUDA_D void mxfp8_cast_transpose(const Mxfp8TransposeParams& p) {
  using namespace transposing;
  alignas(16) __shared__ T tiles[warps][tile_rows * pitch<T>];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  u64 across;
  const u64 down = divmod(static_cast<u64>(blockIdx.y) * gridDim.x + blockIdx.x,
                          static_cast<u64>(div_up(p.cols, tile_cols)), across);
  const i64 top = (static_cast<i64>(down) * warps + warp) * tile_rows, left = static_cast<i64>(across) * tile_cols;
  if (top >= p.rows) return;  // rows are whole tiles
  const auto run = [&](auto coder) {
    const MxTile<T, decltype(coder), WIDE> tile{p, tiles[warp], top, left, lane_id(), coder};
    tile.enter();
    tile.put_rows();
    tile.put_columns();
  };
  if (p.code == quantize::to_e4m3) run(quantize::E4M3Coder());
  else run(quantize::E5M2Coder());
}

}  // namespace baracuda
