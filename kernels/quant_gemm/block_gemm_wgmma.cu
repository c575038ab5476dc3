// block_gemm_wgmma   y = x Wᵀ + bias by stored weights on sm_90a, of f16 or bf16 with sums in float, for many rows of x.
//
// It is yᵀ = W xᵀ by the tiles, ring, clusters and products of gemm/wgmma.cuh: 128 rows of W by COLUMNS of x. The copy
// engine loads x; W is decoded into its place in a stage by a warpgroup, or by two in turn where the tile leaves them
// registers, while two others multiply. Two lanes share two rows of W, 64 apart, and each decodes a run of 32 of a
// stage's 64 of k of both. What it reads takes long to come: codes and scales that lie apart are asked for a turn ahead,
// and one warpgroup decodes two stages in a turn, so that the codes of four runs are under way together.
//
// k may be summed in `parts`, of so many stages `each` but the last, that are items of y for block_gemm_sums. A sum, or
// each part, is one chain in the order of k.
#include "gemm/wgmma.cuh"
#include "quant_gemm/block_sums.cuh"
#include "quant_gemm/run_numbers.cuh"

namespace baracuda {
namespace gemm {

template <class F, class T, int COLUMNS, class P>
struct StoredProduct
    : Product<T, T, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, void, COLUMNS == 256 ? 2 : 1> {
  static constexpr int CLUSTER = COLUMNS == 256 ? 2 : 1;
  using Base = Product<T, T, COLUMNS, false, false, false, default_stages<COLUMNS>, 2, P, void, CLUSTER>;
  using Ring = typename Base::Ring;
  using Sums = typename Base::Sums;
  using Base::memory, Base::p, Base::rank, Base::slices;
  static constexpr int DECODERS = COLUMNS == 256 ? 1 : 2, TURN = 2 / DECODERS;  // warpgroups, and stages of one at once
  static constexpr int DEPTH = Base::DEPTH, AHEAD = 8;  // of k in a stage; stages that codes go to the L2 cache before

  BARACUDA_D StoredProduct(const P& p, unsigned char* shared) : Base(p, shared, true) {}

  // The item of the batch and the slices of k that are summed in an item of y.
  struct Part {
    int item, begin, end;
    BARACUDA_D Part(const P& p, int of, int slices) : item(of / p.parts) {
      begin = of % p.parts * p.each, end = min(slices, begin + p.each);
    }
  };

  // ---- one or two warpgroups that decode ----

  // Where the lane's runs are: in which rows of the tile, and in which half of a stage.
  struct Runs {
    int row, half;
    StoredRow rows[2];
    BARACUDA_D Runs(const Stored& w, const P& p, i64 item, i64 n)
        : row(static_cast<int>(threadIdx.x) % 128 / 2), half(static_cast<int>(threadIdx.x) % 2),
          rows{StoredRow(w, item, min(n + row, p.n - 1)),  // of rows that are not there the last: nobody takes its sums
               StoredRow(w, item, min(n + row + 64, p.n - 1))} {}
    BARACUDA_D i64 k(int s) const { return static_cast<i64>(s) * DEPTH + half * format_run; }  // in slice s
  };
  // The codes of the 128 of k that slice s is in go to the L2 cache: of 64 rows by each of two warpgroups.
  BARACUDA_D void prefetch_codes(const Runs& runs, int s, int own) const {
    const i64 chunk = s / 2;
    if ((chunk + 1) * 2 * DEPTH > p.k) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (DECODERS == 2 && r != own) continue;
      const u8* const from = runs.rows[r].codes + chunk * p.chunk_bytes;
      for (int at = runs.half * 32; at < p.chunk_bytes; at += 64) prefetch_l2(from + at);
    }
  }
  // Waits until the stage is free, and has TMA load the rows of x from m on.
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
  // W's part of the stage is there.
  BARACUDA_D void end(Stage<Ring::stages> at) const {
    wgmma_publish();
    memory.full[at.index()].arrive_as_warp();
  }
  // Eight neighbours in k to their piece of a row of the tile, which has the 128-byte swizzle.
  static BARACUDA_D void put(unsigned char* tile, int row, int piece, const uint4& values) {
    *reinterpret_cast<uint4*>(tile + row * 128 + (piece ^ row % 8) * 16) = values;
  }
  // What decoding needs of the lane's runs of the slices s … s + TURN - 1 and is asked for before: run n is that of slice
  // n / 2 of row n % 2. Codes of formats whose decoding takes more registers are not, as those would not do for both.
  static constexpr int RUNS = 2 * TURN;
  struct Ahead {
    RunNumbers<RUNS> numbers;
    RunWords<F> words[RUNS];
    GroupOf of[TURN];  // the next turn's slices
    BARACUDA_D void load_words(const Stored& w, const P& p, const Runs& runs, int s, int n) {
      const i64 k = runs.k(s + n / 2);
      if (is_whole<F> && k + format_run <= p.k) words[n] = F::template words<format_run>(w, runs.rows[n % 2], k);
    }
    // Of the next turn, whose groups are found from those of the one before; beyond k the last group is read.
    BARACUDA_D void load_numbers(const Stored& w, const Runs& runs, const GroupOf& turn) {
      u32 groups[RUNS];
#pragma unroll
      for (int t = 0; t < TURN; ++t) {
        groups[2 * t] = groups[2 * t + 1] = min(of[t].group, w.groups - 1);
        of[t].advance(turn, w.group);
      }
      numbers.load(w, groups, [&](int n) { return runs.rows[n % 2]; });
    }
    BARACUDA_D void load(const Stored& w, const P& p, const Runs& runs, int s, const GroupOf& turn) {
      if constexpr (is_grouped<F>) {
#pragma unroll
        for (int n = 0; n < RUNS; ++n) load_words(w, p, runs, s, n);
#pragma unroll
        for (int t = 0; t < TURN; ++t) of[t] = GroupOf(static_cast<u32>(runs.k(s + t)), w.group);
        load_numbers(w, runs, turn);
      }
    }
  };
  // The lane's runs of the slices s … s + TURN - 1 into the stages; x's rows from m on come beside them.
  BARACUDA_D void decode_whole(const Stored& w, const Runs& runs, Ahead& ahead, Stage<Ring::stages>& at, int s, int m,
                               int item, const GroupOf& turn) const {
    const int next = s + DECODERS * TURN;  // slice of the warpgroup's next turn
    float scale[RUNS], zero[RUNS];
    const bool pairs = is_whole<F> && scaled_in_pairs(w);
    if constexpr (is_grouped<F>) ahead.numbers.get(w, scale, zero);
    Stage<Ring::stages> first = at;
#pragma unroll
    for (int t = 0; t < TURN; ++t, at.advance()) begin(at, (s + t) * DEPTH, m, item);
#pragma unroll
    for (int t = 0; t < TURN; ++t, first.advance()) {
      unsigned char* const tile = memory.a(first.index());
      if (is_grouped<F> && t == TURN - 1) ahead.load_numbers(w, runs, turn);
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
      end(first);
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
                               int item) const {
    begin(at, s * DEPTH, m, item);
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
    end(at);
    at.advance();
  }
  BARACUDA_D void produce(int own) const {
    const Stored stored(p);
    Stored simple = stored;  // which it is where runs are whole: the compiler is to know
    simple.whole = true;
    simple.index = nullptr;
    simple.group = stored.group / format_run * format_run;
    const bool whole = stored.whole && stored.index == nullptr && stored.group % format_run == 0 && p.k != 0;
    if (threadIdx.x == 0 && slices != 0) prefetch_map(p.x_map);
    const GroupOf step(DECODERS * TURN * DEPTH, max(simple.group, 1u));  // from a turn of the warpgroup to its next
    Stage<Ring::stages> at;
    int turn = 0;
    this->for_tiles([&](const Tile& tile) {
      const Part part(p, tile.item, slices);
      const Runs runs(stored, p, part.item, this->row_of(tile));
      const int m = tile.n * COLUMNS, item = part.item * p.x_step;
      for (int s = part.begin; s < part.begin + AHEAD; s += 2) prefetch_codes(runs, s, own);
      Ahead ahead;
      if (whole) ahead.load(simple, p, runs, part.begin + (own + DECODERS - turn % DECODERS) % DECODERS * TURN, step);
#pragma unroll 1
      for (int s = part.begin; s < part.end; s += TURN, ++turn) {
        const int here = min(TURN, part.end - s);  // slices
        if (turn % DECODERS != own) {
          at.count += here;
          continue;
        }
        prefetch_codes(runs, s + AHEAD, own);
        // By whole warps, which arrive together.
        if (whole && here == TURN && static_cast<i64>(s + TURN) * DEPTH <= p.k) {
          decode_whole(simple, runs, ahead, at, s, m, item, step);
        } else {
#pragma unroll 1
          for (int t = 0; t < here; ++t) decode_parts(stored, runs, at, s + t, m, item);
        }
      }
    });
  }

  // ---- two warpgroups that multiply ----

  // Where a warp's part of shared memory has 4 of the 16 rows of W, from 4 `piece` on, of a row of x: neither the scalars
  // of a fragment nor 16 bytes of every lane meet more than twice in a bank.
  static BARACUDA_D int place(int row, int piece) { return row * 16 + (piece ^ row / 2 % 4) * 4; }
  // The warp's 16 rows of W by way of there, where each thread finds 8 of them, of one row of x, together: 64 rows of x at
  // a time, which then are the first of d, as registers have no index.
  BARACUDA_D void finish(Sums& d, const Tile& tile, int group) const {
    constexpr int N = 8;  // quads
    static_assert(8 * N * 16 * 4 <= Ring::staging_bytes, "the rows fit");
    float* const stage = reinterpret_cast<float*>(memory.part(group));
    const int g = lane_id() / 4, q = lane_id() % 4, octet = lane_id() % 2;
    const i64 first = this->row_of(tile) + 64 * group + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const i64 n = first + 8 * octet;
    float bias[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 of = first + g + 8 * half;
      if (p.bias != nullptr && of < p.n) bias[half] = to_acc(static_cast<const T*>(p.bias)[of * p.bias_step]);
    }
#pragma unroll 1
    for (int c = 0; c < COLUMNS; c += 8 * N) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          stage[place(8 * i + 2 * q + e % 2, g / 4 + e / 2 * 2) + g % 4] = d[i][e] + bias[e / 2];
        }
      }
      __syncwarp();
#pragma unroll 1
      for (int row = lane_id() / 2; row < 8 * N; row += 16) {
        const i64 m = static_cast<i64>(tile.n) * COLUMNS + c + row;
        if (m >= p.m || n >= p.n) continue;
        const float4 low = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet));
        const float4 high = *reinterpret_cast<const float4*>(stage + place(row, 2 * octet + 1));
        put_sums<T>(p, tile.item, m, n, {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}});
      }
      Base::template shift<N>(d);
    }
  }
  BARACUDA_D void consume(int group) const {
    Stage<Ring::stages> at;
    int lead = p.lead;
    if (group == 1 && lead != 0) memory.led->wait(0), lead = 0;
    this->for_tiles([&](const Tile& tile) {
      const Part part(p, tile.item, slices);
      Sums d;
      this->multiply(
          d, at, group, part.end - part.begin, [](u32, int) {},
          [&](int s) {
            if (s + 1 == lead) memory.led->arrive_as_warp();
          });
      lead = 0;
      finish(d, tile, group);
    });
  }

  BARACUDA_D void run() const {
    const auto init = [&] { memory.init(1 + 4); };  // the thread that loads x, and the warps that decode
    const auto consumer = [&](int group) {
      consume(group);
      __syncwarp();  // whose lanes part where y ends
    };
    run_in_roles<CLUSTER, DECODERS, 0, 0>(init, [&](int own) { produce(own); }, consumer);
  }
};

}  // namespace gemm

template <class F, class T, int COLUMNS> BARACUDA_D void block_gemm_wgmma(const BlockGemmWgmmaParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  gemm::StoredProduct<F, T, COLUMNS, BlockGemmWgmmaParams>(p, shared).run();
}

}  // namespace baracuda
