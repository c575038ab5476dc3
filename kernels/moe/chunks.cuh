#pragma once
// chunks     the slots of moe/decode.cuh by expert, up to decode_rows of one expert together. Each block sorts them for
//            itself: decode_slots at most.
#include "moe/decode.cuh"

namespace baracuda::moe {

// The slots sorted by expert, in chunks of up to decode_rows slots of one expert.
struct Chunks {
  i32 expert[decode_slots], lead[decode_slots];   // of a slot; the first slot of its chunk, `slots` where in none
  i32 slot[decode_slots];                         // by place
  i32 of[decode_slots], begin[decode_slots + 1];  // a chunk's expert, and its first place
  i32 count;
};
// By all threads of the block.
template <class P> BARACUDA_D void sort_slots(const P& p, Chunks& c) {
  const int slots = p.tokens * p.choices, thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  for (int s = thread; s < slots; s += threads) c.expert[s] = expert_of(p, s);
  __syncthreads();
  for (int s = thread; s < slots; s += threads) {
    const int own = c.expert[s];
    int lead = slots, same = 0;
    for (int n = 0; own >= 0 && n <= s; ++n) {
      if (c.expert[n] != own) continue;
      if (same++ % decode_rows == 0) lead = n;
    }
    c.lead[s] = lead;
  }
  __syncthreads();
  // The places before a slot's are those of chunks that begin before its own, and of earlier slots in that.
  for (int s = thread; s <= slots; s += threads) {
    const int own = s < slots ? c.lead[s] : slots;
    int place = 0, chunk = 0;
    for (int n = 0; n < slots; ++n) {
      const int lead = c.lead[n];
      if (lead == slots) continue;
      place += lead < own || (lead == own && n < s);
      chunk += lead == n && n < own;
    }
    if (s == slots) c.begin[chunk] = place, c.count = chunk;
    else if (own < slots) c.slot[place] = s;
    if (s < slots && own == s) c.of[chunk] = c.expert[s], c.begin[chunk] = place;
  }
  __syncthreads();
}

}  // namespace baracuda::moe
