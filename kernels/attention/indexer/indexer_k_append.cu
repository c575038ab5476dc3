// indexer_k_append   cache[page, cell] = codes of u and their scale, or u;  u = H R (layer_norm(k) weight + bias) / sqrt(d)
//
// A warp takes a token; a lane has HELD neighbouring columns in registers, which d alone decides. The columns that turn
// go through a row of shared memory, so that a lane has both of a pair. Levels of the Hadamard transform are steps of 1, 2,
// 4 … columns: sums of a lane's own, then of two lanes'. Sums of the norm run over a lane's columns in order, then over the
// lanes as a butterfly, in double, first of k, then of squares of what is left of it: all follow from the columns alone.
// What is stored was never rounded before. Tokens without a cell are skipped. 128 columns, e4m3: docs/design/indexer.md.
#include "attention/cache/paged_places.cuh"
#include "attention/rope/rope.cuh"
#include "norm/channel.cuh"

#include <baracuda/quantize.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

namespace indexer_key {

// A lane's columns: those from `first` on, of which `left` exist. Others are 0.
template <class T, int HELD, class P> BARACUDA_D void normalise(const P& p, int first, int left, Vec<float, HELD>& x) {
  double sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < HELD; ++k) sum += static_cast<double>(x[k]);
  const double mean = warp_reduce<Sum>(sum) / static_cast<double>(p.d);
#pragma unroll
  for (int k = 0; k < HELD; ++k) {
    const double apart = k < left ? static_cast<double>(x[k]) - mean : 0.0;
    squares = math::fma(apart, apart, squares);
  }
  squares = warp_reduce<Sum>(squares);
  const norm::Centre<float> c =
      norm::centre_of<float>(mean, 0.0, 1.0 / math::sqrt(squares / static_cast<double>(p.d) + p.eps));
#pragma unroll
  for (int k = 0; k < HELD; ++k) {
    if (k >= left) continue;
    float y = ((x[k] * c.scale - c.mean) - c.low) * c.rstd;
    if (p.weight != nullptr) y *= norm::affine_at<T>(p.weight, (first + k) * p.weight_stride, p.wide);
    if (p.bias != nullptr) y += norm::affine_at<T>(p.bias, (first + k) * p.bias_stride, p.wide);
    x[k] = y;
  }
}

// Turns pairs of a token's row in shared memory; `place` is its position unless p.positions has others.
template <class T, class P> BARACUDA_D void turn(const P& p, i64 t, u64 place, float* row) {
  const int pairs = static_cast<int>(p.rotary_dim / 2);
  for (int pair = lane_id(); pair < pairs; pair += warp_size) {
    float sine, cosine;
    if (p.cos != nullptr) {
      cosine = rope_entry<T>(p, 0, 0, t, pair), sine = rope_entry<T>(p, 1, 0, t, pair);
    } else {
      const u64 at = p.positions == nullptr ? place : rope_position(p, 0, t, static_cast<u32>(pair));
      Angle<float>::sincos(static_cast<i64>(at), rope_kept<float>(p, pair), &sine, &cosine);
    }
    const float scale = static_cast<float>(p.scale());
    sine *= scale, cosine *= scale;
    const int first = p.turn_at + (p.interleaved ? 2 * pair : pair), second = first + (p.interleaved ? 1 : pairs);
    const float a = row[first], b = row[second];
    row[first] = math::fma(a, cosine, -(b * sine));
    row[second] = math::fma(b, cosine, a * sine);
  }
}

// x = H x / sqrt(d).
template <int HELD, class P> BARACUDA_D void transform(const P& p, Vec<float, HELD>& x) {
#pragma unroll
  for (int step = 1; step < HELD; step *= 2) {
    if (step >= p.d) continue;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      if ((i & step) != 0) continue;
      const float a = x[i], b = x[i + step];
      x[i] = a + b, x[i + step] = a - b;
    }
  }
#pragma unroll 1
  for (int mask = 1; mask * HELD < p.d; mask *= 2) {
    const bool upper = (lane_id() & mask) != 0;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      const float other = shuffle_xor(x[k], mask);
      x[k] = upper ? other - x[k] : x[k] + other;
    }
  }
  const float unit = static_cast<float>(p.unit);
#pragma unroll
  for (int k = 0; k < HELD; ++k) x[k] *= unit;
}

// The scale of a key whose largest size is `most`; `powers`: the power of two from there on.
BARACUDA_D float scale_of(float most, bool powers) {
  const float scale = quantize::scale_of(most, 448.0f);
  if (!powers || !math::isfinite(scale)) return scale;
  return __uint_as_float((__float_as_uint(scale) + 0x007fffffu) & 0x7f800000u);
}

}  // namespace indexer_key

// WIDE: rows of k and of the cache start as aligned as a lane's columns are wide, up to 16 bytes.
template <class T, int HELD, bool WIDE> BARACUDA_D void indexer_k_append(const IndexerKAppendParams& p) {
  BARACUDA_DYNAMIC_SMEM(float, rows);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 t = static_cast<i64>(blockIdx.x) * (blockDim.x / warp_size) + warp;
  if (t >= p.num_tokens) return;
  const int first = lane * HELD, left = p.d - first;
  const Vec<T, HELD> k = load_vec<T, HELD, WIDE>(static_cast<const T*>(p.k) + t * p.k_stride + first, left);
  i64 page, cell;
  u64 place = 0;
  Paged<i64, IndexerKAppendParams>{p}.locate(static_cast<u64>(t), page, cell, place);
  if (page < 0) return;
  Vec<float, HELD> x = to_acc(k);
  if (p.norm) indexer_key::normalise<T>(p, first, left, x);
  if (p.rotary_dim > 0) {
    float* const row = rows + warp * (warp_size * HELD);
    store(row + first, x);
    __syncwarp();
    indexer_key::turn<T>(p, t, place, row);
    __syncwarp();
    x = load<HELD>(row + first);
  }
  if (p.hadamard) indexer_key::transform(p, x);
  const i64 to = page * p.cache_stride[0] + cell * p.cache_stride[1] + first;
  if (!p.coded) {
    store_vec<T, HELD, WIDE>(static_cast<T*>(p.k_cache) + to, from_acc<T>(x), left);
    return;
  }
  const float most = quantize::block_most(quantize::most_of(x, HELD), warp_size);
  const float scale = indexer_key::scale_of(most, p.powers);
  if (lane == 0) static_cast<float*>(p.k_scales)[page * p.scale_stride[0] + cell * p.scale_stride[1]] = scale;
  const quantize::Divisor by(scale);
  const auto codes = quantize::codes_by(
      x, quantize::E4M3Coder(), by.serves(most), [&](float v) { return by.near(v); }, [&](float v) { return by(v); });
  store_vec<u8, HELD, WIDE>(static_cast<u8*>(p.k_cache) + to, codes, left);
}

}  // namespace baracuda
