// batch_paged_decode_fp8    batch_paged_decode over caches of e4m3 or e5m2: a stored key or value times its scale.
//
// The scale of keys multiplies that of scores, the scale of values the division by the sum of weights, so stored
// elements are multiplied unscaled. A scale is k_scale or v_scale times k_head_scale[kv] or v_head_scale[kv].
#include "attention/paged/batch_paged_decode.cu"

namespace baracuda {
namespace decoding {

struct ScaledCache : PagedCache {
  static constexpr int tiles = 2, split = 2 * split_keys;  // elements of half the size: as many bytes in flight
  using PagedCache::PagedCache;
  static BARACUDA_D double of_head(const void* scales, i64 kv) {
    return scales == nullptr ? 1.0 : static_cast<double>(static_cast<const float*>(scales)[kv]);
  }
  // |scale| and its sign, split as on the host: a scale of 0 becomes 1 with sign 0, so that -inf stays -inf.
  template <class P> static BARACUDA_D double keys(const P& p, i64 kv) {
    return p.scale * p.k_scale() * of_head(p.k_head_scale, kv);
  }
  template <class P> static BARACUDA_D double scale(const P& p, i64 kv) {
    const double size = fabs(keys(p, kv));
    return size < 0x1p-120 ? 1.0 : size;
  }
  template <class P> static BARACUDA_D double sign(const P& p, i64 kv) {
    const double all = keys(p, kv);
    return fabs(all) < 0x1p-120 ? 0.0 : all < 0.0 ? -p.sign : p.sign;
  }
  template <class P> static BARACUDA_D float value_scale(const P& p, i64 kv) {
    return static_cast<float>(p.v_scale() * of_head(p.v_head_scale, kv));
  }
};

template <class C> struct Fp8Cache : ScaledCache {
  using ScaledCache::ScaledCache;
  template <class> using Element = C;
};

}  // namespace decoding
}  // namespace baracuda
