#pragma once
// boxes      the places of a convolution in boxes of batches and spatial axes, which TMA copies from x: what a place sees at one
//            tap lies as far from it as what its neighbours see, so a box of places sees a box of x, with zeros outside.
//
// P has what conv/window.cuh says and box, boxes and box_dividers: of the axes w, h, d and the batch, places of a box, how many
// boxes there are, and how the first three of `box` divide; x_map: x with axes (channel, w, h, d, batch). Where windows lie apart
// (stride) the axes are (place between two, channel; w; place between two; h; batch), two spatial axes at most, and `between` is
// set: a box of every stride-th place is dense among places that leave the same remainder.
#include "conv/window.cuh"
#include "gemm/wgmma.cuh"

namespace baracuda {

// The first place of a box.
struct ConvBox {
  int w, h, d, batch;
  template <class P> BARACUDA_D ConvBox(const P& p, i64 number) {
    u32 rest = static_cast<u32>(number), at;
    rest = divmod(rest, static_cast<u32>(p.boxes[0]), at), w = static_cast<int>(at) * p.box[0];
    rest = divmod(rest, static_cast<u32>(p.boxes[1]), at), h = static_cast<int>(at) * p.box[1];
    rest = divmod(rest, static_cast<u32>(p.boxes[2]), at), d = static_cast<int>(at) * p.box[2];
    batch = static_cast<int>(rest) * p.box[3];
  }
  template <class P> BARACUDA_D void next(const P& p) {
    if ((w += p.box[0]) < p.boxes[0] * p.box[0]) return;
    w = 0;
    if ((h += p.box[1]) < p.boxes[1] * p.box[1]) return;
    h = 0;
    if ((d += p.box[2]) < p.boxes[2] * p.box[2]) return;
    d = 0, batch += p.box[3];
  }
  // A place of it; whether there is one.
  template <class P> BARACUDA_D bool place(const P& p, int number, ConvRow& found) const {
    u32 rest = static_cast<u32>(number), at[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) rest = divmod(rest, p.box_dividers[axis], 0, at[axis]);
    found.batch = batch + static_cast<int>(rest);
    found.at[0] = d + static_cast<int>(at[2]), found.at[1] = h + static_cast<int>(at[1]);
    found.at[2] = w + static_cast<int>(at[0]);
    return found.at[2] < p.out_extent[2] && found.at[1] < p.out_extent[1] && found.at[0] < p.out_extent[0] &&
           static_cast<i64>(rest) < p.box[3] && found.batch * p.out_extent[0] * p.out_extent[1] * p.out_extent[2] < p.rows;
  }
};

// Where x has what a box of places sees at a tap.
struct ConvShift {
  int c, w, third, fourth;
  bool between;
  // Of a tap, from a channel on.
  template <class P> BARACUDA_D ConvShift(const P& p, const ConvTap& tap, int channel) : c(channel), between(p.between) {
    int whole[3], rest[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int at = tap.at[axis] * static_cast<int>(p.dilation[axis]) - static_cast<int>(p.padding[axis]);
      const int stride = static_cast<int>(p.stride[axis]);
      whole[axis] = (at >= 0 ? at : at - stride + 1) / stride;
      rest[axis] = at - whole[axis] * stride;
    }
    c += rest[2] * static_cast<int>(p.x_steps[5]), w = whole[2];
    third = between ? rest[1] : whole[1], fourth = between ? whole[1] : whole[0];
  }
  BARACUDA_D void load(void* to, const TensorMap& map, Barrier& full, const ConvBox& box, int more = 0) const {
    tensor_load(to, map, full, c + more, w + box.w, third + (between ? 0 : box.h), fourth + (between ? box.h : box.d),
                box.batch);
  }
};

// Products of slices of 64 of k in the order of k, from zero, by gemm/wgmma.cuh's ring and consumers.
template <class MMA, class U, int COLUMNS>
using ConvProduct =
    gemm::Product<MMA, U, COLUMNS, false, gemm::default_stages<COLUMNS>, 2, ConvParams, void, 1>;

template <class MMA, class U, int COLUMNS> struct ConvRing : ConvProduct<MMA, U, COLUMNS> {
  using Base = ConvProduct<MMA, U, COLUMNS>;
  using Ring = typename Base::Ring;
  using Accumulator = typename Base::Accumulator;
  using Base::memory;
  using Base::p;
  using Place = Stage<Ring::stages>;

  BARACUDA_D explicit ConvRing(const ConvParams& p, unsigned char* shared) : Base(p, shared, false) {}

  // Of so many slices, of the first HALF of the columns where the others do not exist. `lead`: after how many of them the
  // second warpgroup may begin, 0 where it has begun.
  template <bool HALF> BARACUDA_D void multiply_all(Accumulator& acc, Place& at, int consumer, int slices, int lead) const {
    constexpr int N = HALF ? COLUMNS / 16 : COLUMNS / 8;
    const u64 a = Base::left_operand(consumer), b = Base::right_operand();
    auto& own = reinterpret_cast<float(&)[N][4]>(acc);
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      constexpr u64 step = Ring::stage_bytes >> 4, along = (MMA::a_across ? 2048 : 32) >> 4;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) MMA::multiply(own, a + stage * step + k * along, b + stage * step + k * along, 1);
      wgmma_commit();
      if (s + 1 == lead) memory.led->arrive_as_warp();
      // The stage before is free, as its products are done.
      if (s != 0) {
        wgmma_wait<1>();
        Base::release(before);
      }
      before = stage;
    }
    wgmma_wait<0>();
    if (slices != 0) Base::release(before);
    MMA::hold(own);
  }
  // Lets the stages of so many slices go, of which this warpgroup has no rows.
  BARACUDA_D void skip(Place& at, int slices) const {
    for (int s = 0; s < slices; ++s, at.advance()) {
      memory.full[at.index()].wait(at.full_parity());
      Base::release(at.index());
    }
  }
  // half: whether the columns from COLUMNS / 2 on do not exist.
  BARACUDA_D void sums(Accumulator& acc, Place& at, int consumer, int slices, bool half, int lead = 0) const {
    Base::clear(acc);
    if constexpr (COLUMNS > 64) {
      if (half) return multiply_all<true>(acc, at, consumer, slices, lead);
    }
    multiply_all<false>(acc, at, consumer, slices, lead);
  }
};

}  // namespace baracuda
