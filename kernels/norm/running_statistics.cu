// running_statistics   running = (1 - momentum) running + momentum new, new = the mean over samples of what a batch had.
//
// A thread for each channel adds the samples in order, in double.
#include "norm/channel.cuh"

namespace baracuda {

template <class T, class P>
BARACUDA_D void move_statistic(const P& p, void* running, i64 stride, const void* from, i64 channel, double factor) {
  using A = acc_t<T>;
  if (running == nullptr || p.samples == 0) return;
  double sum = 0;
#pragma unroll 4
  for (i64 n = 0; n < p.samples; ++n) sum += static_cast<double>(static_cast<const A*>(from)[n * p.channels + channel]);
  T* const place = static_cast<T*>(running) + channel * stride;
  const double momentum = p.momentum(), before = static_cast<double>(to_acc(*place));
  const double now = sum / static_cast<double>(p.samples) * factor;
  *place = cast<T>(static_cast<A>((1.0 - momentum) * before + momentum * now));
}

template <class T, class P> BARACUDA_D void running_statistics(const P& p) {
  const i64 channel = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= p.channels) return;
  move_statistic<T>(p, p.running_mean, p.mean_stride, p.mean, channel, 1.0);
  move_statistic<T>(p, p.running_var, p.var_stride, p.var, channel, p.unbiased);
}

}  // namespace baracuda
