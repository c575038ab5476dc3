#pragma once
// roi        where the bins of a region of interest sample an image, in f64; ops/image/roi_align.py has the same formulas.
#include <baracuda/math.cuh>
#include <baracuda/planes.cuh>

namespace baracuda {

// One axis of a region: a bin's samples lie evenly in it.
struct RoiAxis {
  double start, bin;
  i64 samples, extent;

  RoiAxis() = default;
  BARACUDA_D RoiAxis(double from, double to, double scale, bool aligned, i64 bins, i64 ratio, i64 extent)
      : extent(extent) {
    const double shift = aligned ? 0.5 : 0.0, end = to * scale - shift;
    start = from * scale - shift;
    const double size = aligned ? end - start : math::fmax(end - start, 1.0);
    bin = size / static_cast<double>(bins);
    // A region that is not finite, or far away, has no samples.
    const bool near = math::abs(start) <= roi_far && math::abs(end) <= roi_far;
    samples = !near ? 0 : ratio > 0 ? ratio : static_cast<i64>(math::fmax(math::ceil(bin), 0.0));
  }
  struct Sample {
    i64 low, high;
    double share;  // of high
    bool inside;
  };
  BARACUDA_D Sample sample(i64 at, i64 i) const {
    const double n = static_cast<double>(samples);
    double c = start + static_cast<double>(at) * bin + (static_cast<double>(i) + 0.5) * bin / n;
    Sample s{0, 0, 0.0, c >= -1.0 && c <= static_cast<double>(extent)};
    if (!s.inside) return s;
    c = math::fmax(c, 0.0);
    s.low = min(static_cast<i64>(c), extent - 1), s.high = min(s.low + 1, extent - 1);
    s.share = s.high > s.low ? c - static_cast<double>(s.low) : 0.0;
    return s;
  }
  // What all samples of a bin read of a place together.
  BARACUDA_D double weight(i64 at, i64 place) const {
    const double first = start + static_cast<double>(at) * bin, last = first + bin;
    const double here = static_cast<double>(place);
    if (here < math::fmin(first, last) - 1.0 || here > math::fmax(first, last) + 1.0) return 0.0;
    double sum = 0.0;
#pragma unroll 1
    for (i64 i = 0; i < samples; ++i) {
      const Sample s = sample(at, i);
      if (!s.inside) continue;
      if (s.low == place) sum += 1.0 - s.share;
      if (s.high == place && s.high > s.low) sum += s.share;
    }
    return sum;
  }
  // Whether bins [first, last) may read one of places [low, high]; never false where they do.
  BARACUDA_D bool reaches(i64 first, i64 last, i64 low, i64 high) const {
    const double a = start + static_cast<double>(first) * bin, b = start + static_cast<double>(last) * bin;
    return samples > 0 && static_cast<double>(high) >= math::fmin(a, b) - 2.0 &&
           static_cast<double>(low) <= math::fmax(a, b) + 2.0;
  }
};

struct Roi {
  i64 image;  // -1 where there is none of that number
  RoiAxis y, x;

  Roi() = default;
  template <class T> static BARACUDA_D double at(const T* rois, i64 from, i64 step, int k) {
    return static_cast<double>(to_acc(rois[from + k * step]));
  }
  template <class P, class T>
  BARACUDA_D Roi(const P& p, const T* rois, i64 k)
      : y(at(rois, k * p.roi_steps[0], p.roi_steps[1], 2), at(rois, k * p.roi_steps[0], p.roi_steps[1], 4), p.scale,
          p.aligned, p.bins[0], p.ratio, p.extent[0]),
        x(at(rois, k * p.roi_steps[0], p.roi_steps[1], 1), at(rois, k * p.roi_steps[0], p.roi_steps[1], 3), p.scale,
          p.aligned, p.bins[1], p.ratio, p.extent[1]) {
    const double number = at(rois, k * p.roi_steps[0], p.roi_steps[1], 0);
    image = number >= 0.0 && number < static_cast<double>(p.images) ? static_cast<i64>(number) : -1;
  }
  BARACUDA_D double count() const { return static_cast<double>(max<i64>(y.samples * x.samples, 1)); }
};

}  // namespace baracuda
