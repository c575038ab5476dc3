// draft_tree   the best nodes of a tree of drafted tokens
//
// A block for each sequence. Scores are first lowered to the least of their path, so that with ties by index a parent
// comes before its children. A candidate's rank is the count of better ones, and its node the count of chosen ones before
// it: integers, of which no order can change anything.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include "random/speculative.cuh"

namespace baracuda {

template <class T> BARACUDA_D void draft_tree(const DraftTreeParams& p) {
  using A = acc_t<T>;
  __shared__ A score[draft_most];
  __shared__ i32 parent[draft_most], node[draft_most];  // node: 0 of candidates that are not chosen
  __shared__ i32 sums[draft_threads / warp_size];
  const i64 row = blockIdx.x;
  const int count = p.candidates;
  for (int i = threadIdx.x; i < count; i += draft_threads) {
    const i64 above = whole_at(p, p.parents, row * p.parent_strides[0] + i * p.parent_strides[1]);
    parent[i] = above >= 0 && above < i ? static_cast<i32>(above) : -1;
    score[i] = to_acc(static_cast<const T*>(p.scores)[row * p.score_strides[0] + i * p.score_strides[1]]);
    if (score[i] != score[i]) score[i] = -numeric<A>::infinity();
  }
  __syncthreads();
  for (int start = 0; start < count; start += draft_threads) {  // a later candidate reads the scores of earlier ones
    const int i = start + static_cast<int>(threadIdx.x);
    A least = i < count ? score[i] : A(0);
    if (i < count) {
      for (int above = parent[i]; above >= 0; above = parent[above]) least = math::minimum(least, score[above]);
    }
    __syncthreads();
    if (i < count) score[i] = least;
    __syncthreads();
  }
  int before = 0;
  for (int start = 0; start < count; start += draft_threads) {
    const int i = start + static_cast<int>(threadIdx.x);
    int rank = 0;
    if (i < count) {
      for (int j = 0; j < count; ++j) rank += score[j] > score[i] || (score[j] == score[i] && j < i);
    }
    const int chosen = i < count && rank < p.nodes - 1;
    const int upto = block_scan<Sum, draft_threads>(chosen, sums);
    if (i < count) node[i] = chosen ? before + upto : 0;
    __syncthreads();
    if (threadIdx.x == draft_threads - 1) sums[0] = upto;
    __syncthreads();
    before += sums[0];
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x) - 1; i < count; i += draft_threads) {  // -1: the root
    const int own = i < 0 ? 0 : node[i];
    if (i >= 0 && own == 0) continue;
    const i64 root = whole_at(p, p.root_ids, row * p.root_stride);
    const i64 id = i < 0 ? root : whole_at(p, p.draft_ids, row * p.draft_strides[0] + i * p.draft_strides[1]);
    put_whole(p, p.ids, row * p.ids_strides[0] + own * p.ids_strides[1], id);
    const int above = i < 0 ? -1 : parent[i] < 0 ? 0 : node[parent[i]];
    put_whole(p, p.node_parents, row * p.node_strides[0] + own * p.node_strides[1], above);
    if (i >= 0 && p.picked != nullptr) {
      put_whole(p, p.picked, row * p.picked_strides[0] + (own - 1) * p.picked_strides[1], i);
    }
    int depth = 0;
    for (int at = i; at >= 0; at = parent[at]) ++depth;
    if (p.depths != nullptr) {
      static_cast<i32*>(p.depths)[row * p.depth_strides[0] + own * p.depth_strides[1]] = depth;
    }
    if (p.mask == nullptr) continue;
    bool* const seen = static_cast<bool*>(p.mask) + row * p.mask_strides[0] + own * p.mask_strides[1];
    for (int k = 0; k < p.nodes; ++k) seen[k * p.mask_strides[2]] = k == 0;
    for (int at = i; at >= 0; at = parent[at]) seen[node[at] * p.mask_strides[2]] = true;
  }
}

}  // namespace baracuda
