// decode_simt   moe_decode for any strides: a warp makes one number of h, or of y. Formula: moe/decode.cuh.
//
// Order of sums: lane l has the products l, l + 32, … of k, in one chain; then the warp's tree. So it depends on k alone.
#include <baracuda/reduce.cuh>
#include "moe/decode.cuh"

namespace baracuda {
namespace moe {

template <class T> BARACUDA_D acc_t<T> dot(const T* a, i64 a_step, const T* b, i64 b_step, i64 k) {
  acc_t<T> sum = acc_t<T>(0);
  for (i64 i = lane_id(); i < k; i += warp_size) sum = math::fma(to_acc(a[i * a_step]), to_acc(b[i * b_step]), sum);
  return warp_reduce<Sum>(sum);
}
// The warp's number among all.
BARACUDA_D i64 warp_number() {
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  return block * (decode_threads / warp_size) + threadIdx.x / warp_size;
}

}  // namespace moe

// h, dense rows of p.n numbers.
template <class T, bool GATED> BARACUDA_D void moe_decode_hidden(const MoeSimtParams& p) {
  using A = acc_t<T>;
  const i64 number = moe::warp_number();
  if (number >= static_cast<i64>(p.tokens) * p.choices * p.n) return;
  u64 n;
  const int slot = static_cast<int>(divmod(static_cast<u64>(number), static_cast<u64>(p.n), n));
  const int expert = moe::expert_of(p, slot);
  if (expert < 0) return;
  const i64 column = static_cast<i64>(n);
  const T* const x = static_cast<const T*>(p.x) + slot / p.choices * p.x_steps[0];
  const auto product = [&](const void* matrix, const i64* steps, const void* bias, const i64* bias_steps) {
    const T* const w = static_cast<const T*>(matrix) + expert * steps[0] + column * steps[1];
    Vec<A, 1> sum{{moe::dot(x, p.x_steps[1], w, steps[2], p.k)}};
    moe::add_bias<T>(sum, bias, bias_steps, expert, column, i64(1));
    return sum;
  };
  Vec<A, 1> y = product(p.b, p.b_steps, p.bias, p.bias_steps);
  moe::apply_unit<T, GATED>(p, y, GATED ? product(p.up, p.up_steps, p.up_bias, p.up_bias_steps) : y);
  if (lane_id() == 0) static_cast<T*>(p.hidden)[number] = from_acc<T>(y[0]);
}

// y, by h as x in dense rows of p.k numbers.
template <class T> BARACUDA_D void moe_decode_out(const MoeSimtParams& p) {
  using A = acc_t<T>;
  const i64 number = moe::warp_number();
  if (number >= p.tokens * p.n) return;
  u64 n;
  const int token = static_cast<int>(divmod(static_cast<u64>(number), static_cast<u64>(p.n), n));
  const i64 column = static_cast<i64>(n);
  A y = A(0);
  for (int j = 0; j < p.choices; ++j) {
    const int slot = token * p.choices + j, expert = moe::expert_of(p, slot);
    if (expert < 0) continue;
    const T* const w = static_cast<const T*>(p.b) + expert * p.b_steps[0] + column * p.b_steps[1];
    Vec<A, 1> sum{{moe::dot(static_cast<const T*>(p.hidden) + slot * p.k, i64(1), w, p.b_steps[2], p.k)}};
    moe::add_bias<T>(sum, p.bias, p.bias_steps, expert, column, i64(1));
    y += to_acc(from_acc<T>(sum[0])) * moe::weight_of<T>(p, token, j);
  }
  if (lane_id() == 0) static_cast<T*>(p.y)[token * p.y_steps[0] + column * p.y_steps[1]] = from_acc<T>(y);
}

}  // namespace baracuda
