#pragma once
// slices     an operand of a product as slices of DEPTH along k in shared memory, for mma.sync.
//
// A tile has EXTENT rows of a, or columns of b. K_MAJOR: k has stride 1 in memory, a slice is [EXTENT][DEPTH]; else the
// other axis has, and a slice is [DEPTH][EXTENT]. Rows are pieces of 16 bytes, which are twisted within 128 or 64 bytes
// so that neither copies nor ldmatrix have bank conflicts: eight rows' pieces c lie in eight different groups of banks.
#include <baracuda/async_tail.cuh>
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Places in a slice whose rows have BYTES, a multiple of 64. It starts 128-byte aligned.
template <int BYTES> struct Twist {
  static constexpr int line = BYTES % 128 == 0 ? 8 : 4;  // pieces that are permuted
  static BARACUDA_D int at(int row, int piece) {         // in bytes
    return row * BYTES + (piece ^ (line == 8 ? row & 7 : (row >> 1) & 3)) * 16;
  }
};

// Reads blocks of 16 rows of 32 bytes of a slice by ldmatrix: four matrices of eight rows of 16 bytes, at (row, byte)
// {(0, 0), (8, 0), (0, 16), (8, 16)}, or with ALONG {(0, 0), (0, 16), (8, 0), (8, 16)}. With elements of 16 bits:
//   ALONG false              the fragment of a left matrix, rows m, columns k
//   ALONG false, transposed  two fragments of a right matrix, {r[0], r[1]} and {r[2], r[3]}: rows k, columns n
//   ALONG true               two fragments of a right matrix: rows n, columns k
//   ALONG true, transposed   the fragment of a left matrix: rows k, columns m
template <int BYTES, bool ALONG> struct Blocks {
  u32 address;  // of this lane's row, of the block at `row` and `byte`, multiples of 16 and 64

  BARACUDA_D Blocks(const void* slice, int row, int byte) {
    const int matrix = lane_id() / 8, own = lane_id() % 8 + (ALONG ? matrix / 2 : matrix % 2) * 8;
    address = smem_address(slice) + Twist<BYTES>::at(own, ALONG ? matrix % 2 : matrix / 2);
    address = at(row, byte);
  }
  // Relative to the first: row and byte are multiples of 16 and 32, and byte stays within 64 or above the 128 of a line.
  BARACUDA_D u32 at(int row, int byte) const {
    constexpr u32 within = Twist<BYTES>::line * 16 - 1;
    return (address ^ (byte & within)) + row * BYTES + (byte & ~within);
  }
};

// A thread's part in copying slices one after the other. What does not exist in memory is filled up with zeros.
template <class T, bool K_MAJOR, int EXTENT, int DEPTH, int THREADS> struct Slices {
  static constexpr int size = EXTENT * DEPTH, ROWS = K_MAJOR ? EXTENT : DEPTH, D = K_MAJOR ? DEPTH : EXTENT;
  static constexpr int SIZE = static_cast<int>(sizeof(T)), EACH = 16 / SIZE;  // elements of a piece
  using Place = Twist<D * SIZE>;
  static constexpr int LINE = Place::line, STEP = THREADS / LINE;
  static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "the rows a thread copies share one twist");

  const T* from;  // the thread's first piece of the next slice
  i64 stride;     // of the axis whose stride is not 1
  int extent;     // rows or columns that exist, at most EXTENT
  bool wide;      // whether every row in memory starts 16-byte aligned

  // matrix: of the batch's item, from the first slice's k on. along, k_step: strides of the tile's axis and of k.
  BARACUDA_D Slices(const T* matrix, i64 along, i64 k_step, i64 start, i64 end, bool wide)
      : stride(K_MAJOR ? along : k_step), extent(static_cast<int>(min<i64>(EXTENT, end - start))), wide(wide) {
    from = matrix + start * (K_MAJOR ? along : 1) + row() * stride + col();
  }

  // Copies the next slice, of whose k `left` exist: asynchronously where rows are aligned, else it is there on return.
  BARACUDA_D void copy(T* slice, int left) {
    const int rows = K_MAJOR ? extent : left, cols = (K_MAJOR ? left : extent) - col();
    T* const to = slice + Place::at(row(), col() / EACH) / SIZE;
    const T* at = from;
    if (wide) {
#pragma unroll
      for (int n = 0; n < ROWS / STEP; ++n, at += STEP * stride) {
#pragma unroll
        for (int c = 0; c < D; c += LINE * EACH) {
          const int there = row() + n * STEP < rows ? min(max(cols - c, 0), EACH) : 0;
          cp_async_16_of(to + n * STEP * D + c, at + c, there * SIZE);
        }
      }
    } else {
#pragma unroll 1
      for (int n = 0; n < ROWS / STEP; ++n, at += STEP * stride) {
#pragma unroll 1
        for (int c = 0; c < D; c += LINE * EACH) {
          const int there = row() + n * STEP < rows ? cols - c : 0;
          store(to + n * STEP * D + c, load_strided<T, EACH>(at + c, 1, there));
        }
      }
    }
    from += K_MAJOR ? DEPTH : DEPTH * stride;
  }

 private:
  static BARACUDA_D int row() { return static_cast<int>(threadIdx.x) / LINE; }
  static BARACUDA_D int col() { return static_cast<int>(threadIdx.x) % LINE * EACH; }
};

// Fragments of slices of 16-bit elements: of the 16 rows of a from `x` on, or of the 16 columns of b, {r[0], r[1]} and
// {r[2], r[3]}, at k … k + 15. `start` is a warp's place in the tile, a multiple of 32; x < 32 or a multiple of 64.
template <class T, bool LEFT, bool K_MAJOR, int EXTENT, int DEPTH> struct Fragments {
  Blocks<(K_MAJOR ? DEPTH : EXTENT) * 2, LEFT != K_MAJOR> blocks;
  BARACUDA_D Fragments(const T* slice, int start) : blocks(slice, K_MAJOR ? start : 0, K_MAJOR ? 0 : 2 * start) {}
  BARACUDA_D void read(u32 (&r)[4], int x, int k, u32 offset) const {
    if constexpr (K_MAJOR) ldmatrix_x4(r, blocks.at(x, 2 * k) + offset);
    else ldmatrix_x4_trans(r, blocks.at(k, 2 * x) + offset);
  }
};

}  // namespace baracuda
