// hadamard_quantize   u = scale H (signs . x) for every row as in hadamard.cu, and y = u / scale of its group of columns in
// 8 or 4 bits: the scale is given, or follows from the largest |u| of the group.
//
// The transform leaves a tile complete in shared memory, of whole groups; a warp finds the largest |u| of a group, and then
// threads write codes of 16 numbers. See hadamard_tile.cuh for the order of sums; a maximum depends on none.
#include <baracuda/quantize.cuh>
#include "quantize/hadamard_tile.cuh"

namespace baracuda {

enum HadamardQuantizeOperand { AT_CODES, AT_SOURCE, AT_SIGNS };

template <class T, int E, int BASE, bool WIDE> struct HadamardCodes {
  using Tile = hadamard::Tile<T, E, BASE, HadamardQuantizeParams>;
  static constexpr int piece = 16;  // numbers whose codes a thread writes together
  const HadamardQuantizeParams& p;
  const Tile& t;
  float* const scales;  // of the tile's groups, behind it
  const float factor;

  BARACUDA_D HadamardCodes(const HadamardQuantizeParams& params, const Tile& tile)
      : p(params), t(tile), scales(tile.tile + Tile::at(tile.size - 1) + 1),
        factor(static_cast<float>(params.scale() * params.unit)) {}

  BARACUDA_D void find_scales() const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = static_cast<int>(threadIdx.x) % warp_size;
    const float given = static_cast<float>(p.y_scale());
    const i64 first = t.first * t.n / p.group;
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
      if (p.scales == nullptr) continue;
      if (p.scale_code == quantize::scale_f32) static_cast<float*>(p.scales)[first + g] = scale.value;
      else static_cast<u8*>(p.scales)[first + g] = scale.code;
    }
  }
  BARACUDA_D void put_wide(const quantize::Coder& coder) const {
    u8* const y = static_cast<u8*>(p.y);
#pragma unroll 1
    for (int w = static_cast<int>(threadIdx.x); w < t.valid / piece; w += static_cast<int>(blockDim.x)) {
      const int i = w * piece, row = t.row_of(i);
      Vec<float, piece> u = load<piece>(static_cast<const float*>(t.tile) + Tile::at(i));
#pragma unroll
      for (int k = 0; k < piece; ++k) u[k] *= factor;
      const Vec<u8, piece> codes = quantize::codes_of(u, quantize::Divisor(scales[i / p.group]), coder);
      const i64 to = t.template row_offset<true>(AT_CODES, row) + (i - row * t.n);
      if (p.code == quantize::to_e2m1) store(y + to / 2, quantize::paired(codes));  // offsets are in halves of bytes
      else store(y + to, codes);
    }
  }
  BARACUDA_D u8 code_of(int i, const quantize::Coder& coder) const {
    return coder(quantize::Divisor(scales[i / p.group])(t.tile[Tile::at(i)] * factor));
  }
  BARACUDA_D void put_strided(const quantize::Coder& coder) const {
    u8* const y = static_cast<u8*>(p.y);
    const bool pairs = p.code == quantize::to_e2m1;
    const int each = pairs ? 2 : 1;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * each; i < t.valid; i += static_cast<int>(blockDim.x) * each) {
      const int row = t.row_of(i);
      const i64 to = t.offset(AT_CODES, row, i - row * t.n);
      if (pairs) y[to / 2] = static_cast<u8>(code_of(i, coder) | code_of(i + 1, coder) << 4);
      else y[to] = code_of(i, coder);
    }
  }
};

template <class T, int E, int BASE, bool WIDE> BARACUDA_D void hadamard_quantize(const HadamardQuantizeParams& p) {
  const i64 row = hadamard::block_number() * p.tile_rows;
  if (row >= p.rows) return;
  const hadamard::Tile<T, E, BASE, HadamardQuantizeParams> tile(p, dynamic_smem<float>(), row);
  tile.template enter<WIDE, AT_SOURCE, AT_SIGNS>();
  tile.chunk_round(p.rounds - 1);
  __syncthreads();
  const HadamardCodes<T, E, BASE, WIDE> codes(p, tile);
  codes.find_scales();
  __syncthreads();
  if constexpr (WIDE) codes.put_wide(quantize::Coder(p.code));
  else codes.put_strided(quantize::Coder(p.code));
}

}  // namespace baracuda
