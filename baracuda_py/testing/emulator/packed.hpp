// Products whose left operand is 2:4 sparse, and of bits: packed.cpp, that of a warpgroup warp.cpp.
#pragma once

namespace simt {

// D[16, 8] += A B of left matrices of which two of every four elements along k are there, 32 compressed bytes; metadata
// says which. Sums of integers wrap.
void mma_sparse(Thread& t, u32 line, Half type, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4], const u32 (&c)[4], u32 metadata);
// The same of a warpgroup: D[64, n], both operands in shared memory as descriptors say; adds: to what D was.
void wgmma_sparse(Thread& t, u32 line, Half type, int n, u32* d, u64 a_at, u64 b_at, u32 metadata, bool adds);
// c + the number of bits in which 256 of a row of A and a column of B differ.
void mma_bits(Thread& t, u32 line, u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const u32 (&c)[4]);

}  // namespace simt
