#pragma once
// lines      an operand of a product as lines of bytes along k, rows of a or columns of b, in any strides: how a block of THREADS
//            threads copies slices of them to a stage in shared memory.
//
// A slice of EXTENT lines has BYTES of each; where that is a multiple of 64 they are twisted as gemm/slices.cuh has it, so
// that its `Fragments` read them. What does not exist in memory is zeros.
#include "gemm/slices.cuh"

namespace baracuda::gemm {

// Where the lines of an operand are: the first one of a tile, and how many of them exist.
struct LineSource {
  const u8* from;
  i64 along, step;  // strides in bytes of lines, and of what one element along k takes
  int lines;
  bool wide;  // every line starts 16-byte aligned and is dense

  // Lines `start` … of `end`.
  BARACUDA_D LineSource(const void* matrix, i64 along, i64 step, i64 start, i64 end, int extent, bool wide)
      : from(static_cast<const u8*>(matrix) + start * along), along(along), step(step),
        lines(static_cast<int>(min<i64>(extent, end - start))), wide(wide) {}
};

// What a thread copies of slices, one after the other. T: the elements along k, of which the stride tells.
template <class T, int EXTENT, int BYTES, int THREADS> class Lines {
  static constexpr int PIECE = 16, PIECES = BYTES / PIECE, COUNT = EXTENT * PIECES;
  static constexpr int WIDTH = static_cast<int>(sizeof(T)), WORDS = PIECE / WIDTH;
  LineSource x;

 public:
  static constexpr int size = EXTENT * BYTES;
  static BARACUDA_D int place(int line, int piece) {
    if constexpr (BYTES % 64 == 0) return Twist<BYTES>::at(line, piece);
    else return line * BYTES + piece * PIECE;
  }
  BARACUDA_D explicit Lines(const LineSource& x) : x(x) {}
  BARACUDA_D Lines(const void* matrix, i64 along, i64 step, i64 start, i64 end, bool wide)
      : x(matrix, along, step, start, end, EXTENT, wide) {}

  // The next slice, of whose bytes along k `left` exist: asynchronously where lines are wide, else it is there on return.
  BARACUDA_D void copy(u8* slice, i64 left) {
    const int own = static_cast<int>(threadIdx.x), depth = static_cast<int>(min<i64>(left, BYTES));
    if (x.wide) {
#pragma unroll
      for (int n = 0; n < div_up(COUNT, THREADS); ++n) {
        const int line = own / PIECES + n * (THREADS / PIECES), piece = own % PIECES;
        if (COUNT % THREADS != 0 && line >= EXTENT) break;
        const int there = line < x.lines ? min(max(depth - PIECE * piece, 0), PIECE) : 0;
        cp_async_16_of(slice + place(line, piece), x.from + line * x.along + PIECE * piece, there);
      }
    } else {
      const bool across = x.along == WIDTH;  // neighbouring threads have neighbouring lines then
#pragma unroll 1
      for (int n = own; n < COUNT; n += THREADS) {
        const int line = across ? n % EXTENT : n / PIECES, piece = across ? n / EXTENT : n % PIECES;
        const int there = line < x.lines ? (depth - PIECE * piece) / WIDTH : 0;
        const u8* const at = x.from + line * x.along + piece * WORDS * x.step;
        store(reinterpret_cast<T*>(slice + place(line, piece)),
              load_strided<T, WORDS>(reinterpret_cast<const T*>(at), x.step / WIDTH, there));
      }
    }
    x.from += BYTES / WIDTH * x.step;
  }
};

}  // namespace baracuda::gemm
