// gather_scatter   y[s, :] = weight[t] x[src[t], :] combined over the tokens t of segment s, in their order; the gradients
//
// bounds, combine, merge   as in segment_reduce.cu; a token whose row is padding or does not exist has no part.
// dots                     dweight[t] = Σ dy[s, :] x[src[t], :], a warp a token, a lane the same columns in every layout.
#include "segment/combine.cuh"
#include "segment/functors.cuh"

namespace baracuda {

template <class T, int VEC, bool MASKED, class P> BARACUDA_D void segment_dots(const P& p) {
  using A = acc_t<T>;
  const i64 token = thread_index() / warp_size;
  if (token >= p.tokens) return;
  const int lane = lane_id();
  const i64 segment = static_cast<const i32*>(p.owners)[token];
  const i64 at = read_index(p.src, token * p.src_step, p.src_wide);
  const bool exists = at >= 0 && at < p.rows;
  if (!exists && at != p.padding && p.status != nullptr) atomicOr(p.status, 1u);
  A sum = A(0);
  if (segment >= 0 && exists && at != p.padding) {
    const T* x = static_cast<const T*>(p.x) + at * p.x_row;
    const T* h = static_cast<const T*>(p.h) + segment * p.h_row;
    const i64* arg = static_cast<const i64*>(p.arg) + segment * p.arg_row;
    constexpr int own = 16 / static_cast<int>(sizeof(T));  // neighbouring columns of a lane, however they are loaded
    for (i64 chunk = static_cast<i64>(lane) * own; chunk < p.dim; chunk += warp_size * own) {
#pragma unroll
      for (int first = 0; first < own; first += VEC) {
        const i64 column = chunk + first;
        if (column >= p.dim) break;
        const auto a = to_acc(load<VEC>(x + column_at<VEC>(p, 1, column)));
        const auto b = to_acc(load<VEC>(h + column_at<VEC>(p, 4, column)));
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          const bool counts = !MASKED || arg[column_at<VEC>(p, 3, column) + k] == token;
          if (counts) sum = math::fma(a[k], b[k], sum);
        }
      }
    }
    if (p.shares != nullptr)
      sum /= static_cast<A>(max<i64>(static_cast<const i64*>(p.shares)[segment * p.shares_step], 1));
  }
  sum = warp_reduce<Sum>(sum);
  if (lane != 0) return;
  if (p.weight_wide) static_cast<A*>(p.y)[token * p.y_row] = sum;
  else static_cast<T*>(p.y)[token * p.y_row] = from_acc<T>(sum);
}

}  // namespace baracuda
