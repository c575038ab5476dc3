// w4a8_unpacked products of int8 by weights of 4 bits in groups, on sm_90a, of weights that w4a8_unpack has made bytes:
//               quant_gemm/w4a8_sums.cuh.
//
// One thread of a block has TMA fill the ring: of a slice the rows of W, the rows of x, of which either block of
// a cluster loads half for both, and the scales, which lie together.
#include "quant_gemm/w4a8_sums.cuh"

namespace baracuda {
namespace gemm {

template <class T, class P> struct W4A8Unpacked : W4A8Sums<T, 128, 2, w4a8_unpacked_stages, true, P> {
  using Base = W4A8Sums<T, 128, 2, w4a8_unpacked_stages, true, P>;
  using Ring = typename Base::Ring;
  using Base::memory, Base::p, Base::slices, Base::scales;

  BARACUDA_D W4A8Unpacked(const P& p, unsigned char* shared) : Base(p, shared) {}

  BARACUDA_D void produce() const {
    prefetch_map(p.w_map), prefetch_map(p.x_map), prefetch_map(p.scales_map);
    const u32 bytes = Ring::stage_bytes + p.each * tile_rows * static_cast<u32>(sizeof(float));
    Stage<Ring::stages> at;
    this->for_tiles([&](const Tile& tile) {
      const int n = this->row_of(tile), own = n / tile_rows;
#pragma unroll 1
      for (int s = 0; s < slices; ++s, at.advance()) {
        // Wait until the stage is empty.
        const u32 stage = at.index();
        Barrier& full = memory.full[stage];
        memory.empty[stage].wait(at.empty_parity());
        // Issue TMA; the full barrier counts its bytes.
        arrive_expecting(full, bytes);
        tensor_load(memory.a(stage), p.w_map, full, s * Base::DEPTH, n, tile.batch);
        this->load_x(stage, s * Base::DEPTH, tile.n * 128, tile.batch * p.x_step);
        tensor_load(scales + stage * w4a8_scales, p.scales_map, full, 0,
                    ((tile.batch * slices + s) * p.tiles + own) * p.each);
      }
    });
  }
  BARACUDA_D void run() const {
    Base::Base::run(
        [&] {
          if (threadIdx.x == 0) produce();
        },
        [&](int consumer) { this->consume(consumer); });
  }
};

}  // namespace gemm

template <class T> BARACUDA_D void w4a8_unpacked(const W4A8UnpackedParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::W4A8Unpacked<T, W4A8UnpackedParams>(p, shared).run();
}

}  // namespace baracuda
