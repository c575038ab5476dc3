// conv_boxes         the problem of conv_wgmma (conv/conv_wgmma.cu), with the same bits, where windows of places lie in boxes
//                    that TMA copies (conv/boxes.cuh): channels in whole slices of 64.
// conv_filter_boxes  the gradient of a filter, where boxes of 64 places fill the axes but the batch. Boxes are cut into splits of
//                    p.split_boxes, a number that the extents fix; a split's sums go to `parts` [split][group][output][tap][channel],
//                    and conv_merge adds them in their order. kept: channels of a tap that exist.
//
// Blocks are persistent: a producer thread copies, two warpgroups multiply 64 rows each (gemm/wgmma.cuh). Columns of a filter's
// gradient come in panels of 64 channels of a tap, the last of a tap in part; both operands are read across, as places are k.
#include "conv/boxes.cuh"

namespace baracuda {

template <class T, int COLS, class E = ConvEpilogue<T>> BARACUDA_D void conv_boxes(const ConvParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  ConvBoxes<ConvHalvesOf<T, false>, T, COLS>(p, shared).run_all(
      [&](const ConvRow& place, i64 group, i64 n, i64 left, const auto& sum) {
        E::template put<8>(p, place, group, n, p.cols, left, sum);
      });
}

template <class T, int COLS> struct ConvFilterBoxes : ConvRing<ConvHalvesOf<T, true>, float, COLS> {
  using Base = ConvRing<ConvHalvesOf<T, true>, float, COLS>;
  using Base::Base, Base::memory, Base::p;
  static constexpr int panels = COLS / 64;

  // Outputs from n0 on, panels from `panel` on, and boxes `first` … of a group.
  struct Task {
    i64 split, group;
    int n0, panel, first, count, all, each;  // all: panels there are; each: those of a tap
    BARACUDA_D Task(const ConvParams& p, int number)
        : all(static_cast<int>(p.taps * div_up(p.channels, i64(64)))),
          each(static_cast<int>(div_up(p.channels, i64(64)))) {
      u32 rest = static_cast<u32>(number), at;
      rest = divmod(rest, static_cast<u32>(div_up(p.cols, i64(gemm::tile_rows))), at);
      n0 = static_cast<int>(at) * gemm::tile_rows;
      rest = divmod(rest, static_cast<u32>(div_up(all, panels)), at), panel = static_cast<int>(at) * panels;
      rest = divmod(rest, static_cast<u32>(p.groups), at), group = static_cast<i64>(at), split = static_cast<i64>(rest);
      first = static_cast<int>(split) * p.split_boxes;
      count = static_cast<int>(min<i64>(p.split_boxes, p.box_count - first));
    }
  };
  template <class F> BARACUDA_D void each(const F& f) const {
    for (int n = static_cast<int>(blockIdx.x); n < p.total; n += static_cast<int>(gridDim.x)) f(Task(p, n));
  }
  // What a panel shows of x.
  BARACUDA_D ConvShift shift(const Task& task, int panel) const {
    const int tap = panel / task.each;
    return ConvShift(p, ConvTap(p, tap), static_cast<int>(task.group * p.x_steps[1]) + (panel - tap * task.each) * 64);
  }
  BARACUDA_D void produce() const {
    typename Base::Place at;
    each([&](const Task& task) {
      const ConvShift shifts[4] = {shift(task, task.panel), shift(task, task.panel + 1), shift(task, task.panel + 2),
                                   shift(task, task.panel + 3)};
      const int outputs = static_cast<int>(task.group * p.y_steps[0][1]) + task.n0;
      const bool both = task.n0 + 64 < p.cols;
      const int own = min(panels, task.all - task.panel);
      ConvBox box(p, task.first);
      for (int s = 0; s < task.count; ++s, box.next(p), at.advance()) {
        const u32 stage = at.index();
        Barrier& full = memory.full[stage];
        memory.empty[stage].wait(at.empty_parity());
        arrive_expecting(full, gemm::panel_bytes * (1 + both + own));
        for (int half = 0; half < 1 + both; ++half) {
          tensor_load(memory.a(stage) + half * gemm::panel_bytes, p.y_map, full, outputs + 64 * half, box.w, box.h,
                      box.d, box.batch);
        }
#pragma unroll
        for (int n = 0; n < panels; ++n) {
          if (n < own) shifts[n].load(memory.b(stage) + n * gemm::panel_bytes, p.x_map, full, box);
        }
      }
    });
  }
  // Where there is one split: the gradient itself.
  BARACUDA_D void put(i64 group, i64 n, int tap, i64 c, const Vec<float, 8>& sum) const {
    const i64* const step = p.w_steps;
    T* const to =
        static_cast<T*>(p.y) + p.w_start + group * step[0] + n * step[1] + ConvTap(p, tap).offset(step) + c * step[2];
    if (p.wide) store_vec<T, 8, true>(to, from_acc<T>(sum), p.kept - c);
    else store_strided(to, step[2], from_acc<T>(sum), p.kept - c);
  }
  BARACUDA_D void consume(int consumer) const {
    typename Base::Place at;
    each([&](const Task& task) {
      const int own = task.n0 + 64 * consumer;
      if (own >= p.cols) return Base::skip(at, task.count);
      typename Base::Accumulator acc;
      Base::sums(acc, at, consumer, task.count, task.all - task.panel <= panels / 2);
      Base::each_octet(acc, own + gemm::warp_row(), task.panel * 64, p.cols, task.all * 64, false, consumer,
                       [&](i64 n, i64 column, const Vec<float, 8>& sum, const auto&) {
                         const int panel = static_cast<int>(column) / 64, tap = panel / task.each;
                         const i64 c = static_cast<int>(column) - tap * task.each * 64;
                         if (c >= p.channels) return;
                         if (p.parts == nullptr) return put(task.group, n, tap, c, sum);
                         const i64 line = ((task.split * p.groups + task.group) * p.cols + n) * p.taps + tap;
                         store(static_cast<float*>(p.parts) + line * p.channels + c, sum);
                       });
    });
  }
};

template <class T, int COLS> BARACUDA_D void conv_filter_boxes(const ConvParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  const ConvFilterBoxes<T, COLS> product(p, shared);
  product.template run<56, 224>(
      [&] {
        if (threadIdx.x == 0) product.produce();
      },
      [&](int consumer) { product.consume(consumer); });
}

}  // namespace baracuda
