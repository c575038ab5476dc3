// sparsemax    the projection of x on the simplex: y = max(z - t, 0), z = x - max, t such that sum(y) = 1
// entmax15     y = max(z - t, 0)^2, z = (x - max) / 2, likewise
//
// t is the root of a convex, falling function, and Newton's steps from -1, left of it, rise to it without passing it.
// Each at least quarters the product of value and slope, so that some 50 suffice for any row; they end where a step no
// longer rises, for sparsemax at the exact mean over the support. Rows in registers take the steps in A first, which end
// near the root on either side of it; from either side a step of a convex function ends left of the root, where those
// in double go on. Their sums are in order over a thread's elements, then a tree over the threads.
// sparsemax_rows: a group of G threads holds a row in registers, K chunks a thread: one read. sparsemax_long: a block
// for each row, which every step reads again.
#include "softmax/terms.cuh"

namespace baracuda {

// What a Newton step needs: the function and its slope, both of the elements above t.
template <class A> struct Excess {
  A value, slope;
};
struct AddExcess {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D Excess<A> apply(Excess<A> a, Excess<A> b) {
    return {a.value + b.value, a.slope + b.slope};
  }
};

// t or the next number below: what is not above it is not above t either. Few elements of a row are, and to ask in A first
// spares the others what takes long in double.
template <class A> BARACUDA_D A at_most(double t) {
  if constexpr (sizeof(A) == 4) return __double2float_rd(t);
  else return t;
}

// `most`: the largest element of z.
template <bool SQUARE, class A, int V>
BARACUDA_D void add_excess(Excess<double>& sum, const Vec<A, V>& z, A most, double t, A low) {
  if (!(most > low)) return;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (z[k] > low) {
      const double above = static_cast<double>(z[k]) - t;
      if (above > 0) {
        sum.value += SQUARE ? above * above : above;
        sum.slope += SQUARE ? 2 * above : 1.0;
      }
    }
  }
}

// The same in A, of all elements.
template <bool SQUARE, class A, int V> BARACUDA_D void add_near(Excess<A>& sum, const Vec<A, V>& z, A most, A t) {
  if (!(most > t)) return;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const A above = math::maximum(z[k] - t, A(0));
    sum.value = SQUARE ? math::fma(above, above, sum.value) : sum.value + above;
    sum.slope += SQUARE ? above : z[k] > t ? A(1) : A(0);
  }
}

constexpr int most_steps = 100;
constexpr int most_near_steps = 12;  // those in double end what these have not

// One Newton step from t, where the row's excess is e; whether it rises. A NaN does not.
template <class A> BARACUDA_D bool rise(A& t, Excess<A> e) {
  const A next = t + (e.value - 1) / e.slope;
  const bool higher = next > t;
  if (higher) t = next;
  return higher;
}

// The step from where those in A ended, either side of the root, to its left; -1 is there in any case.
BARACUDA_D bool left_of_root(double& t, Excess<double> e) {
  const double next = t + (e.value - 1) / e.slope;
  t = next > -1.0 ? next : -1.0;
  return true;
}

template <class T, bool SQUARE, bool WHOLE> struct SparseRow {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const SparsemaxParams& p;
  const T* x;
  T* y;
  A scale;

  BARACUDA_D SparseRow(const SparsemaxParams& p, i64 row) : p(p), scale(static_cast<A>(p.scale())) {
    i64 at[2];
    row_offsets(p, row, at);
    x = static_cast<const T*>(p.x) + at[0];
    y = static_cast<T*>(p.y) + at[1];
  }
  BARACUDA_D Vec<T, V> read(i64 col) const {
    Vec<T, V> raw;
    read_columns<WHOLE>(raw, x, p.step[0], col, p.cols - col, p.wide & 1);
    return raw;
  }
  BARACUDA_D Vec<A, V> chunk(i64 col, const Vec<T, V>& raw) const {
    const int count = columns_before<WHOLE, V>(p.cols, col);
    auto z = unpacked(raw);
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = k < count ? z[k] * scale : -numeric<A>::infinity();
    return z;
  }
  // z of the formula; what lies at -inf stays there.
  static BARACUDA_D Vec<A, V> shifted(Vec<A, V> z, A top) {
#pragma unroll
    for (int k = 0; k < V; ++k) z[k] = SQUARE ? (z[k] - top) * A(0.5) : z[k] - top;
    return z;
  }
  // A row whose maximum is not finite is NaN.
  BARACUDA_D void put(i64 col, Vec<A, V> z, A top, double t) const {
    const A low = at_most<A>(t), outside = math::isfinite(top) ? A(0) : numeric<A>::nan();
#pragma unroll
    for (int k = 0; k < V; ++k) {
      A y = outside;
      if (z[k] > low && math::isfinite(top)) {
        const double above = static_cast<double>(z[k]) - t, inside = above > 0 ? above : 0.0;
        y = static_cast<A>(SQUARE ? inside * inside : inside);
      }
      z[k] = y;
    }
    write_columns<WHOLE>(y, p.step[1], col, p.cols - col, p.wide & 2, from_acc<T>(z));
  }
};

template <class T, bool SQUARE, bool WHOLE, int G, int K> BARACUDA_D void sparsemax_rows(const SparsemaxParams& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  const int lane = static_cast<int>(threadIdx.x) % G, group = static_cast<int>(threadIdx.x) / G;
  const i64 row = static_cast<i64>(blockIdx.x) * groups + group, cols = p.cols;
  const bool valid = row < p.rows;
  const SparseRow<T, SQUARE, WHOLE> sparse(p, valid ? row : 0);
  auto column = [&](int j) { return valid ? static_cast<i64>(j * G + lane) * V : cols; };

  Vec<T, V> raw[K];
#pragma unroll
  for (int j = 0; j < K; ++j) raw[j] = sparse.read(column(j));
  Vec<A, V> z[K];
  A top = -numeric<A>::infinity();
#pragma unroll
  for (int j = 0; j < K; ++j) z[j] = sparse.chunk(column(j), raw[j]);
#pragma unroll
  for (int j = 0; j < K; ++j) top = math::maximum(top, tree_reduce<Max>(z[j]));
  top = row_reduce<Max, G>(top);
  A most[K];
#pragma unroll
  for (int j = 0; j < K; ++j) z[j] = sparse.shifted(z[j], top), most[j] = tree_reduce<Max>(z[j]);
  A near = -1;
#pragma unroll 1
  for (int step = 0, more = sizeof(A) == 4; more && step < most_near_steps; ++step) {
    Excess<A> sum{0, 0};
#pragma unroll
    for (int j = 0; j < K; ++j) add_near<SQUARE>(sum, z[j], most[j], near);
    sum = row_reduce<AddExcess, G>(sum);
    if (SQUARE) sum.slope *= 2;
    more = rise(near, sum);
    if constexpr (G < group_block(G)) more = __any_sync(full_warp, more);
  }
  double t = near;
#pragma unroll 1
  for (int step = 0, more = 1; more && step < most_steps; ++step) {
    Excess<double> sum{0, 0};
    const A low = at_most<A>(t);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      forget(z[j]);  // doubles are made of those above t alone, and not of all before the first step
      add_excess<SQUARE>(sum, z[j], most[j], t, low);
    }
    sum = row_reduce<AddExcess, G>(sum);
    more = step == 0 ? left_of_root(t, sum) : rise(t, sum);
    if constexpr (G < group_block(G)) more = __any_sync(full_warp, more);  // a warp's rows step together
  }
#pragma unroll
  for (int j = 0; j < K; ++j) {
    if (column(j) < cols) sparse.put(column(j), z[j], top, t);
  }
}

template <class T, bool SQUARE, bool WHOLE> BARACUDA_D void sparsemax_long(const SparsemaxParams& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, V = row_vec<T>;
  const i64 cols = p.cols;
  const SparseRow<T, SQUARE, WHOLE> sparse(p, blockIdx.x);
  const i64 first = static_cast<i64>(threadIdx.x) * V;
  A top = -numeric<A>::infinity();
#pragma unroll 4
  for (i64 col = first; col < cols; col += G * V) {
    top = math::maximum(top, tree_reduce<Max>(sparse.chunk(col, sparse.read(col))));
  }
  top = block_reduce<Max, G>(top);
  double t = -1;
#pragma unroll 1
  for (int step = 0, more = 1; more && step < most_steps; ++step) {
    Excess<double> sum{0, 0};
    const A low = at_most<A>(t);
#pragma unroll 2
    for (i64 col = first; col < cols; col += G * V) {
      const auto z = sparse.shifted(sparse.chunk(col, sparse.read(col)), top);
      add_excess<SQUARE>(sum, z, tree_reduce<Max>(z), t, low);
    }
    more = rise(t, block_reduce<AddExcess, G>(sum));
  }
  for (i64 col = first; col < cols; col += G * V) {
    sparse.put(col, sparse.shifted(sparse.chunk(col, sparse.read(col)), top), top, t);
  }
}

}  // namespace baracuda
