// sparse24_wgmma  y[m, n] = Σ_k x[m, k] W[n, k] + bias[n] on sm_90a, W 2:4 sparse and compressed: tiles of ROWS of W by
//                 COLUMNS of x on the sparse tensor cores of warpgroups.
//
// It is yᵀ = W xᵀ, as the sparse matrix is the left operand. Blocks are persistent and take work tiles in the order of
// gemm/wgmma.cuh. The producer, one thread, has TMA fill a ring of stages: 128 bytes of the values of each row of W, 256
// of each row of x, as two boxes of 128, and the metadata in planes of 16 bytes of each row, which are 128 of k. Two
// warpgroups of consumers multiply half of the rows each, and transpose their sums on the way out. In clusters of two
// blocks, whose tiles lie one below the other, each loads half of x's rows for both.
//
// A sum is one chain in the order of k, in float of f16 and bf16 and in int of int8: its bits depend on k alone. P has
// maps of values, metadata and x, and besides what gemm::Tile reads `wide`, whether rows of y lie along memory and start
// 16-byte aligned, and `lead`, by how many stages the first warpgroup is ahead, so that one multiplies while the other
// finishes its tile.
#include "gemm/wgmma_transposed.cuh"
#include <baracuda/mma_sparse.cuh>
#include <baracuda/wgmma_int8.cuh>
#include <baracuda/wgmma_sparse.cuh>

namespace baracuda {
namespace sparse24 {

constexpr int out_rows = 16;  // rows of x that a warp writes at once

// Shared memory: the ring, the staging of each warp of the consumers, barriers: full and empty of the stages, and one by
// which the second warpgroup waits for the lead of the first.
template <int ROWS, int COLUMNS, int PLANES> struct Memory {
  static constexpr int stages = ROWS == 256 ? 3 : 6, x_tile = COLUMNS * 128, plane = ROWS * 16;
  static constexpr int stage_bytes = ROWS * 128 + 2 * x_tile + PLANES * plane, staging_bytes = out_rows * 16 * 4;
  static_assert(stage_bytes % 1024 == 0, "tiles in the 128-byte swizzle start at multiples of 1024 bytes");
  unsigned char* const ring;
  unsigned char* const stagings;
  Barrier *const full, *const empty, *const led;

  // From an address that is the same in every block of a cluster.
  BARACUDA_D explicit Memory(unsigned char* start)
      : ring(start + (1024 - smem_address(start) % 1024) % 1024), stagings(ring + stages * stage_bytes),
        full(reinterpret_cast<Barrier*>(stagings + gemm::consumers * 4 * staging_bytes)), empty(full + stages),
        led(empty + stages) {}
  BARACUDA_D unsigned char* values(u32 stage) const { return ring + stage * stage_bytes; }
  BARACUDA_D unsigned char* x(u32 stage) const { return values(stage) + ROWS * 128; }
  BARACUDA_D unsigned char* metadata(u32 stage) const { return x(stage) + 2 * x_tile; }
};

template <class T, int ROWS, int COLUMNS, class P> struct Product {
  using S = conditional<is_half<T>, float, int>;
  static constexpr int WIDTH = static_cast<int>(sizeof(T)), DEPTH = 256 / WIDTH;  // of k in a stage
  static constexpr int PLANES = DEPTH / 128, STEPS = 4, MT = ROWS / (64 * gemm::consumers);
  static constexpr int CLUSTER = ROWS == 256 ? 2 : 1, SHARE = COLUMNS / CLUSTER;  // rows of x that a block loads
  using Ring = Memory<ROWS, COLUMNS, PLANES>;
  using Accumulator = S[MT][COLUMNS / 8][4];  // of a thread
  const P& p;
  const Ring memory;
  const u32 rank;
  const int slices;  // of k

  BARACUDA_D Product(const P& p, unsigned char* shared)
      : p(p), memory(shared), rank(CLUSTER == 1 ? 0 : cluster_rank()),
        slices(static_cast<int>(div_up(p.k, i64(DEPTH)))) {}

  BARACUDA_D int row_of(const gemm::Tile& tile) const { return (tile.m * CLUSTER + static_cast<int>(rank)) * ROWS; }
  template <class F> BARACUDA_D void for_tiles(F f) const {
    for (u32 n = blockIdx.x / CLUSTER; n < static_cast<u32>(p.total); n += gridDim.x / CLUSTER) f(gemm::Tile(p, n));
  }

  // ---- the producer: one thread ----

  BARACUDA_D void load_x(unsigned char* to, Barrier& full, int k, int m) const {
    if constexpr (CLUSTER == 1) tensor_load(to, p.x_map, full, k, m, 0);
    else tensor_load_to((1 << CLUSTER) - 1, to, p.x_map, full, k, m, 0);
  }
  BARACUDA_D void produce() const {
    if (slices == 0) return;
    prefetch_map(p.values_map), prefetch_map(p.metadata_map), prefetch_map(p.x_map);
    Stage<Ring::stages> at;
    const int share = static_cast<int>(rank) * SHARE;
    for_tiles([&](const gemm::Tile& tile) {
      const int n = row_of(tile), m = tile.n * COLUMNS + share;
#pragma unroll 1
      for (int s = 0; s < slices; ++s, at.advance()) {
        // Wait until the stage is empty.
        const u32 stage = at.index();
        Barrier& full = memory.full[stage];
        memory.empty[stage].wait(at.empty_parity());
        // Issue TMA; the full barrier counts its bytes.
        arrive_expecting(full, Ring::stage_bytes);
        tensor_load(memory.values(stage), p.values_map, full, s * (DEPTH / 2), n, 0);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          unsigned char* const to = memory.x(stage) + half * Ring::x_tile + share * 128;
          load_x(to, full, s * DEPTH + half * (DEPTH / 2), m);
        }
#pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
          unsigned char* const to = memory.metadata(stage) + plane * Ring::plane;
          tensor_load(to, p.metadata_map, full, s * (DEPTH / 8) + plane * 16, n);
        }
      }
    });
  }

  // ---- the consumers: two warpgroups ----

  BARACUDA_D void release(u32 stage) const { gemm::release_stage<CLUSTER>(memory.empty[stage]); }
  // The row of a warpgroup's 64 MT that the warp's 16 begin with, of the 64 number r.
  static BARACUDA_D int warp_row(int r) { return 64 * r + gemm::warp_row(); }
  // 16 bytes of metadata of a row, of a plane. Beyond k they are places 0 and 1, not the zeros that come in from outside,
  // which do not ascend.
  BARACUDA_D uint4 row_metadata(u32 stage, int row, int plane, int s) const {
    uint4 found = *reinterpret_cast<const uint4*>(memory.metadata(stage) + plane * Ring::plane + row * 16);
    const int left = static_cast<int>(div_up(p.k, i64(8))) - s * (DEPTH / 8) - plane * 16;  // bytes
    if (left < 16) {
      u32(&words)[4] = reinterpret_cast<u32(&)[4]>(found);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int bytes = min(max(left - 4 * n, 0), 4);
        const u32 there = static_cast<u32>((u64(1) << 8 * bytes) - 1);
        words[n] = (words[n] & there) | (0x44444444u & ~there);
      }
    }
    return found;
  }
  // The metadata of a lane for the steps of slice s, of the rows of the warpgroup.
  BARACUDA_D void read_metadata(u32 (&metadata)[MT][STEPS], u32 stage, int consumer, int s) const {
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int r = 0; r < MT; ++r) {
      const int row = consumer * (64 * MT) + warp_row(r) + g;
      if constexpr (WIDTH == 2) {
        const uint4 low = row_metadata(stage, row, 0, s), high = row_metadata(stage, row + 8, 0, s);
        metadata[r][0] = metadata_of(low.x, high.x), metadata[r][1] = metadata_of(low.y, high.y);
        metadata[r][2] = metadata_of(low.z, high.z), metadata[r][3] = metadata_of(low.w, high.w);
      } else {
#pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
          const uint4 four = row_metadata(stage, row + t % 2 * 8, plane, s);
          metadata[r][2 * plane] = t < 2 ? four.x : four.y;
          metadata[r][2 * plane + 1] = t < 2 ? four.z : four.w;
        }
      }
    }
  }
  // Waits for a stage and issues its products, of slice s. The metadata stay in registers until they are done.
  BARACUDA_D void start(Accumulator& acc, u32 (&metadata)[MT][STEPS], u32 stage, u32 parity, int consumer,
                        int s) const {
    constexpr u64 step = Ring::stage_bytes >> 4;
    const u64 a = wgmma_operand(memory.values(0) + consumer * (MT * 64 * 128)) + stage * step;
    const u64 b = wgmma_operand(memory.x(0)) + stage * step;
    // Wait for the stage.
    memory.full[stage].wait(parity);
    read_metadata(metadata, stage, consumer, s);
    // Issue its products.
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
#pragma unroll
      for (int r = 0; r < MT; ++r) {
        const u64 left = a + r * (64 * 128 >> 4) + k * (32 >> 4);
        const u64 right = b + k / 2 * (Ring::x_tile >> 4) + k % 2 * (64 >> 4);
        wgmma_sparse<T>(acc[r], left, right, metadata[r][k], k == 0 ? s != 0 : 1);
      }
    }
    wgmma_commit();
  }
  // Multiplies slice s, whose metadata go to `own`; `other` has those of the slice before, and `before` its stage.
  BARACUDA_D void multiply_slice(Accumulator& acc, u32 (&own)[MT][STEPS], const u32 (&other)[MT][STEPS],
                                 Stage<Ring::stages>& at, u32& before, int consumer, int s, int lead) const {
    const u32 stage = at.index();
    start(acc, own, stage, at.full_parity(), consumer, s);
    if (s + 1 == lead) memory.led->arrive_as_warp();
    // Arrive: the stage before is free, as its products are done.
    if (s != 0) {
      wgmma_wait<1>();
      hold(other);
      release(before);
    }
    before = stage;
    at.advance();
  }
  // lead: the number of slices after which the other warpgroup may begin, 0 where it has begun.
  BARACUDA_D void multiply(Accumulator& acc, Stage<Ring::stages>& at, int consumer, int lead) const {
    if (slices == 0) return clear(acc);
    u32 before = 0;
    u32 even[MT][STEPS], odd[MT][STEPS];  // metadata of two slices: one is multiplied by when the next is read
#pragma unroll 1
    for (int s = 0; s < slices; s += 2) {
      multiply_slice(acc, even, odd, at, before, consumer, s, lead);
      if (s + 1 < slices) multiply_slice(acc, odd, even, at, before, consumer, s + 1, lead);
    }
    wgmma_wait<0>();
    release(before);
#pragma unroll
    for (int r = 0; r < MT; ++r) hold(acc[r]);
  }
  static BARACUDA_D void clear(Accumulator& acc) {
#pragma unroll
    for (int r = 0; r < MT; ++r)
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n) acc[r][n][0] = acc[r][n][1] = acc[r][n][2] = acc[r][n][3] = S(0);
  }

  // Epilogue: the warp's 16 rows of W by way of its staging, 16 rows of x at a time, where each thread finds 8 of one row
  // of x together.
  BARACUDA_D void finish(Accumulator& acc, const gemm::Tile& tile, int consumer) const {
    static_assert(out_rows == 16, "a warp has 16 rows of x in eights of W");
    const int warp = consumer * 4 + static_cast<int>(threadIdx.x) % 128 / 32;
    S* const staging = reinterpret_cast<S*>(memory.stagings + warp * Ring::staging_bytes);
    const int row = lane_id() / 2, octet = lane_id() % 2;
#pragma unroll
    for (int r = 0; r < MT; ++r) {
      const i64 first = row_of(tile) + consumer * (64 * MT) + warp_row(r), n = first + 8 * octet;
      S bias[2] = {};
      if constexpr (is_half<T>) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const i64 of = first + lane_id() / 4 + 8 * half;
          if (p.bias != nullptr && of < p.n) bias[half] = to_acc(static_cast<const T*>(p.bias)[of * p.bias_step]);
        }
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; c += out_rows) {
        auto& eights = reinterpret_cast<S(&)[out_rows / 8][4]>(acc[r][c / 8]);
        gemm::add_transposed(eights, bias);
        __syncwarp();
        gemm::put_transposed(staging, eights);
        __syncwarp();
        const i64 m = static_cast<i64>(tile.n) * COLUMNS + c + row;
        if (m < p.m && n < p.n) put(gemm::get_transposed(staging, row, octet), m, n);
      }
    }
  }
  // Store: columns n … n + 7 of row m.
  BARACUDA_D void put(const Vec<S, 8>& sum, i64 m, i64 n) const {
    using U = conditional<is_half<T>, T, int>;
    Vec<U, 8> y;
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = from_acc<U>(sum[k]);
    U* const to = static_cast<U*>(p.y) + m * p.y_strides[0] + n * p.y_strides[1];
    if (p.wide && p.n - n >= 8) store(to, y);
    else store_strided(to, p.y_strides[1], y, p.n - n);
  }
  BARACUDA_D void consume(int consumer) const {
    Stage<Ring::stages> at;
    int lead = gemm::wait_for_lead(*memory.led, consumer, min(p.lead, slices));
    for_tiles([&](const gemm::Tile& tile) {
      Accumulator acc;
      multiply(acc, at, consumer, lead);
      lead = 0;
      finish(acc, tile, consumer);
    });
  }

  BARACUDA_D void run() const {
    gemm::run_in_roles<CLUSTER, 1, 24, 240>(
        [&] {
          gemm::init_barriers<Ring::stages>(memory.full, memory.empty, memory.led, 1, CLUSTER * gemm::consumers * 4);
        },
        [&](int) {
          if (threadIdx.x == 0) produce();
        },
        [&](int consumer) { consume(consumer); });
  }
};

}  // namespace sparse24

template <class T, int ROWS, int COLUMNS> BARACUDA_D void sparse24_wgmma(const Sparse24WgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  sparse24::Product<T, ROWS, COLUMNS, Sparse24WgmmaParams>(p, shared).run();
}

}  // namespace baracuda
