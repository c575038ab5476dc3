#pragma once
// flash      the registers of a warp in the tensor-core attention kernels, and the online softmax on them
//            (Milakov and Gimelshein 2018).
//
// scale_log2 = |scale| log2(e); a weight is 2^(s scale_log2 - base), one fma and one exp2. base is about the row's
// maximum times scale_log2. It follows the maximum only when that is more than `slack` above it (as in
// FlashAttention-4), so weights stay below 2^slack, and most tiles need neither the maximum of whole rows nor a
// rescale of the outputs; weigh_lazily moves it even later. base cancels in y, and lse adds it back. Rows whose base is
// `coarse` (attention.cuh), so that its rounding exceeds a power of 2, are computed again from differences of scores
// (Scores::exact).
#include "attention/attention.cuh"
#include "attention/flash_tiles.cuh"
#include <baracuda/opaque.cuh>

namespace baracuda {
namespace attention {

constexpr float slack = 8.0f;  // of the 16 powers of 2 that f16 has
// of the sum of a lane's weights in a row of a tile
template <class T> constexpr float headroom = is_same<T, f16> ? 0x1p15f : 0x1p24f;

// What weights are computed from. apart: s lacks its row's offset. exact: 2^((s - base) scale_log2), base in the unit
// of scores, for scores so large that the rounding of s scale_log2 matters.
enum class Scores { plain, apart, exact };

// The registers of a warp: 16 MT rows of scores or weights and of outputs, and each row's base and sum. Lane (g, t) of
// mma.sync's accumulators has rows g and g + 8 ("half" 0 and 1) of each 16. RUNS: keys are permuted as in tile::Runs.
template <class T, int D, int MT, int KEYS, bool RUNS = false> struct Rows {
  static_assert(KEYS <= 128, "add_nonfinite keeps two words of bits a row");
  static constexpr int TILE_KEYS = KEYS;
  float acc[MT][D / 8][4], scores[MT][KEYS / 8][4], row_sum[MT][2];
  float base[MT][2], limit[MT][2];  // a score above `limit` moves the base; -inf where the row has seen no key
  float factor[MT][2];              // rescales what was summed before, if a base of the warp has `moved`
  float offset[MT][2];              // of a row's scores in this tile, for Scores::apart
  bool moved;
  bool has_scores, has_bases;  // weigh_lazily: has seen scores; every row has a base
  u32 weights[MT][KEYS / 16][4];

  BARACUDA_D Rows() { clear(); }
  BARACUDA_D void clear() {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0.0f;
    }
    begin();
  }
  BARACUDA_D void begin() {  // like clear(), where the first product with values overwrites acc
    has_scores = has_bases = false;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      limit[m][0] = limit[m][1] = -numeric<float>::infinity();
      base[m][0] = base[m][1] = row_sum[m][0] = row_sum[m][1] = 0.0f;
    }
  }

  // The lane's first key of a tile, and the distance from there to the key of its score e of n.
  static BARACUDA_D int own_key() { return lane_id() % 4 * (RUNS ? KEYS / 4 : 2); }
  static BARACUDA_HD constexpr int further(int n, int e) { return (RUNS ? 2 : 8) * n + e % 2; }

  // Calls f(score, r, c) for each score, at row r and key c relative to the lane's own: see terms.cuh.
  template <class F> BARACUDA_D void each(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) f(scores[m][n][e], 16 * m + e / 2 * 8, further(n, e));
      }
    }
  }
  // Adds all terms; the warp's first row is query i, the tile's first key j.
  template <class Terms> BARACUDA_D void add(const Terms& terms, int i, int j) {
    terms.add_to([&](const auto& f) { each(f); }, i + lane_id() / 4, j + own_key());
  }
  // The same for Scores::apart: where all keys of the tile lie on one side of the queries, ALiBi's part that depends on
  // the row alone becomes the row's offset. CAPPED: there may be a soft cap.
  template <bool CAPPED, class Terms> BARACUDA_D void add_apart(const Terms& terms, int i, int j) {
    const auto each_score = [&](const auto& f) { each(f); };
    if constexpr (CAPPED) terms.cap(each_score);
    const int ahead = i + terms.shift - j, own = ahead + lane_id() / 4 - own_key();
    const bool left = ahead >= KEYS - 1, apart = left || ahead <= 1 - 16 * MT;
    const float tilt = !apart ? 0.0f : left ? terms.slope : -terms.slope;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) offset[m][half] = -tilt * static_cast<float>(own + 16 * m + 8 * half);
    }
    if (apart) each([&](float& x, int, int c) { x = c == 0 ? x : math::fma(tilt, static_cast<float>(c), x); });
    else terms.add_biases(each_score, i + lane_id() / 4, j + own_key());
  }
  // Begins rows with a sink, which takes part in the sum like a key without a value.
  template <class Terms> BARACUDA_D void begin_with(const Terms& terms, bool exact = false) {
    if (terms.sink == -numeric<float>::infinity()) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      limit[m][0] = limit[m][1] = terms.sink + slack / terms.c;
      base[m][0] = base[m][1] = exact ? terms.sink : terms.sink * terms.c;
      row_sum[m][0] = row_sum[m][1] = lane_id() % 4 == 0 ? terms.sink_weight() : 0.0f;
      if (!exact && math::abs(base[m][0]) >= coarse<float>) row_sum[m][0] = row_sum[m][1] = numeric<float>::infinity();
    }
  }

  // Runs of the lane's rows: words of the mask (elements of up to 16 bits), and bits of the weights that dropout keeps.
  struct Found {
    u32 mask[MT][2][KEYS / 8], kept[MT][2];
  };
  // fetch and add: for a whole tile and a mask of elements M with dense rows; (i, j): the warp's first query and key.
  // Elements of 32 bits are loaded by add, as registers have no room for them during the products.
  template <class M, class Terms> BARACUDA_D void fetch(Found& found, const Terms& terms, int i, int j) const {
    if constexpr (sizeof(M) <= 2) {
      each_row([&](int m, int half, int r) {
        terms.template fetch<M, KEYS / 4>(found.mask[m][half], i + r, j + own_key());
      });
    }
  }
  template <class M, class Terms> BARACUDA_D void add(const Found& found, const Terms& terms, int i, int j) {
    each_row([&](int m, int half, int r) {
      if constexpr (sizeof(M) <= 2) {
        terms.template add<M, KEYS / 4>(found.mask[m][half], run(m, half), false);
      } else {
        u32 words[KEYS / 4];
        terms.template fetch<M, KEYS / 4>(words, i + r, j + own_key());
        terms.template add<M, KEYS / 4>(words, run(m, half), false);
      }
    });
  }
  // Adds any mask to any tile.
  template <class Terms> BARACUDA_D void add_mask(const Terms& terms, int i, int j, bool careful) {
    if (!terms.masked()) return;
    terms.with_mask([&](auto kind) {
      using M = decltype(kind);
      each_row([&](int m, int half, int r) {
        u32 words[KEYS / 4];
        if (terms.dense && j + KEYS <= terms.key_len) terms.template fetch<M, KEYS / 4>(words, i + r, j + own_key());
        else terms.template gather<M, KEYS / 4>(words, i + r, j + own_key());
        terms.template add<M, KEYS / 4>(words, run(m, half), careful);
      });
    });
  }
  // Zeroes the weights that dropout drops: sift and drop(found), or drop at once where rows are whole blocks of the
  // stream.
  template <class Terms> BARACUDA_D void sift(Found& found, const Terms& terms, int i, int j) const {
    if (!terms.drops()) return;
    each_row(
        [&](int m, int half, int r) { found.kept[m][half] = terms.template kept<KEYS / 4>(i + r, j + own_key()); });
  }
  template <class Terms> BARACUDA_D void drop(const Terms& terms, int i, int j) {
    each_row([&](int m, int half, int r) { terms.template drop<KEYS / 4>(run(m, half), i + r, j + own_key()); });
  }
  template <class Terms> BARACUDA_D void drop(const Found& found, const Terms& terms) {
    if (!terms.drops()) return;
    each_row([&](int m, int half, int) {
#pragma unroll
      for (int k = 0; k < KEYS / 4; ++k) {
        float& weight = run(m, half)(k);
        weight = found.kept[m][half] >> k & 1 ? weight : 0.0f;
      }
    });
  }
  // Score k of the lane's run in a row.
  BARACUDA_D auto run(int m, int half) {
    return [this, m, half](int k) -> float& { return scores[m][k / 2][2 * half + k % 2]; };
  }
  // Calls f(m, half, row). The row's origin is hidden from the compiler, which else keeps what it computes from it, in
  // local memory.
  template <class F> static BARACUDA_D void each_row(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) f(m, half, forgotten(16 * m + 8 * half + lane_id() / 4));
    }
  }

  // Whether a result of the lane's rows may be wrong: NaN, or scores that the rounding of base distorts.
  BARACUDA_D bool suspicious() const { return nonfinite_sums() || nonfinite_outputs(); }
  // Whether weights were taken with a bad base: a coarse one, or a lazy one too far below. Their sum is then infinite,
  // which NaN values never make it.
  BARACUDA_D bool lost_base() const {
    bool found = false;
    each_half([&](int m, int half) { found |= row_sum[m][half] == numeric<float>::infinity(); });
    return found;
  }
  BARACUDA_D bool nonfinite_sums() const {
    bool found = false;
    each_half([&](int m, int half) { found |= !(row_sum[m][half] < numeric<float>::infinity()); });
    return found;
  }
  BARACUDA_D bool nonfinite_outputs() const {  // also where infinite outputs cancel: an addition is cheaper than a test
    bool found = false;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      float total[4] = {};
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) total[e] += acc[m][n][e];
      }
      found |= math::isnan((total[0] + total[1]) + (total[2] + total[3]));
    }
    return found;
  }

  // Sets to -inf: keys from `left` on, and in row r of the warp keys before from + r and from past + r on.
  BARACUDA_D void mask(int left, int from, int past) {
    each_half([&](int m, int half) {
      const int row = 16 * m + 8 * half + lane_id() / 4, end = min(left, past + row) - own_key();
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        if (further(n, 0) >= end) scores[m][n][2 * half] = -numeric<float>::infinity();
        if (further(n, 1) >= end) scores[m][n][2 * half + 1] = -numeric<float>::infinity();
      }
    });
    if (from + 16 * MT <= 1) return;
    each_half([&](int m, int half) {
      const int begin = from + 16 * m + 8 * half + lane_id() / 4 - own_key();
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        if (further(n, 0) < begin) scores[m][n][2 * half] = -numeric<float>::infinity();
        if (further(n, 1) < begin) scores[m][n][2 * half + 1] = -numeric<float>::infinity();
      }
    });
  }

  // Sets keys to -inf whose bit is not set in their row's word.
  BARACUDA_D void hide(const u64 (&seen)[MT][2]) {
    static_assert(KEYS <= 64, "a word of bits a row");
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u64 mine = seen[m][half] >> (lane_id() % 4 * 2);
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          if (!(mine >> (8 * n) & 1)) scores[m][n][2 * half] = -numeric<float>::infinity();
          if (!(mine >> (8 * n + 1) & 1)) scores[m][n][2 * half + 1] = -numeric<float>::infinity();
        }
      }
    }
  }

  // Turns scores into weights 2^(s scale_log2 - base), in place, and adds them to the sums.
  template <Scores KIND = Scores::plain> BARACUDA_D void weigh(float scale_log2) {
    raise<KIND>(scale_log2);
    each_half([&](int m, int half) { row_sum[m][half] += power<KIND>(m, half, scale_log2); });
  }
  // The same, but the base of a row is that of the first scores it sees, and no maximum is taken of later ones: the
  // base stays until weights exceed `headroom`, which their sums show (`shrink`). Beyond 2^127 weights become infinite
  // and stay so (`lost_base`). This saves the maximum, a sixth of a tile's instructions
  // (docs/design/attention-forward.md).
  // rising: scores may rise by more than weights can hold from one tile to the next, and every tile's maximum is taken.
  template <Scores KIND = Scores::plain> BARACUDA_D void weigh_lazily(float scale_log2, bool rising = false) {
    moved = false;
    if (!has_bases || rising) {
      raise<KIND>(scale_log2, has_scores && !rising);
      bool none = false;
      each_half([&](int m, int half) { none |= limit[m][half] == -numeric<float>::infinity(); });
      has_scores = true, has_bases = !__any_sync(all_lanes, none);
    }
    float tile_sum[MT][2];
    each_half([&](int m, int half) { tile_sum[m][half] = power<KIND>(m, half, scale_log2); });
    add_sums(tile_sum, scale_log2);
  }
  BARACUDA_D void add_sums(float (&tile_sum)[MT][2], float scale_log2) {
    bool above = false;
    each_half([&](int m, int half) { above |= !(tile_sum[m][half] <= headroom<T>); });
    if (__any_sync(all_lanes, above)) shrink(tile_sum, scale_log2);
    each_half([&](int m, int half) { row_sum[m][half] += tile_sum[m][half]; });
  }
  // Raises bases to the highest scores of rows where those exceed their limit; `only_new`: only of rows that have no
  // base yet.
  template <Scores KIND> BARACUDA_D void raise(float scale_log2, bool only_new = false) {
    float high[MT][2];
    bool above = false;
    each_half([&](int m, int half) {
      high[m][half] = highest(m, half);
      if constexpr (KIND == Scores::apart) high[m][half] += offset[m][half];
      if (only_new && limit[m][half] != -numeric<float>::infinity()) high[m][half] = -numeric<float>::infinity();
      above |= high[m][half] > limit[m][half];
    });
    moved = __any_sync(all_lanes, above);
    if (moved) move<KIND == Scores::exact>(high, scale_log2);
  }
  // Scales rows whose weights have grown too large, and their sums, down by a power of 2, and raises their bases by it.
  BARACUDA_D void shrink(float (&tile_sum)[MT][2], float scale_log2) {
    each_half([&](int m, int half) {
      float most = tile_sum[m][half];
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
      const bool grown = most > headroom<T> && most < numeric<float>::infinity();
      // at most 253, so that `by` is not subnormal
      const u32 exponent = grown ? min(__float_as_uint(most) >> 23, 253u) : 127;
      const float by = __uint_as_float((254 - exponent) << 23),
                  up = static_cast<float>(static_cast<int>(exponent) - 127);
      factor[m][half] = moved ? factor[m][half] * by : by;
      base[m][half] += up;
      limit[m][half] += up * math::fast_rcp(scale_log2);
      row_sum[m][half] *= by, tile_sum[m][half] *= by;
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) scores[m][n][2 * half] *= by, scores[m][n][2 * half + 1] *= by;
    });
    moved = true;
  }
  template <Scores KIND> BARACUDA_D float power(int m, int half, float scale_log2) {
    float from = base[m][half];
    if constexpr (KIND == Scores::apart) from = math::fma(-offset[m][half], scale_log2, from);
    return power_up(m, half, [&](float x) {
      return KIND == Scores::exact ? (x - from) * scale_log2 : math::fma(x, scale_log2, -from);
    });
  }
  // weigh_lazily for masked products q k with a soft cap and no other term but sinks. Where no score is large the cap
  // is a polynomial (`soft_cap` in schedules/attention/score_terms.py); most often the sum of a lane's squares proves
  // that, in half the time of a maximum.
  template <class Terms> BARACUDA_D void weigh_capped(const Terms& terms) {
    const auto& near = terms.p.near;
    const auto& far = terms.p.far;
    if (has_bases && terms.sink == -numeric<float>::infinity()) {  // with a sink, a base need not be that of a key
      moved = false;
      float tile_sum[MT][2], squares[4] = {};
      each([&](float x, int r, int c) {
        float& sum = squares[r / 8 % 2 * 2 + c % 2];
        sum = math::fma(x, x, sum);
      });
      const float size = (squares[0] + squares[1]) + (squares[2] + squares[3]);
      if (__all_sync(all_lanes, size <= near[2] * math::abs(near[2]))) {
        each_half([&](int m, int half) {
          tile_sum[m][half] = power_up(
              m, half, [&](float x) { return math::fma(x, math::fma(x * x, near[1], near[0]), -base[m][half]); });
        });
        return add_sums(tile_sum, terms.c);
      }
      bool above = false;
      each_half([&](int m, int half) { above |= !(highest(m, half) <= far[3]) || base[m][half] < far[4]; });
      if (!__any_sync(all_lanes, above)) {
        each_half([&](int m, int half) {
          tile_sum[m][half] = power_up(m, half, [&](float x) {
            const float t = x * x;
            return math::fma(x, math::fma(t, math::fma(t, far[2], far[1]), far[0]), -base[m][half]);
          });
        });
        return add_sums(tile_sum, terms.c);
      }
    }
    // hidden keys stay hidden
    each([&](float& x, int, int) { x = x == -numeric<float>::infinity() ? x : terms.squash(x); });
    weigh_lazily(terms.c);
  }
  template <class F> static BARACUDA_D void each_half(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) f(m, 0), f(m, 1);
  }
  BARACUDA_D float highest(int m, int half) const {  // of the lane's scores in a row
    float high[2] = {scores[m][0][2 * half], scores[m][0][2 * half + 1]};
#pragma unroll
    for (int n = 1; n < KEYS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) high[e] = fmaxf(high[e], scores[m][n][2 * half + e]);
    }
    return fmaxf(high[0], high[1]);
  }
  template <class F> BARACUDA_D float power_up(int m, int half, const F& power) {
    float tile_sum = 0.0f;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      scores[m][n][2 * half] = exp2_fast(power(scores[m][n][2 * half]));
      scores[m][n][2 * half + 1] = exp2_fast(power(scores[m][n][2 * half + 1]));
      tile_sum += scores[m][n][2 * half] + scores[m][n][2 * half + 1];
    }
    return tile_sum;
  }
  // Sets new bases for rows whose highest scores, given for each lane's own, are above their limit.
  template <bool EXACT> BARACUDA_D void move(float (&high)[MT][2], float scale_log2) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& most = high[m][half];
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
        factor[m][half] = 1.0f;
        if (!(most > limit[m][half])) continue;
        const float next = EXACT ? most : most * scale_log2, step = base[m][half] - next;
        factor[m][half] =
            limit[m][half] == -numeric<float>::infinity() ? 0.0f : exp2_fast(EXACT ? step * scale_log2 : step);
        base[m][half] = next;
        limit[m][half] = most + slack * math::fast_rcp(scale_log2);
        float& total = row_sum[m][half];
        // see lost_base()
        const bool lost = !EXACT && (total == numeric<float>::infinity() || math::abs(next) >= coarse<float>);
        total = lost ? numeric<float>::infinity() : total * factor[m][half];
      }
    }
  }
  BARACUDA_D void pack() {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          weights[m][n / 2][n % 2 * 2 + half] = pack_pair<T>(scores[m][n][2 * half], scores[m][n][2 * half + 1]);
        }
      }
    }
  }
  BARACUDA_D void rescale() {
    if (!moved) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[m][n][e] *= factor[m][e / 2];
      }
    }
  }

  // acc += weights times the infinite and NaN values of a tile, key by key: keys that seen(r, key) denies row r of the
  // warp add nothing; keys from `left` on are zeros. Layout::at(row, piece) is the offset of a tile's piece.
  template <class Layout, class Seen> BARACUDA_D void add_nonfinite(const T* values, int left, const Seen& is_seen) {
    add_nonfinite_of([&](int j, int n, int e) { return values[Layout::at(j, n) + lane_id() % 4 * 2 + e]; }, left,
                     is_seen);
  }
  // value(j, n, e): column e of the lane, of piece n, of the tile's row j.
  template <class Value, class Seen>
  BARACUDA_D void add_nonfinite_of(const Value& value, int left, const Seen& is_seen) {
    add_nonfinite_values<D, MT, KEYS, RUNS>(acc, weights, value, left, is_seen);
  }

  // Writes the outputs, divided by the sums and times `again`, to the warp's rows of a tile, from `row` on; and the
  // lse.
  template <class Layout>
  BARACUDA_D void finish(T* tile, int row, float* lse, int rows, float again = 1.0f, float unit = ln_2<float>) {
    float factors[MT][2];
    close(factors, again);
    put_lse(lse, rows, unit);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        tile::put<Layout>(tile, row + 16 * m, 8 * n, acc[m][n], factors[m][0], factors[m][1]);
    }
  }
  // Writes the outputs times close()'s factors to `cols` columns of out[r * stride] for r < rows.
  BARACUDA_D void put(T* out, i64 stride, int rows, int cols, const float (&factors)[MT][2]) const {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      put_rows<false>({out + 16 * m * stride, out + (16 * m + 8) * stride}, stride, rows - 16 * m, cols, acc[m],
                      factors[m]);
    }
  }

  // Completes the sums over whole rows; factors: what outputs are multiplied by.
  BARACUDA_D void close(float (&factors)[MT][2], float again) {
    each_half([&](int m, int half) { row_sum[m][half] += __shfl_xor_sync(all_lanes, row_sum[m][half], 1); });
    each_half([&](int m, int half) { row_sum[m][half] += __shfl_xor_sync(all_lanes, row_sum[m][half], 2); });
    each_half([&](int m, int half) {
      factors[m][half] = row_sum[m][half] == 0.0f ? 0.0f : again * math::fast_rcp(row_sum[m][half]);
    });
  }
  // After close(), writes the lse of each row to lse[r] for r < rows, if lse is not null. `unit` is that of the bases:
  // ln 2, or that of scores where they are exact.
  BARACUDA_D void put_lse(float* lse, int rows, float unit = ln_2<float>) const {
    const int half = lane_id() % 4;  // two lanes of a quad write a row each
    if (lse == nullptr || half > 1) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      const float total = half == 0 ? row_sum[m][0] : row_sum[m][1], from = half == 0 ? base[m][0] : base[m][1];
      const int r = 16 * m + 8 * half + lane_id() / 4;
      if (r < rows) lse[r] = total == 0.0f ? -numeric<float>::infinity() : math::fma(from, unit, math::log(total));
    }
  }
};

}  // namespace attention
}  // namespace baracuda
