#pragma once
// attention  a block of 128 threads multiplies tiles: 8 x 16 threads, each with R rows by 4 keys of a score tile and
//            R rows by D / 16 columns of an output tile.
//
// Thread (r, c) = (threadIdx.x / 16, threadIdx.x % 16) owns rows r, r + 8, … and keys c, c + 16, c + 32, c + 48 of a score
// tile, so one half-warp holds whole rows: row reductions are shuffles, and a score tile handed on through shared memory
// is read by the half-warp that wrote it. Elements are widened to acc_t<T> on their way into shared memory. Pitches are
// 16 bytes more than a multiple of 128, which spreads the rows a warp reads over all banks.
//
// Order of sums: a score is one chain of fma over d; an output is a chain over the value_rows keys of a staged piece,
// and the pieces are added in order.
#include <baracuda/reduce.cuh>

namespace baracuda::attention {

constexpr int threads = 128;
constexpr int tile_keys = 64;

template <class A> constexpr int pad = 16 / static_cast<int>(sizeof(A));                 // elements in 16 bytes
template <class A, int D> constexpr int chunk = sizeof(A) == 8 || D % 64 != 0 ? 32 : 64;  // columns staged for a product
template <class A> constexpr int score_pitch = tile_keys + pad<A>;

// Rows of D accumulators that fit BYTES: a power of two, at most 64.
template <class A, int D, int BYTES> BARACUDA_HD constexpr int value_rows() {
  int rows = 64;
  while (rows * D * static_cast<int>(sizeof(A)) > BYTES) rows /= 2;
  return rows;
}

BARACUDA_D int thread_row() { return static_cast<int>(threadIdx.x) / 16; }
BARACUDA_D int thread_col() { return static_cast<int>(threadIdx.x) % 16; }

// end - start, clamped to ±N: how many rows of a tile of N at `start` lie below `end`, negative where it is far below.
template <int N> BARACUDA_D int inside(i64 end, i64 start) {
  return static_cast<int>(min<i64>(N, max<i64>(-N, end - start)));
}

// The tile of queries and the head a block works on. The heads go in chunks whose keys and values stay in the L2 cache;
// where rows differ in length a chunk's longest tiles go first, so that the short ones fill the end.
struct Place {
  u32 tile, head;
  template <class P> BARACUDA_D explicit Place(const P& p) {
    const u32 block = blockIdx.x, tiles = static_cast<u32>(p.tiles), heads = gridDim.x / tiles;  // the grid fits 31 bits
    if (p.causal) {
      const u32 first = block / (p.chunk * tiles) * p.chunk, within = block - first * tiles;
      const u32 size = min(static_cast<u32>(p.chunk), heads - first);
      tile = tiles - 1 - within / size;
      head = first + within % size;
    } else {
      tile = block % tiles;
      head = block / tiles;
    }
  }
};

BARACUDA_D float exp2_fast(float x) { return math::fast_exp2(x); }  // as accurate as exp2f, but subnormal weights are 0
BARACUDA_D double exp2_fast(double x) { return math::exp2(x); }

template <class A> constexpr A log2_e = static_cast<A>(1.4426950408889634);
template <class A> constexpr A ln_2 = static_cast<A>(0.6931471805599453);

// ---- global to shared memory ----------------------------------------------------------------------------------------

// tile[r][c] = source[r * stride + c] for r < rows and c < cols, zeros elsewhere in ROWS x COLS. wide: rows start 16-byte
// aligned and cols is a multiple of 16 bytes; then a thread has up to AHEAD loads in flight. All 128 threads call; the
// caller synchronises.
template <int ROWS, int COLS, int PITCH, int AHEAD = 8, class T>
BARACUDA_D void stage(acc_t<T>* tile, const T* source, i64 stride, int rows, int cols, bool wide) {
  constexpr int VEC = vec_elems<T>, LINE = COLS / VEC, EACH = ROWS * LINE / threads;
  static_assert(ROWS * LINE % threads == 0, "every thread takes as many 16-byte pieces");
  constexpr int BATCH = EACH % AHEAD == 0 ? AHEAD : EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : EACH % 2 == 0 ? 2 : 1;
  if (wide) {
    constexpr bool EVEN = threads % LINE == 0;  // a thread keeps its columns
    constexpr int STEP = threads / LINE;
    const int line = static_cast<int>(threadIdx.x) / LINE, column = static_cast<int>(threadIdx.x) % LINE * VEC;
    const T* from = source + line * stride + column;
#pragma unroll 1
    for (int first = 0; first < EACH; first += BATCH) {
      uint4 piece[BATCH];  // as words: a Vec of 16-bit elements would take a register for each
#pragma unroll
      for (int n = 0; n < BATCH; ++n) {
        const int at = (first + n) * threads + static_cast<int>(threadIdx.x);
        const int r = EVEN ? line + (first + n) * STEP : at / LINE, c = EVEN ? column : at % LINE * VEC;
        piece[n] = uint4{0, 0, 0, 0};
        if (r < rows && c < cols) piece[n] = __ldg(reinterpret_cast<const uint4*>(EVEN ? from : source + r * stride + c));
        if (EVEN) from += STEP * stride;
      }
#pragma unroll
      for (int n = 0; n < BATCH; ++n) {
        const int at = (first + n) * threads + static_cast<int>(threadIdx.x);
        const int r = EVEN ? line + (first + n) * STEP : at / LINE, c = EVEN ? column : at % LINE * VEC;
        Vec<T, VEC> x;
        memcpy(&x, &piece[n], sizeof(x));
        store(tile + r * PITCH + c, to_acc(x));
      }
    }
  } else {
#pragma unroll 2
    for (int n = threadIdx.x; n < ROWS * COLS; n += threads) {
      const int r = n / COLS, c = n % COLS;
      tile[r * PITCH + c] = r < rows && c < cols ? to_acc(source[r * stride + c]) : acc_t<T>(0);
    }
  }
}

// ---- products -------------------------------------------------------------------------------------------------------

// s[i][j] += sum over COLS columns of x[row i] y[key j].
template <int R, int COLS, int XPITCH, int YPITCH, class A>
BARACUDA_D void multiply_scores(A (&s)[R][4], const A* x, const A* y) {
  constexpr int V = pad<A>;
  x += thread_row() * XPITCH;
  y += thread_col() * YPITCH;
#pragma unroll 1
  for (int d = 0; d < COLS; d += V) {  // one step is 64 or 128 multiply-adds: more at a time only takes registers
    Vec<A, V> key[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) key[j] = load<V>(y + 16 * j * YPITCH + d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const auto row = load<V>(x + 8 * i * XPITCH + d);
#pragma unroll
      for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] = math::fma(row[e], key[j][e], s[i][j]);
      }
    }
  }
}

// A thread's columns of an output tile: `per` in groups of `width` neighbours, group g at 16 width g + width c.
template <class A, int R, int D> struct Columns {
  static constexpr int per = D / 16;
  static constexpr int width = sizeof(A) == 4 && per % 4 == 0 ? 4 : 2;
  static constexpr int groups = per / width;
  static BARACUDA_HD constexpr int at_once(int outputs) {  // groups whose partial sums the accumulators leave room for
    const int words = static_cast<int>(sizeof(A)) / 4, room = per * R * words * outputs > 64 ? 32 : 64;
    int n = groups;
    while (groups % n != 0 || (n > 1 && n * width * R * words > room)) --n;
    return n;
  }
};

// acc[i] = acc[i] * factor(row i) + sum over ROWS values of p[row i][n] value[n]; the factors stand behind the weights, in
// the padding of p's rows, where they take no registers. With MASKED, value n adds nothing to row i unless seen(i, n), be
// it infinite or NaN; only tiles on the diagonal need that, so that form goes one value at a time and compiles fast.
template <int R, int D, int ROWS, bool MASKED, bool RESCALE, class A, class Seen>
BARACUDA_D void multiply_values(A (&acc)[R][D / 16], const A* p, const A* factor, const A* value, Seen seen) {
  using C = Columns<A, R, D>;
  constexpr bool FULL = C::per * R * static_cast<int>(sizeof(A)) > 384;  // accumulators leave room for fewer values
  constexpr int V = MASKED ? 1 : FULL ? pad<A> / 2 : pad<A>, W = C::width, N = C::at_once(RESCALE ? 1 : 2);
  p += thread_row() * score_pitch<A>;
  value += thread_col() * W;
#pragma unroll
  for (int group = 0; group < C::groups; group += N) {
    A part[R][N * W];
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int k = 0; k < N * W; ++k) part[i][k] = A(0);
    }
#pragma unroll 1
    for (int n = 0; n < ROWS; n += V) {
      Vec<A, W> v[V][N];
#pragma unroll
      for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int g = 0; g < N; ++g) v[e][g] = load<W>(value + (n + e) * D + (group + g) * 16 * W);
      }
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const auto weight = load<V>(p + 8 * i * score_pitch<A> + n);
        if constexpr (MASKED) {
          if (!seen(i, n)) continue;
        }
#pragma unroll
        for (int e = 0; e < V; ++e) {
#pragma unroll
          for (int k = 0; k < N * W; ++k) part[i][k] = math::fma(weight[e], v[e][k / W][k % W], part[i][k]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const A f = RESCALE ? factor[8 * i * score_pitch<A>] : A(1);
#pragma unroll
      for (int k = 0; k < N * W; ++k) acc[i][group * W + k] = math::fma(acc[i][group * W + k], f, part[i][k]);
    }
  }
}
struct AllSeen {
  BARACUDA_D bool operator()(int, int) const { return true; }
};

// Whether all of COUNT values are; all threads call, and all get the answer.
template <int COUNT, class A> BARACUDA_D bool all_finite(const A* values) {
  bool good = true;
#pragma unroll 4
  for (int n = threadIdx.x; n < COUNT; n += threads) good &= math::isfinite(values[n]);
  return __syncthreads_and(good);
}

// ---- registers to memory --------------------------------------------------------------------------------------------

// A score tile to shared memory, for multiply_values.
template <int R, class A> BARACUDA_D void put_scores(A* tile, const A (&s)[R][4]) {
  tile += thread_row() * score_pitch<A> + thread_col();
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[8 * i * score_pitch<A> + 16 * j] = s[i][j];
  }
}

// out[row i][column] = acc * factor[i] for rows < rows and columns < cols.
template <int R, int D, class T, class A>
BARACUDA_D void put_output(T* out, i64 stride, const A (&acc)[R][D / 16], const A (&factor)[R], int rows, int cols,
                           bool wide) {
  using C = Columns<A, R, D>;
  constexpr int W = C::width;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int r = thread_row() + 8 * i;
    if (r >= rows) continue;
#pragma unroll
    for (int g = 0; g < C::groups; ++g) {
      const int c = (16 * g + thread_col()) * W;
      Vec<A, W> x;
#pragma unroll
      for (int k = 0; k < W; ++k) x[k] = acc[i][g * W + k] * factor[i];
      T* to = out + r * stride + c;
      if (wide) store_vec<T, W, true>(to, from_acc<T>(x), cols - c);
      else store_vec<T, W, false>(to, from_acc<T>(x), cols - c);
    }
  }
}

}  // namespace baracuda::attention
