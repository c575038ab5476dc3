// w4a8_wgmma products of int8 by weights of 4 bits in groups, on sm_90a: quant_gemm/w4a8.cuh.
//
// It is yᵀ = W xᵀ by the tiles, ring and clusters of gemm/wgmma.cuh: 128 rows of W by COLUMNS rows of x, slices of 128 of
// k. The copy engine loads x into a stage and codes of W, some slices ahead, into a ring of their own; a warpgroup makes
// them bytes in their place in the stage. Two warpgroups multiply 64 rows of W each. Where a group ends its integers are
// scaled and added to the sums in registers, while the tensor cores have the other warpgroup's. A thread's sums are of two
// rows of W, whose scales come with the stage.
#include "gemm/wgmma.cuh"
#include "quant_gemm/run_numbers.cuh"
#include "quant_gemm/w4a8.cuh"
#include <baracuda/wgmma_int8_few.cuh>

namespace baracuda {
namespace gemm {

// schedules/w4a8_wgmma.py has these numbers too.
template <int COLUMNS> constexpr int w4a8_cluster = COLUMNS == 128 ? 2 : 1;
template <int COLUMNS> constexpr int w4a8_ahead = COLUMNS == 16 ? 8 : 6;  // slices whose codes are under way
constexpr int w4a8_stages = 4, w4a8_barriers = 256;                       // bytes that all barriers take

template <class T, int COLUMNS, class P>
struct W4A8Product : Product<i8, i8, COLUMNS, false, false, false, w4a8_stages, 2, P, void, w4a8_cluster<COLUMNS>> {
  static constexpr int CLUSTER = w4a8_cluster<COLUMNS>, AHEAD = w4a8_ahead<COLUMNS>;
  using Base = Product<i8, i8, COLUMNS, false, false, false, w4a8_stages, 2, P, void, CLUSTER>;
  using Ring = typename Base::Ring;
  using Sums = typename Base::Sums;
  using Ints = int[COLUMNS / 8][4];  // of a thread
  using Base::memory, Base::p, Base::rank, Base::slices;
  static constexpr int DEPTH = Base::DEPTH, RUN = 32, RUNS = 4;  // runs of k: of a slice, and of a thread, in four rows
  static constexpr int CODES = tile_rows * DEPTH / 2;            // bytes of a slice
  unsigned char* const codes;                                    // [AHEAD][row of W in the tile][64 bytes]
  float* const scales;                                           // [stage][row of W in the tile][run of the slice]
  Barrier *const loaded, *const spent;                           // of the slices of codes

  BARACUDA_D W4A8Product(const P& p, unsigned char* shared)
      : Base(p, shared, true), codes(reinterpret_cast<unsigned char*>(memory.full) + w4a8_barriers),
        scales(reinterpret_cast<float*>(codes + AHEAD * CODES)), loaded(memory.led + 1), spent(loaded + AHEAD) {
    static_assert((2 * w4a8_stages + 1 + 2 * AHEAD) * sizeof(Barrier) <= w4a8_barriers, "they fit");
  }
  BARACUDA_D float* scales_of(u32 stage, int row) const { return scales + (stage * tile_rows + row) * 4; }

  // ---- the warpgroup that decodes ----

  // The thread's runs of a tile: run number `run` of each slice, of the rows `row` and 32, 64 and 96 further on. What it
  // holds of the group that the next slice's are in is bits, so that nothing waits for them until then.
  struct Runs {
    const P& p;
    const GroupsOfRows<P> groups;
    const int run, row;
    i64 rows[RUNS];  // of W: of those that are not there the last, whose sums nobody takes
    u32 group, scale[RUNS], zero[RUNS];

    BARACUDA_D Runs(const P& p, i64 item, i64 n)
        : p(p), groups(p, item), run(static_cast<int>(threadIdx.x) % 4), row(static_cast<int>(threadIdx.x) % 128 / 4),
          group(~0u) {
#pragma unroll
      for (int j = 0; j < RUNS; ++j) rows[j] = min(n + row + 32 * j, p.n - 1);
    }
    BARACUDA_D void load_numbers(int s) {
      const u32 of =
          min(static_cast<u32>(s * DEPTH + run * RUN) / static_cast<u32>(p.group), static_cast<u32>(p.groups) - 1);
      if (of == group) return;
      group = of;
#pragma unroll
      for (int j = 0; j < RUNS; ++j) {
        scale[j] = number_bits(p.scales, p.scale_code, groups.scale_place(rows[j], of));
        zero[j] = groups.zero_bits(rows[j], of);
      }
    }
  };

  // One thread's: which slice of codes, of all tiles in turn, the copy engine is to bring next.
  struct Next {
    u32 tile;
    int slice, row, item;
  };
  BARACUDA_D void fetch(Next& next, u32 slot) const {
    if (next.tile >= static_cast<u32>(p.total)) return;
    if (next.slice == 0) {
      const Tile tile(p, next.tile);
      next.row = this->row_of(tile), next.item = tile.item;
    }
    arrive_expecting(loaded[slot], CODES);
    tensor_load(codes + slot * CODES, p.codes_map, loaded[slot], next.slice * (DEPTH / 2), next.row, next.item);
    if (++next.slice == slices) next.slice = 0, next.tile += gridDim.x / CLUSTER;
  }
  // Waits until the stage is free, and has the copy engine load the rows of x from m on.
  BARACUDA_D void begin(Stage<Ring::stages> at, int k, int m, int item) const {
    const u32 stage = at.index();
    memory.empty[stage].wait(at.empty_parity());
    if (static_cast<int>(threadIdx.x) % 128 != 0) return;
    arrive_expecting(memory.full[stage], Ring::b_bytes);
    if constexpr (CLUSTER == 1) {
      tensor_load(memory.b(stage), p.x_map, memory.full[stage], k, m, item);
    } else {  // a share of the rows, to both blocks of the cluster
      const int first = static_cast<int>(rank) * Base::SHARE;
      tensor_load_to(3, memory.b(stage) + first * 128, p.x_map, memory.full[stage], k, m + first, item);
    }
  }
  // Eight codes of a word as the bytes of k in turn.
  static BARACUDA_D uint2 bytes_of(const Nibbles& nibbles, u32 word, u32 zero) {
    const u32 even = nibbles(word, zero), odd = nibbles(word >> 4, zero);
    return make_uint2(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
  }
  // The codes of the thread's runs, whose place is free then.
  BARACUDA_D void read_codes(uint4 (&held)[RUNS], const Runs& runs, Stage<AHEAD> from) const {
    const u32 slot = from.index();
    loaded[slot].wait(from.full_parity());
#pragma unroll
    for (int j = 0; j < RUNS; ++j) {
      held[j] =
          *reinterpret_cast<const uint4*>(codes + slot * CODES + (runs.row + 32 * j) * (DEPTH / 2) + 16 * runs.run);
    }
    spent[slot].arrive_as_warp();
  }
  // The thread's runs into the stage, which has the 128-byte swizzle, and what scales them; s: the next slice.
  BARACUDA_D void decode(Runs& runs, const uint4 (&held)[RUNS], const Nibbles& nibbles, u32 stage, int s) const {
    float scale[RUNS];
    u32 zero[RUNS];
    with_number(p.scale_code, [&](const auto& number) {
#pragma unroll
      for (int j = 0; j < RUNS; ++j) scale[j] = number(runs.scale[j]);
    });
#pragma unroll
    for (int j = 0; j < RUNS; ++j) zero[j] = runs.groups.zero_of(runs.zero[j]);
    if (s < slices) runs.load_numbers(s);
#pragma unroll
    for (int j = 0; j < RUNS; ++j) {
      const int row = runs.row + 32 * j;
      const uint2 a = bytes_of(nibbles, held[j].x, zero[j]), b = bytes_of(nibbles, held[j].y, zero[j]);
      const uint2 c = bytes_of(nibbles, held[j].z, zero[j]), d = bytes_of(nibbles, held[j].w, zero[j]);
      unsigned char* const to = memory.a(stage) + row * 128;
      *reinterpret_cast<uint4*>(to + (2 * runs.run ^ row % 8) * 16) = make_uint4(a.x, a.y, b.x, b.y);
      *reinterpret_cast<uint4*>(to + ((2 * runs.run + 1) ^ row % 8) * 16) = make_uint4(c.x, c.y, d.x, d.y);
      scales_of(stage, row)[runs.run] = scale[j];
    }
  }
  BARACUDA_D void produce() const {
    if (slices == 0) return;
    const bool fetches = threadIdx.x == 0;
    const Nibbles nibbles(p.is_signed);
    Next next{blockIdx.x / CLUSTER, 0, 0, 0};
    if (fetches) {
      prefetch_map(p.codes_map), prefetch_map(p.x_map);
#pragma unroll 1
      for (u32 n = 0; n < AHEAD; ++n) fetch(next, n);
    }
    Stage<Ring::stages> at;
    this->for_tiles([&](const Tile& tile) {
      Runs runs(p, tile.item, this->row_of(tile));
      runs.load_numbers(0);
#pragma unroll 1
      for (int s = 0; s < slices; ++s, at.advance()) {
        uint4 held[RUNS];
        read_codes(held, runs, Stage<AHEAD>{at.count});
        if (fetches &&
            at.count != 0) {  // into the place of the slice before, which all warps have read by now, or soon
          const Stage<AHEAD> last{at.count - 1};
          spent[last.index()].wait(last.full_parity());
          fetch(next, last.index());
        }
        begin(at, s * DEPTH, tile.n * COLUMNS, tile.item * p.x_step);
        decode(runs, held, nibbles, at.index(), s + 1);
        wgmma_publish();
        memory.full[at.index()].arrive_as_warp();
      }
    });
  }

  // ---- two warpgroups that multiply ----

  // The sums over all groups. STEPS: of 32 of k, 4 where every group is of whole slices, else 1; lead: the number of
  // slices after which the other warpgroup may begin, 0 where it has begun.
  template <int STEPS> BARACUDA_D void multiply(Sums& sums, Stage<Ring::stages>& at, int group, int lead) const {
    constexpr u64 step = Ring::stage_bytes >> 4, along = RUN >> 4;
    constexpr int EACH = DEPTH / RUN / STEPS;  // parts of a slice
    const u64 a = wgmma_operand(memory.a(0) + group * (64 * 128)), b = wgmma_operand(memory.b(0));
    const int row = 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_id() / 4;
    const int groups = static_cast<int>(p.groups), parts = STEPS == 4 ? slices : static_cast<int>(p.k / RUN);
    const int of_group = groups == 1 ? parts : static_cast<int>(p.group / (RUN * STEPS));
    const int leads = min(lead * EACH, parts);
    Base::clear(sums);
    int part = 0;
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      Ints d;
      float low, high;  // the scales of rows `row` and `row` + 8
      u32 before = 0;
#pragma unroll 1
      for (int n = 0; n < of_group; ++n) {
        const u32 stage = at.index();
        const int run = part % EACH;  // the first step
        if (run == 0) memory.full[stage].wait(at.full_parity());
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
          const u64 from = stage * step + (run + k) * along;
          wgmma_int8<i8, i8>(d, a + from, b + from, k == 0 ? n != 0 : 1);
        }
        wgmma_commit();
        low = scales_of(stage, row)[run + STEPS - 1], high = scales_of(stage, row + 8)[run + STEPS - 1];
        if (++part == leads) memory.led->arrive_as_warp();
        if constexpr (EACH == 1) {
          if (n != 0) {
            wgmma_wait<1>();
            this->release(before);
          }
          before = stage;
          at.advance();
        } else if (run == EACH - 1 || part == parts) {
          wgmma_wait<0>();
          this->release(stage);
          at.advance();
        }
      }
      wgmma_wait<0>();
      if constexpr (EACH == 1) this->release(before);
      hold(d);
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][e] = with_group(sums[i][e], d[i][e], e < 2 ? low : high);
    }
  }

  // Where a warp's part of shared memory has 4 of the 16 rows of W, from 4 `piece` on, of a row of x: neither the scalars
  // of a fragment nor 16 bytes of every lane meet more than twice in a bank.
  static BARACUDA_D int place(int row, int piece) { return row * 16 + (piece ^ row / 2 % 4) * 4; }
  // The warp's 16 rows of W by way of there, where each thread finds 8 of them, of one row of x, together: at most 64 rows
  // of x at a time, which then are the first of d, as registers have no index.
  BARACUDA_D void finish(Sums& d, const Tile& tile, int group) const {
    constexpr int N = COLUMNS < 64 ? COLUMNS / 8 : 8;  // quads
    static_assert(8 * N * 16 * 4 <= Ring::staging_bytes, "the rows fit");
    float* const stage = reinterpret_cast<float*>(memory.part(group));
    const int g = lane_id() / 4, q = lane_id() % 4, octet = lane_id() % 2;
    const i64 n = this->row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + 8 * octet;
    const W4A8Output<P> output{p, tile.item};
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) stage[place(8 * i + 2 * q + e % 2, g / 4 + e / 2 * 2) + g % 4] = d[i][e];
      }
      __syncwarp();
#pragma unroll 1
      for (int row = lane_id() / 2; row < 8 * N; row += 16) {
        const i64 m = static_cast<i64>(tile.n) * COLUMNS + c + row;
        if (m >= p.m || n >= p.n) continue;
        const float4 low = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet));
        const float4 high = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet + 1));
        output.template put<T>({{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}}, m, n);
      }
      Base::template shift<N>(d);
    }
  }
  BARACUDA_D void consume(int group) const {
    Stage<Ring::stages> at;
    int lead = p.lead;
    if (group == 1 && lead != 0) memory.led->wait(0), lead = 0;
    this->for_tiles([&](const Tile& tile) {
      Sums sums;
      if (p.groups <= 1 || p.group % DEPTH == 0) multiply<DEPTH / RUN>(sums, at, group, lead);
      else multiply<1>(sums, at, group, lead);
      lead = 0;
      finish(sums, tile, group);
    });
  }

  BARACUDA_D void init() const {
    for (int n = 0; n < Ring::stages; ++n) {
      memory.full[n].init(1 + 4);  // the thread that loads x, and the warps that decode
      memory.empty[n].init(CLUSTER * groups * 4);
    }
    for (int n = 0; n < AHEAD; ++n) loaded[n].init(1), spent[n].init(4);
    memory.led->init(4);
    publish_barriers();
  }
  BARACUDA_D void run() const {
    if (threadIdx.x == 0) init();
    if constexpr (CLUSTER == 1) __syncthreads();
    else cluster_sync();
    const int role = warpgroup();
    if (role == 0) produce();
    else consume(role - 1);
    __syncwarp();
    if constexpr (CLUSTER == 2) cluster_sync();  // else a block could end before what the other sends it
  }
};

}  // namespace gemm

template <class T, int COLUMNS> BARACUDA_D void w4a8_wgmma(const W4A8WgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::W4A8Product<T, COLUMNS, W4A8WgmmaParams>(p, shared).run();
}

}  // namespace baracuda
