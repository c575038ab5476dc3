// linear_attention_channel_scaled    operands of chunks of 64 steps times their decays, as walks along sequences take them,
//                                    without the delta rule: k * exp(G[63] - G), exp G[63], and for the gradients q * exp Q.
//
// G are the sums of logs of decays within the chunk, of no less than -110 each; Q is G, with a bonus G of the step before.
// k and q are normalised where that is asked for, q has the scale. What is kept has 16 bits.
//
// Schedule: a block of eight warps has a chunk of one head.
#include "recurrence/channel_chunks.cuh"

namespace baracuda {

template <class T, int DK, class P> BARACUDA_D void linear_attention_channel_scaled(const P& p) {
  using namespace recurrence::chunked;
  BARACUDA_DYNAMIC_SMEM(T, keys);                                   // [64][DK]
  float* const logs = reinterpret_cast<float*>(keys + chunk * DK);  // [64][DK]
  T* const queries = reinterpret_cast<T*>(logs + chunk * DK);       // [64][DK]
  __shared__ float of_query[chunk], of_key[chunk];
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads;
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const i64 own = place * p.num_heads + head;
  const int thread = static_cast<int>(threadIdx.x);
  const bool back = p.kept_queries != nullptr;
  const auto from = [&](const void* x, const i64(&stride)[3], i64 heads) {
    return rows_for<T>(p, x, stride, heads, here.batch, here.start, head);
  };
  tile::copy<chunk, DK, crew>(keys, from(p.k, p.stride[1], p.k_heads), p.stride[1][1], here.steps, p.d_k, p.wide & 2);
  if (back)
    tile::copy<chunk, DK, crew>(queries, from(p.q, p.stride[0], p.q_heads), p.stride[0][1], here.steps, p.d_k,
                                p.wide & 1);
  cp_async_commit();
  sum_channels<DK>(logs, p, here.batch, here.start, head, here.steps);
  cp_async_wait<0>();
  __syncthreads();
  if (thread < chunk) of_key[thread] = norm_of<DK>(p, keys, thread);
  else if (back && thread < 2 * chunk)
    of_query[thread - chunk] = static_cast<float>(p.scale) * norm_of<DK>(p, queries, thread - chunk);
  keep_total<DK>(p, own, logs);
  __syncthreads();
  keep_keys<DK>(p, own, keys, keys, of_key, logs);
  if (back) keep_queries<DK>(p, own, queries, of_query, logs, p.bonus != nullptr);
}

}  // namespace baracuda
