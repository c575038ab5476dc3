#pragma once
// slices     an operand of a product as slices of DEPTH along k in shared memory, for mma.sync.
//
// A tile has EXTENT rows of a, or columns of b. K_MAJOR: k has stride 1 in memory, a slice is [EXTENT][DEPTH]; else the
// other axis has, and a slice is [DEPTH][EXTENT]. Rows are pieces of 16 bytes, which are twisted within 128 or 64 bytes
// so that neither copies nor ldmatrix have bank conflicts: eight rows' pieces c lie in eight different groups of banks.
#include <baracuda/async_tail.cuh>
#include <baracuda/mma_deep.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Places in a slice whose rows have BYTES, a multiple of 64. It starts 128-byte aligned. WORDS: as four rows are read
// together, 32 bytes of each, in words or doubles.
template <int BYTES, bool WORDS = false> struct Twist {
  static constexpr int line = BYTES % 128 == 0 ? 8 : 4;  // pieces that are permuted
  static BARACUDA_D int at(int row, int piece) {         // in bytes
    return row * BYTES + (piece ^ (WORDS ? (row & 3) * 2 : line == 8 ? row & 7 : (row >> 1) & 3)) * 16;
  }
};

// What a thread copies of slices, one after the other. What does not exist in memory is filled up with zeros.
template <class T, bool K_MAJOR, int EXTENT, int DEPTH, int THREADS> struct Slices {
  static constexpr int size = EXTENT * DEPTH, ROWS = K_MAJOR ? EXTENT : DEPTH, D = K_MAJOR ? DEPTH : EXTENT;
  static constexpr int SIZE = static_cast<int>(sizeof(T)), EACH = 16 / SIZE;  // elements of a piece
  using Place = Twist<D * SIZE, SIZE == 8 || (!K_MAJOR && SIZE == 4)>;
  static constexpr int LINE = Place::line, STEP = THREADS / LINE;
  static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "the rows a thread copies share one twist");

  const T* from;  // the thread's first piece of the next slice
  i64 stride;     // of the axis whose stride is not 1
  int extent;     // rows or columns that exist, at most EXTENT
  bool wide;      // whether every row in memory starts 16-byte aligned

  // matrix: of the batch index, from the first slice's k on. along, k_step: strides of the tile's axis and of k.
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

// Reads blocks of 16 rows of 32 bytes of a slice by ldmatrix: four matrices of eight rows of 16 bytes, at (row, byte)
// {(0, 0), (8, 0), (0, 16), (8, 16)}, or with ALONG {(0, 0), (0, 16), (8, 0), (8, 16)}. Of 16-bit elements they are
//   ALONG false              the fragment of a left matrix, rows m, columns k
//   ALONG false, transposed  two fragments of a right matrix, {r[0], r[1]} and {r[2], r[3]}: rows k, columns n
//   ALONG true               two fragments of a right matrix: rows n, columns k
//   ALONG true, transposed   the fragment of a left matrix: rows k, columns m
// and of floats the same, where nothing is transposed.
template <int BYTES, bool ALONG> struct Blocks {
  u32 address;  // of this lane's row, of the block at `row` and `byte`

  BARACUDA_D Blocks(const void* slice, int row, int byte) {
    const int matrix = lane_id() / 8, own = lane_id() % 8 + (ALONG ? matrix / 2 : matrix % 2) * 8;
    address = smem_address(slice) + Twist<BYTES>::at(own, ALONG ? matrix % 2 : matrix / 2);
    address = at(row, byte);
  }
  // Relative to that block. Rows are multiples of 16 and bytes of 32; both bytes together have no carry within a line.
  BARACUDA_D u32 at(int row, int byte) const {
    constexpr u32 within = Twist<BYTES>::line * 16 - 1;
    return (address ^ (byte & within)) + row * BYTES + (byte & ~within);
  }
};

// Reads words of a slice [k][BYTES / 4]: lane (g, t) has those of row t and column g of blocks of four rows and eight
// columns.
template <int BYTES> struct WordsOfRows {
  u32 address;

  BARACUDA_D WordsOfRows(const void* slice, int column) {
    const int own = column + lane_id() / 4;
    address = smem_address(slice) + Twist<BYTES, true>::at(lane_id() % 4, own / 4) + own % 4 * 4;
  }
  // Relative to the first column, a multiple of 32.
  BARACUDA_D u32 at(int row, int column) const {
    const u32 byte = 4 * column;
    return (address ^ (byte & 127)) + row * BYTES + (byte & ~127u);
  }
};

// Fragments of slices at the 32 bytes of k number `step`: of the 16 rows of a from `x` on, or of the 16 columns of b,
// {r[0], r[1]} and {r[2], r[3]}. `start`: a warp's place in the tile, from where x counts; they have no common bit.
template <class T, bool LEFT, bool K_MAJOR, int EXTENT, int DEPTH> struct Fragments {
  static constexpr int SIZE = static_cast<int>(sizeof(T)), BYTES = (K_MAJOR ? DEPTH : EXTENT) * SIZE;
  static constexpr bool words = SIZE == 4 && !K_MAJOR;
  conditional<words, WordsOfRows<BYTES>, Blocks<BYTES, LEFT != K_MAJOR>> source;

  BARACUDA_D Fragments(const T* slice, int start) : source(make(slice, start)) {}
  BARACUDA_D void read(u32 (&r)[4], int x, int step, u32 offset) const {
    if constexpr (words) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int far = LEFT ? n / 2 : n % 2, next = LEFT ? n % 2 : n / 2;  // of k, and of rows or columns
        r[n] = load_shared(source.at(8 * step + 4 * far, x + 8 * next) + offset);
      }
    } else if constexpr (K_MAJOR) {
      ldmatrix_x4(r, source.at(x, 32 * step) + offset);
    } else {
      ldmatrix_x4_trans(r, source.at(16 * step, 2 * x) + offset);
    }
  }

 private:
  static BARACUDA_D auto make(const T* slice, int start) {
    if constexpr (words) return WordsOfRows<BYTES>(slice, start);
    else return Blocks < BYTES, LEFT != K_MAJOR > (slice, K_MAJOR ? start : 0, K_MAJOR ? 0 : 2 * start);
  }
};

}  // namespace baracuda
