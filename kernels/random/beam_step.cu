// beam_step   the `width` largest of score[k] + logprob[k, v] over all beams k and tokens v of a batch item, in their
//             order, with the beam and the token of each; of equal ones the lower k V + v first.
//
// beam_parts  a block finds those of a part of a beam's tokens, and leaves them, keys and places, in the workspace.
// beam_step   a block for each item finds those of what the parts left.
#include "random/best_few.cuh"

namespace baracuda::sampling {

// A part of a beam's tokens.
template <class R, class A = typename R::A> struct BeamPart {
  const R& row;
  A score;
  u32 first;  // the place of the beam's token 0
  int begin, end;

  // f(key, place) of every continuation, by all threads of the block; key 0 where there is none.
  template <int FLIGHT, class F> BARACUDA_D void each(const F& f) const {
    row.template walk<FLIGHT>(begin, end, threadIdx.x, blockDim.x, [&](A x, bool there, u32 col) {
      f(there ? Keys<A>::of(score + x) : typename R::K(0), first + col);
    });
  }
};
// What the parts of an item left.
template <class K> struct BeamBest {
  const K* key;
  const u32* place;
  int count;

  template <int, class F> BARACUDA_D void each(const F& f) const {
    for (int i = threadIdx.x; i < count; i += blockDim.x) f(key[i], place[i]);
  }
};

}  // namespace baracuda::sampling

namespace baracuda {

template <class T, bool WIDE> BARACUDA_D void beam_parts(const BeamStepParams& p) {
  using namespace sampling;
  using R = Row<T, 1024, WIDE>;
  using A = typename R::A;
  using K = typename R::K;
  __shared__ Memory<K> memory;
  const u32 part = blockIdx.x % p.parts, beams = blockIdx.x / p.parts;
  const i64 k = beams % p.beams, item = beams / p.beams;
  const R row{static_cast<const T*>(p.logprobs) + item * p.strides[0] + k * p.strides[1],
              p.strides[2],
              static_cast<int>(p.cols),
              0,
              {A(0), 1.0, false},
              false,
              memory};
  const int begin = static_cast<int>(part) * p.share;
  const BeamPart<R> from{row, static_cast<const A*>(p.scores)[item * p.score_strides[0] + k * p.score_strides[1]],
                         static_cast<u32>(k * p.cols), begin, begin + min(row.cols - begin, p.share)};
  const int n = list_best(from, p.width, memory.candidates, memory.listed), t = threadIdx.x;
  K* const keys = static_cast<K*>(p.keys) + static_cast<i64>(blockIdx.x) * p.width;
  u32* const places = static_cast<u32*>(p.places) + static_cast<i64>(blockIdx.x) * p.width;
  if (t < n) {
    const K key = memory.candidates.key[t];
    const u32 at = memory.candidates.col[t];
    const int rank = rank_of(memory.candidates, n, key, at);
    if (rank < p.width) keys[rank] = key, places[rank] = at;
  } else if (t < p.width) {
    keys[t] = 0;  // the part has fewer
  }
}

template <class T> BARACUDA_D void beam_step(const BeamStepParams& p) {
  using namespace sampling;
  using A = acc_t<T>;
  using K = typename Keys<A>::type;
  __shared__ ShortList<K> list;
  __shared__ u32 listed;
  const i64 item = blockIdx.x, number = static_cast<i64>(p.beams) * p.parts * p.width;
  const BeamBest<K> from{static_cast<const K*>(p.keys) + item * number,
                         static_cast<const u32*>(p.places) + item * number, static_cast<int>(number)};
  const int n = list_best(from, p.width, list, listed), t = threadIdx.x;
  if (t >= n) return;
  const K key = list.key[t];
  const u32 at = list.col[t];
  const int rank = rank_of(list, n, key, at);
  if (rank >= p.width) return;
  const i64 beam = at / p.cols, token = at - beam * p.cols;
  const i64 place = item * p.out_strides[0] + rank * p.out_strides[1];
  static_cast<A*>(p.next_scores)[place] = Keys<A>::value(key);
  static_cast<i32*>(p.parents)[item * p.parent_strides[0] + rank * p.parent_strides[1]] = static_cast<i32>(beam);
  const i64 out = item * p.token_strides[0] + rank * p.token_strides[1];
  if (p.wide) static_cast<i64*>(p.tokens)[out] = token;
  else static_cast<i32*>(p.tokens)[out] = static_cast<i32>(token);
}

}  // namespace baracuda
