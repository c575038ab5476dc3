// mla_decode   y[b, i, h] = sum_j softmax_j(scale q[b, i, h] c[b, j]) c[b, j, : d_latent],  j < length - n + i + 1
// mla_sparse   y[t, h] = sum_j softmax_j(scale q[t, h] c_j) c_j[: d_latent],  c_j cell number j of query t's list
//
// f32 and f64. A block takes a split of keys and eight rows, a warp each, by tiles of keys in shared memory. A lane has
// every 32nd column of its row's product with a key, which a butterfly adds, and of the outputs, which online softmax
// adds key by key; keys that the row does not see are left out. mla_decode_merge adds the splits in order.
#include "attention/mla/latent_list.cuh"
#include "attention/mla/latent_pages.cuh"

namespace baracuda {

template <class T, int ROWS, int LATENT, class K, class P> BARACUDA_D void mla_decode_simt(const P& p) {
  using namespace mla;
  using A = acc_t<T>;
  constexpr int KEYS = 64 / sizeof(T), EACH = LATENT / warp_size;
  static_assert(KEYS <= warp_size, "a lane has a key's score");
  __shared__ int there[KEYS];
  BARACUDA_DYNAMIC_SMEM(A, queries);  // [ROWS][width]
  const int width = p.d_latent + p.d_rope;
  A* const tile = queries + ROWS * width;  // [KEYS][width]
  const Share<K, P> share(p, ROWS);
  if (share.begin >= share.end) return;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const bool active = warp < share.count;
  const i64 limit = share.seen(p, warp);
  const A* const query = queries + warp * width;
  if (active) {
    const T* const q = static_cast<const T*>(p.q) + share.at(p, p.q_stride, warp);
    for (int d = lane; d < width; d += warp_size) queries[warp * width + d] = to_acc(q[d]);
  }
  const A c = static_cast<A>(p.scale * 1.4426950408889634);
  A acc[EACH] = {}, row_max = -numeric<A>::infinity(), row_sum = A(0);

#pragma unroll 1
  for (i64 k0 = share.begin; k0 < share.end; k0 += KEYS) {
    const int keys = static_cast<int>(min<i64>(KEYS, share.end - k0));
    __syncthreads();  // all have read the tile before
    for (int n = warp; n < keys; n += ROWS) {
      typename K::template Cell<P> cell;
      cell.look(p, share.sequence, k0 + n);
      const i64 at = cell.find(p, share.sequence, true);
      if (lane == 0) there[n] = at != nowhere;
      if (at == nowhere) continue;
      const T* const from = static_cast<const T*>(p.cache) + at;
      for (int d = lane; d < width; d += warp_size) tile[n * width + d] = to_acc(from[d]);
    }
    __syncthreads();
    if (!active) continue;
    const auto sees = [&](int key) { return key < keys && k0 + key < limit && there[key]; };

    // Scores and weights: lane n has key n's.
    A own = -numeric<A>::infinity();
#pragma unroll 1
    for (int key = 0; key < keys; ++key) {
      if (!sees(key)) continue;
      A s = A(0);
      for (int d = lane; d < width; d += warp_size) s = math::fma(query[d], tile[key * width + d], s);
      s = warp_reduce<Sum>(s) * static_cast<A>(p.sign);
      if (lane == key) own = s;
    }
    const A now = math::maximum(row_max, warp_reduce<Max>(own)), base = decoding::base_of(now);
    const A factor = decoding::exp2_fast((row_max - base) * c), weight = decoding::exp2_fast((own - base) * c);
    row_max = now;
    row_sum = math::fma(row_sum, factor, warp_reduce<Sum>(weight));

    // Outputs.
#pragma unroll
    for (int n = 0; n < EACH; ++n) acc[n] *= factor;
#pragma unroll 1
    for (int key = 0; key < keys; ++key) {
      const A w = __shfl_sync(0xffffffffu, weight, key);
      if (!sees(key)) continue;
      const A* const value = tile + key * width;
#pragma unroll
      for (int n = 0; n < EACH; ++n) {
        const int d = lane + n * warp_size;
        if (d < p.d_latent) acc[n] = math::fma(w, value[d], acc[n]);
      }
    }
  }
  if (!active) return;
  const i64 part = share.part(p, warp);
  A* const out = static_cast<A*>(p.parts) + part * round_up(p.d_latent, 8);
#pragma unroll
  for (int n = 0; n < EACH; ++n) {
    const int d = lane + n * warp_size;
    if (d < p.d_latent) out[d] = acc[n];
  }
  if (lane == 0) {
    A* const stat = static_cast<A*>(p.stats) + 2 * part;
    stat[0] = row_max, stat[1] = row_sum;
  }
}

}  // namespace baracuda
