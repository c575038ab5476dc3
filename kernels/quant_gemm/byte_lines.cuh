#pragma once
// byte_lines operands of a product as lines of bytes along k: how a block of 256 threads copies slices of them to a stage
//            in shared memory, and writes a transposed tile of sums.
//
// A slice of EXTENT lines (rows of an operand) has BYTES of each; where that is a multiple of 64 they are twisted as
// gemm/slices.cuh has it, so that its `Fragments` read them. What does not exist in memory is zeros.
#include "gemm/copy_ring.cuh"
#include "gemm/slices.cuh"
#include "gemm/warp_tile.cuh"

namespace baracuda::quant {

constexpr int threads = 256, stages = 3;  // schedules/packed_gemm.py has these numbers too

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

// Copies slices one after the other. T: the elements along k, of which the stride tells.
template <class T, int EXTENT, int BYTES> class Lines {
  static constexpr int PIECE = 16, PIECES = BYTES / PIECE, COUNT = EXTENT * PIECES;
  LineSource x;

 public:
  static constexpr int size = EXTENT * BYTES;
  static BARACUDA_D int place(int line, int piece) {
    if constexpr (BYTES % 64 == 0) return Twist<BYTES>::at(line, piece);
    else return line * BYTES + piece * PIECE;
  }
  BARACUDA_D Lines(const LineSource& x) : x(x) {}

  // The next slice, of whose bytes along k `left` exist: asynchronously where lines are wide, else it is there on return.
  BARACUDA_D void copy(u8* slice, i64 left) {
    const int own = static_cast<int>(threadIdx.x), depth = static_cast<int>(min<i64>(left, BYTES));
    if (x.wide) {
#pragma unroll
      for (int n = 0; n < div_up(COUNT, threads); ++n) {
        const int at = own + n * threads, line = at / PIECES, piece = at % PIECES;
        if (COUNT % threads != 0 && at >= COUNT) break;
        const int there = line < x.lines ? min(max(depth - PIECE * piece, 0), PIECE) : 0;
        const u8* const from = there > 0 ? x.from + line * x.along + PIECE * piece : x.from;
        cp_async_16_of(slice + place(line, piece), from, there);
      }
    } else {
      constexpr int WORDS = PIECE / static_cast<int>(sizeof(T));
#pragma unroll 1
      for (int at = own; at < COUNT; at += threads) {
        const int line = at / PIECES, piece = at % PIECES;
        const int there = line < x.lines ? (depth - PIECE * piece) / static_cast<int>(sizeof(T)) : 0;
        const u8* const from = x.from + line * x.along + piece * WORDS * x.step;
        Vec<T, WORDS> words;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) words[k] = k < there ? *reinterpret_cast<const T*>(from + k * x.step) : T{};
        store(reinterpret_cast<T*>(slice + place(line, piece)), words);
      }
    }
    x.from += BYTES / static_cast<int>(sizeof(T)) * x.step;
  }
};

// The accumulators of a transposed tile of eight warps on their way out through shared memory, of which each warp has its
// own part. Calls sink(row, column, sums) for every eight columns of y, which are rows of the tile.
template <int SIZE, class S, int MT, int NT, class Sink>
BARACUDA_D void put_transposed_tile(u8* shared, const S (&acc)[MT][NT][4], const Sink& sink) {
  using Warps = EightWarps<SIZE>;
  constexpr int ROWS = Warps::warp_cols, COLS = Warps::warp_rows, PITCH = COLS + 4, CHUNKS = COLS / 8;
  S* const mine = reinterpret_cast<S*>(shared) + static_cast<int>(threadIdx.x) / warp_size * (ROWS * PITCH);
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * m + g + e / 2 * 8, column = 8 * n + 2 * t + e % 2;
        mine[column * PITCH + row] = acc[m][n][e];
      }
  __syncwarp();
  const int row0 = Warps::warp_col(), col0 = Warps::warp_row();
#pragma unroll 1
  for (int i = lane_id(); i < ROWS * CHUNKS; i += warp_size) {
    const int row = i / CHUNKS, column = i % CHUNKS * 8;
    sink(row0 + row, col0 + column, load<8>(mine + row * PITCH + column));
  }
}

}  // namespace baracuda::quant
