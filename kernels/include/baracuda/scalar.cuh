#pragma once
// scalar     scalars that are a host value or a 0-d device array, so a captured graph can change them between replays.
//
// Two parameters carry one scalar: (ptr, value). ptr null: value is the scalar. Otherwise value is the tag of *ptr's
// type: 0 float32, 1 float64, 2 int64, 3 int32. The branch is uniform over the grid.
#include <baracuda/types.cuh>

namespace baracuda {

enum ScalarTag { scalar_f32 = 0, scalar_f64 = 1, scalar_i64 = 2, scalar_i32 = 3 };

// An int64 beyond 2^53 rounds to the nearest double.
__device__ inline double load_scalar_f(const void* ptr, double value) {
  if (ptr == nullptr) return value;
  switch (static_cast<int>(value)) {
    case scalar_f32: return *static_cast<const float*>(ptr);
    case scalar_f64: return *static_cast<const double*>(ptr);
    case scalar_i64: return static_cast<double>(*static_cast<const i64*>(ptr));
    default: return *static_cast<const i32*>(ptr);
  }
}

// A float truncates toward zero, saturating; NaN gives 0 (cast<i64>).
__device__ inline i64 load_scalar_i(const void* ptr, i64 value) {
  if (ptr == nullptr) return value;
  switch (static_cast<int>(value)) {
    case scalar_f32: return cast<i64>(*static_cast<const float*>(ptr));
    case scalar_f64: return cast<i64>(*static_cast<const double*>(ptr));
    case scalar_i64: return *static_cast<const i64*>(ptr);
    default: return *static_cast<const i32*>(ptr);
  }
}

}  // namespace baracuda
