// linear_attention_rank_reads    X = R^T du of every chunk of 64 steps, which takes the place of du: the gradient of what the
//                                 rank-one rule's triangular system is solved for (linear_attention_rank_local.cu).
//
// R enters the product as a sum of two numbers of 16 bits. Schedule: a block of eight warps has a chunk of one head, and goes
// through its columns 64 at a time. Every sum is a chain over the steps of the chunk.
#include "recurrence/chunk_solve.cuh"
#include "recurrence/rank_chunks.cuh"

namespace baracuda {

template <class T, int DK, class P> BARACUDA_D void linear_attention_rank_reads(const P& p) {
  using namespace recurrence::chunked;
  BARACUDA_DYNAMIC_SMEM(T, high);  // [64][64]
  T* const low = high + area;      // [64][64]
  T* const slopes = low + area;    // [64][64]: du, then X
  const i64 head = blockIdx.x % p.num_heads, place = blockIdx.x / p.num_heads, tiles = div_up(p.d_v, width);
  const Chunk here = chunk_of(p, place);
  if (here.steps == 0) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size, row0 = warp % 4 * 16;
  const int col0 = warp / 4 * 32;
  split_columns(high, low, static_cast<const float*>(p.inverse) + (place * p.num_heads + head) * area,
                [](int) { return 1.0f; });
#pragma unroll 1
  for (i64 n = 0; n < tiles; ++n) {
    T* const at = reads_at<T>(p, p.du, here.batch, here.start, head, n);
    __syncthreads();  // all have read the columns before
    tile::copy<chunk, 64, crew>(slopes, at, read_stride(p), here.steps, width, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    const tile::Reader<64, false> some = moved(tile::Reader<64, false>(slopes), 0, col0);
    float x[4][4];
    clear(x);
    multiply<T, chunk>(x, moved(tile::Reader<64, true>(high), 0, row0), some);
    multiply<T, chunk>(x, moved(tile::Reader<64, true>(low), 0, row0), some);
    __syncthreads();  // all have read du
    put_all<64>(slopes, row0, col0, x);
    __syncthreads();
    tile::copy_out<chunk, 64, crew>(at, read_stride(p), slopes, thread, here.steps, width, true);
  }
}

}  // namespace baracuda
