// qk_norm_rope_append   y = R(rms_norm(q) weight); in their cells of a paged cache R(rms_norm(k) weight2) and v.
//
// Blocks and lanes are those of qk_norm_rope.cu, values a third side without a norm and angles. The lanes that walk the
// heads of a token find its cell while the first head's chunks are in flight. PER_BYTE: 0, or how many codes a byte has, where
// a head is stored as codes; its largest size, where its scale is made of it, is a maximum over the lanes. What is rounded
// to the caches' element or to codes was never rounded before. Sums run as in qk_norm_rope.cu. Tokens without a cell are
// skipped, their queries are not.
#include "attention/cache/paged_places.cuh"
#include "attention/cache/quantized_group.cuh"
#include "attention/rope/heads.cuh"

namespace baracuda {

namespace qk {

// The columns of a side, as unit_at reads them.
struct Columns {
  i64 rotary_dim, rotary_units, copy_units, units, head_dim;
  i32 lanes;
};
template <class P> BARACUDA_D Columns columns_of(const P& p, bool values) {
  if (values) return {0, 0, p.value_units, p.value_units, p.value_dim, p.lanes};
  return {p.rotary_dim, p.rotary_units, p.copy_units, p.units, p.head_dim, p.lanes};
}

template <int FORMAT> struct Format {
  static constexpr int value = FORMAT;
};
template <class F> BARACUDA_D void with_format(int format, const F& f) {
  if (format == code_i8) f(Format<code_i8>());
  else if (format == code_e4m3) f(Format<code_e4m3>());
  else f(Format<code_e5m2>());
}

// Stores a head of a cache, 0 of keys or 1 of values, as codes; `scales` is the place of its scale, or null where the
// scale is given.
template <bool WIDE, int HELD, int V, class L, class P>
BARACUDA_D void store_codes(const P& p, const L& lane, int cache, int head, bool mine, const Head<u8>& to,
                            float* scales, const Vec<float, V> (&z)[HELD][2]) {
  float most = 0, scale;
  if (scales != nullptr) {
#pragma unroll
    for (int u = 0; u < HELD; ++u)
      most = math::maximum(most, math::maximum(quantize::most_of(z[u][0], V), quantize::most_of(z[u][1], V)));
    most = quantize::block_most(most, p.lanes);
  } else {
    const float* const heads = static_cast<const float*>(cache ? p.v_head_scale : p.k_head_scale);
    scale = static_cast<float>(cache ? p.v_scale() : p.k_scale());
    if (heads != nullptr && mine) scale *= heads[head];
  }
  if (!mine) return;
  with_format(p.format, [&](auto format) {
    constexpr int FORMAT = decltype(format)::value;
    if (scales != nullptr) {
      scale = quantized_group::scale_of<FORMAT>(most);
      if (threadIdx.x % p.lanes == 0) *scales = scale;
    }
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto codes = scales != nullptr ? quantized_group::codes_of<FORMAT>(z[u][i], scale, most)
                                             : quantized_group::given_codes_of<FORMAT>(z[u][i], scale);
        to.template store_at<WIDE, V>(lane.at[u].col[i], lane.at[u].exist[i], codes);
      }
    }
  });
}

// Stores a head as bytes of two codes of int4, and the scale of each group of its columns, `apart` from one another. The
// columns, those that the lane holds of them in z, pass through a row of shared memory: those of a byte and of a group may
// be of different lanes. Lanes then take pieces of N columns, all of a group's or as many as there are, and where some are
// left the groups behind it.
template <bool WIDE, int HELD, int V, class L, class P>
BARACUDA_D void store_halves(const P& p, const L& lane, int cache, bool mine, const Head<u8>& to, float* scales,
                             i64 apart, float* row, const Vec<float, V> (&z)[HELD][2]) {
  constexpr int N = WIDE ? V : 2;
  const Head<float> held{row, 1};
#pragma unroll
  for (int u = 0; u < HELD; ++u) {
    held.template store_at<WIDE, V>(lane.at[u].col[0], lane.at[u].exist[0], z[u][0]);
    held.template store_at<WIDE, V>(lane.at[u].col[1], lane.at[u].exist[1], z[u][1]);
  }
  __syncwarp();
  const int groups = p.groups[cache], columns = p.columns[cache], pieces = columns / N;
  const int bits = p.lane_bits[cache], own = static_cast<int>(threadIdx.x) & (p.lanes - 1);
  const int side = 1 << bits, first = own >> bits, number = own & (side - 1);  // lanes of a group
  const auto piece = [&](int group, int c) { return held.template load_at<true, N>(group * columns + c * N, N); };
#pragma unroll 1
  for (int base = 0; base < groups; base += p.lanes >> bits) {  // the same for all of the warp, as they exchange
    const int group = base + first;
    const bool there = mine && group < groups;
    float most = 0;
    for (int c = number; there && c < pieces; c += side)
      most = math::maximum(most, quantize::most_of(piece(group, c), N));
    most = quantize::block_most(most, side);
    if (!there) continue;
    const float scale = quantized_group::scale_of<code_s4>(most);
    if (number == 0) scales[group * apart] = scale;
    for (int c = number; c < pieces; c += side) {
      const auto codes = quantized_group::codes_of<code_s4>(piece(group, c), scale, most);
      to.template store_at<WIDE, N / 2>((group * columns + c * N) / 2, N / 2, codes);
    }
  }
  __syncwarp();  // the next head takes the row
}

}  // namespace qk

template <class T, bool INTERLEAVED, bool WIDE, int HELD, int PER_BYTE>
BARACUDA_D void qk_norm_rope_append(const QkNormRopeAppendParams& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, weights);
  const qk::Share own = qk::share_of(p);
  const int side = own.side, cache = side - 1;
  const bool values = side == 2;
  const i64 first_row = own.tile * own.tile_rows;
  const int tokens = static_cast<int>(min<i64>(own.tile_rows, p.seq_len - first_row));
  const int step = static_cast<int>(gridDim.y) * own.ways;
  int base = static_cast<int>(blockIdx.y) * own.ways;
  if (tokens <= 0 || base >= own.heads) return;
  const int group = static_cast<int>(threadIdx.x) / p.lanes, row = group % own.tile_rows, way = group / own.tile_rows;
  const int pairs = static_cast<int>(p.rotary_dim / 2);
  A* const cosines = weights + p.head_dim;
  A* const sines = cosines + own.tile_rows * pairs;
  const i64 t = first_row + row;
  int left = row < tokens ? own.heads - way : 0;  // base < left: the group has a head
  qk::Lane<T, INTERLEAVED, WIDE, HELD> lane(qk::columns_of(p, values), static_cast<int>(threadIdx.x) % p.lanes);
  const i64(&from)[3] = p.from_strides[side];
  qk::Head<T> in{static_cast<T*>(values ? p.v : side ? p.k : p.q) + t * from[0] + (base + way) * from[1], from[2]};
  Vec<T, V> x[HELD][2], ahead[HELD][2];
  lane.load_chunks(in, base < left, ahead);  // in flight while the cell is found and the angles are computed
  i64 page = 0, cell = 0;
  u64 place;
  if (side > 0 && left > 0) Paged<i64, QkNormRopeAppendParams>{p}.locate(static_cast<u64>(t), page, cell, place);
  if (page < 0) left = 0;
  if (!values) {
    qk::fill_weights<T>(p, side, weights);
    qk::fill_angles<T>(p, qk::Token{0, first_row}, tokens, cosines, sines);
  }
  __syncthreads();
  qk::Turns<A, V> turns[HELD];
#pragma unroll
  for (int u = 0; u < HELD; ++u) turns[u] = lane.turns_of(cosines + row * pairs, sines + row * pairs, u);
  const i64(&to)[4] = p.to_strides[side];  // of tokens, or of pages, heads, cells and columns
  const i64 out_at = side ? page * to[0] + cell * to[2] : t * to[0];
  void* const into = values ? p.v_cache : side ? p.k_cache : p.yq;
#pragma unroll 1
  for (; base < own.heads; base += step) {
    const bool mine = base < left;
    const int head = base + way;
#pragma unroll
    for (int u = 0; u < HELD; ++u) x[u][0] = ahead[u][0], x[u][1] = ahead[u][1];
    in.from += step * from[1];
    if constexpr (WIDE) lane.load_chunks(in, base + step < left, ahead);
    decltype(qk::head_scale(p, x)) s{};
    const bool normal = !values && p.norm;
    if (normal) s = qk::head_scale(p, x);
    Vec<A, V> z[HELD][2];
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        z[u][i] = to_acc(x[u][i]);
        if (normal) {
          // Read again for each head: in registers they would make others spill.
          const Vec<A, V> weight = lane.weights_of(weights + forgotten(0), u, i);
#pragma unroll
          for (int k = 0; k < V; ++k) z[u][i][k] = z[u][i][k] * s.scale * s.rstd * weight[k];
        }
      }
      lane.turn(z[u], u, turns[u], false);
    }
    if (PER_BYTE > 0 && side > 0) {
      u8* const bytes = static_cast<u8*>(into) + out_at + head * to[1];
      const i64(&n)[4] = p.scale_strides[cache];
      float* scales = static_cast<float*>(values ? p.v_scales : p.k_scales);
      if (scales != nullptr) scales += page * n[0] + head * n[1] + cell * n[2];
      if constexpr (PER_BYTE == 2) {
        A* const row = weights + p.rows_at + group * p.row_pitch;
        qk::store_halves<WIDE, HELD, V>(p, lane, cache, mine, qk::Head<u8>{bytes, to[3]}, scales, n[3], row, z);
      } else {
        qk::store_codes<WIDE, HELD, V>(p, lane, cache, head, mine, qk::Head<u8>{bytes, to[3]}, scales, z);
      }
    } else {
      const qk::Head<T> out{static_cast<T*>(into) + out_at + head * to[1], to[3]};
#pragma unroll
      for (int u = 0; u < HELD; ++u) {
        lane.store_chunk(out, mine, u, 0, z[u][0]);
        lane.store_chunk(out, mine, u, 1, z[u][1]);
      }
    }
    if constexpr (!WIDE) lane.load_chunks(in, base + step < left, ahead);
  }
}

}  // namespace baracuda
