#pragma once
// forward    the rows of rms_norm (CENTER false) and layer_norm (CENTER true), with an optional residual added first.
//
//   h = round(x + residual);  mean, rstd of h over the row;  y = (h - mean) * rstd * weight + bias
//
// A row is cut into chunks of 16 bytes of x; chunk c belongs to lane c % LANES. A sum runs over the elements of a chunk,
// over a lane's chunks, then over the lanes as a tree: its order depends on the kernel (so on the number of columns)
// alone, and neither alignment, nor strides, nor the number of rows change a bit.
#include "sums.cuh"

namespace baracuda::norm {

enum Operand { X, RESIDUAL, WEIGHT, BIAS, Y, H };  // their places in the row parameters

template <bool WIDE, class L> struct Place {
  RowAt<WIDE> row;
  i64 col;
  L left;  // columns of the row from col on; <= 0: nothing to touch
};

// The residual, if there is one, added to N chunks; the sums are rounded to the element, and written where h is wanted.
// place(i) says where chunk i stands.
template <class T, int VEC, bool WIDE, int N, int MOST, class P, class F>
BARACUDA_D void add_residual(const P& p, Vec<T, VEC> (&v)[N], F place) {
  const T* const residual = static_cast<const T*>(p.residual);
  T* const h = static_cast<T*>(p.h);
  constexpr int BATCH = WIDE ? MOST : 1, UNROLL = WIDE ? N / BATCH : 1;
#pragma unroll UNROLL
  for (int i0 = 0; i0 < N; i0 += BATCH) {  // batches bound the registers, BATCH loads are in flight
    Vec<T, VEC> other[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const auto at = place(i0 + i);
      other[i] = load_columns<T, VEC, WIDE, Access::streaming>(p, RESIDUAL, residual + at.row.offset(p, RESIDUAL),
                                                              at.col, at.left);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      auto sum = to_acc(v[i0 + i]);
      const auto term = to_acc(other[i]);
#pragma unroll
      for (int k = 0; k < VEC; ++k) sum[k] += term[k];
      v[i0 + i] = from_acc<T>(sum);
      const auto at = place(i0 + i);
      if (h != nullptr) store_columns<T, VEC, WIDE>(p, H, h + at.row.offset(p, H), at.col, v[i0 + i], at.left);
    }
  }
}

// v - mean, and zero beyond the row's end (where v is zero).
template <bool WIDE, class A, int VEC, class L> BARACUDA_D Vec<A, VEC> deviations(const Vec<A, VEC>& v, A mean, L left) {
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

// Weight and bias at one chunk of columns, applied to any number of rows.
template <class T, class W, bool CENTER, bool WIDE> struct Affine {
  using A = acc_t<T>;
  static constexpr int VEC = vec_elems<T>;
  Vec<A, VEC> weight, bias;

  template <class P, class L> BARACUDA_D void load(const P& p, i64 col, L left) {
    if (p.weight != nullptr) weight = fetch(p, WEIGHT, p.weight, col, left);
    if constexpr (CENTER) {
      if (p.bias != nullptr) bias = fetch(p, BIAS, p.bias, col, left);
    }
  }
  template <class P, class L> static BARACUDA_D Vec<A, VEC> fetch(const P& p, int n, const void* from, i64 col, L left) {
    return to_acc(load_columns<W, VEC, WIDE, Access::readonly>(p, n, static_cast<const W*>(from), col, left));
  }
  template <class P> BARACUDA_D Vec<T, VEC> apply(const P& p, Vec<A, VEC> y) const {
    if (p.weight != nullptr) {
#pragma unroll
      for (int k = 0; k < VEC; ++k) y[k] *= weight[k];
    }
    if constexpr (CENTER) {
      if (p.bias != nullptr) {
#pragma unroll
        for (int k = 0; k < VEC; ++k) y[k] += bias[k];
      }
    }
    return from_acc<T>(y);
  }
};

// mean is carried as mean + low, so that y keeps its digits when the mean is large.
template <class A> struct Statistics {
  A mean, low, rstd;
};

template <bool CENTER, class A, int VEC> BARACUDA_D Vec<A, VEC> normalize(Vec<A, VEC> v, const Statistics<A>& s) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    if constexpr (CENTER) v[k] = (v[k] - s.mean) - s.low;
    v[k] *= s.rstd;
  }
  return v;
}

template <bool CENTER, class A, class P> BARACUDA_D void save(const P& p, i64 row, const Statistics<A>& s) {
  if (p.rstd != nullptr) static_cast<A*>(p.rstd)[row] = s.rstd;
  if constexpr (CENTER) {
    if (p.mean != nullptr) static_cast<A*>(p.mean)[row] = math::isfinite(s.mean) ? s.mean + s.low : s.mean;
  }
}

// ---- rows held in registers -----------------------------------------------------------------------------------------

// Each group of LANES threads holds ROWS rows of at most LANES * CHUNKS chunks: x is read once.
template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, bool CENTER, bool WIDE, class P>
BARACUDA_D void row(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, GROUPS = THREADS / LANES, TILE = GROUPS * ROWS, HELD = ROWS * CHUNKS;
  constexpr int U = WIDE ? HELD : 1, UR = WIDE ? ROWS : 1, UC = WIDE ? CHUNKS : 1;  // unrolled, or v in local memory
  const int group = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
  const int cols = static_cast<int>(p.cols);
  const A count = static_cast<A>(cols);

  for (i64 first = i64(blockIdx.x) * TILE; first < p.rows; first += i64(gridDim.x) * TILE) {
    const i64 mine = first + group;  // and the rows GROUPS, 2 GROUPS, … further
    auto place = [&](int i) {        // chunk i of the HELD ones
      const i64 r = mine + (i / CHUNKS) * GROUPS;
      const int col = ((i % CHUNKS) * LANES + lane) * VEC;
      const bool live = ROWS == 1 && GROUPS == 1 ? true : r < p.rows;
      return Place<WIDE, int>{RowAt<WIDE>(p, live ? r : first), col, live ? cols - col : 0};
    };
    Vec<T, VEC> v[HELD];
#pragma unroll U
    for (int i = 0; i < HELD; ++i) {
      const auto at = place(i);
      const T* const base = static_cast<const T*>(p.x) + at.row.offset(p, X);
      v[i] = load_columns<T, VEC, WIDE, Access::streaming>(p, X, base, at.col, at.left);
    }
    if (p.residual != nullptr) add_residual<T, VEC, WIDE, HELD, (HELD < 4 ? HELD : 4)>(p, v, place);

    auto pack = [&] {
      if constexpr (WIDE) {
#pragma unroll
        for (int i = 0; i < HELD; ++i) keep_packed(v[i]);
      }
    };
    Statistics<A> s[ROWS];
    pack();
#pragma unroll UR
    for (int r = 0; r < ROWS; ++r) {
      A sum = 0;
#pragma unroll UC
      for (int c = 0; c < CHUNKS; ++c) {
        const auto e = to_acc(v[r * CHUNKS + c]);
        sum += CENTER ? tree_reduce<Sum>(e) : chunk_squares(e);
      }
      s[r].mean = lanes_reduce<Sum, LANES>(sum) / count;
    }
    pack();
#pragma unroll UR
    for (int r = 0; r < ROWS; ++r) {
      A variance = s[r].mean;
      s[r].low = 0;
      if constexpr (CENTER) {
        Pair<A> sum{0, 0};
#pragma unroll UC
        for (int c = 0; c < CHUNKS; ++c) {
          const int i = r * CHUNKS + c;
          const auto d = deviations<WIDE>(to_acc(v[i]), s[r].mean, place(i).left);
          sum = SumPair::apply(sum, Pair<A>{tree_reduce<Sum>(d), chunk_squares(d)});
        }
        sum = lanes_reduce<SumPair, LANES>(sum);
        s[r].low = sum.a / count;
        variance = (sum.b - sum.a * s[r].low) / count;
        if (variance < A(0)) variance = A(0);
      }
      s[r].rstd = A(1) / math::sqrt(variance + static_cast<A>(p.eps));
      if (lane == 0 && mine + r * GROUPS < p.rows) save<CENTER>(p, mine + r * GROUPS, s[r]);
    }
    pack();
#pragma unroll UC
    for (int c = 0; c < CHUNKS; ++c) {
      const int col = (c * LANES + lane) * VEC;
      Affine<T, W, CENTER, WIDE> affine;
      affine.load(p, col, cols - col);
#pragma unroll UR
      for (int r = 0; r < ROWS; ++r) {
        const auto at = place(r * CHUNKS + c);
        const auto y = affine.apply(p, normalize<CENTER>(to_acc(v[r * CHUNKS + c]), s[r]));
        T* const base = static_cast<T*>(p.y) + at.row.offset(p, Y);
        store_columns<T, VEC, WIDE>(p, Y, base, at.col, y, at.left);
      }
    }
  }
}

// ---- rows of any length ---------------------------------------------------------------------------------------------

// One block a row, which is read twice: the second time mostly from L2. Batches of BATCH chunks a thread.
template <class T, class W, int THREADS, bool CENTER, bool WIDE, class P> BARACUDA_D void loop(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, BATCH = 4, U = WIDE ? BATCH : 1;
  constexpr i64 STEP = THREADS * VEC;
  const double count = static_cast<double>(p.cols);

  for (i64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
    // The batch at `start`: x, or on the second reading h where it was written (it may have replaced x), and the residual.
    const RowAt<WIDE> at(p, row);
    auto read = [&](Vec<T, VEC> (&v)[BATCH], i64 start, bool again) {
      auto place = [&](int i) { return Place<WIDE, i64>{at, start + i * STEP, p.cols - start - i * STEP}; };
      const bool stored = again && p.h != nullptr;
      const int n = stored ? H : X;
      const T* const base = static_cast<const T*>(stored ? p.h : p.x) + at.offset(p, n);
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) v[i] = load_columns<T, VEC, WIDE>(p, n, base, place(i).col, place(i).left);
      if (p.residual != nullptr && !stored) add_residual<T, VEC, WIDE, BATCH, BATCH>(p, v, place);
    };
    Statistics<A> s{0, 0, 0};
    A variance;
    if constexpr (CENTER) {
      Moments<double> total{0, 0, 0};
      for (i64 start = threadIdx.x * VEC; start < p.cols; start += BATCH * STEP) {
        Vec<T, VEC> v[BATCH];
        read(v, start, false);
        A sum = 0;
        int elements = 0;
#pragma unroll U
        for (int i = 0; i < BATCH; ++i) {
          const i64 left = p.cols - start - i * STEP;
          elements += left >= VEC ? VEC : left > 0 ? static_cast<int>(left) : 0;
          sum += tree_reduce<Sum>(to_acc(v[i]));
        }
        const A n = static_cast<A>(elements), mean = sum / n;
        Pair<A> dev{0, 0};
#pragma unroll U
        for (int i = 0; i < BATCH; ++i) {
          const auto d = deviations<WIDE>(to_acc(v[i]), mean, p.cols - start - i * STEP);
          dev = SumPair::apply(dev, Pair<A>{tree_reduce<Sum>(d), chunk_squares(d)});
        }
        const A low = dev.a / n;
        const double exact = math::isfinite(mean) ? double(mean) + double(low) : double(mean);
        total = MergeMoments::apply(total, Moments<double>{exact, double(dev.b - dev.a * low), double(n)});
      }
      total = block_reduce<MergeMoments, THREADS>(total);
      s.mean = static_cast<A>(total.mean);
      s.low = static_cast<A>(total.mean - double(s.mean));
      variance = static_cast<A>(total.m2 / count);
      if (variance < A(0)) variance = A(0);
    } else {
      double total = 0;
      for (i64 start = threadIdx.x * VEC; start < p.cols; start += BATCH * STEP) {
        Vec<T, VEC> v[BATCH];
        read(v, start, false);
        A sum = 0;
#pragma unroll U
        for (int i = 0; i < BATCH; ++i) sum += chunk_squares(to_acc(v[i]));
        total += double(sum);
      }
      variance = static_cast<A>(block_reduce<Sum, THREADS>(total) / count);
    }
    s.rstd = A(1) / math::sqrt(variance + static_cast<A>(p.eps));
    if (threadIdx.x == 0) save<CENTER>(p, row, s);
    T* const out = static_cast<T*>(p.y) + at.offset(p, Y);
    for (i64 start = threadIdx.x * VEC; start < p.cols; start += BATCH * STEP) {
      Vec<T, VEC> v[BATCH];
      read(v, start, true);
#pragma unroll U
      for (int i = 0; i < BATCH; ++i) {
        const i64 col = start + i * STEP, left = p.cols - col;
        if (left <= 0) continue;
        Affine<T, W, CENTER, WIDE> affine;
        affine.load(p, col, left);
        store_columns<T, VEC, WIDE>(p, Y, out, col, affine.apply(p, normalize<CENTER>(to_acc(v[i]), s)), left);
      }
    }
  }
}

}  // namespace baracuda::norm
