// w4a8_wgmma products of int8 by weights of 4 bits in groups, on sm_90a, of weights that are decoded beside the products:
//            quant_gemm/w4a8_sums.cuh.
//
// TMA loads x into a stage and codes of W, some slices ahead, into a ring of their own; decoders, warpgroups beside the
// consumers, make them bytes in their place in the stage. That is a chain of waits for one slice, so two of them have
// slices alternately.
#include "quant_gemm/w4a8_sums.cuh"

namespace baracuda {
namespace gemm {

// schedules/w4a8_wgmma.py has stages, decoders and w4a8_ahead: slices whose codes are under way.
template <int COLUMNS> constexpr int w4a8_cluster = COLUMNS == 128 ? w4a8_cluster_128 : w4a8_cluster_64;

template <class T, int COLUMNS, class P>
struct W4A8Product : W4A8Sums<T, COLUMNS, w4a8_cluster<COLUMNS>, w4a8_stages, false, P> {
  static constexpr int CLUSTER = w4a8_cluster<COLUMNS>, AHEAD = w4a8_ahead, DECODERS = w4a8_decoders;
  using Base = W4A8Sums<T, COLUMNS, CLUSTER, w4a8_stages, false, P>;
  using Ring = typename Base::Ring;
  using Base::memory, Base::p, Base::scales, Base::slices;
  static constexpr int DEPTH = Base::DEPTH, RUN = Base::RUN, RUNS = 4;  // runs of a thread, in four rows
  static constexpr int CODES = tile_rows * DEPTH / 2;                   // bytes of a slice
  unsigned char* const codes;                                           // [AHEAD][row of W in the tile][64 bytes]
  Barrier *const full_codes, *const empty_codes;                        // of the ring of codes

  BARACUDA_D W4A8Product(const P& p, unsigned char* shared)
      : Base(p, shared), codes(reinterpret_cast<unsigned char*>(scales + w4a8_stages * w4a8_scales)),
        full_codes(memory.led + 1), empty_codes(full_codes + AHEAD) {
    static_assert(AHEAD % DECODERS == 0, "a warpgroup has slots of its own");
    static_assert((2 * w4a8_stages + 1 + 2 * AHEAD) * sizeof(Barrier) <= w4a8_barriers, "they fit");
  }

  // ---- the producers: warpgroups that decode ----

  // The thread's runs of a tile: run number `run` of each slice, of the rows `row` and 32, 64 and 96 further on. What it
  // holds of the group that the next slice's are in is bits, so that nothing waits for them until then.
  struct Runs {
    const P& p;
    const GroupsOfRows<P> groups;
    const int run, row;
    i64 rows[RUNS];  // of W: of those that are not there the last, whose sums nobody takes
    u32 group, scale[RUNS], zero[RUNS];

    BARACUDA_D Runs(const P& p, i64 batch, i64 n)
        : p(p), groups(p, batch), run(static_cast<int>(threadIdx.x) % 4), row(static_cast<int>(threadIdx.x) % 128 / 4),
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

  // One thread's of each: which slice of codes, of all tiles one after the other, TMA is to bring next.
  struct Next {
    u32 tile;
    int slice, row, batch;
  };
  BARACUDA_D void enter(Next& next) const {  // the tile where the slice is
    for (; next.slice >= slices; next.slice -= slices) next.tile += gridDim.x / CLUSTER;
    if (next.tile >= static_cast<u32>(p.total)) return;
    const Tile tile(p, next.tile);
    next.row = this->row_of(tile), next.batch = tile.batch;
  }
  BARACUDA_D void fetch(Next& next, u32 slot) const {
    if (next.tile >= static_cast<u32>(p.total)) return;
    arrive_expecting(full_codes[slot], CODES);
    tensor_load(codes + slot * CODES, p.codes_map, full_codes[slot], next.slice * (DEPTH / 2), next.row, next.batch);
    if ((next.slice += DECODERS) >= slices) enter(next);
  }
  // Waits until the stage is empty, and has TMA load the rows of x from m on.
  BARACUDA_D void begin_stage(Stage<Ring::stages> at, int k, int m, int batch) const {
    const u32 stage = at.index();
    memory.empty[stage].wait(at.empty_parity());
    if (static_cast<int>(threadIdx.x) % 128 != 0) return;
    arrive_expecting(memory.full[stage], Ring::b_bytes);
    this->load_x(stage, k, m, batch);
  }
  // The codes of the thread's runs, whose place is free then.
  BARACUDA_D void read_codes(uint4 (&held)[RUNS], const Runs& runs, Stage<AHEAD> from) const {
    const u32 slot = from.index();
    full_codes[slot].wait(from.full_parity());
#pragma unroll
    for (int j = 0; j < RUNS; ++j) {
      held[j] =
          *reinterpret_cast<const uint4*>(codes + slot * CODES + (runs.row + 32 * j) * (DEPTH / 2) + 16 * runs.run);
    }
    empty_codes[slot].arrive_as_warp();
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
      const uint2 a = nibbles.in_turn(held[j].x, zero[j]), b = nibbles.in_turn(held[j].y, zero[j]);
      const uint2 c = nibbles.in_turn(held[j].z, zero[j]), d = nibbles.in_turn(held[j].w, zero[j]);
      unsigned char* const to = memory.a(stage) + row * 128;
      *reinterpret_cast<uint4*>(to + (2 * runs.run ^ row % 8) * 16) = make_uint4(a.x, a.y, b.x, b.y);
      *reinterpret_cast<uint4*>(to + ((2 * runs.run + 1) ^ row % 8) * 16) = make_uint4(c.x, c.y, d.x, d.y);
      scales[stage * w4a8_scales + row * w4a8_runs + runs.run] = scale[j];
    }
  }
  // decoder: which of the warpgroups it is.
  BARACUDA_D void produce(int decoder) const {
    if (slices == 0) return;
    const bool fetches = threadIdx.x % 128 == 0;
    const Nibbles nibbles(p.is_signed);
    Next next{blockIdx.x / CLUSTER, decoder, 0, 0};
    if (fetches) {
      prefetch_map(p.codes_map), prefetch_map(p.x_map);
      enter(next);
#pragma unroll 1
      for (u32 n = decoder; n < AHEAD; n += DECODERS) fetch(next, n);
    }
    Stage<Ring::stages> at{static_cast<u32>(decoder)};
    int s = decoder;
    this->for_tiles([&](const Tile& tile) {
      Runs runs(p, tile.batch, this->row_of(tile));
      if (s < slices) runs.load_numbers(s);
#pragma unroll 1
      for (; s < slices; s += DECODERS, at.count += DECODERS) {
        // Wait for the codes.
        uint4 held[RUNS];
        read_codes(held, runs, Stage<AHEAD>{at.count});
        // Issue TMA: codes of a later slice, in the place of this decoder's slice before, which all its warps have read by
        // now, or soon.
        if (fetches && at.count >= DECODERS) {
          const Stage<AHEAD> last{at.count - DECODERS};
          empty_codes[last.index()].wait(last.full_parity());
          fetch(next, last.index());
        }
        begin_stage(at, s * DEPTH, tile.n * COLUMNS, tile.batch * p.x_step);
        decode(runs, held, nibbles, at.index(), s + DECODERS);
        // Arrive: this warp's rows of W are in the stage.
        wgmma_publish();
        memory.full[at.index()].arrive_as_warp();
      }
      s -= slices;
    });
  }

  BARACUDA_D void init() const {
    for (int n = 0; n < AHEAD; ++n) full_codes[n].init(1), empty_codes[n].init(4);
    memory.init(1 + 4);  // the thread that loads x, and the warps that decode
  }
  BARACUDA_D void run() const {
    constexpr int few = COLUMNS == 128 ? 88 : 104, all = 256;  // registers of two threads, of which decoders have few
    const auto consumes = [&](int consumer) {
      this->consume(consumer);
      __syncwarp();  // whose lanes part where y ends
    };
    run_in_roles<CLUSTER, DECODERS, few, all - few>([&] { init(); }, [&](int decoder) { produce(decoder); }, consumes);
  }
};

}  // namespace gemm

template <class T, int COLUMNS> BARACUDA_D void w4a8_wgmma(const W4A8WgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::W4A8Product<T, COLUMNS, W4A8WgmmaParams>(p, shared).run();
}

}  // namespace baracuda
