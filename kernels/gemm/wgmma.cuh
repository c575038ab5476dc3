#pragma once
// wgmma      matrix products on sm_90a, of 16-bit elements or floats as TF32: tiles of 128 x COLUMNS by the tensor cores.
//
// The grid stays (a block a multiprocessor) and takes tiles in turn. One thread of a block has TMA fill a
// ring of stages, 128 bytes of k each; two warpgroups multiply, 64 rows each, and finish their tile (gemm/epilogue.cuh). In
// clusters of two blocks, whose tiles lie one below the other, each loads half of the columns' operand for both. Each
// sum is one chain in the order of k, 32 bytes at a time: its bits depend on k alone.
//
// An operand is read along k or ACROSS, whichever its dense axis is. Zeros come in from outside the matrices. With a
// second product (GATED) the columns of a tile are COLUMNS / 2 of each. P is as the epilogue wants it, with maps a_map,
// b_map, up_map and y_map, a_step, b_step and up_step (0 where the batch shares the operand, else 1), tiles of a
// cluster along m and n (`rows`, `cols`), in a band (see Tile) and in all (`total`), `plain`: 1 where y is alpha times
// the sums, by y_map, 2 where it goes that way and E::fragment finishes it, and `lead`: by how many stages the first
// warpgroup is ahead, so that one multiplies while the other finishes its tile. E is the epilogue.
#include "gemm/epilogue.cuh"
#include <baracuda/reduce.cuh>
#include <baracuda/tma.cuh>
#include <baracuda/wgmma_wide.cuh>

namespace baracuda::gemm {

constexpr int tile_rows = 128, groups = 2, block_threads = (groups + 1) * 128;
constexpr int panel_bytes = 64 * 64 * 2;  // of an operand across
constexpr int part_bytes = 16 * 64 * 2;   // of what a warp stores at once

// The barriers of a ring whose stages so many arrivals fill and so many warps read, and `led`: one a warp that leads.
template <int STAGES>
BARACUDA_D void init_barriers(Barrier* full, Barrier* empty, Barrier* led, int fills, int readers) {
  for (int n = 0; n < STAGES; ++n) full[n].init(fills), empty[n].init(readers);
  led->init(4);
  publish_barriers();
}
// A block's work: init() by one thread, then producer(n) by each of the first PRODUCERS warpgroups and consumer(n) by each
// other, with FEW and MANY registers a thread, or 0: as many as the kernel was compiled for.
template <int CLUSTER, int PRODUCERS, int FEW, int MANY, class I, class F, class G>
BARACUDA_D void run_in_roles(I init, F producer, G consumer) {
  if (threadIdx.x == 0) init();
  if constexpr (CLUSTER == 1) __syncthreads();
  else cluster_sync();
  const int role = warpgroup();
  if (static_cast<u32>(role) < PRODUCERS) {  // of one a comparison with 0
    if constexpr (FEW != 0) release_registers<FEW>();
    producer(role);
    __syncwarp();
    if constexpr (CLUSTER == 2) cluster_sync();  // else a block could end before what the other sends it
  } else {
    if constexpr (MANY != 0) acquire_registers<MANY>();
    consumer(role - PRODUCERS);
    if constexpr (CLUSTER == 2) cluster_sync();
  }
}

template <int COLUMNS> constexpr int default_stages = COLUMNS == 256 ? 4 : COLUMNS == 128 ? 6 : 8;

// Shared memory: the ring, PARTS for each warp of the consumers, barriers: full and empty of the stages, and one by which
// the second warpgroup waits for the lead of the first.
template <int COLUMNS, int CLUSTER, int STAGES, int PARTS> struct Memory {
  static constexpr int stages = STAGES, a_bytes = tile_rows * 128, b_bytes = COLUMNS * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes, staging_bytes = PARTS * part_bytes;
  unsigned char* const ring;
  unsigned char* const staging;
  Barrier *const full, *const empty, *const led;

  // From an address that is the same in every block of a cluster.
  BARACUDA_D explicit Memory(unsigned char* start)
      : ring(start + (1024 - smem_address(start) % 1024) % 1024), staging(ring + stages * stage_bytes),
        full(reinterpret_cast<Barrier*>(staging + groups * 4 * staging_bytes)), empty(full + stages),
        led(empty + stages) {}
  BARACUDA_D void init(int fills = 1) const { init_barriers<stages>(full, empty, led, fills, CLUSTER * groups * 4); }
  BARACUDA_D unsigned char* a(u32 stage) const { return ring + stage * stage_bytes; }
  BARACUDA_D unsigned char* b(u32 stage) const { return a(stage) + a_bytes; }
  // Of this thread's warp.
  BARACUDA_D unsigned char* part(int group) const {
    return staging + (group * 4 + static_cast<int>(threadIdx.x) % 128 / 32) * staging_bytes;
  }
};

// The tile with a number: in bands of some rows of tiles (of a cluster), all rows of a column come before the next
// column, so that what runs at once shares operands in the L2 cache.
struct Tile {
  int m, n, item;  // rows and columns of tiles, and the batch's item

  template <class P> BARACUDA_D Tile(const P& p, u32 number) {
    const u32 rows = p.rows, each = rows * p.cols, height = p.band, band = height * p.cols;
    item = static_cast<int>(number / each);
    const u32 rest = number % each, first = rest / band * height, high = min(rows - first, height);
    m = static_cast<int>(first + rest % band % high);
    n = static_cast<int>(rest % band / high);
  }
};

template <class T, class U, int COLUMNS, bool A_ACROSS, bool B_ACROSS, bool GATED, int STAGES, int PARTS, class P,
          class E, int CLUSTER = COLUMNS == 256 ? 2 : 1>
struct Product {
  static constexpr int SHARES = CLUSTER == 2 || GATED ? 2 : 1;
  static constexpr int SHARE = COLUMNS / SHARES, WIDTH = GATED ? SHARE : COLUMNS;  // columns in one load, and of y
  static constexpr int DEPTH = 128 / static_cast<int>(sizeof(T));                  // of k in a stage
  static constexpr bool LEADS = COLUMNS != 64;  // a narrow tile has little to finish, and every instruction counts
  static_assert(sizeof(T) == 2 || !(A_ACROSS || B_ACROSS), "only 16-bit operands may be read across");
  using Ring = Memory<COLUMNS, CLUSTER, STAGES, PARTS>;
  using Sums = float[COLUMNS / 8][4];  // of a thread
  const P& p;
  const Ring memory;
  const u32 rank;
  const int slices;  // of k

  BARACUDA_D Product(const P& p, unsigned char* shared, bool multiplies)
      : p(p), memory(shared), rank(CLUSTER == 1 ? 0 : cluster_rank()),
        slices(multiplies ? static_cast<int>(div_up(p.k, DEPTH)) : 0) {}

  BARACUDA_D int row_of(const Tile& tile) const { return (tile.m * CLUSTER + static_cast<int>(rank)) * tile_rows; }
  template <class F> BARACUDA_D void for_tiles(F f) const {
    for (u32 n = blockIdx.x / CLUSTER; n < static_cast<u32>(p.total); n += gridDim.x / CLUSTER) f(Tile(p, n));
  }

  // ---- the producer: one thread ----

  BARACUDA_D void load_a(u32 stage, int m, int k, int item) const {
    unsigned char* const to = memory.a(stage);
    if constexpr (A_ACROSS) {
#pragma unroll
      for (int n = 0; n < tile_rows / 64; ++n) {
        tensor_load(to + n * panel_bytes, p.a_map, memory.full[stage], m + 64 * n, k, item);
      }
    } else {
      tensor_load(to, p.a_map, memory.full[stage], k, m, item);
    }
  }
  // One share of the columns of the batch's item `of`, to all blocks of the cluster.
  BARACUDA_D void load_share(u32 stage, int share, int n, int k, int of) const {
    const bool second = GATED && share == 1;
    const TensorMap& map = second ? p.up_map : p.b_map;
    const int item = of * (second ? p.up_step : p.b_step), column = GATED ? n : n + share * SHARE;
    unsigned char* const to = memory.b(stage) + share * (SHARE * 128);
    const auto load = [&](unsigned char* to, int x, int y) {
      if constexpr (CLUSTER == 1) tensor_load(to, map, memory.full[stage], x, y, item);
      else tensor_load_to((1 << CLUSTER) - 1, to, map, memory.full[stage], x, y, item);
    };
    if constexpr (B_ACROSS) {
#pragma unroll
      for (int c = 0; c < SHARE; c += 64) load(to + c / 64 * panel_bytes, column + c, k);
    } else {
      load(to, k, column);
    }
  }
  // What is multiplied for the tile that begins at row m and column n: so many slices of k, from `k` on.
  BARACUDA_D void fill(Stage<Ring::stages>& at, int m, int n, int item, int k, int slices) const {
    for (int s = 0; s < slices; ++s, k += DEPTH, at.advance()) {
      const u32 stage = at.index();
      memory.empty[stage].wait(at.empty_parity());
      arrive_expecting(memory.full[stage], Ring::stage_bytes);
      load_a(stage, m, k, item * p.a_step);
      if constexpr (CLUSTER == 2) {
        load_share(stage, static_cast<int>(rank), n, k, item);
      } else {
#pragma unroll
        for (int share = 0; share < SHARES; ++share) load_share(stage, share, n, k, item);
      }
    }
  }
  BARACUDA_D void prefetch() const {
    if (slices != 0) prefetch_map(p.a_map), prefetch_map(p.b_map);
  }
  BARACUDA_D void produce() const {
    prefetch();
    Stage<Ring::stages> at;
    for_tiles([&](const Tile& tile) { fill(at, row_of(tile), tile.n * WIDTH, tile.item, 0, slices); });
  }

  // ---- the consumers: two warpgroups ----

  // A warp no longer reads a stage: both blocks may have it filled.
  BARACUDA_D void release(u32 stage) const {
    if constexpr (CLUSTER == 1) memory.empty[stage].arrive_as_warp();
    else if (lane_id() < CLUSTER) arrive_remote(memory.empty[stage], static_cast<u32>(lane_id()));
  }
  static BARACUDA_D void clear(Sums& d) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0.0f;
  }
  // lead: the number of slices after which the other warpgroup may begin, 0 where it has begun.
  BARACUDA_D void multiply(Sums& d, Stage<Ring::stages>& at, int group, int lead) const {
    multiply(
        d, at, group, slices, [](u32, int) {},
        [&](int s) {
          if (s + 1 == lead) memory.led->arrive_as_warp();
        });
  }
  // ready(stage, s): what is done with slice s before it is multiplied; started(s): once it is.
  template <class F, class G>
  BARACUDA_D void multiply(Sums& d, Stage<Ring::stages>& at, int group, int slices, F ready, G started) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = 32 >> 4, across = 2048 >> 4;
    const u64 a = wgmma_operand(memory.a(0) + group * (64 * 128));
    const u64 b = wgmma_operand(memory.b(0), B_ACROSS ? panel_bytes : 16);
    if (slices == 0) return clear(d);
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      ready(stage, s);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 128 / 32; ++k) {
        const u64 left = a + stage * step + k * (A_ACROSS ? across : along);
        const u64 right = b + stage * step + k * (B_ACROSS ? across : along);
        if constexpr (sizeof(T) == 2) wgmma<T, A_ACROSS, B_ACROSS>(d, left, right, k == 0 ? s != 0 : 1);
        else wgmma_along<T>(d, left, right, k == 0 ? s != 0 : 1);
      }
      wgmma_commit();
      started(s);
      if (s != 0) {
        wgmma_wait<1>();
        release(before);
      }
      before = stage;
    }
    wgmma_wait<0>();
    release(before);
    hold(d);
  }

  // y by TMA: a warp's 16 rows, 64 columns at a time by way of one of its parts, in the 128-byte swizzle.
  static BARACUDA_D void put_part(u32 part, const float (&d)[8][4]) {
    const u32 row = static_cast<u32>(lane_id()) % 16, first = static_cast<u32>(lane_id()) / 16 ^ row % 8;
#pragma unroll
    for (u32 n = 0; n < 8; n += 2) {
      u32 pairs[4];
#pragma unroll
      for (u32 e = 0; e < 4; ++e) {
        const float(&quad)[4] = d[n + e / 2];
        pairs[e] = pack_pair<U>(quad[e % 2 * 2], quad[e % 2 * 2 + 1]);
      }
      stmatrix_x4(part + row * 128 + (first ^ n) * 16, pairs);
    }
  }
  static constexpr int SECOND = GATED ? SHARE / 8 : 0;                          // where the sums of `up` begin
  static constexpr int USED = WIDTH / 64 < PARTS ? max(WIDTH / 64, 1) : PARTS;  // parts in turn, from tile to tile
  // 64 columns, the first of them column n + c of y and column c of the tile; the warp's rows begin at m.
  BARACUDA_D void store_part(const float (&d)[8][4], int c, int m, int n, int item, int group) const {
    const unsigned char* const part = memory.part(group) + c / 64 % USED * part_bytes;
    if (lane_id() == 0) bulk_wait_read<USED - 1>();
    __syncwarp();
    put_part(smem_address(part), d);
    bulk_fence();
    __syncwarp();
    if (lane_id() == 0) {
      tensor_store(p.y_map, part, n + c, m, item);
      bulk_commit();
    }
  }
  // alpha times the sums of the tile that begins at column n.
  BARACUDA_D void store(Sums& d, float alpha, int m, int n, int item, int group) const {
    static_assert(WIDTH / 64 % USED == 0, "every tile begins with the first part");
#pragma unroll
    for (int c = 0; c < WIDTH; c += 64) {
      auto& sums = reinterpret_cast<float(&)[8][4]>(d[c / 8]);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[n][k] *= alpha;
      }
      store_part(sums, c, m, n, item, group);
    }
  }
  // What the epilogue makes of them.
  BARACUDA_D void store_finished(Sums& d, const Tile& tile, int m, int group) const {
    constexpr int N = USED * 8;  // quads in a step
    const E epilogue(p, BatchOffsets(p, tile.item));
    const i64 row = m + lane_id() / 4, column = static_cast<i64>(tile.n) * WIDTH + lane_id() % 4 * 2;
#pragma unroll 1
    for (int c = 0; c < WIDTH; c += 8 * N) {
#pragma unroll
      for (int n = 0; n < N; n += 8) {
        auto& sums = reinterpret_cast<float(&)[8][4]>(d[n]);
        epilogue.fragment(row, column + c + 8 * n, sums, reinterpret_cast<float(&)[8][4]>(d[SECOND + n]));
        store_part(sums, c + 8 * n, m, tile.n * WIDTH, tile.item, group);
      }
      shift<N>(d);
    }
  }
  // The next columns take the place of N quads: registers have no index, and the code stands but once.
  template <int N> static BARACUDA_D void shift(Sums& d) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8 - N; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) d[n][k] = d[n + N][k];
    }
  }

  // A warp's 16 rows through its part of shared memory, where each thread finds 8 columns of a row together.
  static constexpr int PIECE = GATED ? 32 : 64;  // columns at a time
  static BARACUDA_D int place(int row, int piece) {
    return row * PIECE + (piece ^ (row & 3) << 1 ^ (row >> 2 & 1)) * 4;
  }
  static BARACUDA_D void put(float* stage, const float (&d)[PIECE / 8][4]) {
    const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < PIECE / 8; ++n) {
      const int piece = 2 * n + column / 4;
      *reinterpret_cast<float2*>(stage + place(row, piece) + column % 4) = make_float2(d[n][0], d[n][1]);
      *reinterpret_cast<float2*>(stage + place(row + 8, piece) + column % 4) = make_float2(d[n][2], d[n][3]);
    }
  }
  static BARACUDA_D Vec<float, 8> get(const float* stage, int row, int octet) {
    const float4 low = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet));
    const float4 high = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet + 1));
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
  // q: the parameters that the epilogue reads.
  template <class Q> BARACUDA_D void finish(Sums& d, const Q& q, int m, int n, int item, int group) const {
    static_assert(PARTS * part_bytes >= 16 * 64 * 4, "16 x 64 floats");
    constexpr int N = PIECE / 8;
    const bool down = q.strides[gemm_matrix::y][1] != 1;  // then neighbouring threads have neighbouring rows
    const E epilogue(q, BatchOffsets(q, item));
    float* const stage = reinterpret_cast<float*>(memory.part(group));
#pragma unroll 1
    for (int c = 0; c < WIDTH; c += PIECE) {
      __syncwarp();
      put(stage, reinterpret_cast<const float(&)[N][4]>(d[0]));
      if constexpr (GATED) put(stage + 16 * PIECE, reinterpret_cast<const float(&)[N][4]>(d[SECOND]));
      __syncwarp();
#pragma unroll 1
      for (int e = lane_id(); e < 16 * N; e += warp_size) {
        const int row = down ? e % 16 : e / N, octet = down ? e / 16 : e % N;
        const i64 column = n + c + 8 * octet;
        if (m + row >= q.m || column >= q.n) continue;
        const auto sum = get(stage, row, octet);
        epilogue.row(m + row, column, q.n - column, sum, GATED ? get(stage + 16 * PIECE, row, octet) : sum);
      }
      shift<N>(d);
    }
  }

  BARACUDA_D void consume(float alpha, int group) const {
    Stage<Ring::stages> at;
    int lead = LEADS ? min(p.lead, slices) : 0;
    if (group == 1 && lead != 0) memory.led->wait(0), lead = 0;
    for_tiles([&](const Tile& tile) {
      Sums d;
      multiply(d, at, group, lead);
      lead = 0;
      const int m = row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16;  // of this warp
      if constexpr (is_same<T, U> && sizeof(T) == 2) {
        if (!GATED && p.plain == 1) return store(d, alpha, m, tile.n * WIDTH, tile.item, group);
        if constexpr (E::fragments) {
          if (p.plain == 2) return store_finished(d, tile, m, group);
        }
      }
      finish(d, p, m, tile.n * WIDTH, tile.item, group);
    });
    bulk_wait<0>();
  }

  BARACUDA_D void run(float alpha) const {
    run([&](int group) { consume(alpha, group); });
  }
  template <class F> BARACUDA_D void run(F consumer) const {
    run(
        [&] {
          if (threadIdx.x == 0) produce();
        },
        consumer);
  }
  // What the first warp does beside what the warpgroups of consumers do: producer(), consumer(group), with so many
  // registers.
  template <int FEW = 24, int MANY = 240, class F, class G> BARACUDA_D void run(F producer, G consumer) const {
    run_in_roles<CLUSTER, 1, FEW, MANY>([&] { memory.init(); },
                                        [&](int) {
                                          if (threadIdx.x < warp_size) producer();
                                        },
                                        consumer);
  }
};

}  // namespace baracuda::gemm
