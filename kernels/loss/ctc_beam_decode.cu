// ctc_beam_decode   the likeliest spellings of a sequence, by a search that keeps the best beginnings (prefixes)
//
// ctc_frames        a block for each frame finds its `width` likeliest labels, of equal ones the lowest, without the blank.
// ctc_beam_decode   a warp for each sequence, a lane for each prefix, which has two sums over paths: of those that end in the
//                   blank and of those that end in its label. A prefix stays, repeats its label behind a blank, or goes on
//                   by a listed label; where that makes another prefix of the beam, the paths count there.
//
// Prefixes are nodes of a tree in the workspace, each there once, so that two are equal where their nodes are. The best of
// all continuations are taken one after another: a lane's continuations are in their order already. Sums are in double,
// and compared as float: what differs by the rounding of a logarithm alone is equal, and the earlier prefix comes first.
#include "loss/ctc.cuh"
#include "random/best_few.cuh"

namespace baracuda {

// A logarithm of a probability; NaN and +inf are of none.
template <class A> BARACUDA_D A probable(A x) { return x < numeric<A>::infinity() ? x : -numeric<A>::infinity(); }

// log(exp(a) + exp(b))
BARACUDA_D double log_add(double a, double b) {
  const double top = max(a, b), low = min(a, b);
  return top == -numeric<double>::infinity() ? top : top + math::log1p(math::exp(low - top));
}

// Larger for what is likelier; 0 for what is impossible.
BARACUDA_D u32 score_key(double score) {
  const float rounded = static_cast<float>(score);
  return rounded > -numeric<float>::infinity() ? sampling::Keys<float>::of(rounded) : 0;
}

BARACUDA_D i64 frames_of(const CtcBeamParams& p, i64 n) {
  if (p.lengths == nullptr) return p.steps;
  return max<i64>(0, min(ctc_integer(p.lengths, p.wide_lengths, n * p.length_step), p.steps));
}

// The labels of a frame.
template <class R, class A = typename R::A, class K = typename R::K> struct FrameLabels {
  const R& row;
  u32 blank;

  template <int FLIGHT, class F> BARACUDA_D void each(const F& f) const {
    row.template walk<FLIGHT>(0, row.cols, threadIdx.x, blockDim.x, [&](A x, bool there, u32 col) {
      f(there && col != blank ? sampling::Keys<A>::of(probable(x)) : K(0), col);
    });
  }
};

template <class T, bool WIDE> BARACUDA_D void ctc_frames(const CtcBeamParams& p) {
  using namespace sampling;
  using R = Row<T, 1024, WIDE>;
  using A = typename R::A;
  using K = typename R::K;
  __shared__ Memory<K> memory;
  const i64 n = blockIdx.x / p.steps, t = blockIdx.x % p.steps;
  if (t >= frames_of(p, n)) return;
  const R row{static_cast<const T*>(p.log_probs) + t * p.step[0] + n * p.step[1],
              p.step[2],
              static_cast<int>(p.classes),
              0,
              {A(0), 1.0, false},
              false,
              memory};
  const FrameLabels<R> from{row, static_cast<u32>(p.blank)};
  const int count = list_best(from, p.width, memory.candidates, memory.listed), i = static_cast<int>(threadIdx.x);
  i32* const labels = static_cast<i32*>(p.labels) + static_cast<i64>(blockIdx.x) * p.width;
  if (i < count) {
    const u32 col = memory.candidates.col[i];
    const int rank = rank_of(memory.candidates, count, memory.candidates.key[i], col);
    if (rank < p.width) labels[rank] = static_cast<i32>(col);
  } else if (i < p.width) {
    labels[i] = -1;  // there are fewer
  }
}

struct CtcNode {
  i32 parent, label, child, next;  // child: one of those that are longer by a label; next: another child of the parent
};

template <class T> BARACUDA_D void ctc_beam_decode(const CtcBeamParams& p) {
  using namespace sampling;
  using A = acc_t<T>;
  const double none = -numeric<double>::infinity();
  __shared__ i32 frame_label[warp_size], nodes_of[warp_size], parents[warp_size], labels[warp_size], ranks[warp_size];
  __shared__ i32 lengths[warp_size], source[warp_size], added[warp_size];
  __shared__ double frame_value[warp_size], totals[warp_size], blanks[warp_size], next_blank[warp_size];
  __shared__ double next_label[warp_size];
  const i64 n = blockIdx.x, end = frames_of(p, n);
  const int lane = lane_id();
  CtcNode* const nodes = static_cast<CtcNode*>(p.nodes) + n * (p.steps * p.width + 1);
  if (lane == 0) nodes[0] = {-1, -1, -1, -1};
  i32 node = 0, parent = -1, label = -1, length = 0;
  double blank_sum = 0, label_sum = none;
  int active = 1;
  for (i64 t = 0; t < end; ++t) {
    const T* const frame = static_cast<const T*>(p.log_probs) + t * p.step[0] + n * p.step[1];
    auto log_prob = [&](i64 c) { return c < 0 ? none : static_cast<double>(probable(to_acc(frame[c * p.step[2]]))); };
    const bool alive = lane < active;
    const double total = alive ? log_add(blank_sum, label_sum) : none;
    const i32 listed = lane < p.width ? static_cast<const i32*>(p.labels)[(n * p.steps + t) * p.width + lane] : -1;
    frame_label[lane] = listed, frame_value[lane] = log_prob(listed);
    nodes_of[lane] = node, parents[lane] = parent, labels[lane] = label, lengths[lane] = length;
    totals[lane] = total, blanks[lane] = blank_sum;
    __syncwarp();
    int rank = -1;  // of the prefix's own label in the frame
    for (int i = 0; i < p.width; ++i) rank = label >= 0 && frame_label[i] == label ? i : rank;
    ranks[lane] = rank;
    __syncwarp();
    u32 left = __ballot_sync(full_warp, listed >= 0) & (rank < 0 ? full_warp : ~(1u << rank));
    bool repeats = alive && label >= 0;
    int shorter = -1;  // the lane that has the prefix without its label
    for (int i = 0; i < active; ++i) {
      if (nodes_of[i] == parent) shorter = i;
      if (parents[i] != node) continue;  // a longer one, which the beam has
      if (ranks[i] >= 0) left &= ~(1u << ranks[i]);
      if (labels[i] == label) repeats = false;
    }
    const double here = log_prob(label), stays_blank = total + log_prob(p.blank);
    double stays_label = label_sum + here;
    if (shorter >= 0) {
      stays_label = log_add(stays_label, (labels[shorter] == label ? blanks[shorter] : totals[shorter]) + here);
    }
    u32 stay = alive ? score_key(log_add(stays_blank, stays_label)) : 0;
    u32 repeat = repeats ? score_key(blank_sum + here) : 0;
    if (!alive) left = 0;
    int made = 0;
    for (; made < p.width; ++made) {
      const int first = __ffs(static_cast<int>(left)) - 1;
      const double longer = first < 0 ? none : total + frame_value[first];
      const u32 other = score_key(longer);
      const Best<u32> best = warp_reduce<BestOf>(Best<u32>{max(stay, max(repeat, other)), static_cast<u32>(lane)});
      if (best.key == 0) break;
      if (best.col != static_cast<u32>(lane)) continue;
      source[made] = lane, added[made] = -1, next_blank[made] = none;
      if (stay == best.key) {
        next_blank[made] = stays_blank, next_label[made] = stays_label, stay = 0;
      } else if (repeat == best.key) {
        added[made] = label, next_label[made] = blank_sum + here, repeat = 0;
      } else {
        added[made] = frame_label[first], next_label[made] = longer, left &= left - 1;
      }
    }
    __syncwarp();
    active = made;
    i32 before = -1, found = -1;
    bool longer = false;
    if (lane < active) {
      const int from = source[lane];
      longer = added[lane] >= 0;
      before = nodes_of[from], length = lengths[from] + longer;
      node = before, parent = longer ? before : parents[from], label = longer ? added[lane] : labels[from];
      blank_sum = next_blank[lane], label_sum = next_label[lane];
      if (longer) {
        for (found = nodes[before].child; found >= 0 && nodes[found].label != label;) found = nodes[found].next;
      }
    }
    __syncwarp();
    if (longer) {
      node = found;
      if (found < 0) {
        node = static_cast<i32>(1 + t * p.width + lane);
        nodes[node] = {before, label, -1, atomicExch(&nodes[before].child, node)};
      }
    }
    __syncwarp();
  }
  lengths[lane] = lane < active ? length : 0;
  __syncwarp();
  if (lane < p.best) {
    const double score = lane < active ? log_add(blank_sum, label_sum) : none;
    static_cast<A*>(p.scores)[n * p.score_step[0] + lane * p.score_step[1]] = static_cast<A>(score);
    static_cast<i32*>(p.counts)[n * p.count_step[0] + lane * p.count_step[1]] = lengths[lane];
  }
  auto put = [&](i64 rank, i64 place, i64 value) {
    const i64 at = n * p.token_step[0] + rank * p.token_step[1] + place * p.token_step[2];
    if (p.wide) static_cast<i64*>(p.tokens)[at] = value;
    else static_cast<i32*>(p.tokens)[at] = static_cast<i32>(value);
  };
  if (lane < p.best && lane < active) {
    for (i64 place = length - 1; place >= 0; --place, node = nodes[node].parent) put(lane, place, nodes[node].label);
  }
  for (int k = 0; k < p.best; ++k) {
    for (i64 place = lengths[k] + lane; place < p.steps; place += warp_size) put(k, place, -1);
  }
}

}  // namespace baracuda
