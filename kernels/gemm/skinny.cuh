#pragma once
// skinny     matrix products on sm_90a of a few rows, COLUMNS or fewer: what takes time is reading b, so every
//            multiprocessor reads a share of it, as deep ahead as its shared memory goes.
//
// The columns of b, up to 64 of them, are the rows of the tensor cores' tile and the rows of a are its columns: a block
// takes `share` columns of b, so few that there is a block for every multiprocessor, and what the tile has beyond them is
// whatever lies in shared memory and goes nowhere. One thread has TMA fill a ring of stages, 128 bytes of k
// each; a warpgroup multiplies. The blocks of a cluster, whose columns lie side by side, load a share of a's rows each, for
// all of them. Each sum is one chain in the order of k, 16 elements at a time, by the same instruction as in
// gemm/wgmma.cuh: a row has the bits that it has there.
//
// ACROSS: b is dense along its columns, else along k. P is as the epilogue wants it, with maps a_map, b_map and up_map,
// a_step, b_step and up_step (0 where the batch shares the operand, else 1), `share`, `rows`: of a that blocks load, a
// multiple of 8 for each of them, `groups`: clusters for a matrix of the batch, and `total` for all, and `cluster`:
// blocks in one. E is the epilogue.
#include "gemm/epilogue.cuh"
#include <baracuda/reduce.cuh>
#include <baracuda/tma.cuh>
#include <baracuda/wgmma.cuh>

namespace baracuda::gemm {

constexpr int skinny_stages(int columns, bool gated) {
  return columns == 32 ? (gated ? skinny_stages_32_gated : skinny_stages_32)
                       : (gated ? skinny_stages_64_gated : skinny_stages_64);
}

template <class T, int COLUMNS, bool ACROSS, bool GATED, class P, class E> struct Skinny {
  static_assert(sizeof(T) == 2);
  static constexpr int LINE = skinny_line, DEPTH = LINE / 2;  // bytes and elements of k in a stage
  static constexpr int RIGHTS = 1 + GATED, WARPS = skinny_warps;
  static constexpr int B_BYTES = skinny_share * LINE, STAGE_BYTES = RIGHTS * B_BYTES + COLUMNS * LINE;
  static constexpr int STAGES = skinny_stages(COLUMNS, GATED);
  static constexpr int PITCH = skinny_pitch;
  static constexpr int STAGING = RIGHTS * COLUMNS * PITCH;
  const P& p;
  unsigned char* const ring;
  float* const staging;
  Barrier *const full, *const empty;
  const u32 rank;
  const int slices;  // of k

  // Position in the ring: the stage, and whether the ring has been gone through an odd number of times.
  struct Place {
    u32 index = 0, parity = 0;
    BARACUDA_D void advance() {
      if (++index == STAGES) index = 0, parity ^= 1;
    }
  };

  // From an address that is the same in every block of a cluster.
  BARACUDA_D Skinny(const P& p, unsigned char* shared)
      : p(p), ring(shared + (1024 - smem_address(shared) % 1024) % 1024),
        staging(reinterpret_cast<float*>(ring + STAGES * STAGE_BYTES)),
        full(reinterpret_cast<Barrier*>(staging + WARPS * STAGING)), empty(full + STAGES), rank(cluster_rank()),
        slices(static_cast<float>(p.alpha()) == 0.0f ? 0 : static_cast<int>(div_up(p.k, DEPTH))) {}

  BARACUDA_D void init() const {
    for (int n = 0; n < STAGES; ++n) full[n].init(1), empty[n].init(p.cluster * WARPS);  // one a warp that reads
    publish_barriers();
  }
  // Calls f(batch index, first column) for the work tiles of this block, which is persistent.
  template <class F> BARACUDA_D void for_tiles(F f) const {
    const u32 cluster = p.cluster, groups = p.groups;
    for (u32 n = blockIdx.x / cluster; n < static_cast<u32>(p.total); n += gridDim.x / cluster) {
      f(static_cast<int>(n / groups), static_cast<int>(n % groups * cluster + rank) * p.share);
    }
  }

  // ---- the producer: one thread ----

  BARACUDA_D void load_columns(unsigned char* to, const TensorMap& map, Barrier& barrier, int n, int k,
                               int batch) const {
    if constexpr (ACROSS) tensor_load(to, map, barrier, n, k, batch);
    else tensor_load(to, map, barrier, k, n, batch);
  }
  BARACUDA_D void produce() const {
    if (slices != 0) prefetch_map(p.a_map), prefetch_map(p.b_map);
    const int each = p.rows / p.cluster, first = static_cast<int>(rank) * each;  // of a's rows, this block's
    const u16 everywhere = static_cast<u16>((1 << p.cluster) - 1);
    const u32 bytes = static_cast<u32>(RIGHTS * p.share + p.rows) * LINE;
    Place at;
    for_tiles([&](int batch, int n) {
      for (int s = 0; s < slices; ++s, at.advance()) {
        // Wait until the stage is empty.
        const int k = s * DEPTH;
        unsigned char* const to = ring + at.index * STAGE_BYTES;
        unsigned char* const right = to + RIGHTS * B_BYTES + first * LINE;
        Barrier& barrier = full[at.index];
        empty[at.index].wait(at.parity ^ 1);
        // Issue TMA; the full barrier counts its bytes.
        arrive_expecting(barrier, bytes);
        load_columns(to, p.b_map, barrier, n, k, batch * p.b_step);
        if constexpr (GATED) load_columns(to + B_BYTES, p.up_map, barrier, n, k, batch * p.up_step);
        if (p.cluster == 1) tensor_load(right, p.a_map, barrier, k, 0, batch * p.a_step);
        else tensor_load_to(everywhere, right, p.a_map, barrier, k, first, batch * p.a_step);
      }
    });
  }

  // ---- the consumers: a warpgroup ----

  // Arrive: this warp no longer reads a stage, and all blocks may have it filled.
  BARACUDA_D void release(u32 stage) const {
    if (p.cluster == 1) empty[stage].arrive_as_warp();
    else if (lane_id() < p.cluster) arrive_remote(empty[stage], static_cast<u32>(lane_id()));
  }
  BARACUDA_D void multiply(float (&acc)[RIGHTS][COLUMNS / 8][4], Place& at) const {
    constexpr u32 along = 32 >> 4, across = 2048 >> 4, step = ACROSS ? across : along;
    const u64 tile = wgmma_operand(ring);
    // Of which the lower half alone changes: no carry goes beyond the address in it.
    const auto operand = [tile](u32 low) { return tile >> 32 << 32 | low; };
    if (slices == 0) {
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n) {
#pragma unroll
        for (int r = 0; r < RIGHTS; ++r) {
          acc[r][n][0] = acc[r][n][1] = acc[r][n][2] = acc[r][n][3] = 0.0f;
        }
      }
      return;
    }
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      // Wait for the stage.
      const u32 b = static_cast<u32>(tile) + at.index * (STAGE_BYTES >> 4);
      full[at.index].wait(at.parity);
      // Issue its products.
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < LINE / 32; ++k) {
        const int add = k == 0 ? s != 0 : 1;
        const u64 left = operand(b + k * step), right = operand(b + (RIGHTS * B_BYTES >> 4) + k * along);
        wgmma<T, ACROSS, false>(acc[0], left, right, add);
        if constexpr (GATED) {
          wgmma<T, ACROSS, false>(acc[RIGHTS - 1], operand(b + (B_BYTES >> 4) + k * step), right, add);
        }
      }
      wgmma_commit();
      // Arrive: the stage before is free, as its products are done.
      if (s != 0) {
        wgmma_wait<1>();
        release(before);
      }
      before = at.index;
    }
    wgmma_wait<0>();
    release(before);
#pragma unroll
    for (int r = 0; r < RIGHTS; ++r) hold(acc[r]);
  }

  // Epilogue: a warp's 16 columns of b by way of its staging, where each thread finds 8 of them, of one row, together.
  static BARACUDA_D void put(float* to, const float (&acc)[COLUMNS / 8][4]) {
    const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) to[(8 * n + column + e % 2) * PITCH + row + e / 2 * 8] = acc[n][e];
    }
  }
  static BARACUDA_D Vec<float, 8> get(const float* from) {
    const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
  BARACUDA_D void finish(const float (&acc)[RIGHTS][COLUMNS / 8][4], int batch, int n) const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    if (16 * warp >= p.share) return;
    const E epilogue(p, BatchOffsets(p, batch));
    float* const own = staging + warp * STAGING;
    __syncwarp();
#pragma unroll
    for (int r = 0; r < RIGHTS; ++r) put(own + r * COLUMNS * PITCH, acc[r]);
    __syncwarp();
#pragma unroll 1
    for (int e = lane_id(); e < 2 * static_cast<int>(p.m); e += warp_size) {
      const int row = e / 2, first = 16 * warp + e % 2 * 8;
      const i64 column = static_cast<i64>(n) + first;
      if (first >= p.share || column >= p.n) continue;
      const float* const from = own + row * PITCH + e % 2 * 8;
      const auto sum = get(from);
      epilogue.row(static_cast<i64>(row), column, p.n - column, sum, GATED ? get(from + COLUMNS * PITCH) : sum);
    }
  }
  BARACUDA_D void consume() const {
    Place at;
    for_tiles([&](int batch, int n) {
      float acc[RIGHTS][COLUMNS / 8][4];
      multiply(acc, at);
      finish(acc, batch, n);
    });
  }

  BARACUDA_D void run() const {
    if (threadIdx.x == 0) init();
    if (p.cluster == 1) __syncthreads();
    else cluster_sync();
    if (warpgroup() == 0) consume();
    else if (threadIdx.x == 128) produce();
    __syncwarp();
    if (p.cluster != 1) cluster_sync();  // else a block could end before what the others send it
  }
};

}  // namespace baracuda::gemm
