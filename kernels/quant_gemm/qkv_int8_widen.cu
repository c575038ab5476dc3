// qkv_int8_widen   int8 numbers, times a scale and those of their rows or columns where there are any, in the element
//                  that a dense product reads, rounded once. A thread has 16 columns of a row.
#include <baracuda/byte_numbers.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <class T> BARACUDA_D void qkv_int8_widen(const QkvInt8WidenParams& p) {
  constexpr int count = 16;
  const i64 chunks = div_up(p.cols, i64(count)), at = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  const i64 row = at / chunks, col = at % chunks * count, left = p.cols - col;
  if (row >= p.rows) return;
  const i8* const from = static_cast<const i8*>(p.w) + row * p.w_steps[0] + col * p.w_steps[1];
  const auto w =
      p.wide && left >= count ? load_readonly<count>(from) : load_strided<i8, count>(from, p.w_steps[1], left);
  T* const to = static_cast<T*>(p.y) + row * p.y_pitch + col;
  const float* const scales = static_cast<const float*>(p.scales) + row * p.scale_steps[0];
  const float scale = p.scaled ? static_cast<float>(p.scale()) : 1.0f;
#pragma unroll
  for (int octet = 0; octet < count; octet += 8) {
    Vec<T, 8> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float value = static_cast<float>(w[octet + j]) * scale;
      if (p.scales != nullptr) value *= scales[min<i64>(col + octet + j, p.cols - 1) * p.scale_steps[1]];
      y[j] = from_acc<T>(value);
    }
    store_vec<T, 8, true>(to + octet, y, left - octet);
  }
}

}  // namespace baracuda
