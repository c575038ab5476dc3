#pragma once
// speculative   what the verifications of drafts share: whole numbers of two widths, and words of the stream.
#include "random/row_draw.cuh"
#include "random/streams.cuh"

namespace baracuda {

template <class P> BARACUDA_D i64 whole_at(const P& p, const void* from, i64 at) {
  return p.wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}
template <class P> BARACUDA_D void put_whole(const P& p, void* to, i64 at, i64 value) {
  if (p.wide) static_cast<i64*>(to)[at] = value;
  else static_cast<i32*>(to)[at] = static_cast<i32>(value);
}
BARACUDA_D u64 one_word(u64 seed, u64 offset, u64 n) {
  u64 word[1];
  random::words<1>(seed, offset, n, word);
  return word[0];
}

}  // namespace baracuda
