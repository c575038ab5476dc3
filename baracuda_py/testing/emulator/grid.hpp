// The threads and blocks of a grid that runs; see grid.cpp.
#pragma once
#include "simt.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace simt {

constexpr u32 warp_size = 32, group_size = 128;

// A kernel as a list of steps; bytes of a thread's registers.
struct Program {
  const u64* code;
  u64 frame;
};
[[noreturn]] void walk(Thread& t, const Program& p);

struct Box {  // of an array, by TMA
  u64 map;
  Coordinates at;
};
struct Copy {
  u32 to;
  u64 from;
  u32 size, read, line;
};
struct Move {
  u64 to;
  u32 from, bytes, line;
  bool adds;
  Box box = {};
};
// What a thread has asked for behind the program: since its last commit, and in groups, which it waits for in turn.
template <class T> struct Behind {
  std::vector<T> open;
  std::deque<std::vector<T>> groups;

  void commit() {
    groups.push_back(std::move(open));
    open.clear();
  }
  template <class Done> void wait(u32 pending, Done done) {
    while (groups.size() > pending) {
      const auto group = std::move(groups.front());
      groups.pop_front();
      done(group);
    }
  }
};
struct Fiber : Thread {
  jmp_buf here;
  ucontext_t first;
  bool begun;
  const void* brought;  // to a meeting
  void* given;          // there
  Behind<Copy> copies;
  Behind<Move> moves;
  u32 phase;  // of the cluster's barrier when it arrived there
};

// Threads of a warp or a warpgroup (units of so many) that wait for one another at one instruction.
struct Meeting {
  void (*work)(Meeting&);
  u32 unit, mask, line;
  long how;
  std::vector<Fiber*> there;
};
struct Named {
  u32 come = 0, yes = 0, result = 0;
  std::vector<Fiber*> waiting;
};
struct Awaited {  // the end of a phase of the mbarrier at an address
  u32 barrier;
  Fiber* fiber;
};
struct Late {  // an arrival at an mbarrier when copies are done, or a box that has its bytes counted there
  Fiber* fiber;
  std::vector<Copy> copies;
  u32 barrier, line;
  Box box = {};
  u32 to = 0, blocks = 0;
};

// Products of a warpgroup in flight: the chunks of shared memory that each committed group reads, until every warp, each
// of which commits and waits for itself, has waited for it.
struct Products {
  std::vector<u32> open;
  std::vector<std::vector<u32>> groups;
  std::vector<u32> warps;  // that have not waited for a group
  u32 committed[4] = {}, retired[4] = {};
};

struct Cluster;
struct Block {
  u32 id[3], rank;  // rank: in its cluster
  Cluster* cluster;
  std::vector<Fiber*> fibers;
  std::vector<u32> alive;  // of each warp, a bit a lane
  std::vector<u8> ready;   // whether each thread can run
  std::vector<Meeting> meetings;
  Named named[16];
  std::vector<char> memory;
  char* shared;
  u32 size, left;
  std::vector<u16> read;    // by how many products in flight, each 16 bytes of shared memory
  std::vector<u8> written;  // since the last fence.proxy.async, each 16 bytes
  Products products[8];     // of each warpgroup
  std::vector<Late> late;
  std::vector<Awaited> awaited;
  std::map<u32, s64> due;  // bytes still to come, by the address of their mbarrier
};

// Blocks that run at once. An address in shared memory of another than the thread's own has its rank + 1 in the bits
// from rank_bits on.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  u32 come = 0, phase = 0;
};
constexpr u32 rank_bits = 24;
Block& block_at(Thread& t, u32 line, u64& address);  // and the address there
void cluster_release(Cluster& c);                    // where all threads that are left have come to its barrier

void mbarrier_complete(Thread& t, u32 line, Block& b, u32 address, u32 bytes);  // so many bytes have come
void land_box(const Late& late);
void store_box(Fiber& f, const Move& move);

// All of the mask (of a warp, or of a warpgroup where `unit` says so) bring something; the last one works for all.
void meet(Thread& t, u32 line, u32 unit, u32 mask, void (*work)(Meeting&), long how, const void* brought, void* given);
// Fails where what tensor cores or bulk copies read was written without a fence.proxy.async, by whichever thread, since.
void published(Thread& t, u32 line, u32 chunk);
template <class T> const T& brought(const Meeting& m, size_t n) { return *static_cast<const T*>(m.there[n]->brought); }
template <class T> T& given(Meeting& m, size_t n) { return *static_cast<T*>(m.there[n]->given); }

}  // namespace simt
