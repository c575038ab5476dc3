// indexer_mma   logits of the lightning indexer on mma.sync, see indexer.cuh, for f16, bf16 and e4m3, which is multiplied
//               as f16: exactly.
//
// A block of eight warps holds 256 keys as fragments and walks over up to 32 queries, 64 heads at a time, which come to
// one of two stages in shared memory while those before are multiplied. The product has a row a key, so that a lane has
// 16 of 64 heads of four keys; it adds w max(x, 0) over its heads in order, and four lanes add what they have in the end.
// Queries of another sequence have the keys loaded anew; queries that see no key of the block are passed over.
#include "attention/indexer/indexer.cuh"

#include <baracuda/fp8.cuh>
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace indexer {

constexpr int depth = 128, indexer_threads = 256;

template <class T> struct Multiplied_ {
  using type = T;
};
template <> struct Multiplied_<e4m3> {
  using type = f16;
};
template <class T> using multiplied_t = typename Multiplied_<T>::type;  // what T is multiplied as

// Eight columns of a row, of which `left` are there.
template <class T> BARACUDA_D Vec<T, 8> load_piece(const T* from, int left, bool wide) {
  return wide && left >= 8 ? load<8>(from) : load_vec<T, 8, false>(from, left);
}
template <class T, class M> BARACUDA_D void put_piece(M* to, const Vec<T, 8>& x) {
  if constexpr (is_same<T, M>) {
    store(to, x);
  } else {
    u32 words[2];
    memcpy(words, &x, sizeof(words));
    const uint2 low = widen_four<T>(words[0]), high = widen_four<T>(words[1]);
    *reinterpret_cast<uint4*>(to) = uint4{low.x, low.y, high.x, high.y};
  }
}

// 32 keys of a warp, from k0 on, as fragments: 16 at a time by way of its own part of shared memory. A lane has the scale
// of one.
struct Keys {
  u32 held[2][depth / 16][4], there;  // there: a bit for each key that exists
  float scale;

  template <class T, class M, class P> BARACUDA_D void load(const P& p, M* tile, i64 sequence, i64 k0) {
    constexpr int pieces = depth / 8;
    const int lane = lane_id(), piece = lane % pieces;
    const tile::Reader<depth, false> key(tile);
    i64 at;
    there = __ballot_sync(all_lanes, find_key(p, sequence, k0 + lane, at, scale));
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      __syncwarp();
#pragma unroll 4
      for (int row = lane / pieces; row < 16; row += warp_size / pieces) {
        const i64 from = shuffle(at, 16 * m + row);
        Vec<T, 8> x{};
        if (there >> (16 * m + row) & 1) {
          x = load_piece(static_cast<const T*>(p.k) + from + 8 * piece, p.d - 8 * piece, p.wide & 2);
        }
        put_piece(tile + tile::at<depth>(row, piece), x);
      }
      __syncwarp();
#pragma unroll
      for (int d = 0; d < depth; d += 16) key.read(held[m][d / 16], 0, d);
    }
  }
};

// 64 heads of a query, from `first` on, and their weights, on their way to a stage by asynchronous copies; fp8 comes as
// bytes, which the thread that copied them widens.
template <class T> struct Heads {
  using M = multiplied_t<T>;
  static constexpr bool direct = is_same<T, M>;
  static constexpr int pieces = depth / 8, each = step_heads * pieces / indexer_threads;
  T* const bytes;  // of fp8

  // Where piece n of the thread comes to.
  BARACUDA_D static int row(int n) { return (static_cast<int>(threadIdx.x) + n * indexer_threads) / pieces; }
  BARACUDA_D static M* place(M* tile, int n) { return tile + tile::at<depth>(row(n), threadIdx.x % pieces); }
  BARACUDA_D T* way(M* tile, int n) const {
    if constexpr (direct) return place(tile, n);
    else return bytes + 8 * (threadIdx.x + n * indexer_threads);
  }

  template <class P> BARACUDA_D void load(const P& p, M* tile, float* weights, i64 t, int first) const {
    const int thread = static_cast<int>(threadIdx.x), piece = thread % pieces;
    const T* const q = static_cast<const T*>(p.q) + t * p.q_stride[0] + 8 * piece;
#pragma unroll
    for (int n = 0; n < each; ++n) {
      const int left = first + row(n) < p.heads ? p.d - 8 * piece : 0;
      const T* const from = left > 0 ? q + (first + row(n)) * p.q_stride[1] : static_cast<const T*>(p.q);
      if (p.wide & 1) cp_async<8 * sizeof(T)>(way(tile, n), from, left > 0 ? 8 * sizeof(T) : 0);
      else store(way(tile, n), load_vec<T, 8, false>(from, left));
    }
    if (thread < step_heads && first + thread < p.heads) {
      const i64 at = t * p.w_stride[0] + (first + thread) * p.w_stride[1];
      cp_async<4>(weights + thread, static_cast<const float*>(p.w) + at);
    }
    cp_async_commit();
  }
  BARACUDA_D void put(M* tile) const {
    cp_async_wait<0>();
    if constexpr (!direct) {
#pragma unroll
      for (int n = 0; n < each; ++n) put_piece(place(tile, n), baracuda::load<8>(way(tile, n)));
    }
  }
};

}  // namespace indexer

template <class T, class P> BARACUDA_D void indexer_mma(const P& p) {
  using namespace indexer;
  using M = multiplied_t<T>;
  constexpr int STAGE = step_heads * depth;
  BARACUDA_DYNAMIC_SMEM(M, queries);    // [2][step_heads][depth]
  M* const tile = queries + 2 * STAGE;  // [8 warps][16][depth]
  __shared__ float weights[2][step_heads];
  __shared__ u32 meets;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), row0 = thread / warp_size * 32;
  const u32 blocks = static_cast<u32>(div_up(p.keys, i64(indexer_keys)));
  const int k0 = static_cast<int>(blockIdx.x % blocks) * indexer_keys;  // keys and queries lie below 2^31
  const int first = static_cast<int>(blockIdx.x / blocks * p.group);
  const int count = static_cast<int>(min(p.group, p.queries - first));
  const int chunks = max(1, div_up(p.heads, step_heads));

  // Which queries see a key of the block.
  if (thread < warp_size) {
    bool some = false;
    if (thread < count) {
      const Query query(p, first + thread);
      some = query.begin < min<i64>(k0 + indexer_keys, query.end) && query.end > k0;
    }
    const u32 bits = __ballot_sync(all_lanes, some);
    if (thread == 0) meets = bits;
  }
  __syncthreads();
  u32 left = meets;
  float* const logits = static_cast<float*>(p.logits) + static_cast<i64>(first) * p.logits_stride + k0;
  if (p.fill && k0 + thread < p.keys) {
    for (int n = 0; n < count; ++n) {
      if (!(left >> n & 1)) logits[n * p.logits_stride + thread] = -numeric<float>::infinity();
    }
  }
  if (left == 0) return;

  const tile::Reader<depth, true> head(queries);
  Keys keys;
  const Heads<T> coming{reinterpret_cast<T*>(tile + indexer_keys / 2 * depth)};
  int sequence = -1, now = __ffs(left) - 1, chunk = 0, stage = 0;
  float sum[2][2] = {};
  coming.load(p, queries, weights[0], p.first_query + first + now, 0);
#pragma unroll 1
  while (left != 0) {
    const int wanted = static_cast<int>(sequence_of(p, p.first_query + first + now));
    if (wanted != sequence) {
      sequence = wanted;
      keys.load<T>(p, tile + row0 / 2 * depth, sequence, k0 + row0);
    }
    coming.put(queries + stage * STAGE);
    __syncthreads();

    // The next heads.
    const int own_query = now, own_first = chunk * step_heads;
    const bool last = ++chunk == chunks;
    if (last) {
      chunk = 0;
      left &= left - 1;
      now = left == 0 ? 0 : __ffs(left) - 1;
    }
    if (left != 0) {
      coming.load(p, queries + (stage ^ 1) * STAGE, weights[stage ^ 1], p.first_query + first + now,
                  chunk * step_heads);
    }

#pragma unroll 1
    for (int n = 0; n < step_heads; n += 16) {
      float acc[2][2][4] = {};
#pragma unroll
      for (int d = 0; d < depth; d += 16) {
        u32 y[4];
        head.read(y, n, d, stage * (STAGE * 2));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          mma_m16n8k16<M>(acc[m][0], keys.held[m][d / 16], {y[0], y[1]});
          mma_m16n8k16<M>(acc[m][1], keys.held[m][d / 16], {y[2], y[3]});
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int h = n + 8 * j + lane % 4 * 2 + e;
          const float weight = weights[stage][h];
          const bool there = own_first + h < p.heads;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float x = math::maximum(acc[m][j][2 * half + e], 0.0f);
              sum[m][half] = there ? math::fma(weight, x, sum[m][half]) : sum[m][half];
            }
          }
        }
      }
    }
    stage ^= 1;
    if (!last) continue;
    const Query query(p, first + own_query);
    const int row = 16 * (lane % 4 / 2) + 8 * (lane % 2) + lane / 4;  // the lane's, of four that it has sums of
    const float scale = shuffle(keys.scale, row);
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float all = group_reduce<Sum, 4>(sum[n / 2][n % 2]);
      sum[n / 2][n % 2] = 0.0f;
      if (lane % 4 == n) total = all;
    }
    if (k0 + row0 + row < p.keys) {
      const bool seen = query.sees(k0 + row0 + row) && keys.there >> row & 1;
      logits[own_query * p.logits_stride + row0 + row] = seen ? total * scale : -numeric<float>::infinity();
    }
  }
}

}  // namespace baracuda
