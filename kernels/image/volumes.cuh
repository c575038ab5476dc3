#pragma once
// volumes    images and volumes of a batch with any strides, whose places 32 bits number in raster order. The fields of
//            ops/image/volumes.py.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// Where sample `batch` of operand WHICH begins.
template <int WHICH, class P> BARACUDA_D i64 sample_offset(const P& p, i64 batch) {
  return offset<i64>(batch, p.outer_rank, p.outer_shape, p.outer[WHICH]);
}

// A place by its coordinates: planes, rows, columns.
struct VolumePlace {
  i32 z, y, x;

  VolumePlace() = default;
  BARACUDA_D VolumePlace(i32 z, i32 y, i32 x) : z(z), y(y), x(x) {}
  template <class P> BARACUDA_D VolumePlace(const P& p, i32 number) {
    u32 column, row;
    const u32 line = divmod(static_cast<u32>(number), static_cast<u32>(p.extents[2]), column);
    z = static_cast<i32>(divmod(line, static_cast<u32>(p.extents[1]), row));
    y = static_cast<i32>(row), x = static_cast<i32>(column);
  }
  template <class P> BARACUDA_D bool within(const P& p) const {
    return z >= 0 && z < p.extents[0] && y >= 0 && y < p.extents[1] && x >= 0 && x < p.extents[2];
  }
  template <class P> BARACUDA_D i32 number(const P& p) const { return (z * p.extents[1] + y) * p.extents[2] + x; }
  template <int WHICH, class P> BARACUDA_D i64 step(const P& p) const {
    return z * p.steps[WHICH][0] + y * p.steps[WHICH][1] + x * p.steps[WHICH][2];
  }
};

// Whether an element counts as there: NaN does, -0 does not.
template <class T> BARACUDA_D bool is_there(T x) {
  if constexpr (is_half<T>) return to_acc(x) != 0.0f;
  else return x != T(0);
}

}  // namespace baracuda
