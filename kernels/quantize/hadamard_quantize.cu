// hadamard_quantize   u = scale H (signs . x) for every row as in hadamard.cu, and y = u / scale of its group of columns in
// 8 or 4 bits: the scale is given, or follows from the largest |u| of the group.
//
// WIDE: a thread keeps its chunks of the last round in registers. Lanes find the largest |u| of what they have of a group
// side by side; groups beyond that meet in shared memory, at one barrier more. Other rows are left complete in shared
// memory, where a warp goes through a group. See hadamard_tile.cuh for the order of sums; a maximum depends on none.
#include <baracuda/quantize.cuh>
#include "quantize/hadamard_tile.cuh"

namespace baracuda {

enum HadamardQuantizeOperand { AT_CODES, AT_SOURCE, AT_SIGNS };

template <class T, int E, int BASE, bool WIDE> struct HadamardCodes {
  using Tile = hadamard::Tile<T, E, BASE, HadamardQuantizeParams>;
  static constexpr int V = Tile::V, C = Tile::C, LV = Tile::LV;
  const HadamardQuantizeParams& p;
  const Tile& t;
  float* const scales;  // of the tile's groups, behind it; of rows in chunks the largest sizes
  const float factor, given;
  const quantize::Coder coder;

  BARACUDA_D HadamardCodes(const HadamardQuantizeParams& params, const Tile& tile)
      : p(params), t(tile), scales(tile.tile + Tile::at(tile.size - 1) + 1),
        factor(static_cast<float>(params.scale() * params.unit)), given(static_cast<float>(params.y_scale())),
        coder(params.code) {}

  BARACUDA_D int group_of(int i) const { return p.group_bits < 0 ? i / p.group : i >> p.group_bits; }
  BARACUDA_D void store_scale(int group, const quantize::BlockScale& scale) const {
    if (p.scales == nullptr) return;
    const i64 to = t.first * t.n / p.group + group;
    if (p.scale_code == quantize::scale_f32) static_cast<float*>(p.scales)[to] = scale.value;
    else static_cast<u8*>(p.scales)[to] = scale.code;
  }

  // ---- rows in chunks -----------------------------------------------------------------------------------------------

  BARACUDA_D void clear() const {
    for (int g = static_cast<int>(threadIdx.x); g < group_of(t.size); g += static_cast<int>(blockDim.x))
      scales[g] = 0.0f;
  }
  // The codes of a thread's numbers, four a word. scale and most: of each chunk, `one`: the same for all; the largest size
  // is NaN where one is NaN.
  BARACUDA_D void encode(float (&u)[E], float (&scale)[C], const float (&most)[C], bool one, u32 (&word)[E / 4]) const {
    const bool powers = p.scale_code == quantize::scale_e8m0;
    float inverse[C];
    bool serves = true;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (powers) {
        // Of a power of two that is a normal number the exponent changes its sign; of zeros any number serves.
        inverse[c] = __uint_as_float(0x7f000000u - __float_as_uint(scale[c]));
        serves = serves && (scale[c] >= numeric<float>::tiny() || most[c] == 0.0f);
      } else if (c > 0 && one) {
        inverse[c] = inverse[0];
      } else {
        const quantize::Divisor by(scale[c]);
        inverse[c] = by.inverse, serves = serves && by.serves(most[c]);
      }
    }
    if (serves) {
      if (powers) {
#pragma unroll
        for (int i = 0; i < E; ++i) u[i] *= inverse[i / V];
      } else {
#pragma unroll
        for (int i = 0; i < E; ++i) u[i] = quantize::Divisor(scale[i / V], inverse[i / V]).near(u[i]);
      }
      coder.with([&](auto one) {
#pragma unroll
        for (int i = 0; i < E; i += 4) word[i / 4] = one.codes_of(u + i);
      });
    } else {
#pragma unroll 1
      for (int n = 1; n <= E; ++n) {  // rare, and so one piece of code, through which the numbers go round
        const u32 code = coder(quantize::Divisor(scale[0])(u[0]));
#pragma unroll
        for (int k = 0; k < E - 1; ++k) u[k] = u[k + 1];
#pragma unroll
        for (int k = 0; k < E / 4; ++k) word[k] = word[k] >> 8 | (k + 1 < E / 4 ? word[k + 1] : code) << 24;
        if (n % V != 0) continue;
#pragma unroll
        for (int c = 0; c < C - 1; ++c) scale[c] = scale[c + 1];
      }
    }
  }
  BARACUDA_D void put_codes(int place, int shift, const u32 (&word)[E / 4]) const {
    constexpr int words = V / 4;
    u8* const y = static_cast<u8*>(p.y);
    i64 to[C];
    t.chunk_offsets(AT_CODES, place, shift, to);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (place + (c << shift) >= t.valid) continue;
      if (p.code == quantize::to_e2m1) {  // offsets are in halves of bytes
        u32 pairs[2] = {};                // in bytes 0 and 2
#pragma unroll
        for (int k = 0; k < words; ++k) pairs[k] = word[c * words + k] | word[c * words + k] >> 4;
        const u32 made = __byte_perm(pairs[0], pairs[1], 0x6420);
        if constexpr (words == 2) *reinterpret_cast<u32*>(y + to[c] / 2) = made;
        else *reinterpret_cast<u16*>(y + to[c] / 2) = static_cast<u16>(made);
      } else {
        Vec<u32, words> made;
#pragma unroll
        for (int k = 0; k < words; ++k) made[k] = word[c * words + k];
        store(reinterpret_cast<u32*>(y + to[c]), made);
      }
    }
  }
  // The largest size of each chunk's numbers, and of those that as many lanes side by side have.
  BARACUDA_D void measure(const float (&u)[E], int lanes, bool one, float (&most)[C]) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      most[c] = math::abs(u[c * V]);
#pragma unroll
      for (int k = 1; k < V; ++k) most[c] = math::maximum(most[c], math::abs(u[c * V + k]));
    }
    if (one) {
#pragma unroll
      for (int c = 1; c < C; ++c) most[0] = math::maximum(most[0], most[c]);
      most[0] = quantize::block_most(most[0], lanes);
    } else {
#pragma unroll 1
      for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
        for (int c = 0; c < C; ++c) most[c] = math::maximum(most[c], shuffle_xor(most[c], mask));
      }
    }
  }
  // Sizes are no negative numbers, and so in the order of their bits, NaN above all.
  BARACUDA_D void meet(int place, int shift, int lanes, bool one, const float (&most)[C]) const {
    if ((lane_id() & (lanes - 1)) != 0) return;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (c > 0 && one) break;
      atomicMax(reinterpret_cast<u32*>(scales) + (one ? 0 : group_of(place + (c << shift))), __float_as_uint(most[c]));
    }
  }
  BARACUDA_D void leave_wide() const {
    const int shift = p.shift[Tile::last], items = t.size / E, threads = static_cast<int>(blockDim.x);
    // Neighbouring lanes have neighbouring chunks, but beyond 2^shift elements.
    const int side = min(min(__ffs(p.group) - 1, shift) - LV, 5), lanes = p.is_static ? 1 : 1 << side;
    const bool one = p.is_static || p.group == t.size, alone = p.is_static || V * lanes == p.group;
    const bool held = items <= threads;  // in registers
    float u[E];
#pragma unroll 1
    for (int pass = alone ? 1 : 0; pass < 2; ++pass) {
      const bool last = pass == 1, first = !last || alone;
#pragma unroll 1
      for (int from = 0; from < items; from += threads) {  // whole warps
        const int w = min(from + static_cast<int>(threadIdx.x), items - 1);
        const bool there = from + static_cast<int>(threadIdx.x) < items;
        const int place = t.chunk_place(w, shift);
        float most[C];
        if (first) {
          t.last_round(place, u);
#pragma unroll
          for (int i = 0; i < E; ++i) u[i] *= factor;
          measure(u, lanes, one, most);
        } else if (!held) {
          t.get(place, shift, u);
        }
        if (!last) {
          if (there) meet(place, shift, lanes, one, most);
          if (there && !held) t.put(place, shift, u);
          continue;
        }
        if (!there) continue;
        float scale[C];
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (c > 0 && one) {
            scale[c] = scale[0], most[c] = most[0];
            continue;
          }
          const int i = place + (c << shift), g = p.is_static ? 0 : group_of(i);
          if (!alone) most[c] = scales[g];
          quantize::BlockScale made{given, 0};
          if (!p.is_static) made = quantize::block_scale(most[c], p.largest, p.scale_code, given);
          scale[c] = made.value;
          if (!p.is_static && i < t.valid && i == g * p.group) store_scale(g, made);
        }
        u32 word[E / 4] = {};
        encode(u, scale, most, one, word);
        put_codes(place, shift, word);
      }
      if (!last) __syncthreads();
    }
    if (p.is_static) {
      for (int g = static_cast<int>(threadIdx.x); g < group_of(t.valid); g += threads) store_scale(g, {given, 0});
    }
  }

  // ---- rows of any strides ------------------------------------------------------------------------------------------

  BARACUDA_D void find_scales() const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll 1
    for (int g = warp; g < t.valid / p.group; g += static_cast<int>(blockDim.x) / warp_size) {
      quantize::BlockScale scale{given, 0};
      if (!p.is_static) {
        float most = 0.0f;
#pragma unroll 4
        for (int i = lane; i < p.group; i += warp_size) {
          most = math::maximum(most, math::abs(t.tile[Tile::at(g * p.group + i)] * factor));
        }
        scale = quantize::block_scale(warp_reduce<Max>(most), p.largest, p.scale_code, given);
      }
      if (lane != 0) continue;
      scales[g] = scale.value;
      store_scale(g, scale);
    }
  }
  BARACUDA_D u8 code_of(int i) const {
    return coder(quantize::Divisor(scales[group_of(i)])(t.tile[Tile::at(i)] * factor));
  }
  BARACUDA_D void leave_strided() const {
    t.template chunk_round<Tile::last>();
    __syncthreads();
    find_scales();
    __syncthreads();
    u8* const y = static_cast<u8*>(p.y);
    const bool pairs = p.code == quantize::to_e2m1;
    const int each = pairs ? 2 : 1;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * each; i < t.valid; i += static_cast<int>(blockDim.x) * each) {
      const int row = t.row_of(i);
      const i64 to = t.offset(AT_CODES, row, i - row * t.n);
      if (pairs) y[to / 2] = static_cast<u8>(code_of(i) | code_of(i + 1) << 4);
      else y[to] = code_of(i);
    }
  }
};

template <class T, int E, int BASE, bool WIDE> BARACUDA_D void hadamard_quantize(const HadamardQuantizeParams& p) {
  const i64 row = hadamard::block_number() * p.tile_rows;
  if (row >= p.rows) return;
  const hadamard::Tile<T, E, BASE, HadamardQuantizeParams> tile(p, dynamic_smem<float>(), row);
  const HadamardCodes<T, E, BASE, WIDE> codes(p, tile);
  if constexpr (WIDE) codes.clear();
  tile.template enter<WIDE, AT_SOURCE, AT_SIGNS>();
  if constexpr (WIDE) codes.leave_wide();
  else codes.leave_strided();
}

}  // namespace baracuda
