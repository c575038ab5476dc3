#pragma once
// peers   ranks of one host, a GPU each, that read one another's memory: a region of each, with flags in it.
//
// A region holds an epoch for each block, a word that a failure leaves, flags, and two halves of data. A call is one
// launch on every rank with the same grid; its epoch is one more than the last call's, and lies in memory, so that a
// captured graph counts on. Block b of a rank waits for block b of the others alone: it writes its part of the data,
// sets a flag in every region (release), and waits for all flags in its own (acquire); barriers extend both to the block
// (PTX ISA, Memory Consistency Model). Calls write the halves in turn: whoever writes a half again has seen every peer
// begin the call between, which on each of them comes after its reads of that half.
//
// A wait ends without its flag when the host asks for that in `word`, or after a number of polls. The launch then leaves
// its results undone and says so, there and in its region, and later launches wait for nothing and leave theirs.
#include <baracuda/types.cuh>

namespace baracuda {

struct PeerHeader {  // of a region
  u64 epochs[peer_blocks];
  u64 stopped;
  u64 left[peer_ranks];  // the host's: which ranks read here no more
  u64 flags[2][peer_blocks][peer_ranks];
};
static_assert(sizeof(PeerHeader) <= peer_data, "the data begin behind the header");

// PTX ISA, Data Movement and Conversion Instructions: ld, st, .acquire, .release, .relaxed, .sys (PTX 6.0, sm_70).
// clang-format off
BARACUDA_D u64 seen_epoch(const u64* flag) {
  u64 now;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(now) : "l"(__cvta_generic_to_global(flag)) : "memory");
  return now;
}
BARACUDA_D void tell_epoch(u64* flag, u64 epoch) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(__cvta_generic_to_global(flag)), "l"(epoch) : "memory");
}
BARACUDA_D u32 host_word(const u32* word) {
  u32 now;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(word)) : "memory");
  return now;
}
BARACUDA_D void tell_host(u32* word, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(__cvta_generic_to_global(word)), "r"(value) : "memory");
}
// clang-format on

// One call of this block. word[0]: the host ends waits; word[1]: what the device says, 1 + the rank that did not come.
template <int R, class P> struct Peers {
  static constexpr int polls_between = 1024;  // two looks at the host's word, which is far

  const P& p;
  PeerHeader* own;
  u64 epoch;
  bool stopped;  // looked at where it matters, and not before the first loads of operands are under way

  BARACUDA_D explicit Peers(const P& p) : p(p), own(static_cast<PeerHeader*>(p.region[p.rank])) {
    epoch = own->epochs[blockIdx.x] + 1;
    stopped = own->stopped != 0;
  }

  // Where chunk i of this call's half of the data is in a region. The sum of a region's address, a parameter, and this
  // is made where it is used: R addresses would take twice as many registers.
  BARACUDA_D i64 place(i64 i) const { return peer_data + static_cast<i64>(epoch & 1) * p.half + i * peer_chunk; }
  BARACUDA_D uint4* chunk(int rank, i64 place) const {
    return reinterpret_cast<uint4*>(static_cast<u8*>(p.region[rank]) + place);
  }

  // All that the block has written may be read by its like on every rank.
  BARACUDA_D void signal(int stage) const {
    __syncthreads();
    if (threadIdx.x < R && !stopped) {
      PeerHeader* const there = static_cast<PeerHeader*>(p.region[threadIdx.x]);
      tell_epoch(&there->flags[stage][blockIdx.x][p.rank], epoch);
    }
  }

  // Wait for the signal of every rank; false: it will not come.
  BARACUDA_D bool await(int stage) const {
    bool lost = stopped;
    if (threadIdx.x < R && !stopped) lost = !comes(&own->flags[stage][blockIdx.x][threadIdx.x]);
    return __syncthreads_or(lost) == 0;
  }

  // The call is over: the epochs of blocks that it does without move on, too.
  BARACUDA_D void finish() const {
    for (int b = blockIdx.x + threadIdx.x * gridDim.x; b < peer_blocks; b += blockDim.x * gridDim.x) {
      own->epochs[b] = epoch;
    }
  }

 private:
  BARACUDA_D bool comes(const u64* flag) const {
    u32* const word = static_cast<u32*>(p.word);
    for (i64 n = 0; seen_epoch(flag) < epoch; ++n) {
      const bool asleep = n >= p.awake;
      if (asleep) __nanosleep(peer_nap);
      if (!asleep && n % polls_between != polls_between - 1) continue;
      const bool late = n - p.awake > p.polls;
      if (late || host_word(word) != 0) {
        own->stopped = 1;
        tell_host(word + 1, late ? 1 + threadIdx.x : 1 + peer_ranks);
        return false;
      }
    }
    return true;
  }
};

}  // namespace baracuda
