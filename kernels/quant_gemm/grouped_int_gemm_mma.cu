// grouped_int_gemm_mma   products of the rows of each expert, integers of 8 bits in any strides, with the epilogue of
//                        quant_gemm/epilogue.cuh: tiles of quant_gemm/int8_tile.cuh. A block walks the tiles that the
//                        offsets make.
#include "quant_gemm/grouped_int_gemm.cuh"
#include "quant_gemm/int8_tile.cuh"

namespace baracuda {

template <IntGemm KIND, bool LONG, int SIZE, class P> BARACUDA_D void grouped_int_gemm_mma(const P& p) {
  using Tile = gemm::Int8Tile<i8, i8, KIND, LONG, SIZE>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  expert_tiles<SIZE, SIZE, Tile::threads>(
      p,
      [&](const GroupTile& at) {
        const IntEpilogue<KIND, P> epilogue(p, at.group);
        const auto lines = [&](const void* matrix, int which, int k_axis, i64 start, i64 end) {
          const i64* const step = p.strides[which];
          const u8* const from = static_cast<const u8*>(matrix) + epilogue.begin.at[which];
          return typename Tile::Operand(from, step[1 - k_axis], step[k_axis], start, end, p.wide >> which & 1);
        };
        Tile tile;
        tile.add(ring, lines(p.a, int_matrix::a, 1, at.m0, at.end), lines(p.b, int_matrix::b, 0, at.n0, p.n), p,
                 epilogue, at.m0, at.n0);
        tile.finish(ring, [&](int row, int column, const auto& sum) {
          const i64 m = at.m0 + row, n = at.n0 + column;
          if (m < at.end && n < p.n) epilogue.row(m, n, p.n - n, sum);
        });
      },
      [&](const GroupTile& at) { put_no_integers<SIZE, SIZE>(p, at); });
}

}  // namespace baracuda
