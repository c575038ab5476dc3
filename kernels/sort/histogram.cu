// histogram  counts[b] = how many elements of x are in bin b; bin_index: the bin of each. Schedule map over x.
//
// Counts are integers, added by atomics in shared memory and then in y, so their order does not matter.
#include <baracuda/map.cuh>

namespace baracuda {

// Bins between edges, ascending, or `bins` equal ones between low and high, whose edges are low + b * step and high. A bin
// has its lower edge; the last one has its upper edge too, if `closed`.
struct Bins {
  const void* edges;
  i64 step, bins;
  bool wide, closed;
  double low, high, each;

  template <class P>
  BARACUDA_D explicit Bins(const P& p)
      : edges(p.edges), step(p.edges_step), bins(p.bins), wide(p.edges_wide != 0), closed(p.closed != 0), low(p.low()),
        high(p.high()) {
    if (edges == nullptr && low == high) low -= p.widen(), high += p.widen();
    each = (high - low) / static_cast<double>(bins);
  }
  BARACUDA_D double edge(i64 b) const {
    if (edges == nullptr) return b == bins ? high : static_cast<double>(b) * each + low;
    return wide ? static_cast<const double*>(edges)[b * step] : static_cast<const float*>(edges)[b * step];
  }
  BARACUDA_D i64 of(double x) const {  // -1: none
    const double first = edge(0), last = edge(bins);
    if (!(x >= first && x <= last) || !(last - first < numeric<double>::infinity())) return -1;
    if (x == last) return closed ? bins - 1 : -1;
    if (edges == nullptr) {  // a guess, which rounding may have put one bin off
      i64 b = max(i64(0), min(static_cast<i64>((x - low) / each), bins - 1));
      while (b > 0 && x < edge(b)) --b;
      while (b + 1 < bins && x >= edge(b + 1)) ++b;
      return b;
    }
    i64 below = 0, above = bins;  // edge(below) <= x < edge(above)
    while (above - below > 1) {
      const i64 mid = below + (above - below) / 2;
      (edge(mid) <= x ? below : above) = mid;
    }
    return below;
  }
};

template <class P> BARACUDA_D void histogram_clear(const P& p) {
  const i64 b = thread_index();
  if (b < p.bins && p.y != nullptr) static_cast<i64*>(p.y)[b * p.y_step] = 0;
  if (b <= p.bins && p.bin_edges != nullptr) static_cast<double*>(p.bin_edges)[b * p.bin_edges_step] = Bins(p).edge(b);
}

template <class T, int THREADS, class P> BARACUDA_D void histogram(const P& p) {
  BARACUDA_DYNAMIC_SMEM(u32, count);
  const Bins bins(p);
  unsigned long long* const y = static_cast<unsigned long long*>(p.y);
  if (p.shared) {
    for (int b = threadIdx.x; b < p.bins; b += THREADS) count[b] = 0;
    __syncthreads();
  }
  for (i64 i = thread_index(); i < p.chunks; i += thread_count()) {
    const i64 c[1] = {i};
    i64 at[1][1];
    map_offsets(p, c, at);
    const i64 b = bins.of(cast<double>(static_cast<const T*>(p.x)[at[0][0]]));
    if (b < 0) continue;
    if (p.shared) atomicAdd(count + b, 1u);
    else atomicAdd(y + b * p.y_step, 1ull);
  }
  if (!p.shared) return;
  __syncthreads();
  for (int b = threadIdx.x; b < p.bins; b += THREADS) {
    if (count[b] != 0) atomicAdd(y + b * p.y_step, static_cast<unsigned long long>(count[b]));
  }
}

// Operands of the map: y, x, outer.
template <class T, class P> BARACUDA_D void bin_index(const P& p) {
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][3];
  map_offsets(p, c, at);
  const i64 b = Bins(p).of(cast<double>(static_cast<const T*>(p.x)[at[0][1]]));
  const i64 before = p.outer == nullptr ? 0 : static_cast<const i64*>(p.outer)[at[0][2]];
  static_cast<i64*>(p.y)[at[0][0]] = b < 0 || before < 0 ? p.none : before * p.bins + b;
}

}  // namespace baracuda
