#pragma once
// extend_codes   where a paged cache of codes keeps a token's codes and scales, for the kernels of
//                batch_paged_extend_quantized.
//
// An element is code · scale; scale = k_scale · k_head_scale[head] · k_scales[page, head, cell, group], of values
// likewise, and a factor that is not given is 1. A group is `1 << group_shift` columns, or the whole row.
#include "attention/paged/cache_codes.cuh"
#include "attention/paged/extend.cuh"

namespace baracuda {
namespace attention {

// The keys (WHICH 0), or values (1), of one head. Strides stay parameters, which take no registers.
template <int WHICH, class P> struct CodedHead {
  const P& p;
  const u8* codes;      // of page 0
  const float* scales;  // null: all are `factor`
  float factor;         // the scale's part that all tokens share

  BARACUDA_D CodedHead(const P& p, u32 kv) : p(p) {
    const void *const table = WHICH == 0 ? p.k_scales : p.v_scales, *const heads =
                                                                        WHICH == 0 ? p.k_head_scale : p.v_head_scale;
    codes = static_cast<const u8*>(WHICH == 0 ? p.k : p.v) + kv * p.stride[1 + WHICH][1];
    scales = table == nullptr ? nullptr : static_cast<const float*>(table) + kv * p.scale_stride[WHICH][1];
    factor = static_cast<float>(WHICH == 0 ? p.k_scale() : p.v_scale());
    if (heads != nullptr) factor *= static_cast<const float*>(heads)[kv];
  }
  BARACUDA_D int columns() const { return WHICH == 0 ? p.d_k : p.d_v; }
  // Pages and cells are not negative, and products with unsigned numbers are shorter.
  BARACUDA_D const u8* row(u32 page, u32 cell) const {
    return codes + page * p.stride[1 + WHICH][0] + cell * p.stride[1 + WHICH][2];
  }
  BARACUDA_D const float* scale(u32 page, u32 cell) const {
    return scales + page * p.scale_stride[WHICH][0] + cell * p.scale_stride[WHICH][2];
  }
  // From a token's first scale to that of a column.
  BARACUDA_D i64 group(int column) const { return (column >> p.group_shift) * p.scale_stride[WHICH][3]; }
};

}  // namespace attention
}  // namespace baracuda
