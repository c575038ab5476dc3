// fill     y drawn from a distribution of parameters a, b and c, each a number or an array; schedule map.
//
// Element n draws words or blocks by n, its row-major number, which is the offset in an operand without memory: never by
// thread or layout (streams.cuh). Parameters may have another element than y, which is a parameter of the kernel, too.
#include <baracuda/map.cuh>
#include "random/distributions.cuh"
#include "random/variates.cuh"

namespace baracuda::random {

enum ParameterCode { code_f32 = 0, code_f64 = 1, code_f16 = 2, code_bf16 = 3, code_i64 = 4, code_i32 = 5 };

template <class A> BARACUDA_D A parameter_at(const void* p, int code, i64 at) {
  switch (code) {
    case code_f32: return cast<A>(static_cast<const float*>(p)[at]);
    case code_f64: return cast<A>(static_cast<const double*>(p)[at]);
    case code_f16: return cast<A>(static_cast<const f16*>(p)[at]);
    case code_bf16: return cast<A>(static_cast<const bf16*>(p)[at]);
    case code_i64: return cast<A>(static_cast<const i64*>(p)[at]);
    default: return cast<A>(static_cast<const i32*>(p)[at]);
  }
}

// What all have: the stream, the parameters that are numbers, and where the others are.
template <class A> struct Drawing {
  const RandomParams& p;
  u64 seed, offset;
  A number[3];

  BARACUDA_D explicit Drawing(const RandomParams& p)
      : p(p), seed(p.seed()), offset(p.offset()),
        number{cast<A>(p.a_number()), cast<A>(p.b_number()), cast<A>(p.c_number())} {}

  template <int V> struct Chunk {
    Vec<A, V> of[3];
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 5>& place) const {
    const void* const from[3] = {p.a, p.b, p.c};
    Chunk<V> in;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const i64 step = place.splat >> (i + 1) & 1 ? 0 : k;
        in.of[i][k] = from[i] == nullptr ? number[i] : parameter_at<A>(from[i], p.codes[i], place.at[i + 1] + step);
      }
    }
    return in;
  }
  // Of a chunk whose parameters are numbers.
  template <int V> BARACUDA_D Chunk<V> fixed() const {
    Chunk<V> in;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) in.of[i][k] = number[i];
    }
    return in;
  }
};

template <class D, class T> struct WordOp : Drawing<acc_t<T>> {
  using A = acc_t<T>;
  using Drawing<A>::Drawing;
  template <int V> using Chunk = typename Drawing<A>::template Chunk<V>;

  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    word_t<A> w[V];
    words<V>(this->seed, this->offset, place.at[4], w);
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A a = in.of[0][k], b = in.of[1][k], c = in.of[2][k];
      wide[k] = inside<D, T>(D::template of<T>(w[k], a, b, c), a, b, c);
    }
    Vec<T, V> y = cast_vec<T>(wide);
    if constexpr (is_same<D, Uniform>) {  // where the sum rounds up to high it is low
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (to_acc(y[k]) >= in.of[1][k]) y[k] = cast<T>(in.of[0][k]);
      }
    }
    if (wanted) place.store(static_cast<T*>(this->p.y), 0, y);
  }
};

template <class D, class T> struct PairOp : Drawing<acc_t<T>> {
  using A = acc_t<T>;
  using Drawing<A>::Drawing;
  template <int V> using Chunk = typename Drawing<A>::template Chunk<V>;

  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    constexpr int N = V == 1 ? 2 : V;  // an element alone makes its whole pair, and takes its own
    const u64 n = place.at[4];
    word_t<A> w[N];
    words<N>(this->seed, this->offset, V == 1 ? n & ~1ull : n, w);
    A z[N];
#pragma unroll
    for (int k = 0; k < N; k += 2) normals<T>(w[k], w[k + 1], z[k], z[k + 1]);
    if (V == 1 && n & 1) z[0] = z[1];
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A loc = in.of[0][k], scale = in.of[1][k];
      wide[k] = inside<D, T>(D::of(z[k], loc, scale), loc, scale, A(1));
    }
    if (wanted) place.store(static_cast<T*>(this->p.y), 0, cast_vec<T>(wide));
  }
};

// Parameters of whole numbers and bool in float.
template <class T> using chance_t = conditional<is_same<T, double>, double, float>;

template <class D, class T> struct BitOp : Drawing<chance_t<T>> {
  using A = chance_t<T>;
  using Drawing<A>::Drawing;
  template <int V> using Chunk = typename Drawing<A>::template Chunk<V>;

  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    u32 w[V];
    words<V>(this->seed, this->offset, place.at[4], w);
    Vec<T, V> y;
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = D::template of<T>(w[k], in.of[0][k]);
    if (wanted) place.store(static_cast<T*>(this->p.y), 0, y);
  }
};

// a and b are the bounds where they are arrays; those that are not are low, and low + span.
template <class D, class T> struct WholeOp {
  const RandomParams& p;
  u64 seed, offset, span;
  i64 low;

  BARACUDA_D explicit WholeOp(const RandomParams& p)
      : p(p), seed(p.seed()), offset(p.offset()), span(p.span()), low(p.low()) {}

  template <int V> struct Chunk {};
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 5>&) const { return {}; }
  template <int V> BARACUDA_D i64 bound(const void* from, const MapPlace<V, 5>& place, int i, int k, i64 number) const {
    if (from == nullptr) return number;
    return parameter_at<i64>(from, p.codes[i], place.at[i + 1] + (place.splat >> (i + 1) & 1 ? 0 : k));
  }
  template <int V> BARACUDA_D Chunk<V> fixed() const { return {}; }
  // Of bounds that are numbers a first word serves nearly always; all that may need others are made once more.
  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>&, bool wanted) const {
    const bool numbers = p.a == nullptr && p.b == nullptr;
    const i64 end = static_cast<i64>(static_cast<u64>(low) + span);
    u32 w[V];
    words<V>(seed, offset, place.at[4], w);
    Vec<T, V> y;
    bool sure = numbers && D::is_narrow(span);
    if (sure) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const u64 product = static_cast<u64>(w[k]) * span;
        y[k] = cast<T>(D::of(product, low));
        sure = sure && !D::is_unsure(product, span);
      }
    }
    if (!sure) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        i64 from = low;
        u64 count = span;
        if (!numbers) {
          from = bound(p.a, place, 0, k, low);
          const i64 high = bound(p.b, place, 1, k, end);
          count = high > from ? static_cast<u64>(high) - static_cast<u64>(from) : 1;
        }
        y[k] = cast<T>(D::of(seed, offset, static_cast<u64>(place.at[4]) + k, w[k], from, count));
      }
    }
    if (wanted) place.store(static_cast<T*>(p.y), 0, y);
  }
};

template <class D, class T> struct TriesOp : Drawing<double> {
  using Drawing<double>::Drawing;
  template <int V> using Chunk = typename Drawing<double>::template Chunk<V>;

  template <int V> BARACUDA_D void write(const MapPlace<V, 5>& place, const Chunk<V>& in, bool wanted) const {
    static_assert(V == 1, "an element alone");
    const Tries from{this->seed, this->offset, static_cast<u64>(place.at[4])};
    const double a = in.of[0][0], b = in.of[1][0], c = in.of[2][0];
    const Vec<T, 1> y{{cast<T>(inside<D, T>(D::of(from, a, b, c), a, b, c))}};
    if (wanted) place.store(static_cast<T*>(this->p.y), 0, y);
  }
};

// Dense arrays: a thread makes one chunk after the other, so that what all of them share is read once; numbers are not
// even chosen in the loop. Then it makes UNROLL chunks at once: their rounds share keys, and one waits while others go on.
template <int V> BARACUDA_D MapPlace<V, 5> flat_place(i64 at) { return {{at, at, at, at, at}, 0}; }
template <int V, int UNROLL, class Op> BARACUDA_D void fill_flat(const RandomParams& p, const Op& op) {
  const auto each = [&](i64 done, const auto& chunk) {
    const i64 step = static_cast<i64>(gridDim.x) * map_threads;
#pragma unroll 1
    for (i64 c = done + static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x; c < p.chunks; c += step) {
      const MapPlace<V, 5> place = flat_place<V>(c * V);
      op.write(place, chunk(place), true);
    }
  };
  if (p.a == nullptr && p.b == nullptr && p.c == nullptr) {
    constexpr int tile = UNROLL * map_threads;
    const i64 tiles = UNROLL > 1 ? p.chunks / tile : 0;
    if constexpr (UNROLL > 1) {
#pragma unroll 1
      for (i64 t = blockIdx.x; t < tiles; t += gridDim.x) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          const i64 c = t * tile | (u * map_threads + threadIdx.x);  // no sum: all have the same upper half
          op.write(flat_place<V>(c * V), op.template fixed<V>(), true);
        }
      }
    }
    each(tiles * tile, [&](const MapPlace<V, 5>&) { return op.template fixed<V>(); });
  } else {
    each(0, [&](const MapPlace<V, 5>& place) { return op.read(place); });
  }
  const i64 left = p.chunks * V + threadIdx.x;
  if (V > 1 && blockIdx.x == gridDim.x - 1 && left < p.count) {
    const MapPlace<1, 5> place = flat_place<1>(left);
    op.write(place, op.read(place), true);
  }
}

}  // namespace baracuda::random

namespace baracuda {

template <template <class, class> class Op, class D, class T, class L>
BARACUDA_D void random_fill(const RandomParams& p) {
  // 16 elements of up to 4 bytes are 4 blocks of the stream. Whole numbers, which may be tried again, are long enough.
  constexpr bool whole = is_same<Op<D, T>, random::WholeOp<D, T>>;
  constexpr int unroll = whole || sizeof(T) == 8 ? 1 : max(16 / L::vec, 1);
  if constexpr (L::flat) random::fill_flat<L::vec, unroll>(p, Op<D, T>(p));
  else map_chunks<L, 5>(p, Op<D, T>(p));
}

}  // namespace baracuda
