#pragma once
// boxes      the places of a convolution in boxes of batches and spatial axes, which TMA copies from x: what a place sees at one
//            tap lies as far from it as what its neighbours see, so a box of places sees a box of x, with zeros outside.
//
// P has what conv/window.cuh says and box, boxes and box_dividers: of the axes w, h, d and the batch, places of a box, how many
// boxes there are, and how the first three of `box` divide; batch: how many there are; x_map: x with axes (channel, w, h, d, batch). Where windows lie apart
// (stride) the axes are (place between two, channel; w; place between two; h; batch), two spatial axes at most, and `between` is
// set: a box of every stride-th place is dense among places that leave the same remainder.
#include "conv/window.cuh"
#include "gemm/raster.cuh"
#include "gemm/wgmma.cuh"
#include <baracuda/wgmma_192.cuh>

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
           static_cast<int>(rest) < p.box[3] && static_cast<int>(found.batch) < p.batch;
  }
};

// Where x has what a box of places sees at a tap.
struct ConvShift {
  int c, w, third, fourth;
  bool between;
  // Of a tap, from a channel on.
  template <class P>
  BARACUDA_D ConvShift(const P& p, const ConvTap& tap, int channel) : c(channel), between(p.between) {
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

// Products of 16-bit elements, of all widths of tiles.
template <class T, bool ACROSS> struct ConvHalvesOf : gemm::FloatMma<T, ACROSS, ACROSS> {
  static constexpr bool apart = false;
  template <int N> static BARACUDA_D void multiply(float (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma<T, ACROSS, ACROSS>(acc, a, b, adds);
  }
};

template <int COLUMNS> constexpr int conv_box_stages = COLUMNS == 192 ? 4 : gemm::default_stages<COLUMNS>;

// Products of slices of 128 bytes of k in the order of k, from zero, by gemm/wgmma.cuh's ring and consumers; of an MMA that is
// `apart` the products of a slice are a chain from zero, which is added to the sum.
template <class MMA, class U, int COLUMNS>
using ConvProduct = gemm::Product<MMA, U, COLUMNS, false, conv_box_stages<COLUMNS>, 2, ConvParams, void, 1>;

template <class MMA, class U, int COLUMNS> struct ConvRing : ConvProduct<MMA, U, COLUMNS> {
  using Base = ConvProduct<MMA, U, COLUMNS>;
  using Ring = typename Base::Ring;
  using Sum = typename MMA::Sum;
  using Accumulator = typename Base::Accumulator;
  using Base::memory;
  using Base::p;
  using Place = Stage<Ring::stages>;

  BARACUDA_D explicit ConvRing(const ConvParams& p, unsigned char* shared) : Base(p, shared, false) {}

  // Of so many slices, of the first HALF of the columns where the others do not exist. `lead`: after how many of them the
  // second warpgroup may begin, 0 where it has begun.
  template <bool HALF>
  BARACUDA_D void multiply_all(Accumulator& acc, Place& at, int consumer, int slices, int lead) const {
    constexpr int N = HALF ? COLUMNS / 16 : COLUMNS / 8;
    const u64 a = Base::left_operand(consumer), b = Base::right_operand();
    auto& own = reinterpret_cast<Sum(&)[N][4]>(acc);
    Sum chain[MMA::apart ? N : 1][4];
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      constexpr u64 step = Ring::stage_bytes >> 4, along = (MMA::a_across ? 2048 : 32) >> 4;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const u64 left = a + stage * step + k * along, right = b + stage * step + k * along;
        if constexpr (MMA::apart) MMA::multiply(chain, left, right, k != 0);
        else MMA::multiply(own, left, right, 1);
      }
      wgmma_commit();
      if (s + 1 == lead) memory.led->arrive_as_warp();
      if constexpr (MMA::apart) {
        wgmma_wait<0>();
        Base::release(stage);
        MMA::hold(chain);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) own[n][e] += chain[n][e];
        continue;
      }
      // The stage before is free, as its products are done.
      if (s != 0) {
        wgmma_wait<1>();
        Base::release(before);
      }
      before = stage;
    }
    if constexpr (!MMA::apart) {
      wgmma_wait<0>();
      if (slices != 0) Base::release(before);
      MMA::hold(own);
    }
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
    if constexpr (COLUMNS % 128 == 0) {
      if (half) return multiply_all<true>(acc, at, consumer, slices, lead);
    }
    multiply_all<false>(acc, at, consumer, slices, lead);
  }
};

// Tiles of the convolution: put(place, group, output, outputs that are left, sums) for every eight sums in a row.
template <class MMA, class U, int COLS> struct ConvBoxes : ConvRing<MMA, U, COLS> {
  using Base = ConvRing<MMA, U, COLS>;
  using Base::Base, Base::memory, Base::p;

  // Calls f(raster, box) for the tiles of this block.
  template <class F> BARACUDA_D void each(const F& f) const {
    for (i64 n = blockIdx.x; n < p.total; n += gridDim.x) {
      const Raster task(n, p.box_count, div_up(p.cols, static_cast<i64>(COLS)));
      f(task, ConvBox(p, task.m));
    }
  }
  BARACUDA_D void produce() const {
    typename Base::Place at;
    each([&](const Raster& task, const ConvBox& box) {
      const int group = static_cast<int>(task.batch), n0 = static_cast<int>(task.n) * COLS;
      int k = 0;
      ConvTap tap(p, 0);
      for (i64 t = 0; t < p.taps; ++t, tap.next(p)) {
        const ConvShift shift(p, tap, group * static_cast<int>(p.x_steps[1]));
        for (int c = 0; c < p.channels; c += Base::DEPTH, k += Base::DEPTH, at.advance()) {
          const u32 stage = at.index();
          memory.empty[stage].wait(at.empty_parity());
          arrive_expecting(memory.full[stage], p.box_bytes + COLS * 128);
          shift.load(memory.a(stage), p.x_map, memory.full[stage], box, c);
          tensor_load(memory.b(stage), p.w_map, memory.full[stage], k, n0, group);
        }
      }
    });
  }
  template <class Put> BARACUDA_D void consume(int consumer, const Put& put) const {
    typename Base::Place at;
    const int slices = static_cast<int>(p.taps) * (static_cast<int>(p.channels) / Base::DEPTH);
    int lead = gemm::wait_for_lead(*memory.led, consumer, min(2, slices));
    each([&](const Raster& task, const ConvBox& box) {
      typename Base::Accumulator acc;
      Base::sums(acc, at, consumer, slices, p.cols - task.n * COLS <= COLS / 2, lead);
      lead = 0;
      Base::each_octet(acc, 64 * consumer + gemm::warp_row(), static_cast<int>(task.n) * COLS, gemm::tile_rows, p.cols,
                       !p.channels_inner, consumer, [&](int row, i64 n, const auto& sum, const auto&) {
                         ConvRow place;
                         if (box.place(p, row, place)) put(place, task.batch, n, p.cols - n, sum);
                       });
    });
  }
  template <class Put> BARACUDA_D void run_all(const Put& put) const {
    this->template run<56, 224>(
        [&] {
          if (threadIdx.x == 0) produce();
        },
        [&](int consumer) { consume(consumer, put); });
  }
};

}  // namespace baracuda
