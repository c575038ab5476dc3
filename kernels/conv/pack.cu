// pack       an operand of a convolution as its products read it: dense lines of channels, which are last, with zeros behind
//            them up to a pitch; where p.activation is one, dy act'(pre) of two.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>
#include "elementwise/unary/gelu.cuh"
#include "elementwise/unary/gelu_tanh.cuh"
#include "elementwise/unary/relu.cuh"
#include "elementwise/unary/silu.cuh"

namespace baracuda {

// to[axes of shape …][pitch] of `from`, where the channel is last; p.pre: its gradient through the activation.
template <class T> BARACUDA_D void conv_pack(const ConvPackParams& p) {
  constexpr int N = 16 / static_cast<int>(sizeof(T));
  using A = acc_t<T>;
  const i64 index = thread_index(), pieces = p.pitch / N;
  if (index >= p.count * pieces) return;
  u64 rest;
  const i64 quotient =
      static_cast<i64>(divmod(static_cast<u64>(index), static_cast<u64>(p.down ? p.count : pieces), rest));
  const i64 line = p.down ? static_cast<i64>(rest) : quotient, c = (p.down ? quotient : static_cast<i64>(rest)) * N;
  i64 at[2];
  offsets<i64, 2>(line, p.rank, p.shape, p.steps, at);
  const T* const from = static_cast<const T*>(p.from) + p.start + at[0] + c * p.channel_step[0];
  Vec<T, N> x = load_strided<T, N>(from, p.channel_step[0], p.channels - c);
  if constexpr (sizeof(T) == 1) {
    store(static_cast<T*>(p.to) + line * p.pitch + c, x);
    return;
  } else if (p.activation != 0) {
    const auto pre = to_acc(load_strided<T, N>(static_cast<const T*>(p.pre) + at[1] + c * p.channel_step[1],
                                               p.channel_step[1], p.channels - c));
    const auto through = [&](auto slope) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (c + k < p.channels) x[k] = from_acc<T>(decltype(slope)::value(to_acc(x[k]), pre[k], Coefficients<A>()));
      }
    };
    switch (static_cast<Activation>(p.activation)) {
      case Activation::relu: through(gradient::Relu<A>()); break;
      case Activation::gelu: through(gradient::Gelu<A>()); break;
      case Activation::gelu_tanh: through(gradient::GeluTanh<A>()); break;
      default: through(gradient::Silu<A>()); break;
    }
  }
  store(static_cast<T*>(p.to) + line * p.pitch + c, x);
}

}  // namespace baracuda
