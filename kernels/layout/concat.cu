// concat     many arrays laid side by side in one, or its parts back into many; elements are moved as they are. No sums.
//
// concat_rows    every part is rows of words, and so is its place in the whole. A block moves words of one part, the
//                last that begins at its own number or before (multi_tensor.cuh). Four words are in flight a thread.
// concat_part    one part of any strides (copy.cuh).
// `apart`: from the whole to the parts.
#include <baracuda/copy.cuh>
#include <baracuda/multi_tensor.cuh>

namespace baracuda {

template <int BYTES, class P> BARACUDA_D void concat_rows(const P& p) {
  using W = Word<BYTES>;
  const int part = find_tensor(p, static_cast<int>(blockIdx.x));
  const i64 width = p.width[part], words = p.words[part], pitch = p.pitch[part];
  const i64 first = static_cast<i64>(blockIdx.x - p.first[part]) * (map_threads * copy_in_flight) + threadIdx.x;
  W* const own = static_cast<W*>(p.parts[part]);
  W* const whole = static_cast<W*>(p.whole) + p.place[part];
  i64 inside[copy_in_flight], outside[copy_in_flight];
  W word[copy_in_flight];
#pragma unroll
  for (int u = 0; u < copy_in_flight; ++u) {
    const i64 at = min(first + u * map_threads, words - 1);
    u64 column = at;
    i64 row = 0;
    if (width < words) row = static_cast<i64>(divmod(static_cast<u64>(at), static_cast<u64>(width), column));
    inside[u] = row * pitch + static_cast<i64>(column);
    outside[u] = row * p.whole_pitch + static_cast<i64>(column);
    word[u] = p.apart ? whole[outside[u]] : own[inside[u]];
  }
#pragma unroll
  for (int u = 0; u < copy_in_flight; ++u) {
    if (first + u * map_threads >= words) break;
    store_word<Access::streaming>(p.apart ? own + inside[u] : whole + outside[u], word[u]);
  }
}

template <int BYTES, class P> BARACUDA_D void concat_part(const P& p) {
  if (p.apart) copy_words<BYTES>(p, p.part[0], p.whole);
  else copy_words<BYTES>(p, p.whole, p.part[0]);
}

}  // namespace baracuda
