// block_gemm_wgmma   y = x Wᵀ + bias by stored weights on sm_90a, of f16 or bf16 with sums in float, for many rows of x.
//
// It is yᵀ = W xᵀ by the tiles, ring, clusters and products of gemm/wgmma.cuh: 128 rows of W by COLUMNS of x. TMA loads
// x; W is decoded into its place in a stage by a warpgroup, the decoder, or by two alternately where the tile leaves them
// registers, while two consumers multiply. Two lanes share two rows of W, 64 apart, and each decodes a run of 32 of a
// stage's 64 of k of both. What it reads takes long to come: codes and scales that lie apart are asked for a round ahead,
// and one decoder alone decodes two stages in a round, so that the codes of four runs are under way together.
//
// k may be cut into splits (`parts`), of so many stages `each` but the last; their partial sums are matrices of y for
// block_gemm_sums. A sum, or each partial sum, is one chain in the order of k.
#include "gemm/wgmma_transposed.cuh"
#include "quant_gemm/block_sums.cuh"
#include "quant_gemm/run_numbers.cuh"

namespace baracuda {
namespace gemm {

template <class F, class T, int COLUMNS, class P>
struct StoredProduct
    : Product<FloatMma<T>, T, COLUMNS, false, default_stages<COLUMNS>, 2, P, void, COLUMNS == 256 ? 2 : 1> {
  static constexpr int CLUSTER = COLUMNS == 256 ? 2 : 1;
  using Base = Product<FloatMma<T>, T, COLUMNS, false, default_stages<COLUMNS>, 2, P, void, CLUSTER>;
  using Ring = typename Base::Ring;
  using Accumulator = typename Base::Accumulator;
  using Base::memory, Base::p, Base::rank, Base::slices;
  static constexpr int DECODERS = COLUMNS == 256 ? 1 : 2, ROUND = 2 / DECODERS;  // warpgroups; stages of one's round
  static constexpr int DEPTH = Base::DEPTH, AHEAD = 8;  // of k in a stage; stages that codes go to the L2 cache before

  BARACUDA_D StoredProduct(const P& p, unsigned char* shared) : Base(p, shared, true) {}

  // The batch index of x and W, and the slices of k, of matrix `of` of y.
  struct Split {
    int batch, begin, end;
    BARACUDA_D Split(const P& p, int of, int slices) : batch(of / p.parts) {
      begin = of % p.parts * p.each, end = min(slices, begin + p.each);
    }
  };

  // ---- the producers: one or two warpgroups that decode ----

  // Where the lane's runs are: in which rows of the tile, and in which half of a stage.
  struct Runs {
    int row, half;
    StoredRow rows[2];
    BARACUDA_D Runs(const Stored& w, const P& p, i64 batch, i64 n)
        : row(static_cast<int>(threadIdx.x) % 128 / 2), half(static_cast<int>(threadIdx.x) % 2),
          rows{
              StoredRow(w, batch, min(n + row, p.n - 1)),  // of rows that are not there the last: nobody takes its sums
              StoredRow(w, batch, min(n + row + 64, p.n - 1))} {}
    BARACUDA_D i64 k(int s) const { return static_cast<i64>(s) * DEPTH + half * format_run; }  // in slice s
  };
  // The codes of the 128 of k that slice s is in go to the L2 cache: of 64 rows by each of two decoders.
  BARACUDA_D void prefetch_codes(const Runs& runs, int s, int decoder) const {
    const i64 chunk = s / 2;
    if ((chunk + 1) * 2 * DEPTH > p.k) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (DECODERS == 2 && r != decoder) continue;
      const u8* const from = runs.rows[r].codes + chunk * p.chunk_bytes;
      for (int at = runs.half * 32; at < p.chunk_bytes; at += 64) prefetch_l2(from + at);
    }
  }
  // Waits until the stage is empty, and has TMA load the rows of x from m on.
  BARACUDA_D void begin_stage(Stage<Ring::stages> at, int k, int m, int batch) const {
    const u32 stage = at.index();
    memory.empty[stage].wait(at.empty_parity());
    if (static_cast<int>(threadIdx.x) % 128 != 0) return;
    arrive_expecting(memory.full[stage], Ring::b_bytes);
    this->load_x(stage, k, m, batch);
  }
  // Arrive: this warp's rows of W are in the stage.
  BARACUDA_D void end_stage(Stage<Ring::stages> at) const {
    wgmma_publish();
    memory.full[at.index()].arrive_as_warp();
  }
  // Eight neighbours in k to their piece of a row of the tile, which has the 128-byte swizzle.
  static BARACUDA_D void put(unsigned char* tile, int row, int piece, const uint4& values) {
    *reinterpret_cast<uint4*>(tile + row * 128 + (piece ^ row % 8) * 16) = values;
  }
  // What decoding needs of the lane's runs of the slices s … s + ROUND - 1 and is asked for before: run n is that of slice
  // n / 2 of row n % 2. Codes of formats whose decoding takes more registers are not, as those would not do for both.
  static constexpr int RUNS = 2 * ROUND;
  struct Ahead {
    RunNumbers<RUNS> numbers;
    RunWords<F> words[RUNS];
    GroupOf of[ROUND];  // the next round's slices
    BARACUDA_D void load_words(const Stored& w, const P& p, const Runs& runs, int s, int n) {
      const i64 k = runs.k(s + n / 2);
      if (is_whole<F> && k + format_run <= p.k) words[n] = F::template words<format_run>(w, runs.rows[n % 2], k);
    }
    // Of the next round, whose groups are found from those of the one before; beyond k the last group is read.
    BARACUDA_D void load_numbers(const Stored& w, const Runs& runs, const GroupOf& step) {
      u32 groups[RUNS];
#pragma unroll
      for (int t = 0; t < ROUND; ++t) {
        groups[2 * t] = groups[2 * t + 1] = min(of[t].group, w.groups - 1);
        of[t].advance(step, w.group);
      }
      numbers.load(w, groups, [&](int n) { return runs.rows[n % 2]; });
    }
    BARACUDA_D void load(const Stored& w, const P& p, const Runs& runs, int s, const GroupOf& step) {
      if constexpr (is_grouped<F>) {
#pragma unroll
        for (int n = 0; n < RUNS; ++n) load_words(w, p, runs, s, n);
#pragma unroll
        for (int t = 0; t < ROUND; ++t) of[t] = GroupOf(static_cast<u32>(runs.k(s + t)), w.group);
        load_numbers(w, runs, step);
      }
    }
  };
  // The lane's runs of the slices s … s + ROUND - 1 into the stages; x's rows from m on come beside them. step: from a
  // round of this decoder to its next.
  BARACUDA_D void decode_whole(const Stored& w, const Runs& runs, Ahead& ahead, Stage<Ring::stages>& at, int s, int m,
                               int batch, const GroupOf& step) const {
    const int next = s + DECODERS * ROUND;  // slice of this decoder's next round
    float scale[RUNS], zero[RUNS];
    const bool pairs = is_whole<F> && scaled_in_pairs(w);
    if constexpr (is_grouped<F>) ahead.numbers.get(w, scale, zero);
    Stage<Ring::stages> first = at;
#pragma unroll
    for (int t = 0; t < ROUND; ++t, at.advance()) begin_stage(at, (s + t) * DEPTH, m, batch);
#pragma unroll
    for (int t = 0; t < ROUND; ++t, first.advance()) {
      unsigned char* const tile = memory.a(first.index());
      if (is_grouped<F> && t == ROUND - 1) ahead.load_numbers(w, runs, step);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int n = 2 * t + r, row = runs.row + 64 * r;
        u32 found[format_run / 2];
        if constexpr (is_grouped<F>) {
          if (!is_whole<F>) ahead.words[n] = F::template words<format_run>(w, runs.rows[r], runs.k(s + t));
          values_of(ahead.words[n], zero[n], scale[n], pairs, found);
          ahead.load_words(w, p, runs, next, n);
        } else {
          float values[format_run];
          F::decode(w, runs.rows[r], runs.k(s + t), values);
          pack(values, found);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          put(tile, row, 4 * runs.half + j,
              make_uint4(found[4 * j], found[4 * j + 1], found[4 * j + 2], found[4 * j + 3]));
        }
      }
      end_stage(first);
    }
  }
  // Whether whole numbers are scaled in T, two at a time: with the same bits as in float, where scales are numbers of T
  // and zero points whole, so that only the product is rounded.
  static BARACUDA_D bool scaled_in_pairs(const Stored& w) {
    constexpr int own = is_same<T, f16> ? code_f16 : code_bf16;
    return w.scale_code == own && w.scale == 1.0f && (w.zeros == nullptr || w.zero_code == code_u8);
  }
  static BARACUDA_D void values_of(const RunWords<F>& words, float zero, float scale, bool pairs,
                                   u32 (&found)[format_run / 2]) {
    float values[format_run];
    if constexpr (is_whole<F>) {
      if (pairs) {
        F::numbers(words, values, zero);
        pack(values, found);
        using Two = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
        const u32 by = pack_pair<T>(scale, scale);
#pragma unroll
        for (u32& two : found) {
          const Two y = __hmul2(reinterpret_cast<const Two&>(two), reinterpret_cast<const Two&>(by));
          two = reinterpret_cast<const u32&>(y);
        }
        return;
      }
    }
    F::numbers(words, values);
#pragma unroll
    for (int j = 0; j < format_run; ++j) values[j] = (values[j] - zero) * scale;
    pack(values, found);
  }
  template <int N> static BARACUDA_D void pack(const float (&values)[N], u32 (&found)[N / 2]) {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) found[j] = pack_pair<T>(values[2 * j], values[2 * j + 1]);
  }
  // The same of one slice whose runs are not whole, 8 of k at a time; what lies beyond k is 0.
  BARACUDA_D void decode_parts(const Stored& w, const Runs& runs, Stage<Ring::stages>& at, int s, int m,
                               int batch) const {
    begin_stage(at, s * DEPTH, m, batch);
    unsigned char* const tile = memory.a(at.index());
#pragma unroll 1
    for (int e = 0; e < 8; ++e) {
      const i64 k = runs.k(s) + e % 4 * format_part;
      float values[format_part] = {};
      if (k < p.k) F::decode(w, e < 4 ? runs.rows[0] : runs.rows[1], k, values);
      u32 found[format_part / 2];
      pack(values, found);
      put(tile, runs.row + e / 4 * 64, 4 * runs.half + e % 4, make_uint4(found[0], found[1], found[2], found[3]));
    }
    end_stage(at);
    at.advance();
  }
  // decoder: which of the decoders this warpgroup is.
  BARACUDA_D void produce(int decoder) const {
    const Stored stored(p);
    Stored simple = stored;  // which it is where runs are whole: the compiler is to know
    simple.whole = true;
    simple.index = nullptr;
    simple.group = stored.group / format_run * format_run;
    const bool whole = stored.whole && stored.index == nullptr && stored.group % format_run == 0 && p.k != 0;
    if (threadIdx.x == 0 && slices != 0) prefetch_map(p.x_map);
    const GroupOf step(DECODERS * ROUND * DEPTH, max(simple.group, 1u));  // from a round of the decoder to its next
    Stage<Ring::stages> at;
    int round = 0;  // of both decoders, through all tiles
    this->for_tiles([&](const Tile& tile) {
      const Split split(p, tile.batch, slices);
      const Runs runs(stored, p, split.batch, this->row_of(tile));
      const int m = tile.n * COLUMNS, batch = split.batch * p.x_step;
      // Ask for what the first slices need.
      for (int s = split.begin; s < split.begin + AHEAD; s += 2) prefetch_codes(runs, s, decoder);
      Ahead ahead;
      const int first = (decoder + DECODERS - round % DECODERS) % DECODERS;  // round of this decoder in the tile
      if (whole) ahead.load(simple, p, runs, split.begin + first * ROUND, step);
#pragma unroll 1
      for (int s = split.begin; s < split.end; s += ROUND, ++round) {
        const int here = min(ROUND, split.end - s);  // slices
        if (round % DECODERS != decoder) {           // the other decoder's
          at.count += here;
          continue;
        }
        prefetch_codes(runs, s + AHEAD, decoder);
        // By whole warps, which arrive together.
        if (whole && here == ROUND && static_cast<i64>(s + ROUND) * DEPTH <= p.k) {
          decode_whole(simple, runs, ahead, at, s, m, batch, step);
        } else {
#pragma unroll 1
          for (int t = 0; t < here; ++t) decode_parts(stored, runs, at, s + t, m, batch);
        }
      }
    });
  }

  // ---- the consumers: two warpgroups ----

  // Epilogue: the warp's 16 rows of W by way of its staging, where each thread finds 8 of them, of one row of x, together:
  // 64 rows of x at a time, which then are the first of acc, as registers have no index.
  BARACUDA_D void finish(Accumulator& acc, const Tile& tile, int consumer) const {
    constexpr int N = 8;  // quads
    static_assert(8 * N * 16 * 4 <= Ring::staging_bytes, "the rows fit");
    float* const staging = reinterpret_cast<float*>(memory.staging(consumer));
    const int octet = lane_id() % 2;
    const i64 first = this->row_of(tile) + 64 * consumer + warp_row(), n = first + 8 * octet;
    float bias[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 of = first + lane_id() / 4 + 8 * half;
      if (p.bias != nullptr && of < p.n) bias[half] = to_acc(static_cast<const T*>(p.bias)[of * p.bias_step]);
    }
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      auto& eights = reinterpret_cast<float(&)[N][4]>(acc[0]);
      add_transposed(eights, bias);
      __syncwarp();
      put_transposed(staging, eights);
      __syncwarp();
      // Store.
#pragma unroll 1
      for (int row = lane_id() / 2; row < 8 * N; row += 16) {
        const i64 m = static_cast<i64>(tile.n) * COLUMNS + c + row;
        if (m >= p.m || n >= p.n) continue;
        put_sums<T>(p, tile.batch, m, n, get_transposed(staging, row, octet));
      }
      Base::template shift<N>(acc);
    }
  }
  BARACUDA_D void consume(int consumer) const {
    Stage<Ring::stages> at;
    int lead = wait_for_lead(*memory.led, consumer, p.lead);
    this->for_tiles([&](const Tile& tile) {
      const Split split(p, tile.batch, slices);
      Accumulator acc;
      this->multiply(acc, at, consumer, split.end - split.begin, lead);
      lead = 0;
      finish(acc, tile, consumer);
    });
  }

  BARACUDA_D void run() const {
    const auto init = [&] { memory.init(1 + 4); };  // the thread that loads x, and the warps that decode
    const auto consumes = [&](int consumer) {
      consume(consumer);
      __syncwarp();  // whose lanes part where y ends
    };
    run_in_roles<CLUSTER, DECODERS, 0, 0>(init, [&](int decoder) { produce(decoder); }, consumes);
  }
};

}  // namespace gemm

template <class F, class T, int COLUMNS> BARACUDA_D void block_gemm_wgmma(const BlockGemmWgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::StoredProduct<F, T, COLUMNS, BlockGemmWgmmaParams>(p, shared).run();
}

}  // namespace baracuda
