// mla_decode_wgmma   mla_decode and mla_sparse on wgmma: a block of three warpgroups takes a split of keys and 64 rows.
//
// A tile of 48 keys is loaded once, as keys and as values, into one of three stages. The first warpgroup holds the
// queries as fragments, but for their rope columns, which are in shared memory. It computes a tile's scores and makes weights of
// them by online softmax, which take the place of the tile's rope columns; meanwhile the other two add the products of
// the weights before with half of the latent's columns each. Those copy, too: each the columns that are its values, and
// one of them the rope's, to the stage that it has just read, by offsets that it has looked up meanwhile. Order of sums:
// fixed by the positions that a row sees; scores are one chain. Rounding: weights are rounded to T.
//
// Named barriers: tile_came (a tile is there: from the outputs' warpgroups to the scores'), weights_came (of a tile, to
// the outputs' warpgroups), weights_read (the second half of the outputs has added their products).
#include "attention/mla/latent_tiles.cuh"
#include <baracuda/pipeline.cuh>
#include <baracuda/wgmma_48.cuh>
#include <baracuda/wgmma_wide.cuh>

namespace baracuda {
namespace mla {

enum Meeting { tile_came = 1, weights_came, weights_read, scores_meet, outputs_meet };  // one for each half of outputs

// What follows from the width of the latent, and shared memory. Everything is found from `tiles`: few registers.
template <class T, int D> struct Latents {
  static constexpr int ROWS = wgmma_rows, KEYS = wgmma_keys, STAGES = wgmma_stages, THREADS = 384;
  static constexpr int WIDTH = D + rope_columns;
  static constexpr int TILE = KEYS * D + ROWS * 64;  // the last panel holds the rope of KEYS keys, then ROWS of weights
  static constexpr int HALF = D / 2;                 // columns of a warpgroup of outputs
  T* const tiles;                                    // panels: [STAGES] tiles, the queries' rope

  BARACUDA_D explicit Latents(T* shared) : tiles(shared + (1024 - smem_address(shared) % 1024) % 1024 / sizeof(T)) {}
  BARACUDA_D T* tile(int stage) const { return tiles + stage * TILE; }
  BARACUDA_D T* weights(int stage) const { return tile(stage) + D * KEYS; }  // [ROWS][64]
  BARACUDA_D T* query_rope() const { return tile(STAGES); }
  // Offsets of the next tile's cells, for each half of the outputs.
  BARACUDA_D i64 (*offsets() const)[KEYS] { return reinterpret_cast<i64(*)[KEYS]>(query_rope() + ROWS * rope_columns); }
  BARACUDA_D float* factors(int stage) const { return reinterpret_cast<float*>(offsets() + 2) + stage * ROWS; }
  // Whether a warp of outputs found values that are not finite.
  BARACUDA_D u32* found(int half) const { return reinterpret_cast<u32*>(factors(STAGES)) + 4 * half; }
  BARACUDA_D u8* there(int stage) const {  // whether a tile has a key
    return reinterpret_cast<u8*>(found(2)) + stage * KEYS;
  }
  // Of records: codes of the tile to come, and the scale of each 16 of them.
  BARACUDA_D uint4* codes(int half) const {
    return reinterpret_cast<uint4*>(there(STAGES)) + half * (KEYS * HALF / 16);
  }
  BARACUDA_D float* scales(int half) const { return reinterpret_cast<float*>(codes(2)) + half * (KEYS * HALF / 16); }
};

// ---- the warpgroup of scores: lane rows `low` and `low` + 8, keys 8 n + 2 (lane % 4) and the next --------------------

template <class T, int D>
BARACUDA_D void multiply_keys(float (&s)[wgmma_keys / 8][4], const u32 (&held)[D / 16][4], const Latents<T, D>& at,
                              int stage) {
  using L = Latents<T, D>;
  constexpr int within = 32 >> 4;  // in a descriptor: from 16 columns to the next
  const u64 key = wgmma_operand(at.tile(stage)), rope = wgmma_operand(at.query_rope());
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < L::WIDTH; d += 16) {
    const u64 y = key + d / 64 * (L::KEYS * 8) + d % 64 / 16 * within;
    if (d < D) wgmma<T, false>(s, held[d / 16], y, d != 0);
    else wgmma<T, false, false>(s, rope + d % 64 / 16 * within, y, 1);
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold(s);
  hold(held);
}

// Hides keys that a row does not see: of the tile those from `left` on, and those that are missing.
template <int KEYS> BARACUDA_D void hide(float (&s)[KEYS / 8][4], const u8* there, const int (&left)[2], float sign) {
  const int own = lane_id() % 4 * 2;
#pragma unroll
  for (int n = 0; n < KEYS / 8; ++n) {
    const uchar2 pair = *reinterpret_cast<const uchar2*>(there + 8 * n + own);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool sees = 8 * n + own + e % 2 < left[e / 2] && (e % 2 ? pair.y : pair.x);
      s[n][e] = sees ? s[n][e] * sign : -numeric<float>::infinity();
    }
  }
}

// Online softmax: turns scores into weights, and gives the factors of what was summed before.
template <int KEYS>
BARACUDA_D void weigh(float (&s)[KEYS / 8][4], float (&row_max)[2], float (&row_sum)[2], float (&factor)[2], float c) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = row_max[half];
#pragma unroll
    for (int n = 0; n < KEYS / 4; ++n) top = math::maximum(top, s[n / 2][2 * half + n % 2]);
    const float now = group_reduce<Max, 4>(top), base = decoding::base_of(now);
    factor[half] = decoding::exp2_fast((row_max[half] - base) * c);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < KEYS / 4; ++n) {
      float& x = s[n / 2][2 * half + n % 2];
      x = decoding::exp2_fast((x - base) * c);
      sum += x;
    }
    row_max[half] = now;
    row_sum[half] = math::fma(row_sum[half], factor[half], group_reduce<Sum, 4>(sum));
  }
}

template <class T, int D, class K, class P>
BARACUDA_D void make_weights(const P& p, const Share<K, P>& share, const Latents<T, D>& at) {
  using L = Latents<T, D>;
  constexpr int ROWS = L::ROWS, KEYS = L::KEYS;
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * 16, low = row0 + lane_id() / 4;
  // Those that are held come by way of the last stages.
  T* const queries = at.tile(1);
  copy_queries<ROWS, D, 128>(p, share, queries, at.query_rope());
  cp_async_commit();
  cp_async_wait<0>();
  wgmma_publish();
  sync_threads<128>(scores_meet);
  u32 held[D / 16][4];
  const tile::Reader<64, false> query(queries + row0 * 64);
#pragma unroll
  for (int d = 0; d < D; d += 16) query.read(held[d / 16], 0, d % 64, d / 64 * (ROWS * 128));
  __syncthreads();  // the stages are free

  // Keys of the split that the rows see; positions lie below 2^31.
  const int limit[2] = {static_cast<int>(share.seen(p, low) - share.begin),
                        static_cast<int>(share.seen(p, low + 8) - share.begin)};
  const int keys = static_cast<int>(share.end - share.begin);
  const float c = static_cast<float>(p.scale * 1.4426950408889634), sign = static_cast<float>(p.sign);
  float row_max[2] = {-numeric<float>::infinity(), -numeric<float>::infinity()}, row_sum[2] = {};
  int stage = 0;
#pragma unroll 1
  for (int k0 = 0; k0 < keys; k0 += KEYS, stage = stage == L::STAGES - 1 ? 0 : stage + 1) {
    float s[KEYS / 8][4], factor[2];
    sync_threads<L::THREADS>(tile_came);
    multiply_keys(s, held, at, stage);
    const int left[2] = {limit[0] - k0, limit[1] - k0};
    hide<KEYS>(s, at.there(stage), left, sign);
    weigh<KEYS>(s, row_max, row_sum, factor, c);
    sync_threads<128>(scores_meet);  // all warps have read the tile's rope
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) tile::put<64>(at.weights(stage), row0, 8 * n, s[n], 1.0f, 1.0f);
    if (lane_id() % 4 == 0) at.factors(stage)[low] = factor[0], at.factors(stage)[low + 8] = factor[1];
    wgmma_publish();
    arrive_threads<L::THREADS>(weights_came);
  }
  if (lane_id() % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = low + 8 * half;
    if (row < share.count) static_cast<float2*>(p.stats)[share.part(p, row)] = float2{row_max[half], row_sum[half]};
  }
}

// ---- a warpgroup of outputs: columns HALF half + 8 n + 2 (lane % 4) and the next of the lane's rows ------------------

template <class T, int D, class K, class P> struct Copies {
  using L = Latents<T, D>;
  static constexpr int KEYS = L::KEYS;
  const P& p;
  const Share<K, P>& share;
  const L& at;
  const int half, thread;
  typename K::template Cell<P> cell;  // of the key that this thread looks up, one of the first KEYS threads

  BARACUDA_D void look(i64 k0) {
    if (thread < KEYS) cell.look(p, share.sequence, k0 + thread);
  }
  // Writes the offsets of the tile that was looked up.
  BARACUDA_D void settle(i64 k0, int stage) const {
    if (thread >= KEYS) return;
    const i64 offset = cell.find(p, share.sequence, k0 + thread < share.end);
    at.offsets()[half][thread] = offset;
    if (half == 0) at.there(stage)[thread] = offset != nowhere;
  }
  // Starts the copies of this half, in a group of their own.
  BARACUDA_D void copy(i64 k0, int stage) const {
    if constexpr (!K::Record::plain) {  // codes wait outside the stages until the next call
      if (k0 > share.begin && k0 - KEYS < share.end) decode(stage == 0 ? L::STAGES - 1 : stage - 1);
      if (k0 < share.end) copy_codes(stage);
    } else if (k0 < share.end) {
      T* const tile = at.tile(stage);
      const T* const cache = static_cast<const T*>(p.cache);
      const T* const any = static_cast<const T*>(p.pages == 0 ? p.q : p.cache);
#pragma unroll 1
      for (int row = thread / 8; row < KEYS; row += 16) {
        const i64 offset = at.offsets()[half][row];
        const bool found = offset != nowhere;
        const T* const from = found ? cache + offset : any;
        const int piece = thread % 8, first = half * L::HALF, width = p.d_latent + p.d_rope;
        copy_columns<KEYS, L::HALF>(p, tile + first * KEYS, row, piece, from, first, p.d_latent, found);
        if (half == 0) copy_columns<KEYS, rope_columns>(p, tile + D * KEYS, row, piece, from, p.d_latent, width, found);
      }
    }
    cp_async_commit();
  }
  // Of records: starts the copies of the codes and scales of a tile, and of its rope to the stage. A thread decodes the 16
  // codes of a row that it has copied.
  static constexpr int EACH = L::HALF / 16;  // of a row
  BARACUDA_D void copy_codes(int stage) const {
    const u8* const cache = static_cast<const u8*>(p.cache);
    const u8* const any = static_cast<const u8*>(p.pages == 0 ? p.q : p.cache);
#pragma unroll 1
    for (int n = thread; n < KEYS * EACH; n += 128) {
      const i64 offset = at.offsets()[half][n / EACH];
      const int column = half * L::HALF + n % EACH * 16;
      const bool found = offset != nowhere && column < p.d_latent;
      const u8* const from = found ? cache + offset : any;
      const int code = found ? column : 0, scale = found ? K::Record::scale_at(p, column) : 0;
      if (p.wide) {
        cp_async_16(at.codes(half) + n, from + code, found);
        cp_async<4>(at.scales(half) + n, from + scale, found ? 4 : 0);
      } else {
        copy_bytes<16>(at.codes(half) + n, from + code, found ? 16 : 0);
        copy_bytes<4>(at.scales(half) + n, from + scale, found ? 4 : 0);
      }
    }
    if (half != 0) return;
#pragma unroll 1
    for (int row = thread / 8; row < KEYS; row += 16) {
      const i64 offset = at.offsets()[half][row];
      const bool found = offset != nowhere;
      K::Record::copy_rope(p, at.tile(stage) + D * KEYS, row, thread % 8, found ? cache + offset : any, found);
    }
  }
  BARACUDA_D void decode(int stage) const {
    cp_async_wait<0>();
    T* const tile = at.tile(stage) + half * L::HALF * KEYS;
#pragma unroll 1
    for (int n = thread; n < KEYS * EACH; n += 128) {
      const int row = n / EACH, column = n % EACH * 16;
      const uint4 codes = at.codes(half)[n];
      const float scale = at.scales(half)[n];
      T* const panel = tile + column / 64 * (64 * KEYS);
      const int piece = column % 64 / 8;
      *reinterpret_cast<uint4*>(panel + tile::at<64>(row, piece)) = decode_eight<T>(uint2{codes.x, codes.y}, scale);
      *reinterpret_cast<uint4*>(panel + tile::at<64>(row, piece + 1)) = decode_eight<T>(uint2{codes.z, codes.w}, scale);
    }
  }
  BARACUDA_D void meet() const { sync_threads<128>(outputs_meet + half); }
  // All but the newest PENDING tiles are there: tell the warpgroup of scores.
  template <int PENDING> BARACUDA_D void announce() const {
    cp_async_wait<PENDING>();
    wgmma_publish();
    arrive_threads<L::THREADS>(tile_came);
  }
};

// 0 times infinity is NaN, but a value that a row does not see adds nothing: values that are not finite are added apart,
// key by key, and cleared.
template <class T, int D, class K, class P>
BARACUDA_D void fix_nonfinite(const Copies<T, D, K, P>& copies, float (&acc)[D / 16][4], int stage, i64 k0, int low) {
  using L = Latents<T, D>;
  const P& p = copies.p;
  if (!hides(p, copies.share, k0 + L::KEYS)) return;
  T* const values = copies.at.tile(stage) + copies.half * (L::KEYS * L::HALF);
  u32* const words = reinterpret_cast<u32*>(values);
  bool any = false;
#pragma unroll 1
  for (int n = copies.thread; n < L::KEYS * L::HALF / 2; n += 128) any |= attention::nonfinite_signs<T>(words[n]) != 0;
  any = __any_sync(all_lanes, any);
  u32* const found = copies.at.found(copies.half);
  if (lane_id() == 0) found[copies.thread / warp_size] = any;
  copies.meet();
  if (!(found[0] | found[1] | found[2] | found[3])) return;
  const T* const weights = copies.at.weights(stage);
#pragma unroll 1
  for (int key = 0; key < L::KEYS; ++key) {
    float due[2];  // the factor of an infinite value: 1, NaN for a weight of 0, or 0 where it is hidden
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const bool seen = k0 + key < copies.share.seen(p, low + 8 * n);
      const float weight = to_acc(weights[tile::at<64>(low + 8 * n, key / 8) + key % 8]);
      due[n] = !seen ? 0.0f : weight == 0.0f ? numeric<float>::nan() : 1.0f;
    }
#pragma unroll
    for (int n = 0; n < L::HALF / 8; ++n) {
      const T* const two = values + tile::Panels<L::KEYS>::at(key, n) + lane_id() % 4 * 2;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = to_acc(two[e % 2]);
        acc[n][e] += math::isfinite(x) || due[e / 2] == 0.0f ? 0.0f : x * due[e / 2];
      }
    }
  }
  copies.meet();
#pragma unroll 1
  for (int n = copies.thread; n < L::KEYS * L::HALF / 2; n += 128) {
    words[n] &= ~((attention::nonfinite_signs<T>(words[n]) >> 15) * 0xffffu);
  }
  wgmma_publish();
  copies.meet();
}

template <class T, int D, class K, class P>
BARACUDA_D void add_outputs(const P& p, const Share<K, P>& share, const Latents<T, D>& at, int half) {
  using L = Latents<T, D>;
  constexpr int KEYS = L::KEYS, HALF = L::HALF, STAGES = L::STAGES;
  const int thread = static_cast<int>(threadIdx.x) % 128, low = thread / warp_size * 16 + lane_id() / 4;
  Copies<T, D, K, P> copies{p, share, at, half, thread, {}};
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    copies.look(share.begin + stage * KEYS);
    copies.meet();  // all have read the offsets before
    copies.settle(share.begin + stage * KEYS, stage);
    if (stage == 1) __syncthreads();  // the queries have left the last stages
    else copies.meet();
    copies.copy(share.begin + stage * KEYS, stage);
  }
  copies.look(share.begin + STAGES * KEYS);
  copies.template announce<STAGES - 1>();

  float acc[HALF / 8][4] = {};
  int stage = 0;
#pragma unroll 1
  for (i64 k0 = share.begin; k0 < share.end; k0 += KEYS, stage = stage == STAGES - 1 ? 0 : stage + 1) {
    sync_threads<L::THREADS>(weights_came);
    const float factor[2] = {at.factors(stage)[low], at.factors(stage)[low + 8]};
#pragma unroll
    for (int n = 0; n < HALF / 2; ++n) acc[n / 4][n % 4] *= factor[n % 4 / 2];
    fix_nonfinite(copies, acc, stage, k0, low);

    // Start the products.
    const u64 weight = wgmma_operand(at.weights(stage)),
              value = wgmma_operand(at.tile(stage), KEYS * 128) + half * (KEYS * HALF / 8);
    hold(acc);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16)
      wgmma<T, false, true>(acc, weight + j / 16 * (32 >> 4), value + j / 16 * (2048 >> 4), 1);
    wgmma_commit();

    // Meanwhile, say that the next tile is there, and write the offsets of the one that takes this stage.
    if (k0 + KEYS < share.end) copies.template announce<STAGES - 2>();
    copies.settle(k0 + STAGES * KEYS, stage);
    wgmma_wait<0>();
    hold(acc);
    copies.meet();                                   // the warpgroup has read its values
    if (half == 0) sync_threads<256>(weights_read);  // whose place the rope takes
    else arrive_threads<256>(weights_read);
    copies.copy(k0 + STAGES * KEYS, stage);
    copies.look(k0 + (STAGES + 1) * KEYS);
  }
  put_parts(p, share, acc, low, half * HALF);
}

}  // namespace mla

template <class T, int D, class K, class P> BARACUDA_D void mla_decode_wgmma(const P& p) {
  using namespace mla;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  const Latents<T, D> at(shared);
  // In shared memory, as the outputs need the registers.
  __shared__ __align__(8) unsigned char kept[sizeof(Share<K, P>)];
  const Share<K, P>& share = *reinterpret_cast<const Share<K, P>*>(kept);
  {
    const Share<K, P> made(p, Latents<T, D>::ROWS);
    if (made.begin >= made.end) return;
    if (threadIdx.x == 0) memcpy(kept, &made, sizeof(made));
    __syncthreads();
  }
  const int group = warpgroup();
  if (group != 0) {
    release_registers<160>();
    add_outputs(p, share, at, group - 1);
    return;
  }
  acquire_registers<184>();
  make_weights(p, share, at);
}

}  // namespace baracuda
