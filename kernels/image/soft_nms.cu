// soft_nms   boxes in the order of the scores that they have left when better ones are taken
//
// One block: a pass over the boxes sinks their scores by the box taken last, and finds the largest that is left. A score
// is multiplied in the order in which boxes are taken, and of equal scores the lowest index is the largest.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

template <class T> BARACUDA_D void soft_nms(const SoftNmsParams& p) {
  using A = acc_t<T>;
  const A most = static_cast<A>(p.iou_threshold()), least = static_cast<A>(p.score_threshold());
  const double sigma = p.sigma();
  A* const left = static_cast<A*>(p.left);
  const T* const boxes = static_cast<const T*>(p.boxes);
  const auto read = [&](i64 i, A(&box)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) box[k] = to_acc(boxes[i * p.box_steps[0] + k * p.box_steps[1]]);
  };
  const auto group = [&](i64 i) {
    return p.groups == nullptr ? i64(0) : read_index(p.groups, p.groups_wide, i * p.group_step);
  };
  // A score of a box that is taken or dropped is NaN.
  const A gone = numeric<A>::nan();
  for (i64 i = threadIdx.x; i < p.boxes_count; i += soft_threads) {
    const A score = to_acc(static_cast<const T*>(p.scores)[i * p.score_step]);
    left[i] = score >= least ? score : gone;
  }
  A last[4] = {A(0), A(0), A(0), A(0)}, last_area = A(0);
  i64 taken = -1, last_group = 0, count = 0;
#pragma unroll 1
  for (;; ++count) {
    // A thread without a box has the index behind the last, which loses to any box.
    Indexed<A> best{numeric<A>::bottom(), p.boxes_count};
#pragma unroll 1
    for (i64 i = threadIdx.x; i < p.boxes_count; i += soft_threads) {
      A score = left[i];
      if (score != score) continue;
      if (i == taken) {
        left[i] = gone;
        continue;
      }
      if (taken >= 0 && group(i) == last_group) {
        A own[4];
        read(i, own);
        const A w = math::fmax(math::fmin(last[2], own[2]) - math::fmax(last[0], own[0]), A(0));
        const A h = math::fmax(math::fmin(last[3], own[3]) - math::fmax(last[1], own[1]), A(0));
        const A shared = w * h, area = (own[2] - own[0]) * (own[3] - own[1]);
        const A iou = shared / (last_area + area - shared);
        if (!p.gaussian) {
          if (iou > most) score = score * (A(1) - iou);
        } else if (iou == iou) {
          const double part = static_cast<double>(iou);
          score = static_cast<A>(static_cast<double>(score) * math::exp(-(part * part) / sigma));
        }
        left[i] = score = score >= least ? score : gone;
      }
      if (score == score) best = ArgMax::apply(best, Indexed<A>{score, i});
    }
    best = block_reduce<ArgMax, soft_threads>(best);
    if (best.index == p.boxes_count) break;
    taken = best.index, last_group = group(taken);
    read(taken, last);
    last_area = (last[2] - last[0]) * (last[3] - last[1]);
    if (threadIdx.x == 0) {
      static_cast<i64*>(p.keep)[count * p.keep_step] = taken;
      static_cast<T*>(p.kept_scores)[count * p.kept_step] = from_acc<T>(best.value);
    }
  }
  for (i64 i = count + threadIdx.x; i < p.boxes_count; i += soft_threads) {
    static_cast<i64*>(p.keep)[i * p.keep_step] = -1;
    static_cast<T*>(p.kept_scores)[i * p.kept_step] = from_acc<T>(A(0));
  }
  if (threadIdx.x == 0) *static_cast<i64*>(p.count) = count;
}

}  // namespace baracuda
