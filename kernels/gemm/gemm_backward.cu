// gemm_backward   what goes through the epilogue of a product (gemm/epilogue.cuh) backwards, around the products that
//                 make da, db and dup.
//
//   g = dy act'(pre), gated dy up_pre act'(pre);  h = dy act(pre), the gradient of the gating product
//
// `gemm_gradients` makes g and h scaled by scale_a and scale_b and rounded to the element, as products read them, dc =
// beta g and dresidual = dy, and from g and h as they are the sums of columns. A block takes `lanes` chunks of columns and
// `part_rows` rows: a thread adds every 256 / lanes-th of them in order, then the block adds its threads in order, and
// `gemm_bias` the blocks, eight slices in order and then the slices. `gemm_row_bias` adds a row of every matrix of the
// batch: 256 threads take chunks in turn, then a tree. All of it depends on the extents alone.
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/scalar.cuh>
#include <baracuda/vector.cuh>
#include "elementwise/unary/gelu.cuh"
#include "elementwise/unary/gelu_tanh.cuh"
#include "elementwise/unary/identity.cuh"
#include "elementwise/unary/relu.cuh"
#include "elementwise/unary/silu.cuh"
#include "gated/gates.cuh"
#include "gemm/with_scales.cuh"

namespace baracuda {

namespace gemm_gradient {

using Matrix = GemmGradientMatrix;  // its place in row_strides, col_strides and `wide`
constexpr int threads = gemm_gradient_threads;

// Calls `go` with an `Activation` and its gradient.
template <class A, class Go> BARACUDA_D void with_activation(int which, const Go& go) {
  switch (static_cast<Activation>(which)) {
    case Activation::relu: return go(Relu<A>(), gradient::Relu<A>());
    case Activation::gelu: return go(Gelu<A>(), gradient::Gelu<A>());
    case Activation::gelu_tanh: return go(GeluTanh<A>(), gradient::GeluTanh<A>());
    case Activation::silu: return go(Silu<A>(), gradient::Silu<A>());
    default: return go(Identity<A>(), gradient::Identity<A>());
  }
}

// A chunk of columns of a row: where it is, and what the gradients there are made from. U: the element of dy, pre, up_pre.
template <class T, class U, bool GATED> struct Chunk {
  using A = acc_t<T>;
  // With a gate 8 bytes of 16-bit elements: there are two sums of each column, and activations take many registers.
  static constexpr int bytes = GATED && is_half<T> ? gated_half_bytes : 16, N = bytes / static_cast<int>(sizeof(T));
  i64 row, col, left;
  Vec<U, N> dy_, pre_, up_pre_;

  template <class P> BARACUDA_D void load(const P& p, i64 row_, i64 col_) {
    row = row_, col = col_, left = p.cols - col;
    dy_ = get(p, Matrix::dy, p.dy);
    if (GATED || p.activation != 0) pre_ = get(p, Matrix::pre, p.pre);
    if constexpr (GATED) up_pre_ = get(p, Matrix::up_pre, p.up_pre);
  }
  // g and, where there is a gate, h.
  template <class P> BARACUDA_D void gradients(const P& p, Vec<A, N>& first, Vec<A, N>& second) const {
    const Coefficients<A> none;
    const Vec<A, N> by = to_acc(dy_);
    if constexpr (GATED) {
      const Vec<A, N> gate = to_acc(pre_), up = to_acc(up_pre_);
      with_activation<A>(p.activation, [&](auto f, auto slope) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          first[k] = gate_gradient<A, decltype(slope)>(by[k], up[k], gate[k], none);
          second[k] = up_gradient<decltype(f), decltype(slope)>(by[k], gate[k], up[k], none);
        }
      });
    } else if (p.activation == 0) {
      first = by;
    } else {
      const Vec<A, N> x = to_acc(pre_);
      with_activation<A>(p.activation, [&](auto, auto slope) {
#pragma unroll
        for (int k = 0; k < N; ++k) first[k] = decltype(slope)::value(by[k], x[k], none);
      });
    }
  }
  template <class R, class P> BARACUDA_D void put(const P& p, Matrix matrix, void* to, const Vec<A, N>& x) const {
    if (to == nullptr) return;
    const int which = static_cast<int>(matrix);
    R* const y = static_cast<R*>(to) + place(p, which);
    const auto rounded = from_acc<R>(x);
    if (p.wide >> which & 1) store_vec<R, N, true>(y, rounded, left);
    else store_strided(y, p.col_strides[which], rounded, left);
  }

 private:
  // Found anew for each matrix: the places of seven would take more registers than all else.
  template <class P> BARACUDA_D i64 place(const P& p, int which) const {
    return offset<i64>(row, p.row_rank, p.row_shape, p.row_strides[which]) + col * p.col_strides[which];
  }
  template <class P> BARACUDA_D Vec<U, N> get(const P& p, Matrix matrix, const void* from) const {
    const int which = static_cast<int>(matrix);
    const U* const x = static_cast<const U*>(from) + place(p, which);
    return p.wide >> which & 1 ? load_vec<U, N, true>(x, left) : load_strided<U, N>(x, p.col_strides[which], left);
  }
};

// The row's and the columns' scales, as far as there are any.
template <class A, int N, class P> BARACUDA_D Vec<A, N> scaled(const P& p, Vec<A, N> x, i64 row, i64 col, i64 left) {
  if (p.scale_a == nullptr && p.scale_b == nullptr) return x;
  A of_row = A(1);
  if (p.scale_a != nullptr) of_row = static_cast<A>(static_cast<const float*>(p.scale_a)[row % p.m * p.vectors[0]]);
  Vec<float, N> of_column;
#pragma unroll
  for (int k = 0; k < N; ++k) of_column[k] = 1.0f;
  if (p.scale_b != nullptr) {
    const i64 step = p.vectors[1];
    of_column = load_strided<float, N>(static_cast<const float*>(p.scale_b) + col * step, step, left);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    bool over;
    x[k] = with_scales(x[k], of_row, A(1), of_row, static_cast<A>(of_column[k]), over);
  }
  return x;
}

// Adds the threads of a block that have the same columns, and stores the partial sums of split `split`.
template <class A, int N, class P>
BARACUDA_D void store_sums(const P& p, void* sums, const Vec<A, N>& own, A* slices, i64 split, i64 first) {
  if (sums == nullptr) return;
  const int width = p.lanes * N;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) slices[threadIdx.x * N + k] = own[k];
  __syncthreads();
  for (int c = threadIdx.x; c < width && first + c < p.cols; c += threads) {
    A sum = slices[c];
    for (int e = c + width; e < threads * N; e += width) sum += slices[e];
    static_cast<A*>(sums)[split * p.cols + first + c] = sum;
  }
}

}  // namespace gemm_gradient

template <class T, class U, bool GATED> BARACUDA_D void gemm_gradients(const GemmGradientParams& p) {
  using namespace gemm_gradient;
  using A = acc_t<T>;
  using At = Chunk<T, U, GATED>;
  constexpr int N = At::N, BATCH = 2;  // chunks that a thread has in flight
  __shared__ A slices[threads * N];
  const i64 tiles = div_up(div_up(p.cols, N), p.lanes), split = blockIdx.x / tiles;
  const i64 first = blockIdx.x % tiles * p.lanes * N, col = first + threadIdx.x % p.lanes * N;
  const i64 step = threads / p.lanes, end = min<i64>(p.rows, (split + 1) * p.part_rows);
  const A beta = static_cast<A>(p.beta());

  Vec<A, N> sum = {}, up_sum = {};
  for (i64 row = split * p.part_rows + threadIdx.x / p.lanes; row < end && col < p.cols; row += BATCH * step) {
    At chunks[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (row + i * step < end) chunks[i].load(p, row + i * step, col);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (row + i * step >= end) continue;
      const At& c = chunks[i];
      Vec<A, N> x, up = {};
      c.gradients(p, x, up);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += x[k], up_sum[k] += up[k];
      if (p.g != nullptr) c.template put<T>(p, Matrix::g, p.g, scaled(p, x, c.row, col, c.left));
      if (GATED && p.h != nullptr) c.template put<T>(p, Matrix::h, p.h, scaled(p, up, c.row, col, c.left));
      c.template put<U>(p, Matrix::dresidual, p.dresidual, to_acc(c.dy_));
      if (p.dc != nullptr) {  // beta 0 leaves NaN and infinities behind
#pragma unroll
        for (int k = 0; k < N; ++k) x[k] = beta == A(0) ? A(0) : beta * x[k];
        c.template put<U>(p, Matrix::dc, p.dc, x);
      }
    }
  }
  store_sums(p, p.sums, sum, slices, split, first);
  if constexpr (GATED) store_sums(p, p.up_sums, up_sum, slices, split, first);
}

// A block adds 32 columns of the partial sums that blocks of gemm_gradients left.
template <class T> BARACUDA_D void gemm_bias(const GemmBiasParams& p) {
  using A = acc_t<T>;
  constexpr int slices = gemm_gradient::threads / warp_size;
  __shared__ A held[slices][warp_size];
  const int slice = threadIdx.x / warp_size, lane = lane_id();
  const i64 col = i64(blockIdx.x) * warp_size + lane;
  A sum = 0;
  if (col < p.cols) {
#pragma unroll 8
    for (i64 split = slice; split < p.parts; split += slices) {
      sum += static_cast<const A*>(p.sums)[split * p.cols + col];
    }
  }
  held[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || col >= p.cols) return;
#pragma unroll
  for (int s = 1; s < slices; ++s) sum += held[s][lane];
  static_cast<T*>(p.bias)[col * p.stride] = from_acc<T>(sum);
}

// A block for each row of the matrices, over the whole batch.
template <class T, class U, bool GATED> BARACUDA_D void gemm_row_bias(const GemmGradientParams& p) {
  using namespace gemm_gradient;
  using A = acc_t<T>;
  using At = Chunk<T, U, GATED>;
  const i64 pieces = div_up(p.cols, At::N), m = blockIdx.x, chunks = p.rows / p.m * pieces;
  A sum = 0;
  for (i64 i = threadIdx.x; i < chunks; i += threads) {
    At c;
    Vec<A, At::N> x, up;
    c.load(p, i / pieces * p.m + m, i % pieces * At::N);
    c.gradients(p, x, up);
#pragma unroll
    for (int k = 0; k < At::N; ++k) sum += k < c.left ? x[k] : A(0);
  }
  sum = block_reduce<Sum, threads>(sum);
  if (threadIdx.x == 0) static_cast<T*>(p.row_bias)[m * p.vectors[2]] = from_acc<T>(sum);
}

// y = the sum of two dense products in the accumulator's type, rounded once.
template <class T> BARACUDA_D void gemm_add(const GemmAddParams& p) {
  using A = acc_t<T>;
  constexpr int N = vec_elems<T>;
  const u64 pieces = static_cast<u64>(div_up(p.cols, N));
  u64 piece;
  const i64 row = static_cast<i64>(divmod(static_cast<u64>(thread_index<i64>()), pieces, piece));
  if (row >= p.rows) return;
  const i64 col = static_cast<i64>(piece) * N, left = p.cols - col;
  const auto get = [&](const void* x) {
    return load_vec<A, N, true>(static_cast<const A*>(x) + row * p.pitch + col, left);
  };
  Vec<A, N> sum = get(p.first);
  const Vec<A, N> other = get(p.second);
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] += other[k];
  T* const y = static_cast<T*>(p.y) + offset<i64>(row, p.row_rank, p.row_shape, p.row_strides) + col * p.stride;
  const auto rounded = from_acc<T>(sum);
  if (p.wide) store_vec<T, N, true>(y, rounded, left);
  else store_strided(y, p.stride, rounded, left);
}

}  // namespace baracuda
