#pragma once
// reduce     warp, group and block reductions whose order is fixed by the template arguments alone.
//
// A reduction is an Op: a struct with `static T apply(T a, T b)`, `symmetric` (apply(a, b) equals apply(b, a) in bits)
// and, for the ops below, `identity<T>()`. T is any trivially copyable struct. The tree is a butterfly over lane bits
// 0, 1, …: at every step the operand of the lower lanes is on the left, so each lane computes the same bits, an
// associative op need not commute, and a group of w lanes is the first log2(w) steps of its warp.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// ---- ops ------------------------------------------------------------------------------------------------------------

struct Sum {
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return T(0); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return a + b; }
};
struct Prod {
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return T(1); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return a * b; }
};
struct Max {  // NaN wins
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return numeric<T>::bottom(); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return math::maximum(a, b); }
};
struct Min {  // NaN wins
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return numeric<T>::top(); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return math::minimum(a, b); }
};
struct And {  // bits of an integer; all of bool
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return static_cast<T>(~T(0)); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct Or {  // bits of an integer; any of bool
  static constexpr bool symmetric = true;
  template <class T> static BARACUDA_D T identity() { return T(0); }
  template <class T> static BARACUDA_D T apply(T a, T b) { return static_cast<T>(a | b); }
};

// ---- ops over structs -----------------------------------------------------------------------------------------------

// A value and its index. NaN wins, as in PyTorch's argmax and argmin; of equal values the lower index.
template <class A> struct Indexed {
  A value;
  i64 index;
};
struct ArgMax {
  static constexpr bool symmetric = true;
  template <class P> static BARACUDA_D P apply(P a, P b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool equal = a.value == b.value || (nan_a && nan_b);
    return (equal ? b.index < a.index : nan_b || (!nan_a && b.value > a.value)) ? b : a;
  }
};
struct ArgMin {
  static constexpr bool symmetric = true;
  template <class P> static BARACUDA_D P apply(P a, P b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool equal = a.value == b.value || (nan_a && nan_b);
    return (equal ? b.index < a.index : nan_b || (!nan_a && b.value < a.value)) ? b : a;
  }
};

// Running maximum and the sum of exp(x - max) under it (online softmax); empty is {-inf, 0}, one element {x, 1}.
template <class A> struct MaxSum {
  A max, sum;
};
struct LogSumExp {
  static constexpr bool symmetric = true;
  // The sum under the larger maximum keeps its scale, so one exp and one fma merge two parts. Equal maxima come first:
  // two empty parts, or two infinities, must not give inf - inf.
  template <class A> static BARACUDA_D MaxSum<A> apply(MaxSum<A> a, MaxSum<A> b) {
    const bool swap = b.max > a.max;
    const MaxSum<A> high = swap ? b : a, low = swap ? a : b;
    const A scale = low.max == high.max ? A(1) : math::exp(low.max - high.max);
    return {math::maximum(a.max, b.max), math::fma(low.sum, scale, high.sum)};
  }
};

// Mean, sum of squared deviations and count of a sample (Chan, Golub, LeVeque 1979); empty is {0, 0, 0}.
template <class A> struct Moments {
  A mean, m2, n;
};
struct MergeMoments {
  static constexpr bool symmetric = false;
  template <class A> static BARACUDA_D Moments<A> apply(Moments<A> a, Moments<A> b) {
    const A n = a.n + b.n;
    if (n == A(0)) return a;
    const A delta = b.mean - a.mean, share = b.n / n;
    return {math::fma(delta, share, a.mean), a.m2 + b.m2 + delta * delta * a.n * share, n};
  }
};

// ---- shuffles of any trivially copyable type ------------------------------------------------------------------------

template <class T> union Words {
  static constexpr int count = (sizeof(T) + 3) / 4;
  T value;
  u32 word[count];
  BARACUDA_D Words() {}
};

// The value of lane ^ mask. Called by every lane of the warp.
template <class T> BARACUDA_D T shuffle_xor(const T& x, int mask) {
  Words<T> in, out;
  in.word[Words<T>::count - 1] = 0;  // a type below 4 bytes leaves the rest of its word unset
  in.value = x;
#pragma unroll
  for (int k = 0; k < Words<T>::count; ++k) out.word[k] = __shfl_xor_sync(full_warp, in.word[k], mask);
  return out.value;
}

// The value of lane `lane` of the caller's group of WIDTH lanes.
template <int WIDTH = warp_size, class T> BARACUDA_D T shuffle(const T& x, int lane) {
  Words<T> in, out;
  in.word[Words<T>::count - 1] = 0;
  in.value = x;
#pragma unroll
  for (int k = 0; k < Words<T>::count; ++k) out.word[k] = __shfl_sync(full_warp, in.word[k], lane, WIDTH);
  return out.value;
}

// ---- group and warp -------------------------------------------------------------------------------------------------

BARACUDA_D int lane_id() { return static_cast<int>(threadIdx.x) & (warp_size - 1); }  // blockDim.x is a multiple of 32

// Over each aligned group of WIDTH lanes (1, 2, 4 … 32); every lane of the group gets the result. All 32 lanes call.
template <class Op, int WIDTH, class T> BARACUDA_D T group_reduce(T x) {
  static_assert(is_pow2(WIDTH) && WIDTH <= warp_size, "a group is 1, 2, 4, 8, 16 or 32 lanes");
#pragma unroll
  for (int mask = 1; mask < WIDTH; mask *= 2) {
    const T other = shuffle_xor(x, mask);
    if constexpr (Op::symmetric) x = Op::apply(x, other);
    else x = lane_id() & mask ? Op::apply(other, x) : Op::apply(x, other);
  }
  return x;
}
template <class Op, class T> BARACUDA_D T warp_reduce(T x) { return group_reduce<Op, warp_size>(x); }

// ---- block ----------------------------------------------------------------------------------------------------------

// Over a one-dimensional block of THREADS threads, whole warps; every thread calls and every thread gets the result.
// `scratch` holds THREADS / 32 values of T in shared memory and may be used again at once.
template <class Op, int THREADS, class T> BARACUDA_D T block_reduce(T x, T* scratch) {
  static_assert(THREADS % warp_size == 0 && THREADS <= 1024, "whole warps");
  constexpr int warps = THREADS / warp_size;
  x = warp_reduce<Op>(x);
  if constexpr (warps > 1) {
    if (lane_id() == 0) scratch[threadIdx.x / warp_size] = x;
    __syncthreads();
    if constexpr (is_pow2(warps)) {  // each warp repeats the last steps of the tree
      x = group_reduce<Op, warps>(T(scratch[lane_id() % warps]));
    } else {
      x = scratch[0];
#pragma unroll
      for (int w = 1; w < warps; ++w) x = Op::apply(x, T(scratch[w]));
    }
    __syncthreads();
  }
  return x;
}

// With scratch of its own: static shared memory, one array for each instantiation.
template <class Op, int THREADS, class T> BARACUDA_D T block_reduce(T x) {
  __shared__ __align__(16) unsigned char scratch[(THREADS / warp_size) * sizeof(T)];
  return block_reduce<Op, THREADS>(x, reinterpret_cast<T*>(scratch));
}

// x[0] op x[1] op … up to the calling thread's, over a one-dimensional block of THREADS threads, whole warps; an Op with an
// identity. `scratch` holds THREADS / 32 values of T in shared memory and may be used again after a barrier.
template <class Op, int THREADS, class T> BARACUDA_D T block_scan(T x, T* scratch) {
  static_assert(THREADS % warp_size == 0 && THREADS <= 1024, "whole warps");
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const T before = shuffle(x, lane - step & (warp_size - 1));
    if (lane >= step) x = Op::apply(before, x);
  }
  if (lane == warp_size - 1) scratch[warp] = x;
  __syncthreads();
  const T before = lane < warp ? scratch[lane] : Op::template identity<T>();
  return Op::apply(warp_reduce<Op>(before), x);
}

// ---- within a thread ------------------------------------------------------------------------------------------------

// x[0] op x[1] op … as the same kind of tree, neighbours first.
template <class Op, class T, int N> BARACUDA_D T tree_reduce(Vec<T, N> x) {
  static_assert(is_pow2(N), "a power of two");
#pragma unroll
  for (int step = 1; step < N; step *= 2) {
#pragma unroll
    for (int k = 0; k < N; k += 2 * step) x[k] = Op::apply(x[k], x[k + step]);
  }
  return x[0];
}

}  // namespace baracuda
