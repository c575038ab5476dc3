// moving_average_qparams  running += constant (new - running) of the smallest and the largest number of every channel, and the
//                         scale and the zero point of the running range.
//
// A thread for each channel; averages are in float, each operation rounded once, scales and zero points in double.
#include <baracuda/math.cuh>

namespace baracuda {

template <class T> BARACUDA_D float moved_average(float running, T found, float constant) {
  const float now = cast<float>(found);
  return math::isinf(running) ? now : running + constant * (now - running);
}

template <class T> BARACUDA_D void moving_average_qparams(const MovingAverageQParamsParams& p) {
  const i64 channel = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= p.channels) return;
  float* const running_min = static_cast<float*>(p.running_min) + channel * p.strides[0];
  float* const running_max = static_cast<float*>(p.running_max) + channel * p.strides[1];
  const float constant = static_cast<float>(p.averaging_const());
  float low = moved_average(*running_min, static_cast<const T*>(p.low)[channel * p.strides[2]], constant);
  float high = moved_average(*running_max, static_cast<const T*>(p.high)[channel * p.strides[3]], constant);
  *running_min = low, *running_max = high;

  const int first = p.first, last = p.last;
  const bool balanced = p.symmetric && low < 0.0f && high > 0.0f;
  if (balanced) {
    const int most = (last - first) / 2, least = -most - 1;
    const float below = math::abs(low / static_cast<float>(least)), above = math::abs(high / static_cast<float>(most));
    const double step = below < above ? above : below;
    low = static_cast<float>(step * least), high = static_cast<float>(step * most);
  }
  low = low > 0.0f ? 0.0f : low, high = high < 0.0f ? 0.0f : high;  // NaN stays
  float scale = static_cast<float>((static_cast<double>(high) - low) / (last - first));
  if (scale == 0.0f || math::isinf(1.0f / scale)) scale = 0.1f;
  const double under = low / static_cast<double>(scale), over = high / static_cast<double>(scale);
  const bool by_min =
      math::abs(static_cast<double>(first)) - math::abs(under) < math::abs(static_cast<double>(last)) - math::abs(over);
  double zero = by_min ? first - under : last - over;
  if (balanced) zero = static_cast<double>(first + last) / 2;
  const int nearest = zero == zero ? static_cast<int>(math::rint(max<double>(first, min<double>(last, zero)))) : 0;
  static_cast<float*>(p.scale)[channel * p.strides[4]] = scale;
  static_cast<int*>(p.zero_point)[channel * p.strides[5]] = max(first, min(last, nearest));
}

}  // namespace baracuda
