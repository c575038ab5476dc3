#pragma once
// forward    the rows of rms_norm (CENTER false) and layer_norm (CENTER true), with an optional residual added first.
//
//   h = round(x + residual);  mean, rstd of h over the row;  y = (h - mean) * rstd * weight + bias
//
// A row is cut into chunks of 16 bytes of x; chunk c belongs to lane c % LANES. A sum runs over the elements of a
// chunk, over a lane's chunks, then over the lanes as a tree: its order depends on the kernel (so on the number of
// columns) alone; neither alignment, nor strides, nor the number of rows change a bit.
#include "range.cuh"

#include <baracuda/async_copy.cuh>

namespace baracuda::norm {

BARACUDA_D i64 grid_block() { return i64(blockIdx.y) * gridDim.x + blockIdx.x; }

template <bool WIDE, class L> struct Place {
  RowAt<WIDE> row;
  i64 col;
  L left;  // columns of the row from col on; <= 0: none
};

// Whether a kernel adds a residual: fixed at compile time, or known at run time.
enum Add { add_never, add_always, add_maybe };

template <int ADD, class P> BARACUDA_D bool adds(const P& p) {
  if constexpr (ADD == add_maybe) return p.residual != nullptr;
  else return ADD == add_always;
}

// Adds the residual, if there is one, to N chunks; the sums are rounded to the element, and written where h is wanted.
// place(i) is the place of chunk i.
template <class T, bool WIDE, int N, int MOST, class P, class F>
BARACUDA_D void add_residual(const P& p, Chunk (&v)[N], F place) {
  const T* const residual = static_cast<const T*>(p.residual);
  T* const h = static_cast<T*>(p.h);
  constexpr int BATCH = WIDE ? MOST : 1, UNROLL = WIDE ? N / BATCH : 1;  // batches bound the registers
#pragma unroll UNROLL
  for (int i0 = 0; i0 < N; i0 += BATCH) {
    Chunk other[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const auto at = place(i0 + i);
      const T* const base = residual + at.row.offset(p, RESIDUAL);
      other[i] = load_chunk<T, WIDE, Access::streaming>(p, RESIDUAL, base, at.col, at.left);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      auto sum = widen_chunk<T>(v[i0 + i]);
      const auto term = widen_chunk<T>(other[i]);
#pragma unroll
      for (int k = 0; k < sum.size; ++k) sum[k] += term[k];
      v[i0 + i] = pack<T>(from_acc<T>(sum));
      const auto at = place(i0 + i);
      if (h != nullptr) store_chunk<T, WIDE>(p, H, h + at.row.offset(p, H), at.col, v[i0 + i], at.left);
    }
  }
}

// v - mean; zero beyond the row's end (where v is zero).
template <bool WIDE, class A, int VEC, class L>
BARACUDA_D Vec<A, VEC> deviations(const Vec<A, VEC>& v, A mean, L left) {
  const A m = left > 0 ? mean : A(0);
  Vec<A, VEC> d;
#pragma unroll
  for (int k = 0; k < VEC; ++k) d[k] = v[k] - m;
  if (!WIDE && left > 0 && left < VEC) {
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      if (k >= left) d[k] = A(0);
  }
  return d;
}

template <class A, int VEC> BARACUDA_D A chunk_squares(const Vec<A, VEC>& v) {
  A sum = v[0] * v[0];
#pragma unroll
  for (int k = 1; k < VEC; ++k) sum = math::fma(v[k], v[k], sum);
  return sum;
}

// Weight and bias of one chunk of columns, for any number of rows.
template <class T, class W, bool CENTER, bool WIDE> struct Affine {
  using V = Vec<acc_t<T>, vec_elems<T>>;
  V weight, bias;

  template <class P, class L> BARACUDA_D void load(const P& p, i64 col, L left) {
    if (p.weight != nullptr) {
      weight = load_weights<T, W, WIDE>(p, WEIGHT, p.weight, col, left);
      shift_weights<CENTER>(p, weight);
    }
    if constexpr (CENTER) {
      if (p.bias != nullptr) bias = load_weights<T, W, WIDE>(p, BIAS, p.bias, col, left);
    }
  }
  template <class P> BARACUDA_D Chunk apply(const P& p, V y) const {
    bool shifts = false;
    if constexpr (CENTER) shifts = p.bias != nullptr;
    if (p.weight != nullptr) {
#pragma unroll
      for (int k = 0; k < V::size; ++k) y[k] = shifts ? math::fma(y[k], weight[k], bias[k]) : y[k] * weight[k];
    } else if (shifts) {
#pragma unroll
      for (int k = 0; k < V::size; ++k) y[k] += bias[k];
    }
    return pack<T>(from_acc<T>(y));
  }
};

// The mean is kept as mean + low, so that y keeps its digits when the mean is large.
template <class A> struct Statistics {
  A mean, low, rstd;
};

template <bool CENTER, class A, int VEC> BARACUDA_D Vec<A, VEC> normalize(Vec<A, VEC> v, const Statistics<A>& s) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) v[k] = CENTER ? (v[k] - s.mean - s.low) * s.rstd : v[k] * s.rstd;
  return v;
}

template <bool CENTER, class A, class P> BARACUDA_D void save(const P& p, i64 row, const Statistics<A>& s) {
  if (p.rstd != nullptr) static_cast<A*>(p.rstd)[row] = s.rstd;
  if constexpr (CENTER) {
    if (p.mean != nullptr) static_cast<A*>(p.mean)[row] = math::isfinite(s.mean) ? s.mean + s.low : s.mean;
  }
}

// ---- rows held in registers -----------------------------------------------------------------------------------------

// Two buffers in shared memory for the sums of one row, used in turn: whoever writes one has passed a barrier since it
// was read.
template <class A, int LANES> struct Boards {
  static constexpr int warps = LANES > warp_size ? LANES / warp_size : 1;
  Pair<A>* at;
  int turn;
  BARACUDA_D explicit Boards(unsigned char* memory) : at(reinterpret_cast<Pair<A>*>(memory)), turn(0) {}
  template <class V> BARACUDA_D V* next() {
    turn ^= 1;
    return reinterpret_cast<V*>(at + turn * warps);
  }
  static constexpr int bytes = 2 * warps * static_cast<int>(sizeof(Pair<A>));
};

template <bool WIDE, int HELD> BARACUDA_D void keep_all_packed(Chunk (&v)[HELD]) {
  if constexpr (WIDE) {
#pragma unroll
    for (int i = 0; i < HELD; ++i) keep_packed(v[i]);
  }
}

// Computes the statistics of ROWS rows; chunk r * CHUNKS + c of v is the lane's c-th of row r, and left(r, c) columns
// of it exist. Bit r of the result: row r left the range of the accumulator.
template <class T, int LANES, int CHUNKS, bool CENTER, bool WIDE, class A, int HELD, int ROWS, class P, class F>
BARACUDA_D u32 statistics(const P& p, Chunk (&v)[HELD], Statistics<A> (&s)[ROWS], Boards<A, LANES>& boards, F left) {
  constexpr int UR = WIDE ? ROWS : 1, UC = WIDE ? CHUNKS : 1;  // unrolled, or v would be in local memory
  // 16-bit x does not see the last bits of a float32 mean: its own last bit is 2^13 times as coarse, or more.
  constexpr bool LOW = sizeof(T) > 2;
  const A count = static_cast<A>(static_cast<int>(p.cols)), inverse = A(1) / count;
  keep_all_packed<WIDE>(v);
#pragma unroll UR
  for (int r = 0; r < ROWS; ++r) {
    A sum = 0;
#pragma unroll UC
    for (int c = 0; c < CHUNKS; ++c) {
      const auto e = widen_chunk<T>(v[r * CHUNKS + c]);
      sum += CENTER ? tree_reduce<Sum>(e) : chunk_squares(e);
    }
    s[r].mean = lanes_reduce<Sum, LANES>(sum, boards.template next<A>()) / count;
  }
  keep_all_packed<WIDE>(v);
  u32 lost = 0;
#pragma unroll UR
  for (int r = 0; r < ROWS; ++r) {
    A variance = s[r].mean;
    s[r].low = 0;
    if constexpr (CENTER) {
      Pair<A> sum{0, 0};
#pragma unroll UC
      for (int c = 0; c < CHUNKS; ++c) {
        const auto d = deviations<WIDE>(widen_chunk<T>(v[r * CHUNKS + c]), s[r].mean, left(r, c));
        if constexpr (LOW) sum.a += tree_reduce<Sum>(d);
        sum.b += chunk_squares(d);
      }
      if constexpr (LOW) {
        sum = lanes_reduce<SumPair, LANES>(sum, boards.template next<Pair<A>>());
        const A low = sum.a / count;  // for equal deviations exactly their value, so that the variance is 0
        variance = (sum.b - sum.a * low) * inverse;
        if (variance < A(0)) variance = A(0);
        s[r].low = mean_tail(s[r].mean, low, variance);
      } else {
        variance = lanes_reduce<Sum, LANES>(sum.b, boards.template next<A>()) * inverse;
      }
    }
    const A spread = variance + static_cast<A>(p.eps);
    s[r].rstd = A(1) / math::sqrt(spread);
    if (leaves_range<T> && !in_range(spread)) lost |= 1u << r;
  }
  keep_all_packed<WIDE>(v);
  return lost;
}

// Each group of LANES threads holds ROWS rows of at most LANES * CHUNKS chunks in registers: x is read once.
template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int ADD, bool CENTER, bool WIDE, class P>
BARACUDA_D void row(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, GROUPS = THREADS / LANES, TILE = GROUPS * ROWS, HELD = ROWS * CHUNKS;
  constexpr int U = WIDE ? HELD : 1, UR = WIDE ? ROWS : 1, UC = WIDE ? CHUNKS : 1;
  __shared__ __align__(16) unsigned char memory[Boards<A, LANES>::bytes];
  Boards<A, LANES> boards(memory);
  const int group = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
  const int cols = static_cast<int>(p.cols);

  const i64 first = grid_block() * TILE;
  if (first >= p.rows) return;
  const i64 mine = first + group;  // this group's rows are mine, mine + GROUPS, mine + 2 GROUPS, …
  auto live = [&](int r) { return TILE == 1 || mine + r * GROUPS < p.rows; };
  RowAt<WIDE> rows[ROWS];
#pragma unroll UR
  for (int r = 0; r < ROWS; ++r) rows[r] = RowAt<WIDE>(p, live(r) ? mine + r * GROUPS : first);
  auto place = [&](int i) {  // of chunk i of the HELD ones
    const int r = i / CHUNKS, col = ((i % CHUNKS) * LANES + lane) * VEC;
    return Place<WIDE, int>{rows[r], col, live(r) ? cols - col : 0};
  };
  Chunk v[HELD];
#pragma unroll U
  for (int i = 0; i < HELD; ++i) {
    const auto at = place(i);
    const T* const base = static_cast<const T*>(p.x) + at.row.offset(p, X);
    v[i] = load_chunk<T, WIDE, Access::streaming>(p, X, base, at.col, at.left);
  }
  if (adds<ADD>(p)) add_residual<T, WIDE, HELD, (HELD < 4 ? HELD : 4)>(p, v, place);

  Statistics<A> s[ROWS];
  const u32 lost = statistics<T, LANES, CHUNKS, CENTER, WIDE>(p, v, s, boards,
                                                              [&](int r, int c) { return place(r * CHUNKS + c).left; });
  auto kept = [&](int r) { return !leaves_range<T> || !(lost >> r & 1); };
#pragma unroll UR
  for (int r = 0; r < ROWS; ++r) {
    if (lane == 0 && mine + r * GROUPS < p.rows && kept(r)) save<CENTER>(p, mine + r * GROUPS, s[r]);
  }
#pragma unroll UC
  for (int c = 0; c < CHUNKS; ++c) {
    const int col = (c * LANES + lane) * VEC;
    Affine<T, W, CENTER, WIDE> affine;
    affine.load(p, col, cols - col);
#pragma unroll UR
    for (int r = 0; r < ROWS; ++r) {
      const auto at = place(r * CHUNKS + c);
      const auto y = affine.apply(p, normalize<CENTER>(widen_chunk<T>(v[r * CHUNKS + c]), s[r]));
      T* const base = static_cast<T*>(p.y) + at.row.offset(p, Y);
      store_chunk<T, WIDE>(p, Y, base, at.col, y, kept(r) ? at.left : 0);
    }
  }
  rescue<T, W, LANES, ROWS, CENTER, WIDE>(p, lost, mine, GROUPS, lane);
}

// ---- rows streaming through a ring in shared memory -----------------------------------------------------------------

// `row` for many dense rows without a residual, with the same bits. Blocks are persistent and keep the weights of their
// columns in registers; tile t (TILE rows) belongs to block t % gridDim.x. The next STAGES - 1 tiles are in flight
// while one is computed. A thread copies exactly the chunks it will use, so the only barriers are those of the sums.
template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int STAGES, bool CENTER, class P>
BARACUDA_D void stream(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, GROUPS = THREADS / LANES, TILE = GROUPS * ROWS, HELD = ROWS * CHUNKS;
  BARACUDA_DYNAMIC_SMEM(Chunk, ring);
  __shared__ __align__(16) unsigned char memory[Boards<A, LANES>::bytes];
  Boards<A, LANES> boards(memory);
  const int group = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
  const int cols = static_cast<int>(p.cols);
  const i64 tiles = (p.rows + TILE - 1) / TILE;
  auto row_of = [&](i64 tile, int r) { return tile * TILE + r * GROUPS + group; };
  auto slot = [&](int stage, int i) -> Chunk& { return ring[(stage * HELD + i) * THREADS + threadIdx.x]; };
  auto column = [&](int c) { return (c * LANES + lane) * VEC; };

  auto request = [&](i64 tile, int stage) {  // always commits a group, possibly empty: waits count groups
    if (tile < tiles) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const i64 row = row_of(tile, r);
        const bool live = row < p.rows;
        const T* const base = static_cast<const T*>(p.x) + RowAt<true>(p, live ? row : tile * TILE).offset(p, X);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const bool valid = live && column(c) < cols;
          cp_async_16(&slot(stage, r * CHUNKS + c), base + (valid ? column(c) : 0), valid);
        }
      }
    }
    cp_async_commit();
  };

#pragma unroll 1
  for (int s = 0; s < STAGES - 1; ++s) request(blockIdx.x + s * i64(gridDim.x), s);
  Affine<T, W, CENTER, true> affine[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) affine[c].load(p, column(c), cols - column(c));

  int stage = 0;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    request(tile + (STAGES - 1) * i64(gridDim.x), stage == 0 ? STAGES - 1 : stage - 1);  // into the slots used last
    cp_async_wait<STAGES - 1>();
    Chunk v[HELD];
#pragma unroll
    for (int i = 0; i < HELD; ++i) v[i] = slot(stage, i);
    Statistics<A> s[ROWS];
    const u32 lost =
        statistics<T, LANES, CHUNKS, CENTER, true>(p, v, s, boards, [&](int, int c) { return cols - column(c); });
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const i64 row = row_of(tile, r);
      if (row >= p.rows || (leaves_range<T> && lost >> r & 1)) continue;
      if (lane == 0) save<CENTER>(p, row, s[r]);
      T* const out = static_cast<T*>(p.y) + RowAt<true>(p, row).offset(p, Y);
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        const auto y = affine[c].apply(p, normalize<CENTER>(widen_chunk<T>(v[r * CHUNKS + c]), s[r]));
        store_chunk<T, true>(p, Y, out, column(c), y, cols - column(c));
      }
    }
    rescue<T, W, LANES, ROWS, CENTER, true>(p, lost, row_of(tile, 0), GROUPS, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
}

// ---- rows of any length ---------------------------------------------------------------------------------------------

// One block for each row, which is read twice: the second time mostly from L2. A thread takes batches of BATCH chunks.
template <class T, class W, int THREADS, int ADD, bool CENTER, bool WIDE, class P> BARACUDA_D void loop(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, BATCH = 4, U = WIDE ? BATCH : 1;
  constexpr i64 STEP = THREADS * VEC;
  const double count = static_cast<double>(p.cols);

  const i64 row = grid_block();
  if (row >= p.rows) return;
  Statistics<A> s{0, 0, 0};
  // Calls f(batch, its first column) for this thread's batches in order. A batch is of x, with the residual added; on
  // later passes it is read from h where that was written (it may have replaced x).
  const RowAt<WIDE> at(p, row);
  auto each = [&](bool again, auto f) {
    for (i64 start = threadIdx.x * VEC; start < p.cols; start += BATCH * STEP) {
      auto place = [&](int i) { return Place<WIDE, i64>{at, start + i * STEP, p.cols - start - i * STEP}; };
      const bool stored = again && adds<ADD>(p) && p.h != nullptr;
      const int n = stored ? H : X;
      const T* const base = static_cast<const T*>(stored ? p.h : p.x) + at.offset(p, n);
      Chunk v[BATCH];
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) v[i] = load_chunk<T, WIDE>(p, n, base, place(i).col, place(i).left);
      if (adds<ADD>(p) && !stored) add_residual<T, WIDE, BATCH, BATCH>(p, v, place);
      f(v, start);
    }
  };
  // Adds the sums of a batch's deviations from the mean, and of their squares.
  auto add_deviations = [&](Pair<A>& sums, const Chunk(&v)[BATCH], i64 start, A mean) {
#pragma unroll U
    for (int i = 0; i < BATCH; ++i) {
      const auto d = deviations<WIDE>(widen_chunk<T>(v[i]), mean, p.cols - start - i * STEP);
      sums = SumPair::apply(sums, Pair<A>{tree_reduce<Sum>(d), chunk_squares(d)});
    }
  };
  A variance;
  if constexpr (CENTER && is_same<A, double>) {  // sums have no wider type: the mean is computed first
    A sum = 0;
    each(false, [&](const Chunk(&v)[BATCH], i64) {
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) sum += tree_reduce<Sum>(widen_chunk<T>(v[i]));
    });
    s.mean = block_reduce<Sum, THREADS>(sum) / count;
    Pair<A> dev{0, 0};
    each(true, [&](const Chunk(&v)[BATCH], i64 start) { add_deviations(dev, v, start, s.mean); });
    dev = block_reduce<SumPair, THREADS>(dev);
    const A low = dev.a / count;
    variance = (dev.b - dev.a * low) / count;
    s.low = mean_tail(s.mean, low, variance);
  } else if constexpr (CENTER) {
    Moments<double> total{0, 0, 0};
    each(false, [&](const Chunk(&v)[BATCH], i64 start) {
      A sum = 0;
      int elements = 0;
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) {
        const i64 left = p.cols - start - i * STEP;
        elements += left >= VEC ? VEC : left > 0 ? static_cast<int>(left) : 0;
        sum += tree_reduce<Sum>(widen_chunk<T>(v[i]));
      }
      const A n = static_cast<A>(elements), mean = sum / n;
      Pair<A> dev{0, 0};
      add_deviations(dev, v, start, mean);
      const A low = dev.a / n;
      const A m2 = dev.b - dev.a * low, tail = math::isfinite(mean) ? mean_tail(mean, low, m2 / n) : A(0);
      total = MergeMoments::apply(total, Moments<double>{double(mean) + double(tail), double(m2), double(n)});
    });
    total = block_reduce<MergeMoments, THREADS>(total);
    s.mean = static_cast<A>(total.mean);
    s.low = static_cast<A>(total.mean - double(s.mean));
    variance = static_cast<A>(total.m2 / count);
  } else {
    double total = 0;
    each(false, [&](const Chunk(&v)[BATCH], i64) {
      A sum = 0;
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) sum += chunk_squares(widen_chunk<T>(v[i]));
      total += double(sum);
    });
    variance = static_cast<A>(block_reduce<Sum, THREADS>(total) / count);
  }
  if (variance < A(0)) variance = A(0);
  const A spread = variance + static_cast<A>(p.eps);
  if (leaves_range<T> && !in_range(spread)) {
    rescue<T, W, THREADS, 1, CENTER, WIDE>(p, 1u, row, 1, static_cast<int>(threadIdx.x));
    return;
  }
  s.rstd = A(1) / math::sqrt(spread);
  if (threadIdx.x == 0) save<CENTER>(p, row, s);
  T* const out = static_cast<T*>(p.y) + at.offset(p, Y);
  each(true, [&](const Chunk(&v)[BATCH], i64 start) {
#pragma unroll U
    for (int i = 0; i < BATCH; ++i) {
      const i64 col = start + i * STEP, left = p.cols - col;
      if (left <= 0) continue;
      Affine<T, W, CENTER, WIDE> affine;
      affine.load(p, col, left);
      store_chunk<T, WIDE>(p, Y, out, col, affine.apply(p, normalize<CENTER>(widen_chunk<T>(v[i]), s)), left);
    }
  });
}

}  // namespace baracuda::norm
