// verify_chain   token i is accepted where u_i q_i < p_i; at the first that is not, one is drawn from max(p - q, 0), after
//                the last from the target (Leviathan, Kalman, Matias 2023).
//
// A block for each sequence; order of sums: row_draw.cuh.
#include "random/speculative.cuh"

namespace baracuda {

template <class T> BARACUDA_D void verify_chain(const VerifyChainParams& p) {
  __shared__ u64 sums[32];
  const i64 row = blockIdx.x;
  const u64 seed = p.seed(), offset = p.offset();
  const T* const target = static_cast<const T*>(p.target_probs) + row * p.target_strides[0];
  const T* const draft = static_cast<const T*>(p.draft_probs) + row * p.draft_strides[0];
  i64 stop = p.steps;
  for (i64 i = threadIdx.x; i < p.steps; i += blockDim.x) {
    const i64 token = whole_at(p, p.draft_ids, row * p.ids_strides[0] + i * p.ids_strides[1]);
    bool stays = token >= 0 && token < p.cols;
    if (stays) {
      const double q = static_cast<double>(to_acc(draft[i * p.draft_strides[1] + token * p.draft_strides[2]]));
      const double x = static_cast<double>(to_acc(target[i * p.target_strides[1] + token * p.target_strides[2]]));
      const double u = static_cast<double>(one_word(seed, offset, row * (p.steps + 1) + i) >> 11) * 0x1p-53;
      stays = u * q < x;
    }
    if (!stays) stop = min<i64>(stop, i);
  }
  stop = block_reduce<Min, 1024>(stop);
  const T* const at = target + stop * p.target_strides[1];
  const T* const drafted = draft + stop * p.draft_strides[1];
  const u64 word = one_word(seed, offset, row * (p.steps + 1) + p.steps);
  i64 id = -1;
#pragma unroll 1
  for (int rests = stop < p.steps ? 1 : 0; rests >= 0 && id < 0; --rests) {  // all were accepted, or nothing is left
    const auto weight = [&](i64 i) {
      const double x = static_cast<double>(to_acc(at[i * p.target_strides[2]]));
      return rests ? x - static_cast<double>(to_acc(drafted[i * p.draft_strides[2]])) : x;
    };
    id = rows::draw_row(weight, p.cols, p.bits, word, sums);
  }
  for (i64 i = threadIdx.x; i <= p.steps; i += blockDim.x) {
    const i64 token = i < stop ? whole_at(p, p.draft_ids, row * p.ids_strides[0] + i * p.ids_strides[1]) : -1;
    put_whole(p, p.ids, row * p.out_strides[0] + i * p.out_strides[1], i == stop ? id : token);
  }
  if (threadIdx.x == 0 && p.accepted != nullptr) static_cast<i32*>(p.accepted)[row * p.accepted_stride] = stop;
  if (threadIdx.x == 0 && id < 0 && p.status != nullptr) atomicOr(p.status, 1u);
}

}  // namespace baracuda
