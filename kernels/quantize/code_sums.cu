// code_sums  the gradient of the scale of every block of codes: dscale = sum of dy (q - zero).
//
// Schedule reduce over blocks, of which reduce_axes.cuh fixes the order of the sum. A thread for each scale then adds the
// sums of the blocks that share it, in order and in double. 4-bit codes are counted in halves of bytes.
#include <baracuda/map.cuh>
#include <baracuda/reduce_axes.cuh>
#include "quantize/affine.cuh"
#include "quantize/put_float.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

namespace affine {

// The source of the reduction. A zero point belongs to a row, or to each of neighbouring rows.
template <int CODE, class T> struct CodeTerms {
  using A = acc_t<T>;
  using Q = stored_t<CODE>;
  using Value = A;
  static constexpr int operands = 3;  // dy, x, and where the zero point is
  static constexpr int width = 16 / static_cast<int>(max(sizeof(T), sizeof(Q)));
  static constexpr int batch = is_packed(CODE) || CODE == code_u16 ? 1 : 2;  // those take more registers
  template <int N> using Chunk = Chunks<N, T, Q>;
  const CodeSumsParams& p;
  const T* dy;
  i64 x, zero;
  i32 own;

  BARACUDA_D CodeTerms(const CodeSumsParams& p, const i64* at)
      : p(p), dy(static_cast<const T*>(p.dy) + at[0]), x(at[1]), zero(at[2]), own(zero_at(at[2])) {}

  BARACUDA_D i32 zero_at(i64 at) const {
    return p.zero_points == nullptr ? 0 : zeros_at<1>(p.zero_points, p.zero_code, at)[0];
  }
  static BARACUDA_D A term(T dy, Q code, i32 zero) {
    const auto q = element_value<CODE>(code);
    if constexpr (CODE == code_i32) return to_acc(dy) * static_cast<A>(static_cast<double>(q) - zero);
    else if constexpr (is_coded_float(CODE)) return to_acc(dy) * static_cast<A>(q);
    else return to_acc(dy) * static_cast<A>(q - max(WholeRange<CODE>::low, min(WholeRange<CODE>::high, zero)));
  }
  BARACUDA_D Q code(i64 at) const { return load_codes<CODE, 1>(p.x, x + at)[0]; }

  template <int N, bool LINE, class P> BARACUDA_D Chunk<N> whole(const P& p, i64 r) const {
    i64 at[2];
    if constexpr (LINE) at[0] = r * p.inner[0][0], at[1] = r * p.inner[1][0];
    else reduced_offsets<true>(p, r, at);
    Chunk<N> out;
    if (N > 1 && (p.splat & 1)) out.first = spread<T, N>(dy[at[0]]);
    else out.first = load<N>(dy + at[0]);
    if (N > 1 && (p.splat & 2)) out.rest.first = spread<Q, N>(code(at[1]));
    else out.rest.first = load_codes<CODE, N>(p.x, x + at[1]);
    return out;
  }
  template <bool WIDE, class P, class V> BARACUDA_D Chunk<width> read(const P& p, i64 r, i64 left, V) const {
    if constexpr (WIDE) {
      if (left >= width) return whole<width, false>(p, r);
    }
    Chunk<width> out{};
    if (p.inner_rank <= 1) {
#pragma unroll
      for (int k = 0; k < width; ++k) {
        if (k >= left) continue;
        out.first[k] = dy[(r + k) * p.inner[0][0]], out.rest.first[k] = code((r + k) * p.inner[1][0]);
      }
    } else {
#pragma unroll 1
      for (int k = 0; k < width && k < left; ++k) {
        i64 at[2];
        reduced_offsets<false>(p, r + k, at);
        out.first[k] = dy[at[0]], out.rest.first[k] = code(at[1]);
      }
    }
    return out;
  }
  template <class V> BARACUDA_D Vec<A, width> values(const Chunk<width>& c, i64 left, V) const {
    Vec<A, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out[k] = k < left ? term(c.first[k], c.rest.first[k], own) : A(0);
    return out;
  }
  template <int VEC, class V> BARACUDA_D Chunk<VEC> beyond(V) const { return {}; }
  // Of row k of neighbouring ones, along the last kept axis.
  template <int N, class V> BARACUDA_D A value(const Chunks<N, T, Q>& c, int k, bool exists, V) const {
    const int last = p.outer_rank - 1;
    const i32 beside = k == 0 || last < 0 ? own : zero_at(zero + k * p.outer[2][last]);
    return exists ? term(c.first[k], c.rest.first[k], beside) : A(0);
  }
};

enum SharedPlace { at_sums, at_dscales, shared_places };

template <class A> struct SharedTotals {
  const CodeTotalsParams& p;
  template <int V> using Chunk = double;
  template <int V> BARACUDA_D double read(const MapPlace<V, shared_places>& place) const {
    double sum = 0;
    for (i64 r = 0; r < p.sharing; ++r) {
      i64 at[1];
      offsets<i64, 1>(r, p.sharing_rank, p.sharing_shape, p.sharing_strides, at);
      sum += static_cast<double>(static_cast<const A*>(p.sums)[place.at[at_sums] + at[0]]);
    }
    return sum;
  }
  template <int V>
  BARACUDA_D void write(const MapPlace<V, shared_places>& place, const double& sum, bool wanted) const {
    if (wanted) put_float(p.dscales, p.scale_code, place.at[at_dscales], static_cast<A>(sum));
  }
};

}  // namespace affine

template <class A> BARACUDA_D void code_totals(const CodeTotalsParams& p) {
  map_chunks<Strided<1, 1>, affine::shared_places>(p, affine::SharedTotals<A>{p});
}

}  // namespace baracuda
