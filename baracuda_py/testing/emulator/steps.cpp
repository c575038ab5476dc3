// Kernels that are lists of steps: see steps.py.
#include "grid.hpp"

namespace simt {

// A step does what a statement says with its operands, which follow its address, and returns where the next one is.
using Step = const u64* (*)(Thread&, char* frame, const u64* operands);

void walk(Thread& t, const Program& p) {
  char* const room = static_cast<char*>(__builtin_alloca(p.frame + 128));
  char* const frame = room + (128 - reinterpret_cast<u64>(room) % 128);
  memset(frame, 0, p.frame);
  for (const u64* c = p.code;;) c = reinterpret_cast<Step>(*c)(t, frame, c + 1);
}

}  // namespace simt
