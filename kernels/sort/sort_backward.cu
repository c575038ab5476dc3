// sort_backward  dx = 0, then dx[…, indices[…, j, …], …] = dy[…, j, …] along one axis. Schedule map; nothing is summed.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T, class L, class P> BARACUDA_D void zero(const P& p) {
  map_write<L>(p, static_cast<T*>(p.dx), T(0.0f));
}

// Operands of the map: dy, indices, dx without the axis.
template <class T, class P> BARACUDA_D void put(const P& p) {
  const i64 c[1] = {thread_index()};
  if (c[0] >= p.chunks) return;
  i64 at[1][3];
  map_offsets(p, c, at);
  const i64 place = static_cast<const i64*>(p.indices)[at[0][1]];
  const bool known = place >= 0 && place < p.extent;
  if (!known && p.status != nullptr) atomicOr(p.status, 1u);
  if (known) static_cast<T*>(p.dx)[at[0][2] + place * p.step] = static_cast<const T*>(p.dy)[at[0][0]];
}

}  // namespace baracuda
