// batch_paged_extend_simt    batch_paged_extend without tensor cores. Schedule and order of sums: extend_simt.cuh.
#include "attention/paged/extend_simt.cuh"

namespace baracuda {

template <class T, int D, class P> BARACUDA_D void batch_paged_extend_simt(const P& p) {
  using namespace attention;
  const auto rows = [&](const Pages& pages, const void* x, const i64(&stride)[3], u32 kv) {
    return PagedRows<T, P>{p, pages, static_cast<const T*>(x) + kv * stride[1], stride[0], stride[2], 0};
  };
  extend_simt<T, D>(
      p, [&](const Pages& pages, u32 kv) { return rows(pages, p.k, p.stride[1], kv); },
      [&](const Pages& pages, u32 kv) { return rows(pages, p.v, p.stride[2], kv); });
}

}  // namespace baracuda
