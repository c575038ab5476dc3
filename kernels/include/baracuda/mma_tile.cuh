#pragma once
// mma_tile   tiles of 16-bit elements in shared memory, swizzled so that neither copies nor ldmatrix have bank
// conflicts.
//
// A tile has rows of D elements, D a multiple of 32; it starts 128-byte aligned. A row is pieces of 16 bytes; piece c
// of row r is stored at piece c ^ twist(r). The twist moves a piece within its 128 bytes (D a multiple of 64) or 64
// bytes, so that pieces c of eight rows lie in eight different groups of four banks.
#include <baracuda/mma.cuh>
#include <baracuda/row_source.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::tile {

template <int D> constexpr int line = D % 64 == 0 ? 8 : 4;  // pieces that the twist permutes
template <int D> BARACUDA_D int twist(int row) { return D % 64 == 0 ? row & 7 : (row >> 1) & 3; }

// Offset of piece `piece` of row `row` in a tile, in elements.
template <int D> BARACUDA_D int at(int row, int piece) { return row * D + (piece ^ twist<D>(row)) * 8; }

template <int D> struct Rows {  // a tile as one array of rows
  static BARACUDA_D int at(int row, int piece) { return tile::at<D>(row, piece); }
};
template <int ROWS> struct Panels {  // a tile as panels of 64 columns
  static BARACUDA_D int at(int row, int piece) { return piece / 8 * ROWS * 64 + tile::at<64>(row, piece % 8); }
};

// Order of a source's rows in a tile: unchanged (InPlace), or permuted (Runs) so that the columns that a lane has of a
// product with the tile's transpose (mma.cuh: 8 n + 2 t + e) are neighbouring rows, ROWS / 4 t + 2 n + e.
struct InPlace {
  static BARACUDA_D int place(int r) { return r; }
};
template <int ROWS> struct Runs {
  static constexpr u32 length = ROWS / 4;
  static BARACUDA_D int place(u32 r) { return r % length / 2 * 8 + r / length * 2 + r % 2; }
  static BARACUDA_D int row(u32 place) { return place / 2 % 4 * length + place / 8 * 2 + place % 2; }
};

// tile[r][c] = source.row(r)[c] for r < rows and c < cols, zeros elsewhere in ROWS x D, rows in the given Order. wide:
// rows start 16-byte aligned and cols is a multiple of 8; then the copies are asynchronous (cp.async), else they are
// complete on return. All THREADS call; the caller commits, waits and synchronises.
template <int ROWS, int D, int THREADS, class Order = InPlace, class T, class Source>
BARACUDA_D void copy(T* tile, const Source& source, int rows, int cols, bool wide) {
  constexpr int LINE = line<D>, STEP = THREADS / LINE, PASSES = (ROWS + STEP - 1) / STEP;
  static_assert(sizeof(T) == 2 && D % 32 == 0 && STEP % 8 == 0, "the rows a thread copies share one twist");
  if (wide) {
    const int row = static_cast<int>(threadIdx.x) / LINE, piece = static_cast<int>(threadIdx.x) % LINE;
    T* const first = tile + at<D>(Order::place(row), piece);
    auto from = source.template walk<STEP>(row, piece * 8, rows);
#pragma unroll
    for (int n = 0; n < PASSES; ++n) {
      if (ROWS % STEP != 0 && row + n * STEP >= ROWS) break;
      const T* const here = from.next();
      T* to = first + n * STEP * D;
      if constexpr (!is_same<Order, InPlace>) to = tile + at<D>(Order::place(row + n * STEP), piece);
#pragma unroll
      for (int c = 0; c < D; c += LINE * 8) {
        cp_async_16(to + c, here + c, row + n * STEP < rows && c + piece * 8 < cols);
      }
    }
  } else {
#pragma unroll 1
    for (int n = threadIdx.x; n < ROWS * D; n += THREADS) {
      const int r = n / D, c = n % D;
      tile[at<D>(Order::place(r), c / 8) + c % 8] = r < rows && c < cols ? source.row(r)[c] : T(0.0f);
    }
  }
}
template <int ROWS, int D, int THREADS, class T>
BARACUDA_D void copy(T* tile, const T* source, i64 stride, int rows, int cols, bool wide) {
  copy<ROWS, D, THREADS>(tile, Strided<T>{source, stride}, rows, cols, wide);
}

// The same into panels of 64 columns, [COLS / 64][ROWS][64], each a tile of its own.
template <int ROWS, int COLS, int THREADS, class Order = InPlace, class T, class Source>
BARACUDA_D void copy_panels(T* tile, const Source& source, int rows, int cols, bool wide) {
#pragma unroll
  for (int c = 0; c < COLS; c += 64) {
    copy<ROWS, 64, THREADS, Order>(tile + c * ROWS, source.columns(c), rows, cols - c, wide);
  }
}
template <int ROWS, int COLS, int THREADS, class T>
BARACUDA_D void copy_panels(T* tile, const T* source, i64 stride, int rows, int cols, bool wide) {
  copy_panels<ROWS, COLS, THREADS>(tile, Strided<T>{source, stride}, rows, cols, wide);
}

// The same by one warp, with few registers; into part of a tile of OF rows.
template <int ROWS, int COLS, int OF = ROWS, class T>
BARACUDA_D void copy_as_warp(T* tile, const T* source, i64 stride, int rows, int cols, bool wide) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size, row = lane / 8, piece = lane % 8;
  if (wide) {
    T* const to[2] = {tile + at<64>(row, piece), tile + at<64>(row + 4, piece)};  // of every other four rows
    const T* here = source + row * stride + piece * 8;
#pragma unroll
    for (int n = 0; n < ROWS / 4; ++n, here += 4 * stride) {
#pragma unroll
      for (int c = 0; c < COLS; c += 64) {
        cp_async_16(to[n % 2] + n / 2 * (8 * 64) + c * OF, here + c, row + 4 * n < rows && c + 8 * piece < cols);
      }
    }
  } else {
#pragma unroll 1
    for (int n = lane; n < ROWS * COLS; n += warp_size) {
      const int r = n / COLS, c = n % COLS;
      tile[Panels<OF>::at(r, c / 8) + c % 8] = r < rows && c < cols ? source[r * stride + c] : T(0.0f);
    }
  }
}

// copy_panels for consecutive tiles from the last to the first: the first call copies the source's rows 0 … ROWS - 1,
// the next the ROWS rows before them. A thread keeps its position. Rows from `rows` on are zeros.
template <int ROWS, int COLS, int THREADS, bool WIDE, class Source> struct PanelsUp {
  static constexpr int STEP = THREADS / 8;
  static_assert(ROWS % STEP == 0, "every thread copies as many rows");
  const Source source;
  typename Source::Cursor at;
  const int cols;
  i64 from = 0;

  BARACUDA_D PanelsUp(const Source& source, int cols)
      : source(source), at(source.cursor(row(), 8 * piece())), cols(cols) {}
  template <class T> BARACUDA_D void copy(T* tile, int rows = ROWS) {
    if constexpr (!WIDE) {
      copy_panels<ROWS, COLS, THREADS>(tile, source.from(from), rows, cols, false);
      from -= ROWS;
      return;
    }
    T* const to = tile + tile::at<64>(row(), piece());
    auto walk = at.template down<STEP>();
    // Where rows are looked up, all at once, which takes no longer than one; else four, as a copy reads its address
    // register late and the next address must not wait for it.
    constexpr int EACH = ROWS / STEP, ONCE = decltype(walk)::looks_up ? EACH : 4;
    static_assert(EACH % ONCE == 0, "whole batches");
#pragma unroll
    for (int first = 0; first < EACH; first += ONCE) {
      const T* here[ONCE];
#pragma unroll
      for (int n = 0; n < ONCE; ++n) here[n] = walk.next();
#pragma unroll
      for (int n = first; n < first + ONCE; ++n) {
#pragma unroll
        for (int c = 0; c < COLS; c += 64) {
          const bool there = row() + n * STEP < rows && c + 8 * piece() < cols;
          cp_async_16(to + n * STEP * 64 + c * ROWS, here[n - first] + c, there);
        }
      }
    }
    at.move(-ROWS);
  }

 private:
  static BARACUDA_D int row() { return static_cast<int>(threadIdx.x) / 8; }
  static BARACUDA_D int piece() { return static_cast<int>(threadIdx.x) % 8; }
};
template <int ROWS, int COLS, int THREADS, bool WIDE, class Source>
BARACUDA_D auto panels_up(const Source& source, int cols) {
  return PanelsUp<ROWS, COLS, THREADS, WIDE, Source>(source, cols);
}

// out[r * stride + c] = tile[r][c] for r < rows and c < cols, by COUNT threads, of which this is number `thread`.
template <int ROWS, int D, int COUNT, class T>
BARACUDA_D void copy_out(T* out, i64 stride, const T* tile, int thread, int rows, int cols, bool wide) {
  constexpr int LINE = D / 8;
#pragma unroll 4
  for (int n = thread; n < ROWS * LINE; n += COUNT) {
    const int r = n / LINE, c = n % LINE;
    if (r >= rows || c * 8 >= cols) continue;
    const auto x = load<8>(tile + at<D>(r, c));
    if (wide) store(out + r * stride + c * 8, x);
    else store_strided(out + r * stride + c * 8, 1, x, cols - c * 8);
  }
}

// A lane's part in reading 16 x 16 blocks of a tile with ldmatrix. Its four 8 x 8 matrices are, as (row, column) of the
// block: ALONG false {(0, 0), (8, 0), (0, 8), (8, 8)}, ALONG true {(0, 0), (0, 8), (8, 0), (8, 8)}. read() gives:
//   ALONG false              the A fragment of tile[row …][col …]
//   ALONG false, transposed  B fragments {r[0], r[1]} of columns col … col + 7 and {r[2], r[3]} of the next eight; rows are k
//   ALONG true               B fragments {r[0], r[1]} of rows row … row + 7 and {r[2], r[3]} of the next eight; columns are k
//   ALONG true, transposed   the A fragment of the tile's transpose: columns are m, rows are k
template <int D, bool ALONG> struct Reader {
  u32 address;  // of the lane's row, swizzled

  template <class T> BARACUDA_D explicit Reader(const T* tile) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size, matrix = lane / 8;
    const int row = lane % 8 + (ALONG ? matrix / 2 : matrix % 2) * 8;
    address = smem_address(tile) + 2 * at<D>(row, ALONG ? matrix % 2 : matrix / 2);
  }
  // row and col are multiples of 16, known at compile time; `offset` is the distance in bytes to another tile of the
  // same kind.
  BARACUDA_D u32 block(int row, int col, u32 offset = 0) const {
    constexpr u32 within = line<D> * 16 - 1;
    return (address ^ (2 * col & within)) + (2 * (row * D + col) & ~within) + offset;
  }
  BARACUDA_D void read(u32 (&r)[4], int row, int col, u32 offset = 0) const { ldmatrix_x4(r, block(row, col, offset)); }
  BARACUDA_D void write(const u32 (&r)[4], int row, int col, u32 offset = 0) const {
    stmatrix_x4(block(row, col, offset), r);
  }
  BARACUDA_D void read_transposed(u32 (&r)[4], int row, int col, u32 offset = 0) const {
    ldmatrix_x4_trans(r, block(row, col, offset));
  }
};

// Writes an accumulator's values to a tile: lane (g, t) has D[g, 2t], D[g, 2t + 1], D[g + 8, 2t], D[g + 8, 2t + 1].
template <class Layout, class T>
BARACUDA_D void put(T* tile, int row, int col, const float (&d)[4], float scale0, float scale1) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size, g = lane / 4, t = lane % 4;
  *reinterpret_cast<u32*>(tile + Layout::at(row + g, col / 8) + 2 * t) = pack_pair<T>(d[0] * scale0, d[1] * scale0);
  *reinterpret_cast<u32*>(tile + Layout::at(row + g + 8, col / 8) + 2 * t) = pack_pair<T>(d[2] * scale1, d[3] * scale1);
}
template <int D, class T>
BARACUDA_D void put(T* tile, int row, int col, const float (&d)[4], float scale0, float scale1) {
  put<Rows<D>>(tile, row, col, d, scale0, scale1);
}

// Writes 16 rows of an accumulator, times the factors of the first eight rows and of the rest, to panels of 64 columns,
// APART elements from each other (sm_90 and later).
template <int APART, class T, int N>
BARACUDA_D void put_panels(T* rows, const float (&x)[N][4], const float (&factors)[2]) {
  const Reader<64, false> to(rows);
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    u32 pairs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float(&quad)[4] = x[n + e / 2];
      pairs[e] = pack_pair<T>(quad[e % 2 * 2] * factors[e % 2], quad[e % 2 * 2 + 1] * factors[e % 2]);
    }
    to.write(pairs, 0, 8 * n % 64, n / 8 * (APART * sizeof(T)));
  }
}

}  // namespace baracuda::tile
