// batch_paged_extend_quantized_simt    batch_paged_extend over caches of codes without tensor cores. Schedule and order of
//                                      sums: extend_simt.cuh; an element is rounded to float once, code times scale.
#include "attention/paged/extend_codes.cuh"
#include "attention/paged/extend_simt.cuh"

namespace baracuda {
namespace attention {

// A token's elements.
template <int FORMAT, class Head> struct CodedRow {
  const Head& head;
  const u8* codes;
  const float* scales;
  BARACUDA_D float operator[](int column) const {
    const float scale = head.scales == nullptr ? head.factor : head.factor * scales[head.group(column)];
    return cache_codes::number<FORMAT>(codes, column) * scale;
  }
};
template <int FORMAT, int WHICH, class P> struct CodedRows {
  const Pages& pages;
  const CodedHead<WHICH, P> head;
  BARACUDA_D CodedRow<FORMAT, CodedHead<WHICH, P>> row(int r) const {
    i64 cell;
    const i64 page = max<i64>(pages.page(slot_of<i32>(head.p, static_cast<u64>(r), cell)), 0);
    return {head, head.row(page, cell), head.scale(page, cell)};
  }
};

}  // namespace attention

template <class T, int D, int FORMAT, class P> BARACUDA_D void batch_paged_extend_quantized_simt(const P& p) {
  using namespace attention;
  extend_simt<T, D>(
      p, [&](const Pages& pages, u32 kv) { return CodedRows<FORMAT, 0, P>{pages, {p, kv}}; },
      [&](const Pages& pages, u32 kv) { return CodedRows<FORMAT, 1, P>{pages, {p, kv}}; });
}

}  // namespace baracuda
