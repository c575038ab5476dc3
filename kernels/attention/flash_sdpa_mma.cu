// flash_sdpa_mma    y[i] = sum_j softmax_j(scale q[i] k[j]) v[j];   lse[i] = log sum_j exp(scale q[i] k[j])
//
// One block a tile of queries of one head, q, k and v in swizzled shared memory by cp.async, both products on
// mma.sync m16n8k16. A warp owns 16 MT rows of the tile: scores and outputs stay in its registers, and a score tile is
// the second product's A operand as it stands, rounded to T. STAGES 1 keeps one tile of keys and one of values, each
// loaded while the other is multiplied; STAGES 2 keeps two of each and loads a whole tile ahead (one barrier a tile).
// Tiles of keys that no query of the block sees are not visited. The order of every sum is fixed by (element, D) and by
// where the tiles start, so neither the batch nor alignment changes a bit.
#include <baracuda/flash.cuh>

namespace baracuda {
// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces.
template <class T, int D, int WARPS, int MT, int KEYS, int STAGES, bool WIDE, class P>
BARACUDA_D void flash_sdpa_mma(const P& p) {
  using namespace attention;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, TILE = KEYS * D;
  BARACUDA_DYNAMIC_SMEM(T, queries);       // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;      // [STAGES][KEYS][D]
  T* const values = keys + STAGES * TILE;  // [STAGES][KEYS][D]

  const Place place(p);
  const u32 b = place.head / p.num_heads, h = place.head % p.num_heads, kv = h / p.group;
  const i64 q0 = static_cast<i64>(place.tile) * ROWS;
  const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + q0 * p.stride[0][2];
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1];
  const int rows = inside<ROWS>(p.query_len, q0), row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const float c = static_cast<float>(p.scale * 1.4426950408889634);

  // Keys that every row sees, that this warp's last row sees, and that the block's last row sees; they may be <= 0.
  const int key_len = static_cast<int>(p.key_len);
  const int seen = p.causal ? static_cast<int>(max(q0 + p.shift, i64(-ROWS))) : key_len;
  const int whole = p.causal ? min(key_len, seen + 1) : key_len;
  const int own = p.causal ? min(key_len, seen + min(rows, row0 + 16 * MT)) : key_len;
  const int last = p.causal ? min(key_len, seen + rows) : key_len;

  const auto load_keys = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(keys + stage * TILE, k + k0 * p.stride[1][2], p.stride[1][2], key_len - k0, p.d_k, WIDE);
  };
  const auto load_values = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(values + stage * TILE, v + k0 * p.stride[2][2], p.stride[2][2], key_len - k0, p.d_v, WIDE);
  };
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, WIDE);
  load_keys(0, 0);
  if (STAGES == 2) load_values(0, 0);
  cp_async_commit();

  T* const mine = queries + row0 * D;
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = lane_id(); n < 16 * MT * D; n += warp_size) mine[n] = from_acc<T>(to_acc(mine[n]) * float(p.sign));
    __syncwarp();
  }
  const tile::Reader<D, false> query(mine), value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, D, MT, KEYS> r;

  // A tile of keys: `begin` before the scores, `middle` before the values are read.
  int stage = 0;
  const auto begin = [&](int k0) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is there, and all are done with the one before
    if (STAGES == 1) {
      load_values(k0, 0);
    } else if (k0 + KEYS < last) {
      load_keys(k0 + KEYS, stage ^ 1);
      load_values(k0 + KEYS, stage ^ 1);
    }
    cp_async_commit();
  };
  const auto middle = [&](int k0) {
    if (STAGES == 2) return;
    cp_async_wait<0>();
    __syncthreads();  // the values are there, and all are done with the keys
    if (k0 + KEYS < last) load_keys(k0 + KEYS, 0);
    cp_async_commit();
  };
  const auto odd = [&] { return p.causal && has_odd<TILE / 2, THREADS>(values + stage * TILE); };
  const auto clear = [&] {
    __syncthreads();
    clear_odd<TILE / 2, THREADS>(values + stage * TILE);
    __syncthreads();
  };

  int k0 = 0;
#pragma unroll 1
  for (; k0 < own; k0 += KEYS, stage ^= STAGES - 1) {
    const u32 at = stage * TILE * static_cast<u32>(sizeof(T));
    const int left = key_len - k0, past = p.causal ? seen + 1 - k0 + row0 : KEYS;
    begin(k0);
    score<T, D, MT, KEYS>(r.s, query, key, at);
    middle(k0);
    const bool cut = k0 + KEYS > whole;
    if (cut) r.mask(left, past);
    r.weigh(c);
    r.rescale();
    r.pack();
    if (cut && odd()) {  // 0 times infinity is NaN, but a masked value adds nothing
      r.template add_odd<tile::Rows<D>>(values + stage * TILE, left, past);
      clear();
    }
    multiply<T, D, MT, KEYS>(r.acc, r.weights, value, at);
  }
#pragma unroll 1
  for (; k0 < last; k0 += KEYS, stage ^= STAGES - 1) {  // tiles that only warps further down see
    begin(k0);
    middle(k0);
    if (odd()) clear();
  }

  cp_async_wait<0>();
  if (last <= 0) __syncthreads();  // the copies of q, by other threads, must not meet the outputs
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + place.head * p.query_len + q0 + row0;
  r.template finish<tile::Rows<D>>(mine, 0, lse, rows - row0, c, static_cast<float>(p.scale));
  __syncwarp();
  T* const y = static_cast<T*>(p.y) + b * p.stride[3][0] + h * p.stride[3][1] + (q0 + row0) * p.stride[3][2];
  tile::copy_out<16 * MT, D, warp_size>(y, p.stride[3][2], mine, lane_id(), rows - row0, p.d_v, WIDE);
}

}  // namespace baracuda
