// The threads of a grid, one after another.
//
// Blocks take the slots there are in the order of their numbers; each round lets every thread that can run do so, in an
// order of its own, and in half of them one warp first gets as far as it can without the others. What the hardware does behind the program is done as late as it may be: copies when they are waited
// for, or in some later round where a barrier says so; additions to global memory when their group is waited for. A tile
// that is overwritten too early thus gives a wrong result, and one that a product of a warpgroup may still read is an error.
#include "grid.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdio>
#include <string>

namespace simt {

u64 events = 0;

namespace {

constexpr size_t stack_size = 1 << 20;
constexpr u32 lead = 64;       // turns that a warp may have before the others: one that polls would have all
constexpr u32 patience = 100;  // rounds in which nothing happens before it is a deadlock

struct Grid {
  void (*kernel)(Thread&);  // or null, and a program
  const Program* program;
  u32 grid[3], block[3], smem, cluster;
  const char* param;
  u32 yield_every;  // a thread yields at one in so many accesses of shared memory; 0: never
  u64 random;
} now;
jmp_buf scheduler;
Fiber* running = nullptr;
std::string error;
std::vector<std::unique_ptr<Fiber>> pool;  // with their stacks, for good
std::vector<Fiber*> spare;

u32 draw() {
  now.random = now.random * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<u32>(now.random >> 33);
}

void become(Fiber& f, State state) {
  f.state = state;
  f.block->ready[f.number] = state == State::ready;
}

void sleep(Fiber& f) {
  if (_setjmp(f.here) == 0) _longjmp(scheduler, 1);
}

void enter() {
  Fiber& f = *running;
  if (now.program) walk(f, *now.program);
  now.kernel(f);
  leave(f);
}

Fiber* take() {
  if (spare.empty()) {
    auto made = std::make_unique<Fiber>();
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    made->first.uc_stack.ss_sp = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    made->first.uc_stack.ss_size = stack_size;
    spare.push_back(made.get());
    pool.push_back(std::move(made));
  }
  Fiber* const f = spare.back();
  spare.pop_back();
  return f;
}

void resume(Fiber* f) {
  running = f;
  if (_setjmp(scheduler) == 0) {
    if (f->begun) _longjmp(f->here, 1);
    f->begun = true;
    void* const stack = f->first.uc_stack.ss_sp;
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = stack, f->first.uc_stack.ss_size = stack_size, f->first.uc_link = nullptr;
    makecontext(&f->first, enter, 0);
    setcontext(&f->first);
  }
  running = nullptr;
}

void start(Block& b, u64 number) {
  b.id[0] = static_cast<u32>(number % now.grid[0]);
  b.id[1] = static_cast<u32>(number / now.grid[0] % now.grid[1]);
  b.id[2] = static_cast<u32>(number / now.grid[0] / now.grid[1]);
  b.memory.assign(now.smem + 1024 + 16, static_cast<char>(0xff));
  b.shared = b.memory.data() + (1024 - reinterpret_cast<u64>(b.memory.data()) % 1024) % 1024;
  b.size = now.smem;
  b.read.assign(now.smem / 16 + 1, 0), b.written.assign(now.smem / 16 + 1, 0);
  b.left = now.block[0] * now.block[1] * now.block[2];
  b.meetings.clear(), b.late.clear(), b.awaited.clear(), b.due.clear();
  for (auto& n : b.named) n = {};
  for (auto& p : b.products) p = {};
  b.alive.assign((b.left + warp_size - 1) / warp_size, 0);
  b.ready.assign(b.left, 0);
  for (u32 n = 0; n < b.left; ++n) {
    Fiber* const f = take();
    b.alive[n / warp_size] |= 1u << n % warp_size;
    f->tid[0] = n % now.block[0], f->tid[1] = n / now.block[0] % now.block[1], f->tid[2] = n / now.block[0] / now.block[1];
    f->lane = n % warp_size, f->number = n, f->line = 0;
    f->shared = b.shared, f->param = now.param, f->block = &b, f->begun = false;
    become(*f, State::ready);
    f->copies = {}, f->moves = {};
    b.fibers.push_back(f);
  }
}

// Whether all are there that can still come.
bool complete(const Block& b, const Meeting& m) {
  const u32 warps = m.unit / warp_size, first = m.there[0]->number / m.unit * warps;
  u32 alive = 0;
  for (u32 warp = first; warp < std::min<u32>(first + warps, static_cast<u32>(b.alive.size())); ++warp) {
    alive += static_cast<u32>(__builtin_popcount(b.alive[warp] & (warps == 1 ? m.mask : ~0u)));
  }
  return m.there.size() == alive;
}

void settle(Block& b, size_t at) {
  Meeting m = std::move(b.meetings[at]);
  b.meetings.erase(b.meetings.begin() + static_cast<long>(at));
  Fiber* by_number[group_size] = {};
  for (Fiber* f : m.there) by_number[f->number % m.unit] = f;
  std::remove_copy(by_number, by_number + m.unit, m.there.begin(), nullptr);
  m.work(m);
  for (Fiber* f : m.there) become(*f, State::ready);
  ++events;
}

void release(Named& named) {
  for (Fiber* f : named.waiting) become(*f, State::ready);
  named.result = named.yes;
  named.waiting.clear();
  named.come = named.yes = 0;
  ++events;
}

void land(Fiber& f, const std::vector<Copy>& copies) {
  for (const Copy& c : copies) {
    char* const to = shared_at(f, c.line, c.to, c.size, true);
    memset(to, 0, c.size);
    if (c.read != 0) memcpy(to, reinterpret_cast<const char*>(c.from), std::min(c.read, c.size));
  }
  ++events;
}

void finish(Fiber& f, const std::vector<Move>& moves) {
  for (const Move& m : moves) {
    if (m.box.map != 0) {
      store_box(f, m);
      continue;
    }
    const char* const from = shared_at(f, m.line, m.from, m.bytes, false);
    for (u32 n = m.from / 16; n < (m.from + m.bytes) / 16; ++n) published(f, m.line, n);
    char* const to = reinterpret_cast<char*>(m.to);
    for (u32 n = 0; n < m.bytes; n += 4) {
      float sum, more;
      memcpy(&sum, to + n, 4), memcpy(&more, from + n, 4);
      if (m.adds) more += sum;
      memcpy(to + n, &more, 4);
    }
  }
  ++events;
}

void arrive_late(Block& b, size_t at) {
  const Late late = std::move(b.late[at]);
  b.late.erase(b.late.begin() + static_cast<long>(at));
  if (late.box.map != 0) return land_box(late);
  land(*late.fiber, late.copies);
  mbarrier_arrive(*late.fiber, late.line, late.barrier);
}

std::string whereabouts(const std::vector<std::unique_ptr<Cluster>>& clusters) {
  std::vector<std::pair<u32, u32>> lines;
  std::vector<const Fiber*> fibers;
  for (const auto& c : clusters) {
    for (const auto& b : c->blocks) fibers.insert(fibers.end(), b->fibers.begin(), b->fibers.end());
  }
  for (const Fiber* f : fibers) {
    if (f->state == State::gone) continue;
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == f->line; });
    if (found == lines.end()) lines.push_back({f->line, 1});
    else ++found->second;
  }
  std::string text;
  for (const auto& [line, count] : lines) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " at line " + std::to_string(line);
  }
  return text;
}

// Lets those threads of a range run that can, and says whether there was one; pass_back does from the last to the first.
bool pass(Block& b, u32 from, u32 to) {
  bool ran = false;
  const u8* const ready = b.ready.data();
  while (error.empty()) {
    const void* const found = memchr(ready + from, 1, to - from);
    if (found == nullptr) break;
    from = static_cast<u32>(static_cast<const u8*>(found) - ready) + 1;
    resume(b.fibers[from - 1]);
    ran = true;
  }
  return ran;
}
void pass_back(Block& b, u32 from, u32 to) {
  const u8* const ready = b.ready.data();
  while (error.empty()) {
    const void* const found = memrchr(ready + from, 1, to - from);
    if (found == nullptr) break;
    to = static_cast<u32>(static_cast<const u8*>(found) - ready);
    resume(b.fibers[to]);
  }
}

void round_of(Block& b, bool idle) {
  const u32 count = static_cast<u32>(b.fibers.size());
  const u32 ahead = draw() % ((count + warp_size - 1) / warp_size) * warp_size;
  if (draw() % 2) {
    for (u32 n = 0; n < lead && pass(b, ahead, std::min(ahead + warp_size, count)); ++n) {}
  }
  const u32 from = draw() % count;
  if (draw() % 2) pass_back(b, 0, from + 1), pass_back(b, from + 1, count);
  else pass(b, from, count), pass(b, 0, from);
  for (size_t k = 0; k < b.late.size() && error.empty();) {
    if (!idle && draw() % 4) ++k;
    else if (_setjmp(scheduler) == 0) arrive_late(b, k);
  }
}

// The next blocks of the grid take the place of a cluster's.
void begin(Cluster& c, u64& next) {
  c.come = 0;
  for (u32 rank = 0; rank < now.cluster; ++rank) {
    Block& b = *c.blocks[rank];
    b.cluster = &c, b.rank = rank;
    start(b, next++);
  }
}

// Whether all of its blocks have ended; then their threads are free for others.
bool ended(Cluster& c) {
  for (const auto& b : c.blocks) {
    if (b->left != 0) return false;
  }
  for (auto& b : c.blocks) {
    const auto boxes = std::any_of(b->late.begin(), b->late.end(), [](const Late& l) { return l.box.map != 0; });
    if (boxes) error = "a block ended before a box that it had asked for was there";
    spare.insert(spare.end(), b->fibers.begin(), b->fibers.end());
    b->fibers.clear();
  }
  return true;
}

void run(u32 slots) {
  const u64 total = static_cast<u64>(now.grid[0]) * now.grid[1] * now.grid[2];
  u64 next = 0;
  std::vector<std::unique_ptr<Cluster>> clusters;
  if (now.cluster == 0 || now.grid[0] % now.cluster != 0) error = "a grid is whole clusters";
  while (error.empty() && next < std::min<u64>(std::max(slots, now.cluster), total)) {
    clusters.push_back(std::make_unique<Cluster>());
    for (u32 n = 0; n < now.cluster; ++n) clusters.back()->blocks.push_back(std::make_unique<Block>());
    begin(*clusters.back(), next);
  }
  u32 idle = 0;
  while (!clusters.empty() && error.empty()) {
    const u64 before = events;
    for (size_t n = 0; n < clusters.size() && error.empty(); ++n) {
      Cluster& c = *clusters[n];
      for (size_t k = 0; k < c.blocks.size() && error.empty(); ++k) round_of(*c.blocks[k], idle != 0);
      if (!error.empty() || !ended(c)) continue;
      if (next < total) begin(c, next);
      else clusters.erase(clusters.begin() + static_cast<long>(n--));
    }
    idle = events == before ? idle + 1 : 0;
    if (idle > patience && error.empty()) error = "all threads wait: " + whereabouts(clusters);
  }
  for (auto& c : clusters) {
    for (auto& b : c->blocks) spare.insert(spare.end(), b->fibers.begin(), b->fibers.end());
  }
}

}  // namespace

void pause(Thread& t, u32 line) {
  t.line = line;
  sleep(static_cast<Fiber&>(t));
}

void fail(Thread& t, u32 line, const char* what, u64 value) {
  char text[256];
  std::snprintf(text, sizeof text, "line %u: %s (0x%llx), thread %u of block %u", line, what,
                static_cast<unsigned long long>(value), t.number, t.block->id[0]);
  error = text;
  _longjmp(scheduler, 1);
}

void leave(Thread& t) {
  Fiber& f = static_cast<Fiber&>(t);
  Block& b = *t.block;
  bulk_wait(t, 0);
  become(f, State::gone);
  b.alive[t.number / warp_size] &= ~(1u << t.lane);
  --b.left, ++events;
  for (size_t n = 0; n < b.meetings.size();) {
    const Meeting& m = b.meetings[n];
    if (m.there[0]->number / m.unit == t.number / m.unit && complete(b, m)) settle(b, n);
    else ++n;
  }
  if (!b.named[0].waiting.empty() && b.named[0].come == b.left) release(b.named[0]);
  cluster_release(*b.cluster);
  _longjmp(scheduler, 1);
}

void meet(Thread& t, u32 line, u32 unit, u32 mask, void (*work)(Meeting&), long how, const void* brought, void* given) {
  Fiber& f = static_cast<Fiber&>(t);
  Block& b = *t.block;
  size_t at = 0;
  for (; at < b.meetings.size(); ++at) {
    const Meeting& m = b.meetings[at];
    if (m.work == work && m.how == how && m.mask == mask && m.there[0]->number / unit == t.number / unit) break;
  }
  if (at == b.meetings.size()) {
    b.meetings.push_back({work, unit, mask, line, how, {}});
    b.meetings.back().there.reserve(unit);
  }
  Meeting& m = b.meetings[at];
  m.there.push_back(&f);
  f.brought = brought, f.given = given, f.line = line;
  become(f, State::waits);
  if (complete(b, m)) settle(b, at);
  if (f.state == State::waits) sleep(f);
}

u32 ctaid(Thread& t, int axis) { return t.block->id[axis]; }
u32 nctaid(Thread&, int axis) { return now.grid[axis]; }
u32 ntid(Thread&, int axis) { return now.block[axis]; }
u32 cluster_rank(Thread& t) { return t.block->rank; }

Block& block_at(Thread& t, u32 line, u64& address) {
  const u64 rank = address >> rank_bits;
  if (rank == 0) return *t.block;
  if (rank > now.cluster) fail(t, line, "outside shared memory", address);
  Block& b = *t.block->cluster->blocks[rank - 1];
  if (b.left == 0) fail(t, line, "shared memory of a block that has ended", address);
  address &= (1 << rank_bits) - 1;
  return b;
}

char* shared_at(Thread& t, u32 line, u64 address, u32 size, bool writes) {
  Block& b = block_at(t, line, address);
  if (address + size > b.size) fail(t, line, "outside shared memory", address);
  if ((size & (size - 1)) == 0 && address % std::min(size, 16u)) fail(t, line, "misaligned in shared memory", address);
  if (writes) {
    for (u64 n = address / 16; n <= (address + size - 1) / 16; ++n) {
      if (b.read[n]) fail(t, line, "written while a product of a warpgroup may read it", address);
      b.written[n] = 1;
    }
  }
  if (running == &t && now.yield_every != 0 && draw() % now.yield_every == 0) pause(t, line);
  return b.shared + address;
}

void published(Thread& t, u32 line, u32 chunk) {
  if (!t.block->written[chunk]) return;
  fail(t, line, "read behind the program without a fence.proxy.async since it was written", 16 * chunk);
}
void publish(Thread& t) { std::fill(t.block->written.begin(), t.block->written.end(), 0); }

// ---- out of line ----

namespace {
template <class T> T rounded_fma(int mode, T a, T b, T c) {
  const int usual = std::fegetround();
  std::fesetround(mode);
  const volatile T x = a, y = b, z = c, result = std::fma(x, y, z);
  std::fesetround(usual);
  return result;
}
}  // namespace

float fma_rz(float a, float b, float c) { return rounded_fma(FE_TOWARDZERO, a, b, c); }
float fma_rm(float a, float b, float c) { return rounded_fma(FE_DOWNWARD, a, b, c); }
float fma_rp(float a, float b, float c) { return rounded_fma(FE_UPWARD, a, b, c); }
double fma_rz(double a, double b, double c) { return rounded_fma(FE_TOWARDZERO, a, b, c); }
double fma_rm(double a, double b, double c) { return rounded_fma(FE_DOWNWARD, a, b, c); }
double fma_rp(double a, double b, double c) { return rounded_fma(FE_UPWARD, a, b, c); }

u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 both = static_cast<u64>(b) << 32 | a;
  u32 result = 0;
  for (int n = 0; n < 4; ++n) {
    const u32 s = selector >> 4 * n & 15, byte = static_cast<u32>(both >> 8 * (s & 7)) & 255;
    result |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * n;
  }
  return result;
}

// ---- barriers ----

namespace {

constexpr u64 made = 0x2abull << 41;  // an mbarrier: pending arrivals, the count of a phase, its parity, and this

u64& mbarrier(Thread& t, u32 line, u32 address) {
  u64& word = *reinterpret_cast<u64*>(shared_at(t, line, address, 8, false));
  if (word >> 41 != made >> 41) fail(t, line, "no mbarrier there", address);
  return word;
}

// Begins the next phase where neither arrivals nor bytes are missing.
void turn(Block& b, u32 address, u64& word) {
  const auto due = b.due.find(address);
  if ((word & 0xfffff) != 0 || (due != b.due.end() && due->second != 0)) return;
  word = (word ^ 1ull << 40) + (word >> 20 & 0xfffff);
  const auto over = [&](const Awaited& a) { return a.barrier == address; };
  for (const Awaited& a : b.awaited) {
    if (over(a)) become(*a.fiber, State::ready);
  }
  b.awaited.erase(std::remove_if(b.awaited.begin(), b.awaited.end(), over), b.awaited.end());
  ++events;
}

}  // namespace

u32 barrier(Thread& t, u32 line, u32 id, u32 count, bool waits, Reduce how, u32 value) {
  Block& b = *t.block;
  if (id > 15) fail(t, line, "no such barrier", id);
  Named& named = b.named[id];
  ++named.come, named.yes += value != 0, ++events;
  const u32 wanted = count ? count : b.left;
  if (named.come > wanted) fail(t, line, "more threads at a barrier than it is for", named.come);
  Fiber& f = static_cast<Fiber&>(t);
  f.line = line;
  if (waits) named.waiting.push_back(&f), become(f, State::waits);
  if (named.come == wanted) release(named);
  if (waits && f.state == State::waits) sleep(f);
  return how == Reduce::any ? named.result != 0 : how == Reduce::all ? named.result == wanted : named.result;
}

void mbarrier_init(Thread& t, u32 line, u32 address, u32 count) {
  const u64 word = made | static_cast<u64>(count) << 20 | count;
  memcpy(shared_at(t, line, address, 8, true), &word, 8);
  t.block->due.erase(address);
}
void mbarrier_arrive(Thread& t, u32 line, u32 address) {
  u64& word = mbarrier(t, line, address);
  if ((word & 0xfffff) == 0) fail(t, line, "more arrivals than an mbarrier counts", address);
  u64 there = address;
  Block& b = block_at(t, line, there);
  --word, ++events;
  turn(b, static_cast<u32>(there), word);
}
void mbarrier_expect(Thread& t, u32 line, u32 address, u32 bytes) {
  mbarrier(t, line, address);
  t.block->due[address] += bytes;
  mbarrier_arrive(t, line, address);
}
void mbarrier_complete(Thread& t, u32 line, Block& b, u32 address, u32 bytes) {
  u64& word = mbarrier(t, line, b.rank + 1 << rank_bits | address);
  b.due[address] -= bytes, ++events;
  turn(b, address, word);
}
bool mbarrier_over(Thread& t, u32 line, u32 address, u32 parity) {
  const bool over = (mbarrier(t, line, address) >> 40 & 1) != parity;
  if (!over) pause(t, line);
  return over;
}
bool mbarrier_wait(Thread& t, u32 line, u32 address, u32 parity) {
  if ((mbarrier(t, line, address) >> 40 & 1) != parity) return true;
  u64 there = address;
  Block& b = block_at(t, line, there);
  Fiber& f = static_cast<Fiber&>(t);
  b.awaited.push_back({static_cast<u32>(there), &f});
  f.line = line;
  become(f, State::waits);
  sleep(f);
  return (mbarrier(t, line, address) >> 40 & 1) != parity;
}

// ---- copies behind the program ----

void cp_async(Thread& t, u32 line, u32 to, u64 from, u32 size, u32 read) {
  if (from % size) fail(t, line, "misaligned source of cp.async", from);
  shared_at(t, line, to, size, true);
  static_cast<Fiber&>(t).copies.open.push_back({to, from, size, read, line});
}
void cp_async_commit(Thread& t) { static_cast<Fiber&>(t).copies.commit(); }
void cp_async_wait(Thread& t, u32 pending) {
  Fiber& f = static_cast<Fiber&>(t);
  f.copies.wait(pending, [&](const auto& group) { land(f, group); });
}
void cp_async_arrive(Thread& t, u32 line, u32 barrier) {
  Fiber& f = static_cast<Fiber&>(t);
  mbarrier(t, line, barrier);
  std::vector<Copy> all;
  f.copies.commit();
  f.copies.wait(0, [&](const auto& group) { all.insert(all.end(), group.begin(), group.end()); });
  t.block->late.push_back({&f, std::move(all), barrier, line});
}
void bulk(Thread& t, u32 line, u64 to, u32 from, u32 bytes, bool adds) {
  if (to % 16 || from % 16 || bytes % 16) fail(t, line, "a bulk copy not of whole 16 bytes", to);
  static_cast<Fiber&>(t).moves.open.push_back({to, from, bytes, line, adds});
}
void bulk_commit(Thread& t) { static_cast<Fiber&>(t).moves.commit(); }
void bulk_wait(Thread& t, u32 pending) {
  Fiber& f = static_cast<Fiber&>(t);
  f.moves.wait(pending, [&](const auto& group) { finish(f, group); });
}

}  // namespace simt

// Runs a grid, `slots` blocks at a time, in an order that `seed` picks; 0, or 1 with what went wrong in `text`.
extern "C" int simt_run(void (*kernel)(simt::Thread&), const simt::Program* program, const unsigned* grid,
                        const unsigned* block, unsigned smem, const void* param, unsigned cluster, unsigned slots, unsigned seed, unsigned yield_every, char* text,
                        unsigned length) {
  using namespace simt;
  now = {kernel, program, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, smem, cluster, static_cast<const char*>(param),
         yield_every, seed};
  error.clear();
  run(slots);
  std::snprintf(text, length, "%s", error.c_str());
  return !error.empty();
}
