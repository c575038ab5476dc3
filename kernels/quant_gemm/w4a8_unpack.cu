// w4a8_unpack weights of 4 bits less their zero points as int8 rows of whole slices of 128 of k, held [batch, n, pitch], and
//             scales as floats in the order in which tiles of 128 rows read them: of every slice those of a tile's rows
//             together, by [batch, slices, tiles, 128, each], where `each` is 1 or, for the runs of 32 of a slice, 4.
//             quant_gemm/w4a8.cuh.
//
// A warp has a slice of 16 rows: eight lanes have a row's, 8 bytes of codes and 16 of weights each, of four rows that are
// read together. A block has eight slices. What stands behind the end of k meets zeros of x.
#include "quant_gemm/w4a8.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

BARACUDA_D void w4a8_unpack(const W4A8UnpackParams& p) {
  constexpr int piece = 16, pieces = 8, slice_k = piece * pieces, own_rows = 4, rows = w4a8_unpack_rows,
                warps = w4a8_unpack_slices, tile = 128;
  const int own = lane_id() % pieces, warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 slices = p.pitch / slice_k, across = div_up(slices, warps), down = p.tiles * (tile / rows);
  const i64 block = blockIdx.x, batch = block / (across * down), slice = block % across * warps + warp;
  if (slice >= slices) return;
  const i64 row0 = block / across % down * rows + lane_id() / pieces, k = slice * slice_k + own * piece;
  const i64 g = min(static_cast<u32>(k) / static_cast<u32>(p.group), static_cast<u32>(p.groups) - 1);
  const GroupsOfRows<W4A8UnpackParams> groups(p, batch);
  const auto row = [&](int j) { return row0 + rows / own_rows * j; };
  const auto held = [&](int j) { return min(row(j), p.n - 1); };  // of rows that do not exist the last
  u32 codes[own_rows][2], zero[own_rows];
#pragma unroll
  for (int j = 0; j < own_rows; ++j) {
    load_row<8>(codes[j], static_cast<const u8*>(p.codes) + batch * p.code_steps[0] + held(j) * p.code_steps[1] + k / 2,
                1, (p.k - k) / 2, p.whole);
    zero[j] = groups.zero_bits(held(j), g);
  }
  const int scaled = pieces / p.each;  // pieces that a scale is of
  if (own % scaled == 0) {
    float* const to = static_cast<float*>(p.by) + (batch * slices + slice) * p.tiles * tile * p.each + own / scaled;
#pragma unroll
    for (int j = 0; j < own_rows; ++j) to[row(j) * p.each] = groups.scale_of(held(j), g);
  }
  const Nibbles nibbles(p.is_signed);
#pragma unroll
  for (int j = 0; j < own_rows; ++j) {
    if (row(j) >= p.n) break;
    const u32 less = groups.zero_of(zero[j]);
    const uint2 low = nibbles.in_turn(codes[j][0], less), high = nibbles.in_turn(codes[j][1], less);
    u8* const to = static_cast<u8*>(p.held) + (batch * p.n + row(j)) * p.pitch + k;
    *reinterpret_cast<uint4*>(to) = make_uint4(low.x, low.y, high.x, high.y);
  }
}

}  // namespace baracuda
