// soft_nms   boxes in the order of the scores that they have left when better ones are taken
//
// One block: a pass over the boxes sinks their scores by the box taken last, and finds the largest that is left. A score
// is multiplied in the order in which boxes are taken, and of equal scores the lowest index is the largest. soft_nms_held
// keeps boxes and scores in registers, soft_nms of any number of boxes the scores in the workspace. Of soft_nms_pairs, which
// many blocks run before it, soft_nms_walk knows which boxes sink each other, so that a pass touches few.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// What a pass knows of the box taken last, and what it does to the others.
template <class T> struct Sinking {
  using A = acc_t<T>;
  const SoftNmsParams& p;
  const A most, least;
  const double sigma;
  const bool still;  // boxes that share nothing are left alone, as 1 - 0 and exp(-0) are 1
  i64 taken, last_group;
  A last[4], last_area;

  BARACUDA_D explicit Sinking(const SoftNmsParams& p)
      : p(p), most(static_cast<A>(p.iou_threshold())), least(static_cast<A>(p.score_threshold())), sigma(p.sigma()),
        still(!p.gaussian || math::abs(sigma) > 0.0), taken(-1), last_group(0), last_area(0) {}

  BARACUDA_D void read(i64 i, A (&box)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      box[k] = to_acc(static_cast<const T*>(p.boxes)[i * p.box_steps[0] + k * p.box_steps[1]]);
    }
  }
  BARACUDA_D i64 group(i64 i) const {
    return p.groups == nullptr ? i64(0) : read_index(p.groups, p.groups_wide, i * p.group_step);
  }
  // A score of a box that is taken or dropped is NaN.
  BARACUDA_D A kept(A score) const { return score >= least ? score : numeric<A>::nan(); }
  BARACUDA_D A first(i64 i) const { return kept(to_acc(static_cast<const T*>(p.scores)[i * p.score_step])); }

  BARACUDA_D void take(i64 i) {
    taken = i, last_group = group(i);
    read(i, last);
    last_area = (last[2] - last[0]) * (last[3] - last[1]);
  }
  // Whether a box and box i sink each other, and their iou.
  BARACUDA_D bool meets(const A (&box)[4], A box_area, i64 box_group, i64 i, const A (&own)[4], A& iou) const {
    const A w = math::fmax(math::fmin(box[2], own[2]) - math::fmax(box[0], own[0]), A(0));
    const A h = math::fmax(math::fmin(box[3], own[3]) - math::fmax(box[1], own[1]), A(0));
    const A shared = w * h;
    if ((shared == A(0) && still) || group(i) != box_group) return false;
    const A area = (own[2] - own[0]) * (own[3] - own[1]);
    iou = shared / (box_area + area - shared);
    return p.gaussian ? iou == iou : iou > most;
  }
  // The score of box i, which is left; changed: whether it is another one than before.
  BARACUDA_D A sink(A score, i64 i, const A (&own)[4], bool& changed) const {
    A iou;
    if (!meets(last, last_area, last_group, i, own, iou)) return score;
    if (!p.gaussian) {
      score = score * (A(1) - iou);
    } else {
      const double part = static_cast<double>(iou);
      score = static_cast<A>(static_cast<double>(score) * math::exp(-(part * part) / sigma));
    }
    changed = true;
    return kept(score);
  }
  template <class B> BARACUDA_D void write(i64 count, const B& best) const {
    static_cast<i64*>(p.keep)[count * p.keep_step] = best.index;
    static_cast<T*>(p.kept_scores)[count * p.kept_step] = from_acc<T>(best.value);
  }
  BARACUDA_D void finish(i64 count, int threads) const {
    for (i64 i = count + threadIdx.x; i < p.boxes_count; i += threads) {
      static_cast<i64*>(p.keep)[i * p.keep_step] = -1;
      static_cast<T*>(p.kept_scores)[i * p.kept_step] = from_acc<T>(A(0));
    }
    if (threadIdx.x == 0) *static_cast<i64*>(p.count) = count;
  }
};

template <class A> struct HeldScore {
  A value;
  i32 index;  // of what is no box the number of boxes, which loses to any box
};

// EACH boxes of a thread. A warp finds its best again only where one of its scores has changed.
template <class T, int EACH> BARACUDA_D void soft_nms_held(const SoftNmsParams& p) {
  using A = acc_t<T>;
  constexpr int warps = soft_held / warp_size;
  __shared__ HeldScore<A> bests[2][warps];  // in turns, so that one barrier a pass is enough
  Sinking<T> sinking(p);
  const int count_of = static_cast<int>(p.boxes_count);
  A score[EACH], box[EACH][4];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * soft_held;
    score[k] = i < count_of ? sinking.first(i) : numeric<A>::nan();
    sinking.read(min(i, count_of - 1), box[k]);
  }
  HeldScore<A> own{numeric<A>::bottom(), count_of};
  bool changed = true;
  i64 count = 0;
#pragma unroll 1
  for (;; ++count) {
    if (count > 0) {
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const int i = static_cast<int>(threadIdx.x) + k * soft_held;
        if (score[k] != score[k]) continue;
        if (i == sinking.taken) score[k] = numeric<A>::nan(), changed = true;
        else score[k] = sinking.sink(score[k], i, box[k], changed);
      }
    }
    if (__any_sync(full_warp, changed)) {
      own = HeldScore<A>{numeric<A>::bottom(), count_of};
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const HeldScore<A> one{score[k], static_cast<i32>(threadIdx.x) + k * soft_held};
        if (score[k] == score[k]) own = ArgMax::apply(own, one);
      }
      own = warp_reduce<ArgMax>(own);
      changed = false;
    }
    HeldScore<A>* const turn = bests[count & 1];
    if (lane_id() == 0) turn[threadIdx.x / warp_size] = own;
    __syncthreads();
    const HeldScore<A> best = group_reduce<ArgMax, warps>(HeldScore<A>(turn[lane_id() % warps]));
    if (best.index == count_of) break;
    sinking.take(best.index);
    if (threadIdx.x == 0) sinking.write(count, best);
  }
  sinking.finish(count, soft_held);
}

// Thread t of a block, as later of the walk, has boxes t EACH and on: a word, in which it is said for each of `soft_rows`
// boxes which of its own they meet.
template <int EACH> using SoftWord = conditional<EACH == 32, u32, u16>;

template <class T, int EACH> BARACUDA_D void soft_nms_pairs(const SoftNmsParams& p) {
  using A = acc_t<T>;
  __shared__ A boxes[soft_rows][4], areas[soft_rows];
  __shared__ i64 groups[soft_rows];
  const Sinking<T> sinking(p);
  const i64 first = static_cast<i64>(blockIdx.x) * soft_rows, own = static_cast<i64>(threadIdx.x) * EACH;
  if (threadIdx.x < soft_rows) {
    const i64 i = min(first + threadIdx.x, p.boxes_count - 1);
    A box[4];
    sinking.read(i, box);
#pragma unroll
    for (int k = 0; k < 4; ++k) boxes[threadIdx.x][k] = box[k];
    areas[threadIdx.x] = (box[2] - box[0]) * (box[3] - box[1]), groups[threadIdx.x] = sinking.group(i);
  }
  __syncthreads();
  u32 found[soft_rows];
#pragma unroll
  for (int r = 0; r < soft_rows; ++r) found[r] = 0;
#pragma unroll 1
  for (int k = 0; k < EACH && own + k < p.boxes_count; ++k) {
    A box[4], iou;
    sinking.read(own + k, box);
#pragma unroll
    for (int r = 0; r < soft_rows; ++r) {
      if (sinking.meets(boxes[r], areas[r], groups[r], own + k, box, iou)) found[r] |= 1u << k;
    }
  }
  SoftWord<EACH>* const words = static_cast<SoftWord<EACH>*>(p.words);
#pragma unroll
  for (int r = 0; r < soft_rows; ++r) {
    const i64 row = first + r;
    if (row < p.boxes_count) words[row * soft_walkers + threadIdx.x] = static_cast<SoftWord<EACH>>(found[r]);
  }
}

// A thread finds its best box again only where that has been taken or has sunk, and a warp where one of its threads has.
template <class T, int EACH> BARACUDA_D void soft_nms_walk(const SoftNmsParams& p) {
  using A = acc_t<T>;
  constexpr int warps = soft_walkers / warp_size;
  BARACUDA_DYNAMIC_SMEM(A, scores);         // the k-th of a thread is at k soft_walkers + thread
  __shared__ HeldScore<A> bests[2][warps];  // in turns, so that one barrier a pass is enough
  Sinking<T> sinking(p);
  const SoftWord<EACH>* const words = static_cast<const SoftWord<EACH>*>(p.words);
  const int count_of = static_cast<int>(p.boxes_count), thread = static_cast<int>(threadIdx.x), from = thread * EACH;
#pragma unroll 4
  for (int k = 0; k < EACH; ++k) {
    scores[k * soft_walkers + thread] = from + k < count_of ? sinking.first(from + k) : numeric<A>::nan();
  }
  HeldScore<A> own{numeric<A>::bottom(), count_of}, warp_best = own;
  bool changed = true;
  i64 count = 0;
#pragma unroll 1
  for (;; ++count) {
    if (changed) {
      own = HeldScore<A>{numeric<A>::bottom(), count_of};
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const A score = scores[k * soft_walkers + thread];
        if (score == score) own = ArgMax::apply(own, HeldScore<A>{score, from + k});
      }
    }
    if (__any_sync(full_warp, changed)) warp_best = warp_reduce<ArgMax>(own);
    changed = false;
    HeldScore<A>* const turn = bests[count & 1];
    if (lane_id() == 0) turn[thread / warp_size] = warp_best;
    __syncthreads();
    const HeldScore<A> best = group_reduce<ArgMax, warps>(HeldScore<A>(turn[lane_id() % warps]));
    if (best.index == count_of) break;
    u32 left = words[static_cast<i64>(best.index) * soft_walkers + thread];
    sinking.take(best.index);
    if (thread == 0) sinking.write(count, best);
    if (best.index / EACH == thread) {
      scores[(best.index - from) * soft_walkers + thread] = numeric<A>::nan();
      changed = true;
    }
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      const int k = __ffs(static_cast<int>(left)) - 1;
      A& score = scores[k * soft_walkers + thread];
      if (score != score) continue;
      A box[4];
      sinking.read(from + k, box);
      bool sunk = false;
      score = sinking.sink(score, from + k, box, sunk);
      changed = changed || (sunk && from + k == own.index);
    }
  }
  sinking.finish(count, soft_walkers);
}

template <class T> BARACUDA_D void soft_nms(const SoftNmsParams& p) {
  using A = acc_t<T>;
  Sinking<T> sinking(p);
  A* const left = static_cast<A*>(p.left);
  for (i64 i = threadIdx.x; i < p.boxes_count; i += soft_threads) left[i] = sinking.first(i);
  i64 count = 0;
#pragma unroll 1
  for (;; ++count) {
    Indexed<A> best{numeric<A>::bottom(), p.boxes_count};
#pragma unroll 1
    for (i64 i = threadIdx.x; i < p.boxes_count; i += soft_threads) {
      A score = left[i];
      if (score != score) continue;
      if (i == sinking.taken) {
        left[i] = numeric<A>::nan();
        continue;
      }
      if (count > 0) {
        A own[4];
        sinking.read(i, own);
        bool changed = false;
        score = sinking.sink(score, i, own, changed);
        if (changed) left[i] = score;
      }
      if (score == score) best = ArgMax::apply(best, Indexed<A>{score, i});
    }
    best = block_reduce<ArgMax, soft_threads>(best);
    if (best.index == p.boxes_count) break;
    sinking.take(best.index);
    if (threadIdx.x == 0) sinking.write(count, best);
  }
  sinking.finish(count, soft_threads);
}

}  // namespace baracuda
