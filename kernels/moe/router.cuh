#pragma once
// router     what the passes of moe_router share.
//
// A warp has a token; lane l has experts l, l + 32, …. Order of sums: over experts those of a lane from its first, then the
// warp's tree.
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace moe {

// The logits of a token; what lies behind the last expert is -inf.
template <class T, int PARTS> struct Logits {
  using A = acc_t<T>;
  static constexpr bool few = PARTS * sizeof(A) <= 32;  // registers hold what is on its way of all: nothing branches
  A x[PARTS];
  A top, sum;  // of a softmax
  const T* from;
  i64 step;
  bool sigmoid;

  template <class P> BARACUDA_D Logits(const P& p, i64 token) : top(A(0)), sum(A(1)) {
    from = static_cast<const T*>(p.logits) + token * p.logit_steps[0], step = p.logit_steps[1];
    sigmoid = p.sigmoid != 0;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int e = lane_id() + warp_size * i;
      x[i] = e < p.experts ? to_acc(from[e * step]) : -numeric<A>::infinity();
    }
  }
  // What scores are of: each lane calls it. KEEP: x becomes what `of_kept` takes.
  template <bool KEEP, class P> BARACUDA_D void settle(const P& p) {
    if (sigmoid) return;
    top = -numeric<A>::infinity(), sum = A(0);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) top = math::maximum(top, x[i]);
    top = warp_reduce<Max>(top);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const bool there = lane_id() + warp_size * i < p.experts;
      A e;
      if constexpr (few) {
        const A own = math::exp(x[i] - top);
        e = there ? own : A(0);
      } else {
        e = there ? math::exp(x[i] - top) : A(0);
      }
      sum += e;
      if constexpr (KEEP) x[i] = e;
    }
    sum = warp_reduce<Sum>(sum);
  }
  // The scores of all logits, where these are few.
  BARACUDA_D void scores(A (&to)[PARTS]) const {
    if (sigmoid) {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) to[i] = A(1) / (A(1) + math::exp(-x[i]));
    } else {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) to[i] = math::exp(x[i] - top) / sum;
    }
  }
  // The score of a logit, of what `settle` kept of one, and of an expert.
  BARACUDA_D A of(A logit) const { return sigmoid ? of_kept(logit) : of_kept(math::exp(logit - top)); }
  BARACUDA_D A of_kept(A held) const { return sigmoid ? A(1) / (A(1) + math::exp(-held)) : held / sum; }
  BARACUDA_D A of_expert(i64 e) const { return of(to_acc(from[e * step])); }
};

// acc + the first `count` lanes' numbers, one after the other.
template <class A> BARACUDA_D A in_order(A acc, A own, int count) {
#pragma unroll 1
  for (int n = 0; n < count; ++n) acc += shuffle(own, n);
  return acc;
}

// Numbers as integers in their order, -0 as 0; none of them NaN.
BARACUDA_D i32 ordered(float x) {
  const i32 bits = __float_as_int(x + 0.0f);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
BARACUDA_D i64 ordered(double x) {
  const i64 bits = __double_as_longlong(x + 0.0);
  return bits ^ (bits >> 63 & 0x7fffffffffffffffll);
}

// The experts of a lane that may be taken, best first: lists of up to 8, each in order, of equal keys the lowest expert.
template <class A, int PARTS> struct Queue {
  using Key = decltype(ordered(A(0)));
  static constexpr int each = PARTS < 8 ? PARTS : 8, lists = PARTS / each;
  static constexpr Key none = sizeof(Key) == 4 ? Key(-0x7fffffff - 1) : Key(-0x7fffffffffffffffll - 1);  // below all
  Key key[PARTS];
  int part[PARTS];

  BARACUDA_D void sort() {
#pragma unroll
    for (int l = 0; l < lists; ++l) {
#pragma unroll
      for (int round = 0; round < each; ++round) {
#pragma unroll
        for (int i = 0; i < each - 1; ++i) {
          if (i % 2 != round % 2) continue;
          const int a = l * each + i, b = a + 1;
          const bool turned = key[b] > key[a];
          const Key high = turned ? key[b] : key[a], low = turned ? key[a] : key[b];
          const int first = turned ? part[b] : part[a], second = turned ? part[a] : part[b];
          key[a] = high, key[b] = low, part[a] = first, part[b] = second;
        }
      }
    }
  }
  // The best expert of the warp, which is taken out.
  BARACUDA_D int pop() {
    Key head = key[0];
    int at = part[0], list = 0;
#pragma unroll
    for (int l = 1; l < lists; ++l) {
      if (key[l * each] > head) head = key[l * each], at = part[l * each], list = l;
    }
    const Key top = warp_reduce<Max>(head);
    const u32 votes = __ballot_sync(full_warp, head == top);
    const int own = at * warp_size + lane_id();
    int expert;
    if ((votes & (votes - 1)) == 0) expert = shuffle(own, __ffs(static_cast<int>(votes)) - 1);
    else expert = warp_reduce<Min>(head == top ? own : 0x7fffffff);
    const bool mine = own == expert;
#pragma unroll
    for (int l = 0; l < lists; ++l) {
      const bool moves = mine && list == l;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int n = l * each + i;
        key[n] = !moves ? key[n] : i + 1 < each ? key[i + 1 < each ? n + 1 : n] : none;
        if (i + 1 < each) part[n] = moves ? part[n + 1] : part[n];
      }
    }
    return expert;
  }
};

// The two largest keys of a group.
template <class A> struct Two {
  A first, second;
};
struct Largest {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D Two<A> apply(Two<A> a, Two<A> b) {
    const bool low = a.first < b.first;
    const A other = low ? a.first : b.first, own = low ? b.second : a.second;
    return {low ? b.first : a.first, other > own ? other : own};
  }
};

BARACUDA_D i64 token_of(int warps) {
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  return block * warps + threadIdx.x / warp_size;
}

}  // namespace moe
}  // namespace baracuda
