// adam_step      g = grad * grad_scale (+ weight_decay * p for Adam);   p *= 1 - lr * weight_decay (AdamW)
//                m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//                p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// One block for each chunk of CHUNK elements of one tensor; a thread's next vectors are in flight while it computes the
// current ones. Elementwise: no bit depends on the chunk, the width of an access or the strides.
#include <baracuda/index.cuh>
#include <baracuda/multi_tensor.cuh>
#include <baracuda/vector.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <class A> struct AdamCoefficients {
  A grad_scale, l2, keep, beta1, rest1, beta2, rest2, step_size, root, eps;
};

// In double, by one thread of the block: 1 - beta^t = -expm1(t log beta) is accurate for every t.
template <class A, class P> BARACUDA_D AdamCoefficients<A> adam_coefficients(const P& p) {
  i64 step = p.step();
  if (step < 1) {
    step = 1;
    if (p.status != nullptr) atomicOr(p.status, 1u);
  }
  const double t = static_cast<double>(step), lr = p.lr();
  const double correction1 = -math::expm1(t * p.log_beta1), correction2 = -math::expm1(t * p.log_beta2);
  return {
      static_cast<A>(p.grad_scale()),
      p.decoupled ? A(0) : static_cast<A>(p.weight_decay),
      p.decoupled ? static_cast<A>(1.0 - lr * p.weight_decay) : A(1),
      static_cast<A>(p.beta1),
      static_cast<A>(1.0 - p.beta1),
      static_cast<A>(p.beta2),
      static_cast<A>(1.0 - p.beta2),
      static_cast<A>(lr / correction1),
      static_cast<A>(1.0 / math::sqrt(correction2)),
      static_cast<A>(p.eps),
  };
}

template <class A> BARACUDA_D void adam_update(const AdamCoefficients<A>& c, A& x, A g, A& m, A& v) {
  g = g * c.grad_scale;
  if (c.l2 != A(0)) g = math::fma(c.l2, x, g);
  m = math::fma(c.beta1, m, c.rest1 * g);
  v = math::fma(c.beta2, v, (c.rest2 * g) * g);
  x = math::fma(-c.step_size, m / math::fma(math::sqrt(v), c.root, c.eps), x * c.keep);
}

// Stores the 16-bit copy of the parameters. kind: 1 float16, 2 bfloat16, else none.
template <bool WIDE, class A, int N>
BARACUDA_D void store_copy(void* base, i64 at, int kind, const Vec<A, N>& x, int left) {
  if (kind == 1) store_vec<f16, N, WIDE>(static_cast<f16*>(base) + at, from_acc<f16>(x), left);
  else if (kind == 2) store_vec<bf16, N, WIDE>(static_cast<bf16*>(base) + at, from_acc<bf16>(x), left);
}

template <class T, class G> constexpr int adam_vec = sizeof(T) == 8 ? 1 : 4;  // 16 bytes of a float moment

template <class T, class G> struct AdamVectors {
  static constexpr int VEC = adam_vec<T, G>;
  Vec<T, VEC> x;
  Vec<G, VEC> g;
  Vec<acc_t<T>, VEC> m, v;
};

template <bool WIDE, class T, class G, int THREADS, int CHUNK, class P>
BARACUDA_D void adam_chunk(const P& p, int tensor, i64 start, AdamCoefficients<acc_t<T>>& shared) {
  using A = acc_t<T>;
  constexpr int VEC = adam_vec<T, G>;
  const int size = static_cast<int>(min<i64>(CHUNK, p.sizes[tensor] - start));
  T* x = static_cast<T*>(p.params[tensor]) + start;
  const G* g = static_cast<const G*>(p.grads[tensor]) + start;
  A* m = static_cast<A*>(p.exp_avg[tensor]) + start;
  A* v = static_cast<A*>(p.exp_avg_sq[tensor]) + start;
  auto fetch = [&](int at) {
    AdamVectors<T, G> out;
    out.g = load_vec<G, VEC, WIDE, Access::streaming>(g + at, size - at);
    out.x = load_vec<T, VEC, WIDE, Access::streaming>(x + at, size - at);
    out.m = load_vec<A, VEC, WIDE, Access::streaming>(m + at, size - at);
    out.v = load_vec<A, VEC, WIDE, Access::streaming>(v + at, size - at);
    return out;
  };

  int at = static_cast<int>(threadIdx.x) * VEC;
  if (threadIdx.x == 0) shared = adam_coefficients<A>(p);
  __syncthreads();
  auto next = fetch(at);
  const AdamCoefficients<A>& c = shared;  // read again for every vector, so that registers hold data in flight
#pragma unroll 1
  for (; at < size; at += THREADS * VEC) {
    const auto now = next;
    next = fetch(at + THREADS * VEC);  // past the end nothing is read
    auto value = to_acc(now.x), gradient = cast_vec<A>(now.g), first = now.m, second = now.v;
#pragma unroll
    for (int k = 0; k < VEC; ++k) adam_update(c, value[k], gradient[k], first[k], second[k]);
    store_vec<T, VEC, WIDE>(x + at, from_acc<T>(value), size - at);
    store_vec<A, VEC, WIDE, Access::streaming>(m + at, first, size - at);
    store_vec<A, VEC, WIDE, Access::streaming>(v + at, second, size - at);
    store_copy<WIDE>(p.params_copy[tensor], start + at, p.copy_kind, value, size - at);
  }
}

template <class T, class G, int THREADS, int CHUNK, class P> BARACUDA_D void adam_step(const P& p) {
  __shared__ AdamCoefficients<acc_t<T>> shared;
  const int tensor = find_tensor(p, static_cast<int>(blockIdx.x));
  const i64 start = static_cast<i64>(static_cast<int>(blockIdx.x) - p.first[tensor]) * CHUNK;
  if (all_aligned(p.params[tensor], p.grads[tensor], p.exp_avg[tensor], p.exp_avg_sq[tensor], p.params_copy[tensor])) {
    adam_chunk<true, T, G, THREADS, CHUNK>(p, tensor, start, shared);
  } else {
    adam_chunk<false, T, G, THREADS, CHUNK>(p, tensor, start, shared);
  }
}

// One tensor whose operands have different strides.
template <class T, class G, int THREADS, class P> BARACUDA_D void adam_step_strided(const P& p) {
  using A = acc_t<T>;
  __shared__ AdamCoefficients<A> shared;
  if (threadIdx.x == 0) shared = adam_coefficients<A>(p);
  __syncthreads();
  const i64 i = thread_index();
  if (i >= p.size) return;
  i64 at[5];
  offsets<i64, 5>(i, p.rank, p.shape, p.strides, at);
  T* x = static_cast<T*>(p.params[0]) + at[0];
  A* m = static_cast<A*>(p.exp_avg[0]) + at[2];
  A* v = static_cast<A*>(p.exp_avg_sq[0]) + at[3];
  Vec<A, 1> value;
  value[0] = to_acc(*x);
  adam_update(shared, value[0], cast<A>(static_cast<const G*>(p.grads[0])[at[1]]), *m, *v);
  *x = from_acc<T>(value[0]);
  store_copy<false>(p.params_copy[0], at[4], p.copy_kind, value, 1);
}

}  // namespace baracuda
