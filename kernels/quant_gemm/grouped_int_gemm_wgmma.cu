// grouped_int_gemm_wgmma products of the rows of each expert, integers of 8 bits, with the epilogue of
//                        quant_gemm/epilogue.cuh, on sm_90a: quant_gemm/int8_wgmma.cuh, with the tiles that the offsets
//                        make (gemm/wgmma_groups.cuh).
#include "gemm/wgmma_groups.cuh"
#include "quant_gemm/grouped_int_gemm.cuh"
#include "quant_gemm/int8_wgmma.cuh"

namespace baracuda {
namespace gemm {

// Of blocks without clusters, as a group may end between the tiles of two.
template <IntGemm KIND, int COLUMNS, class P>
using IntRows = SentProduct<Int8Product<i8, i8, KIND, COLUMNS, P, IntEpilogue<KIND, P>, 1>>;

template <IntGemm KIND, int COLUMNS, class P> struct IntRowsOfExperts : IntRows<KIND, COLUMNS, P> {
  using Base = IntRows<KIND, COLUMNS, P>;
  using Base::p, Base::Base;
  static constexpr int lead = 2;  // slices, as dense products have

  BARACUDA_D void finish_tile(const SentTile& tile, typename Base::Accumulator& acc, int consumer) const {
    const int m = this->row_of_warp(tile, consumer);
    if (m >= tile.end) return;
    if (tile.batch >= 0) return this->finish(acc, m, tile.n, tile.end, tile.batch, consumer);
    put_no_integers<16, COLUMNS>(p, GroupTile{-1, m, tile.n, tile.end}, lane_id(), warp_size);
  }
  BARACUDA_D void consume(int consumer) const {
    this->template receive<lead>(
        consumer, [&](const SentTile& tile, typename Base::Accumulator& acc) { finish_tile(tile, acc, consumer); });
  }
  BARACUDA_D void run() const {
    Base::template run<40, 232>([&] { send_groups(*this, ExpertRows(p)); }, [&](int consumer) { consume(consumer); });
  }
};

}  // namespace gemm

template <IntGemm KIND, int COLUMNS, class P> BARACUDA_D void grouped_int_gemm_wgmma(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::IntRowsOfExperts<KIND, COLUMNS, P>(p, shared).run();
}

}  // namespace baracuda
