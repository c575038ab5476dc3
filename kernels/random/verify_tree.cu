// verify_tree   at a node a token is drawn from its target distribution; where a child has it, that child is next, else it
//               ends there. So every path has the target's distribution, whatever the drafts were.
//
// A block for each sequence; order of sums: row_draw.cuh.
#include "random/speculative.cuh"

namespace baracuda {

template <class T> BARACUDA_D void verify_tree(const VerifyTreeParams& p) {
  __shared__ u64 sums[32];
  const i64 row = blockIdx.x;
  const T* const target = static_cast<const T*>(p.target_probs) + row * p.target_strides[0];
  i64 node = 0, depth = 0;
  while (true) {
    const T* const at = target + node * p.target_strides[1];
    const u64 word = one_word(p.seed(), p.offset(), row * p.nodes + depth);
    const i64 id = rows::draw_row([&](i64 i) { return static_cast<double>(to_acc(at[i * p.target_strides[2]])); },
                                  p.cols, p.bits, word, sums);
    i64 next = p.nodes;
    for (i64 c = node + 1 + threadIdx.x; c < p.nodes; c += blockDim.x) {
      const bool child = whole_at(p, p.parents, row * p.parent_strides[0] + c * p.parent_strides[1]) == node;
      if (child && whole_at(p, p.draft_ids, row * p.ids_strides[0] + c * p.ids_strides[1]) == id) {
        next = min<i64>(next, c);
      }
    }
    next = block_reduce<Min, 1024>(next);
    if (threadIdx.x == 0) {
      put_whole(p, p.ids, row * p.out_strides[0] + depth * p.out_strides[1], id);
      if (p.path != nullptr) put_whole(p, p.path, row * p.path_strides[0] + depth * p.path_strides[1], node);
      if (id < 0 && p.status != nullptr) atomicOr(p.status, 1u);
    }
    if (id < 0 || next == p.nodes) break;
    node = next, ++depth;  // a child comes after its parent, so this ends
  }
  for (i64 i = depth + 1 + threadIdx.x; i < p.nodes; i += blockDim.x) {
    put_whole(p, p.ids, row * p.out_strides[0] + i * p.out_strides[1], -1);
    if (p.path != nullptr) put_whole(p, p.path, row * p.path_strides[0] + i * p.path_strides[1], -1);
  }
  if (threadIdx.x == 0 && p.accepted != nullptr) static_cast<i32*>(p.accepted)[row * p.accepted_stride] = depth;
}

}  // namespace baracuda
