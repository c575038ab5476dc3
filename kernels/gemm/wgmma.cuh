#pragma once
// wgmma      matrix products on sm_90a: tiles of 128 x COLUMNS by the tensor cores of warpgroups, with an instruction Mma
//            (elements, and what they are summed in) and an epilogue E.
//
// Blocks are persistent, one a multiprocessor. The producer, one thread, has TMA fill a ring of stages, 128 bytes of k
// each; the consumers are two warpgroups, which multiply 64 rows each and finish their tile (gemm/epilogue.cuh). In
// clusters of two blocks, whose tiles lie one below the other, each loads half of the columns' operand for both. Each
// sum is one chain in the order of k, 32 bytes at a time: its bits depend on k alone.
//
// An operand is read along k or across, whichever its dense axis is. Zeros come in from outside the matrices. With a
// second product (GATED) the columns of a tile are COLUMNS / 2 of each. P is as the epilogue wants it, with maps a_map,
// b_map, up_map and y_map, a_step, b_step and up_step (0 where the batch shares the operand, else 1), tiles of a
// cluster along m and n (`rows`, `cols`), rows of a raster group (`band`, see Tile) and all tiles (`total`), `plain`: 1
// where y is alpha times the sums, by y_map, 2 where it goes that way and E::fragment finishes it, and `lead`: by how
// many stages the first warpgroup is ahead, so that one multiplies while the other finishes its tile.
#include "gemm/operands.cuh"
#include <baracuda/reduce.cuh>
#include <baracuda/tma.cuh>
#include <baracuda/wgmma_wide.cuh>

namespace baracuda::gemm {

constexpr int tile_rows = 128, consumers = 2, block_threads = (consumers + 1) * 128;
constexpr int panel_bytes = 64 * 64 * 2;  // of an operand that is read across: 64 of its columns
constexpr int box_bytes = 16 * 64 * 2;    // of what a warp stores at once

// The products of 16-bit elements, or of floats as TF32, in float: 32 bytes of k of 64 rows of a and N * 8 columns of b.
// A_ACROSS, B_ACROSS: whether an operand is read across.
template <class T, bool A_ACROSS = false, bool B_ACROSS = false> struct FloatMma {
  static_assert(sizeof(T) == 2 || !(A_ACROSS || B_ACROSS), "only 16-bit operands may be read across");
  using Element = T;
  using Sum = float;
  static constexpr bool a_across = A_ACROSS, b_across = B_ACROSS;

  // acc = a b, plus acc where `adds`.
  template <int N> static BARACUDA_D void multiply(float (&acc)[N][4], u64 a, u64 b, int adds) {
    if constexpr (sizeof(T) == 2) wgmma<T, A_ACROSS, B_ACROSS>(acc, a, b, adds);
    else wgmma_along<T>(acc, a, b, adds);
  }
  // Keeps the compiler from using acc before it was waited for.
  template <int N> static BARACUDA_D void hold(float (&acc)[N][4]) { baracuda::hold(acc); }
};

// The barriers of a ring whose stages so many arrivals fill and so many warps read, and `led`: one a warp that leads.
template <int STAGES>
BARACUDA_D void init_barriers(Barrier* full, Barrier* empty, Barrier* led, int fills, int readers) {
  for (int n = 0; n < STAGES; ++n) full[n].init(fills), empty[n].init(readers);
  led->init(4);
  publish_barriers();
}
// A block's work: init() by one thread, then produce(n) by each of the first PRODUCERS warpgroups and consume(n) by each
// other, with FEW and MANY registers a thread, or 0: as many as the kernel was compiled for.
template <int CLUSTER, int PRODUCERS, int FEW, int MANY, class I, class F, class G>
BARACUDA_D void run_in_roles(I init, F produce, G consume) {
  if (threadIdx.x == 0) init();
  if constexpr (CLUSTER == 1) __syncthreads();
  else cluster_sync();
  const int role = warpgroup();
  if (static_cast<u32>(role) < PRODUCERS) {  // of one a comparison with 0
    if constexpr (FEW != 0) release_registers<FEW>();
    produce(role);
    __syncwarp();
    if constexpr (CLUSTER == 2) cluster_sync();  // else a block could end before what the other sends it
  } else {
    if constexpr (MANY != 0) acquire_registers<MANY>();
    consume(role - PRODUCERS);
    if constexpr (CLUSTER == 2) cluster_sync();
  }
}

template <int COLUMNS> constexpr int default_stages = COLUMNS == 256 ? 4 : COLUMNS == 128 ? 6 : 8;

// Arrive: this warp no longer reads the stage with that barrier, and both blocks of the cluster may have it filled.
template <int CLUSTER> BARACUDA_D void release_stage(Barrier& empty) {
  if constexpr (CLUSTER == 1) empty.arrive_as_warp();
  else if (lane_id() < CLUSTER) arrive_remote(empty, static_cast<u32>(lane_id()));
}
// The second warpgroup of consumers waits here until the first is `lead` slices ahead. The result: after how many slices
// of its first tile this warpgroup lets the other begin, 0 if it does not.
BARACUDA_D int wait_for_lead(Barrier& led, int consumer, int lead) {
  if (consumer == 1 && lead != 0) led.wait(0), lead = 0;
  return lead;
}
// The first of the 16 rows that this warp has of its warpgroup's 64.
BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) % 128 / 32 * 16; }

// Shared memory: the ring, BOXES for each warp of the consumers, barriers: full and empty of the stages, and one by which
// the second warpgroup waits for the lead of the first.
template <int COLUMNS, int CLUSTER, int STAGES, int BOXES> struct Memory {
  static constexpr int stages = STAGES, a_bytes = tile_rows * 128, b_bytes = COLUMNS * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes, staging_bytes = BOXES * box_bytes;
  unsigned char* const ring;
  unsigned char* const boxes;
  Barrier *const full, *const empty, *const led;

  // From an address that is the same in every block of a cluster.
  BARACUDA_D explicit Memory(unsigned char* start)
      : ring(start + (1024 - smem_address(start) % 1024) % 1024), boxes(ring + stages * stage_bytes),
        full(reinterpret_cast<Barrier*>(boxes + consumers * 4 * staging_bytes)), empty(full + stages),
        led(empty + stages) {}
  BARACUDA_D void init(int fills = 1) const { init_barriers<stages>(full, empty, led, fills, CLUSTER * consumers * 4); }
  BARACUDA_D unsigned char* a(u32 stage) const { return ring + stage * stage_bytes; }
  BARACUDA_D unsigned char* b(u32 stage) const { return a(stage) + a_bytes; }
  // Of this thread's warp.
  BARACUDA_D unsigned char* staging(int consumer) const {
    return boxes + (consumer * 4 + static_cast<int>(threadIdx.x) % 128 / 32) * staging_bytes;
  }
};

// The work tile with a number. Tiles come in raster groups of p.band rows of tiles (of a cluster): within a group all
// rows of a column come before the next column, so that what runs at once shares operands in the L2 cache.
struct Tile {
  int m, n, batch;  // rows and columns of tiles, and the batch index

  template <class P> BARACUDA_D Tile(const P& p, u32 number) {
    const u32 rows = p.rows, each = rows * p.cols, height = p.band, group = height * p.cols;
    batch = static_cast<int>(number / each);
    const u32 rest = number % each, first = rest / group * height, high = min(rows - first, height);
    m = static_cast<int>(first + rest % group % high);
    n = static_cast<int>(rest % group / high);
  }
};

// Two and four neighbouring sums, as shared memory is accessed.
template <class S> using Two = conditional<is_same<S, float>, float2, int2>;
template <class S> using Four = conditional<is_same<S, float>, float4, int4>;

// What is done with a stage before it is multiplied: nothing, unless an operand has something to take out.
struct AsItIs {
  BARACUDA_D void operator()(u32, int) const {}
};

template <class MMA, class U, int COLUMNS, bool GATED, int STAGES, int BOXES, class P, class E,
          int CLUSTER = COLUMNS == 256 ? 2 : 1>
struct Product {
  using Mma = MMA;
  using T = typename Mma::Element;
  static constexpr int SHARES = CLUSTER == 2 || GATED ? 2 : 1;
  static constexpr int SHARE = COLUMNS / SHARES, WIDTH = GATED ? SHARE : COLUMNS;  // columns in one load, and of y
  static constexpr int DEPTH = 128 / static_cast<int>(sizeof(T));                  // of k in a stage
  static constexpr bool LEADS = COLUMNS != 64;  // a narrow tile has little to finish, and every instruction counts
  using Ring = Memory<COLUMNS, CLUSTER, STAGES, BOXES>;
  using Accumulator = typename Mma::Sum[COLUMNS / 8][4];  // of a thread
  const P& p;
  const Ring memory;
  const u32 rank;
  const int slices;  // of k

  BARACUDA_D Product(const P& p, unsigned char* shared, bool multiplies)
      : p(p), memory(shared), rank(CLUSTER == 1 ? 0 : cluster_rank()),
        slices(multiplies ? static_cast<int>(div_up(p.k, DEPTH)) : 0) {}

  BARACUDA_D int row_of(const Tile& tile) const { return (tile.m * CLUSTER + static_cast<int>(rank)) * tile_rows; }
  // Calls f(tile) for the work tiles of this block, which is persistent.
  template <class F> BARACUDA_D void for_tiles(F f) const {
    for (u32 n = blockIdx.x / CLUSTER; n < static_cast<u32>(p.total); n += gridDim.x / CLUSTER) f(Tile(p, n));
  }

  // ---- the producer: one thread ----

  BARACUDA_D void load_a(u32 stage, int m, int k, int batch) const {
    unsigned char* const to = memory.a(stage);
    if constexpr (Mma::a_across) {
#pragma unroll
      for (int n = 0; n < tile_rows / 64; ++n) {
        tensor_load(to + n * panel_bytes, p.a_map, memory.full[stage], m + 64 * n, k, batch);
      }
    } else {
      tensor_load(to, p.a_map, memory.full[stage], k, m, batch);
    }
  }
  // One box of b, or up, to all blocks of the cluster.
  BARACUDA_D void load_box(const TensorMap& map, u32 stage, unsigned char* to, int x, int y, int batch) const {
    if constexpr (CLUSTER == 1) tensor_load(to, map, memory.full[stage], x, y, batch);
    else tensor_load_to((1 << CLUSTER) - 1, to, map, memory.full[stage], x, y, batch);
  }
  // One share of the columns, to all blocks of the cluster.
  BARACUDA_D void load_share(u32 stage, int share, int n, int k, int batch) const {
    const bool second = GATED && share == 1;
    const TensorMap& map = second ? p.up_map : p.b_map;
    const int at = batch * (second ? p.up_step : p.b_step), column = GATED ? n : n + share * SHARE;
    unsigned char* const to = memory.b(stage) + share * (SHARE * 128);
    if constexpr (Mma::b_across) {
#pragma unroll
      for (int c = 0; c < SHARE; c += 64) load_box(map, stage, to + c / 64 * panel_bytes, column + c, k, at);
    } else {
      load_box(map, stage, to, k, column, at);
    }
  }
  // Where x is the right operand, by x_map: its rows from m on, in clusters a share of them to both blocks.
  BARACUDA_D void load_x(u32 stage, int k, int m, int batch) const {
    if constexpr (CLUSTER == 1) {
      tensor_load(memory.b(stage), p.x_map, memory.full[stage], k, m, batch);
    } else {
      const int first = static_cast<int>(rank) * SHARE;
      tensor_load_to(3, memory.b(stage) + first * 128, p.x_map, memory.full[stage], k, m + first, batch);
    }
  }
  // What is multiplied for the tile that begins at row m and column n: so many slices of k, from `k` on.
  BARACUDA_D void fill(Stage<Ring::stages>& at, int m, int n, int batch, int k, int slices) const {
    for (int s = 0; s < slices; ++s, k += DEPTH, at.advance()) {
      // Wait until the stage is empty.
      const u32 stage = at.index();
      memory.empty[stage].wait(at.empty_parity());
      // Issue TMA; the full barrier counts its bytes.
      arrive_expecting(memory.full[stage], Ring::stage_bytes);
      load_a(stage, m, k, batch * p.a_step);
      if constexpr (CLUSTER == 2) {
        load_share(stage, static_cast<int>(rank), n, k, batch);
      } else {
#pragma unroll
        for (int share = 0; share < SHARES; ++share) load_share(stage, share, n, k, batch);
      }
    }
  }
  BARACUDA_D void prefetch() const {
    if (slices != 0) prefetch_map(p.a_map), prefetch_map(p.b_map);
  }
  BARACUDA_D void produce() const {
    prefetch();
    Stage<Ring::stages> at;
    for_tiles([&](const Tile& tile) { fill(at, row_of(tile), tile.n * WIDTH, tile.batch, 0, slices); });
  }

  // ---- the consumers: two warpgroups ----

  BARACUDA_D void release(u32 stage) const { release_stage<CLUSTER>(memory.empty[stage]); }
  template <class S> static BARACUDA_D void clear(S (&acc)[COLUMNS / 8][4]) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = S(0);
  }
  // The operands of a consumer in the first stage.
  BARACUDA_D u64 left_operand(int consumer) const { return wgmma_operand(memory.a(0) + consumer * (64 * 128)); }
  BARACUDA_D u64 right_operand() const { return wgmma_operand(memory.b(0), Mma::b_across ? panel_bytes : 16); }
  // Issues the products of a stage, 32 bytes of k at a time; adds: whether to what acc is. a, b: operands in the first
  // stage.
  static BARACUDA_D void issue_products(Accumulator& acc, u64 a, u64 b, u32 stage, int adds) {
    constexpr u64 step = Ring::stage_bytes >> 4, along = 32 >> 4, across = 2048 >> 4;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 128 / 32; ++k) {
      const u64 left = a + stage * step + k * (Mma::a_across ? across : along);
      const u64 right = b + stage * step + k * (Mma::b_across ? across : along);
      Mma::multiply(acc, left, right, k == 0 ? adds : 1);
    }
    wgmma_commit();
  }
  // The sums over so many slices. lead: the number of slices after which the other warpgroup may begin, 0 where it has
  // begun. prepare(stage, s): what is done with slice s before it is multiplied.
  template <class Prepare = AsItIs>
  BARACUDA_D void multiply(Accumulator& acc, Stage<Ring::stages>& at, int consumer, int slices, int lead,
                           const Prepare& prepare = {}) const {
    const u64 a = left_operand(consumer), b = right_operand();
    if (slices == 0) return clear(acc);
    u32 before = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s, at.advance()) {
      // Wait for the stage.
      const u32 stage = at.index();
      memory.full[stage].wait(at.full_parity());
      prepare(stage, s);
      issue_products(acc, a, b, stage, s != 0);
      if (s + 1 == lead) memory.led->arrive_as_warp();
      // Arrive: the stage before is free, as its products are done.
      if (s != 0) {
        wgmma_wait<1>();
        release(before);
      }
      before = stage;
    }
    wgmma_wait<0>();
    release(before);
    Mma::hold(acc);
  }
  // Multiplies the tiles of the block: finish(acc, tile, m) for each, m being the first of this warp's rows.
  template <class F> BARACUDA_D void consume_tiles(int consumer, const F& finish) const {
    Stage<Ring::stages> at;
    int lead = wait_for_lead(*memory.led, consumer, LEADS ? min(p.lead, slices) : 0);
    for_tiles([&](const Tile& tile) {
      Accumulator acc;
      multiply(acc, at, consumer, slices, lead);
      lead = 0;
      finish(acc, tile, row_of(tile) + 64 * consumer + warp_row());
    });
  }

  // ---- Store: y by TMA, a warp's 16 rows, 64 columns at a time by way of one of its boxes, in the 128-byte swizzle ----

  static BARACUDA_D void put_box(u32 box, const float (&acc)[8][4]) {
    const u32 row = static_cast<u32>(lane_id()) % 16, first = static_cast<u32>(lane_id()) / 16 ^ row % 8;
#pragma unroll
    for (u32 n = 0; n < 8; n += 2) {
      u32 pairs[4];
#pragma unroll
      for (u32 e = 0; e < 4; ++e) {
        const float(&quad)[4] = acc[n + e / 2];
        pairs[e] = pack_pair<U>(quad[e % 2 * 2], quad[e % 2 * 2 + 1]);
      }
      stmatrix_x4(box + row * 128 + (first ^ n) * 16, pairs);
    }
  }
  static constexpr int SECOND = GATED ? SHARE / 8 : 0;                          // where the sums of `up` begin
  static constexpr int USED = WIDTH / 64 < BOXES ? max(WIDTH / 64, 1) : BOXES;  // boxes in turn, from tile to tile
  // 64 columns, the first of them column n + c of y and column c of the tile; the warp's rows begin at m.
  BARACUDA_D void store_box(const float (&acc)[8][4], int c, int m, int n, int batch, int consumer) const {
    const unsigned char* const box = memory.staging(consumer) + c / 64 % USED * box_bytes;
    if (lane_id() == 0) bulk_wait_read<USED - 1>();
    __syncwarp();
    put_box(smem_address(box), acc);
    bulk_fence();
    __syncwarp();
    if (lane_id() == 0) {
      tensor_store(p.y_map, box, n + c, m, batch);
      bulk_commit();
    }
  }
  // alpha times the sums of the tile that begins at column n.
  BARACUDA_D void store(Accumulator& acc, float alpha, int m, int n, int batch, int consumer) const {
    static_assert(WIDTH / 64 % USED == 0, "every tile begins with the first box");
#pragma unroll
    for (int c = 0; c < WIDTH; c += 64) {
      auto& eights = reinterpret_cast<float(&)[8][4]>(acc[c / 8]);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) eights[n][k] *= alpha;
      }
      store_box(eights, c, m, n, batch, consumer);
    }
  }
  // What the epilogue makes of them.
  BARACUDA_D void store_finished(Accumulator& acc, const Tile& tile, int m, int consumer) const {
    constexpr int N = USED * 8;  // quads in a step
    const E epilogue(p, BatchOffsets(p, tile.batch));
    const i64 row = m + lane_id() / 4, column = static_cast<i64>(tile.n) * WIDTH + lane_id() % 4 * 2;
#pragma unroll 1
    for (int c = 0; c < WIDTH; c += 8 * N) {
#pragma unroll
      for (int n = 0; n < N; n += 8) {
        auto& eights = reinterpret_cast<float(&)[8][4]>(acc[n]);
        epilogue.fragment(row, column + c + 8 * n, eights, reinterpret_cast<float(&)[8][4]>(acc[SECOND + n]));
        store_box(eights, c + 8 * n, m, tile.n * WIDTH, tile.batch, consumer);
      }
      shift<N>(acc);
    }
  }
  // The next columns take the place of N quads: registers have no index, and the code stands but once.
  template <int N, class S> static BARACUDA_D void shift(S (&acc)[COLUMNS / 8][4]) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8 - N; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) acc[n][k] = acc[n + N][k];
    }
  }

  // ---- Epilogue: a warp's 16 rows by way of its staging, where each thread finds 8 columns of a row together ----

  static constexpr int PIECE = GATED ? 32 : 64;  // columns at a time
  static BARACUDA_D int place(int row, int piece) {
    return row * PIECE + (piece ^ (row & 3) << 1 ^ (row >> 2 & 1)) * 4;
  }
  template <class S> static BARACUDA_D void put(S* staging, const S (&acc)[PIECE / 8][4]) {
    const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < PIECE / 8; ++n) {
      const int piece = 2 * n + column / 4;
      *reinterpret_cast<Two<S>*>(staging + place(row, piece) + column % 4) = Two<S>{acc[n][0], acc[n][1]};
      *reinterpret_cast<Two<S>*>(staging + place(row + 8, piece) + column % 4) = Two<S>{acc[n][2], acc[n][3]};
    }
  }
  template <class S> static BARACUDA_D Vec<S, 8> get(const S* staging, int row, int octet) {
    const auto low = *reinterpret_cast<const Four<S>*>(staging + place(row, 2 * octet));
    const auto high = *reinterpret_cast<const Four<S>*>(staging + place(row, 2 * octet + 1));
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
  // Calls sink(row, column, sums, sums of the second product) for every eight columns of the warp's rows m …, those
  // before row m_end and column n_end. down: neighbouring threads have neighbouring rows, else columns.
  template <class Sink>
  BARACUDA_D void each_octet(Accumulator& acc, int m, int n, i64 m_end, i64 n_end, bool down, int consumer,
                             const Sink& sink) const {
    using S = typename Mma::Sum;
    static_assert(BOXES * box_bytes >= 16 * 64 * sizeof(S), "16 x 64 sums");
    constexpr int N = PIECE / 8;
    S* const staging = reinterpret_cast<S*>(memory.staging(consumer));
#pragma unroll 1
    for (int c = 0; c < WIDTH; c += PIECE) {
      __syncwarp();
      put(staging, reinterpret_cast<const S(&)[N][4]>(acc[0]));
      if constexpr (GATED) put(staging + 16 * PIECE, reinterpret_cast<const S(&)[N][4]>(acc[SECOND]));
      __syncwarp();
#pragma unroll 1
      for (int e = lane_id(); e < 16 * N; e += warp_size) {
        const int row = down ? e % 16 : e / N, octet = down ? e / 16 : e % N;
        const i64 column = n + c + 8 * octet;
        if (m + row >= m_end || column >= n_end) continue;
        const auto sum = get(staging, row, octet);
        sink(m + row, column, sum, GATED ? get(staging + 16 * PIECE, row, octet) : sum);
      }
      shift<N>(acc);
    }
  }
  // q: the parameters that the epilogue reads.
  template <class Q> BARACUDA_D void finish(Accumulator& acc, const Q& q, int m, int n, int batch, int consumer) const {
    const E epilogue(q, BatchOffsets(q, batch));
    each_octet(acc, m, n, q.m, q.n, epilogue.down(), consumer,
               [&](i64 row, i64 column, const auto& sum, const auto& up) {
                 epilogue.row(row, column, q.n - column, sum, up);
               });
  }

  BARACUDA_D void consume(float alpha, int consumer) const {
    consume_tiles(consumer, [&](Accumulator& acc, const Tile& tile, int m) {
      if constexpr (is_same<T, U> && sizeof(T) == 2) {
        if (!GATED && p.plain == 1) return store(acc, alpha, m, tile.n * WIDTH, tile.batch, consumer);
        if constexpr (E::fragments) {
          if (p.plain == 2) return store_finished(acc, tile, m, consumer);
        }
      }
      finish(acc, p, m, tile.n * WIDTH, tile.batch, consumer);
    });
    bulk_wait<0>();
  }

  BARACUDA_D void run(float alpha) const {
    run([&](int consumer) { consume(alpha, consumer); });
  }
  // consume(n): what warpgroup n of the consumers does.
  template <class F> BARACUDA_D void run(F consume) const {
    run(
        [&] {
          if (threadIdx.x == 0) produce();
        },
        consume);
  }
  // produce(): what the producer's warp does; FEW and MANY as run_in_roles has them.
  template <int FEW = 24, int MANY = 240, class F, class G> BARACUDA_D void run(F produce, G consume) const {
    run_in_roles<CLUSTER, 1, FEW, MANY>([&] { memory.init(); },
                                        [&](int) {
                                          if (threadIdx.x < warp_size) produce();
                                        },
                                        consume);
  }
};

}  // namespace baracuda::gemm
