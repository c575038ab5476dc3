#pragma once
// backward   the gradients of rms_norm (CENTER false) and layer_norm (CENTER true).
//
//   xhat = (x - mean) * rstd,  g = dy * weight
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh,   dweight = sum over rows of dy * xhat,   dbias = of dy
//
// (rms_norm: no mean, no mean(g), no dbias.) dx: as in forward.cuh chunk c of a row belongs to lane c % LANES, and the
// order of its sums depends on the kernel alone. dweight and dbias: a thread adds the rows of its group in order, a
// block its groups in order, and `combine` the blocks, slices in order and then as a tree: no atomics, and an order
// that depends on the shape and on the number of multiprocessors.
#include "sums.cuh"

#include <baracuda/async_copy.cuh>

namespace baracuda::norm {

enum Operand { DY, X, WEIGHT, DH, DX };  // their indices in the row parameters

enum Want { want_weight = 1, want_bias = 2 };  // bits of p.want

// The statistics of a chunk's row.
template <class A> struct RowState {
  A mean, rstd;
};

template <bool CENTER, class A, class P> BARACUDA_D RowState<A> row_state(const P& p, i64 row, bool live) {
  RowState<A> s{0, 0};
  if (live) {
    s.rstd = __ldg(static_cast<const A*>(p.rstd) + row);
    if constexpr (CENTER) s.mean = __ldg(static_cast<const A*>(p.mean) + row);
  }
  return s;
}

template <bool CENTER, class A> BARACUDA_D A normalized(A x, const RowState<A>& s) {
  if constexpr (CENTER) x -= s.mean;
  return x * s.rstd;
}

// The state for a chunk of which `left` columns exist: beyond them dy is 0, and xhat is made 0 however large the mean
// is.
template <bool CENTER, bool WIDE, class A, int N, class L>
BARACUDA_D RowState<A> state_of(Vec<A, N>& x, RowState<A> s, L left) {
  if constexpr (CENTER) {
    if (left <= 0) s.rstd = 0;
    if constexpr (!WIDE) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (k >= left) x[k] = s.mean;
    }
  }
  return s;
}

// mean(g) and mean(g * xhat).
template <class A> struct Factors {
  A shift, slope;
};
template <class A> BARACUDA_D Factors<A> factors(Pair<A> sums, A inverse) {
  return {sums.a * inverse, sums.b * inverse};
}

template <bool CENTER, class A, int N>
BARACUDA_D Vec<A, N> gradient(const Vec<A, N>& dy, const Vec<A, N>& x, const Vec<A, N>& w, const RowState<A>& s,
                              const Factors<A>& f) {
  Vec<A, N> dx;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    A g = dy[k] * w[k];
    if constexpr (CENTER) g -= f.shift;  // before the product with rstd: exact where g equals its mean
    dx[k] = math::fma(-normalized<CENTER>(x[k], s), f.slope, g) * s.rstd;
  }
  return dx;
}

// (sum of g, sum of g * xhat) over a chunk. Columns beyond the row's end have dy = 0.
template <bool CENTER, class A, int N>
BARACUDA_D Pair<A> chunk_sums(const Vec<A, N>& dy, const Vec<A, N>& x, const Vec<A, N>& w, const RowState<A>& s) {
  Pair<A> sums{0, 0};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const A g = dy[k] * w[k];
    if constexpr (CENTER) sums.a += g;
    sums.b = math::fma(g, normalized<CENTER>(x[k], s), sums.b);
  }
  return sums;
}

template <bool CENTER, class A, int N>
BARACUDA_D void add_columns(Vec<A, N>& dw, Vec<A, N>& db, const Vec<A, N>& dy, const Vec<A, N>& x,
                            const RowState<A>& s) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    dw[k] = math::fma(dy[k], normalized<CENTER>(x[k], s), dw[k]);
    if constexpr (CENTER) db[k] += dy[k];
  }
}

template <class T, class W, bool CENTER, bool WIDE, class P, class L>
BARACUDA_D Vec<acc_t<T>, vec_elems<T>> weights_or_ones(const P& p, i64 col, L left) {
  using V = Vec<acc_t<T>, vec_elems<T>>;
  if (p.weight != nullptr) {
    V weights = load_weights<T, W, WIDE>(p, WEIGHT, p.weight, col, left);
    shift_weights<CENTER>(p, weights);
    return weights;
  }
  V ones;
#pragma unroll
  for (int k = 0; k < V::size; ++k) ones[k] = 1;
  return ones;
}

// ---- rows streaming through a ring in shared memory -----------------------------------------------------------------

// Writes a block's sums of one column vector from its groups' registers to row blockIdx.x of the workspace.
template <int THREADS, int LANES, int CHUNKS, class A, int N>
BARACUDA_D void write_sums(void* sums, i64 pitch, const Vec<A, N> (&part)[CHUNKS], A* board) {
  A* const out = static_cast<A*>(sums) + blockIdx.x * pitch;
  if constexpr (THREADS == LANES) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const int col = (c * LANES + static_cast<int>(threadIdx.x)) * N;
      if (col < pitch) store(out + col, part[c]);
    }
  } else {
    __syncthreads();
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
      for (int k = 0; k < N; ++k) board[(c * N + k) * THREADS + threadIdx.x] = part[c][k];
    __syncthreads();
    for (int col = threadIdx.x; col < LANES * CHUNKS * N && col < pitch; col += THREADS) {
      const int k = col % N, lane = col / N % LANES, c = col / N / LANES;
      A sum = 0;
#pragma unroll 4
      for (int g = 0; g < THREADS / LANES; ++g) sum += board[(c * N + k) * THREADS + g * LANES + lane];
      out[col] = sum;
    }
  }
}

// Blocks are persistent; tile t (TILE rows) belongs to block t % gridDim.x. dy, x and dh of the next STAGES - 1 tiles
// are in flight into the ring while one is computed. A thread copies exactly the chunks it will use, so the only
// barriers are those of the sums.
template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int STAGES, bool CENTER, bool WIDE, class P>
BARACUDA_D void pipe(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, GROUPS = THREADS / LANES, TILE = GROUPS * ROWS, HELD = ROWS * CHUNKS;
  constexpr bool KEEP = CHUNKS <= 2;  // weights and the row stay in registers; else they are read again where used
  using V = Vec<A, VEC>;
  BARACUDA_DYNAMIC_SMEM(Chunk, ring);
  constexpr int WARPS = LANES > warp_size ? LANES / warp_size : 1;
  __shared__ __align__(16) unsigned char boards[2 * WARPS * sizeof(Pair<A>)];  // used in turn

  const int group = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
  const int cols = static_cast<int>(p.cols), operands = p.dh == nullptr ? 2 : 3;
  const A inverse = A(1) / static_cast<A>(cols);
  const i64 tiles = (p.rows + TILE - 1) / TILE;
  auto row_of = [&](i64 tile, int r) { return tile * TILE + r * GROUPS + group; };
  auto slot = [&](int stage, int operand, int i) -> Chunk& {
    return ring[((stage * operands + operand) * HELD + i) * THREADS + threadIdx.x];
  };
  auto left_at = [&](int c) { return cols - (c * LANES + lane) * VEC; };
  auto weights = [&](int c) { return weights_or_ones<T, W, CENTER, WIDE>(p, (c * LANES + lane) * VEC, left_at(c)); };

  auto request = [&](i64 tile, int stage) {  // always commits a group, possibly empty: waits count groups
    constexpr int UR = WIDE ? ROWS : 1, UC = WIDE ? CHUNKS : 1;
    if (tile < tiles) {
#pragma unroll UR
      for (int r = 0; r < ROWS; ++r) {
        const i64 row = row_of(tile, r);
        const bool live = row < p.rows;
        const RowAt<WIDE> at(p, live ? row : tile * TILE);
#pragma unroll 1
        for (int o = 0; o < operands; ++o) {
          const int n = o == 2 ? DH : o;
          const T* const base = static_cast<const T*>(o == 0 ? p.dy : o == 1 ? p.x : p.dh) + at.offset(p, n);
#pragma unroll UC
          for (int c = 0; c < CHUNKS; ++c) {
            const int col = (c * LANES + lane) * VEC, left = live ? cols - col : 0;
            Chunk& to = slot(stage, o, r * CHUNKS + c);
            if constexpr (WIDE) cp_async_16(&to, base + (left > 0 ? col : 0), left > 0);
            else to = load_chunk<T, false>(p, n, base, col, left);
          }
        }
      }
    }
    cp_async_commit();
  };

  V w[KEEP ? CHUNKS : 1], dw[CHUNKS], db[CENTER ? CHUNKS : 1];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if constexpr (KEEP) w[c] = weights(c);
    dw[c] = V{};
    if constexpr (CENTER) db[c] = V{};
  }
  RowState<A> next[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    next[r] = row_state<CENTER, A>(p, row_of(blockIdx.x, r), row_of(blockIdx.x, r) < p.rows);
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; ++s) request(blockIdx.x + s * i64(gridDim.x), s);

  int stage = 0, turn = 0;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    request(tile + (STAGES - 1) * i64(gridDim.x), stage == 0 ? STAGES - 1 : stage - 1);  // into the slots used last
    RowState<A> s[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      s[r] = next[r];
      const i64 row = row_of(tile + gridDim.x, r);
      next[r] = row_state<CENTER, A>(p, row, row < p.rows);
    }
    cp_async_wait<STAGES - 1>();

    Chunk dy[KEEP ? HELD : 1], x[KEEP ? HELD : 1];
    Factors<A> f[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      Pair<A> sums{0, 0};
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        const int i = r * CHUNKS + c, k = KEEP ? i : 0;
        dy[k] = slot(stage, 0, i);
        x[k] = slot(stage, 1, i);
        const V from = widen_chunk<T>(dy[k]);
        V at = widen_chunk<T>(x[k]);
        const RowState<A> here = state_of<CENTER, WIDE>(at, s[r], left_at(c));
        V weight;
        if constexpr (KEEP) weight = w[c];
        else weight = weights(c);
        sums = SumPair::apply(sums, chunk_sums<CENTER>(from, at, weight, here));
        add_columns<CENTER>(dw[c], db[CENTER ? c : 0], from, at, here);
      }
      f[r] = factors(lanes_reduce<SumPair, LANES>(sums, reinterpret_cast<Pair<A>*>(boards) + turn * WARPS), inverse);
      turn ^= 1;
    }
    if (p.dx != nullptr) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const i64 row = row_of(tile, r);
        const bool live = row < p.rows;
        const RowAt<WIDE> at(p, live ? row : tile * TILE);
        T* const out = static_cast<T*>(p.dx) + at.offset(p, DX);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const int i = r * CHUNKS + c, k = KEEP ? i : 0;
          if constexpr (KEEP) {
            keep_packed(dy[k]);
            keep_packed(x[k]);
          } else {
            dy[k] = slot(stage, 0, i);
            x[k] = slot(stage, 1, i);
          }
          V weight;
          if constexpr (KEEP) weight = w[c];
          else weight = weights(c);
          V dx = gradient<CENTER>(widen_chunk<T>(dy[k]), widen_chunk<T>(x[k]), weight, s[r], f[r]);
          if (operands == 3) {
            const V more = widen_chunk<T>(slot(stage, 2, i));
#pragma unroll
            for (int e = 0; e < VEC; ++e) dx[e] += more[e];
          }
          const Chunk result = pack<T>(from_acc<T>(dx));
          if constexpr (WIDE) store_chunk<T, true>(p, DX, out, (c * LANES + lane) * VEC, result, live ? left_at(c) : 0);
          else slot(stage, 0, i) = result;
        }
      }
      if constexpr (!WIDE) {  // from the slots in a rolled loop, as the addresses of strided columns are much code
#pragma unroll 1
        for (int i = 0; i < HELD; ++i) {
          const i64 row = row_of(tile, i / CHUNKS);
          if (row >= p.rows) break;
          T* const out = static_cast<T*>(p.dx) + RowAt<false>(p, row).offset(p, DX);
          const int c = i % CHUNKS;
          store_chunk<T, false>(p, DX, out, (c * LANES + lane) * VEC, slot(stage, 0, i), left_at(c));
        }
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }

  cp_async_wait<0>();
  // the ring is free; THREADS * CHUNKS * VEC values are two chunks a thread
  A* const table = reinterpret_cast<A*>(ring);
  if (p.want & want_weight) write_sums<THREADS, LANES, CHUNKS>(p.dweight_sums, p.pitch, dw, table);
  if constexpr (CENTER) {
    if (p.want & want_bias) write_sums<THREADS, LANES, CHUNKS>(p.dbias_sums, p.pitch, db, table);
  }
}

// ---- rows of any length ---------------------------------------------------------------------------------------------

// dx: one block for each row, read twice, the second time mostly from L2.
template <class T, class W, int THREADS, bool CENTER, bool WIDE, class P> BARACUDA_D void loop(const P& p) {
  using A = acc_t<T>;
  using V = Vec<A, vec_elems<T>>;
  constexpr int VEC = vec_elems<T>, BATCH = WIDE ? 4 : 1;
  constexpr i64 STEP = THREADS * VEC;

  for (i64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const RowAt<WIDE> at(p, row);
    const T* const dy = static_cast<const T*>(p.dy) + at.offset(p, DY);
    const T* const x = static_cast<const T*>(p.x) + at.offset(p, X);
    const RowState<A> s = row_state<CENTER, A>(p, row, true);
    // Calls f(column, columns left, dy, x, weight) for this thread's chunks in order.
    auto each = [&](auto f) {
#pragma unroll 1
      for (i64 start = threadIdx.x * VEC; start < p.cols; start += BATCH * STEP) {
        Chunk a[BATCH], b[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
          const i64 col = start + i * STEP;
          a[i] = load_chunk<T, WIDE>(p, DY, dy, col, p.cols - col);
          b[i] = load_chunk<T, WIDE>(p, X, x, col, p.cols - col);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
          const i64 col = start + i * STEP, left = p.cols - col;
          if (left > 0)
            f(col, left, widen_chunk<T>(a[i]), widen_chunk<T>(b[i]), weights_or_ones<T, W, CENTER, WIDE>(p, col, left));
        }
      }
    };
    Pair<double> total{0, 0};
    each([&](i64, i64 left, const V& from, V at_x, const V& weight) {
      const RowState<A> here = state_of<CENTER, WIDE>(at_x, s, left);
      const Pair<A> sums = chunk_sums<CENTER>(from, at_x, weight, here);
      total = SumPair::apply(total, Pair<double>{double(sums.a), double(sums.b)});
    });
    total = block_reduce<SumPair, THREADS>(total);
    const double count = static_cast<double>(p.cols);
    const Pair<A> means{static_cast<A>(total.a / count), static_cast<A>(total.b / count)};
    const Factors<A> f = factors(means, A(1));
    T* const out = static_cast<T*>(p.dx) + at.offset(p, DX);
    each([&](i64 col, i64 left, const V& from, const V& at_x, const V& weight) {
      V dx = gradient<CENTER>(from, at_x, weight, s, f);
      if (p.dh != nullptr) {
        const T* const dh = static_cast<const T*>(p.dh) + at.offset(p, DH);
        const V more = widen_chunk<T>(load_chunk<T, WIDE>(p, DH, dh, col, left));
#pragma unroll
        for (int k = 0; k < VEC; ++k) dx[k] += more[k];
      }
      store_chunk<T, WIDE>(p, DX, out, col, pack<T>(from_acc<T>(dx)), left);
    });
  }
}

// The sums over rows: block (x, y) takes THREADS chunks of columns and the rows y, y + gridDim.y, ….
template <class T, int THREADS, bool CENTER, bool WIDE, class P> BARACUDA_D void columns(const P& p) {
  using A = acc_t<T>;
  using V = Vec<A, vec_elems<T>>;
  constexpr int VEC = vec_elems<T>, BATCH = WIDE ? 4 : 1;
  const i64 col = (i64(blockIdx.x) * THREADS + threadIdx.x) * VEC, left = p.cols - col;
  if (left <= 0) return;
  V dw{}, db{};
#pragma unroll 1
  for (i64 first = blockIdx.y; first < p.rows; first += i64(gridDim.y) * BATCH) {
    Chunk dy[BATCH], x[BATCH];
    RowState<A> s[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const i64 row = first + i * i64(gridDim.y);
      const bool live = row < p.rows;
      const RowAt<WIDE> at(p, live ? row : first);
      dy[i] = load_chunk<T, WIDE>(p, DY, static_cast<const T*>(p.dy) + at.offset(p, DY), col, live ? left : 0);
      x[i] = load_chunk<T, WIDE>(p, X, static_cast<const T*>(p.x) + at.offset(p, X), col, live ? left : 0);
      s[i] = row_state<CENTER, A>(p, row, live);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      V at = widen_chunk<T>(x[i]);
      const RowState<A> here = state_of<CENTER, WIDE>(at, s[i], left);
      add_columns<CENTER>(dw, db, widen_chunk<T>(dy[i]), at, here);
    }
  }
  if (p.want & want_weight) store(static_cast<A*>(p.dweight_sums) + blockIdx.y * p.pitch + col, dw);
  if (CENTER && (p.want & want_bias)) store(static_cast<A*>(p.dbias_sums) + blockIdx.y * p.pitch + col, db);
}

// ---- sums of the blocks ---------------------------------------------------------------------------------------------

// A block takes 32 columns; warp w adds the splits w, w + 32, … in order, then warp c adds the 32 slices of column c as
// a tree. blockIdx.y: dweight, dbias.
template <class T, class W, int THREADS, bool CENTER, class P> BARACUDA_D void combine(const P& p) {
  using A = acc_t<T>;
  static_assert(THREADS == 1024, "a warp for each of 32 slices and each of 32 columns");
  __shared__ A slices[32][33];
  const int n = blockIdx.y, warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id();
  void* out = p.dweight;
  if constexpr (CENTER) out = n == 0 ? p.dweight : p.dbias;
  if (out == nullptr) return;
  const A* const sums = static_cast<const A*>(n == 0 ? p.dweight_sums : p.dbias_sums);
  const i64 first = i64(blockIdx.x) * 32;
  A sum = 0;
  if (first + lane < p.cols) {
#pragma unroll 8
    for (i64 split = warp; split < p.splits; split += 32) sum += sums[split * p.pitch + first + lane];
  }
  slices[warp][lane] = sum;
  __syncthreads();
  sum = warp_reduce<Sum>(slices[lane][warp]);
  const i64 col = first + warp;
  if (lane == 0 && col < p.cols) static_cast<W*>(out)[column_offset<false>(p, n, col)] = from_acc<W>(sum);
}

}  // namespace baracuda::norm
