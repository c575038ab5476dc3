// sparse24_gemm  y[m, n] = Σ_k x[m, k] W[n, k] + bias[n], W 2:4 sparse and compressed, on sparse tensor cores, any strides.
//
// The sparse matrix is the left operand of the product, so that a block computes a tile of SIZE x SIZE of yᵀ, by eight
// warps; tiles are taken in the order of gemm/raster.cuh. A slice has 64 bytes of the values of each row of W, the bytes
// of metadata that go with them, and 128 bytes of each row of x. A sum is one chain of mma_sparse in the order of k, in
// float of f16 and bf16 and in int of int8: its bits depend on k alone.
#include <baracuda/mma_sparse.cuh>
#include "gemm/raster.cuh"
#include "quant_gemm/byte_lines.cuh"

namespace baracuda {
namespace quant {

// Slices of the metadata of SIZE rows, BYTES of each; what does not exist is places 0 and 1.
template <int SIZE, int BYTES> class Metadata {
  LineSource x;

 public:
  static constexpr int size = SIZE * BYTES;
  BARACUDA_D explicit Metadata(const LineSource& x) : x(x) {}
  BARACUDA_D void copy(u8* slice, i64 left) {
    if (x.wide && left >= BYTES && x.lines == SIZE) {
      for (int line = threadIdx.x; line < SIZE; line += threads) {
        cp_async<BYTES>(slice + line * BYTES, x.from + line * x.along);
      }
    } else {
#pragma unroll 1
      for (int at = threadIdx.x; at < SIZE * BYTES; at += threads) {
        const int line = at / BYTES, byte = at % BYTES;
        slice[at] = line < x.lines && byte < left ? x.from[line * x.along + byte * x.step] : u8{0x44};
      }
    }
    x.from += BYTES * x.step;
  }
};

// The metadata of a lane for a product: of 16 rows of a slice, at the 16 or 32 groups number `step`.
template <class T, int BYTES> BARACUDA_D u32 read_metadata(const u8* rows, int step) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  if constexpr (sizeof(T) == 2) {
    const u8* const at = rows + g * BYTES + 4 * step;
    return metadata_of(*reinterpret_cast<const u32*>(at), *reinterpret_cast<const u32*>(at + 8 * BYTES));
  } else {
    return *reinterpret_cast<const u32*>(rows + (g + t % 2 * 8) * BYTES + 8 * step + t / 2 * 4);
  }
}

}  // namespace quant

template <class T, int SIZE> BARACUDA_D void sparse24_gemm(const Sparse24GemmParams& p) {
  using namespace quant;
  using S = conditional<is_half<T>, float, int>;
  using Warps = EightWarps<SIZE>;
  constexpr int MT = Warps::MT, NT = Warps::NT, WIDTH = static_cast<int>(sizeof(T));
  constexpr int DEPTH = 128 / WIDTH, BYTES = DEPTH / 8;  // of k, and of metadata, in a slice
  using Values = Lines<T, SIZE, 64>;
  using Places = Metadata<SIZE, BYTES>;
  using Right = Lines<T, SIZE, 128>;
  constexpr int stage_bytes = Values::size + Right::size + Places::size;
  BARACUDA_DYNAMIC_SMEM(u8, shared);
  const Raster at(blockIdx.x, div_up(p.n, SIZE), div_up(p.m, SIZE));
  const i64 n0 = at.m * SIZE, m0 = at.n * SIZE;
  const auto source = [&](const void* matrix, const i64(&strides)[2], int width, i64 start, i64 end, int bit) {
    return LineSource(matrix, strides[0] * width, strides[1] * width, start, end, SIZE, p.wide >> bit & 1);
  };
  Values values(source(p.values, p.values_strides, WIDTH, n0, p.n, 0));
  Places metadata(source(p.metadata, p.metadata_strides, 1, n0, p.n, 1));
  Right x(source(p.x, p.x_strides, WIDTH, m0, p.m, 2));
  const Fragments<u8, true, true, SIZE, 64> left(shared, Warps::warp_row());
  const Fragments<u8, false, true, SIZE, 128> right(shared + Values::size, Warps::warp_col());
  const u8* const places = shared + Values::size + Right::size + Warps::warp_row() * BYTES;
  S acc[MT][NT][4] = {};
  for_slices<stages>(
      static_cast<int>(div_up(p.k, DEPTH)),
      [&](int stage, int slice) {
        const i64 rest = p.k - static_cast<i64>(slice) * DEPTH;
        u8* const here = shared + stage * stage_bytes;
        values.copy(here, rest / 2 * WIDTH);
        x.copy(here + Values::size, rest * WIDTH);
        metadata.copy(here + Values::size + Right::size, div_up(rest, 8));
      },
      [&](int stage, int) {
        const u32 offset = static_cast<u32>(stage * stage_bytes);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          u32 low[NT][2], high[NT][2];
          read_right(low, right, 2 * step, offset);
          read_right(high, right, 2 * step + 1, offset);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            u32 a[4];
            left.read(a, 16 * m, step, offset);
            const u32 e = read_metadata<T, BYTES>(places + offset + 16 * m * BYTES, step);
#pragma unroll
            for (int n = 0; n < NT; ++n) {
              const u32 b[4] = {low[n][0], low[n][1], high[n][0], high[n][1]};
              mma_sparse<T>(acc[m][n], a, b, e);
            }
          }
        }
      });
  using U = conditional<is_half<T>, T, int>;
  put_transposed_tile<SIZE>(shared, acc, [&](int row, int column, const Vec<S, 8>& sum) {
    const i64 m = m0 + row, n = n0 + column, left_over = p.n - n;
    if (m >= p.m || n >= p.n) return;
    Vec<U, 8> y;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if constexpr (is_half<T>) {
        const bool adds = p.bias != nullptr && k < left_over;
        y[k] = from_acc<U>(adds ? sum[k] + to_acc(static_cast<const T*>(p.bias)[(n + k) * p.bias_step]) : sum[k]);
      } else {
        y[k] = sum[k];
      }
    }
    U* const to = static_cast<U*>(p.y) + m * p.y_strides[0] + n * p.y_strides[1];
    if (p.wide & 8 && left_over >= 8) store(to, y);
    else store_strided(to, p.y_strides[1], y, left_over);
  });
}

}  // namespace baracuda
