#pragma once
// flash      what a warp of the tensor-core attention kernels keeps of its queries, and the online softmax on it
//            (Milakov and Gimelshein 2018).
//
// c = |scale| log2(e); a weight is 2^(s c - base), one fma and one exp2. base is about the row's maximum times c: it follows
// the maximum only when that is more than `slack` above it (as in FlashAttention-4), so weights stay below 2^slack and most
// tiles need neither the maximum of a whole row nor new outputs; or later still (`weigh_lazily`). It cancels in y, and the lse
// takes it back out. Rows whose base comes out `coarse` (attention.cuh), so that its rounding is more than a power of 2, are done
// again by differences of scores (`Scores::exact`).
#include "attention/attention.cuh"
#include "attention/flash_tiles.cuh"
#include <baracuda/opaque.cuh>

namespace baracuda {
namespace attention {

constexpr float slack = 8.0f;  // of f16's 16 powers of 2
template <class T> constexpr float headroom = is_same<T, f16> ? 0x1p15f : 0x1p24f;  // of a lane's weights in a row of a tile

// What weights are made of. apart: s lacks its row's offset. exact: 2^((s - base) c) with a base in the unit of scores, where
// they are so large that the rounding of s c is.
enum class Scores { plain, apart, exact };

// What a warp keeps: 16 MT rows of scores or weights, of outputs, and each row's base and sum. Lane (g, t) of mma.sync's
// accumulators has rows g and g + 8 ("half" 0 and 1) of each 16. RUNS: keys stand as tile::Runs has them.
template <class T, int D, int MT, int KEYS, bool RUNS = false> struct Rows {
  static_assert(KEYS <= 128, "add_odd keeps two words of bits a row");
  float acc[MT][D / 8][4], s[MT][KEYS / 8][4], sum[MT][2];
  float base[MT][2], limit[MT][2];  // a score above `limit` moves the base; -inf where the row has seen nothing
  float factor[MT][2];              // for what was summed before, if a base of the warp has `moved`
  float offset[MT][2];              // of a row's scores in this tile, for Scores::apart
  bool moved;
  bool looked, settled;  // whether weigh_lazily has looked at scores, and whether it need not any more
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
  BARACUDA_D void begin() {  // the same where the first product with values does not add
    looked = settled = false;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      limit[m][0] = limit[m][1] = -numeric<float>::infinity();
      base[m][0] = base[m][1] = sum[m][0] = sum[m][1] = 0.0f;
    }
  }

  // The lane's first key of a tile, and from there to its score e of n.
  static BARACUDA_D int own_key() { return lane_id() % 4 * (RUNS ? KEYS / 4 : 2); }
  static BARACUDA_HD constexpr int further(int n, int e) { return (RUNS ? 2 : 8) * n + e % 2; }

  // f(score, r, c) for each score, at row r and key c of the lane's own: see terms.cuh.
  template <class F> BARACUDA_D void each(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) f(s[m][n][e], 16 * m + e / 2 * 8, further(n, e));
      }
    }
  }
  // The warp's first row is query i, the tile's first key j.
  template <class Terms> BARACUDA_D void add(const Terms& terms, int i, int j) {
    terms.add_to([&](const auto& f) { each(f); }, i + lane_id() / 4, j + own_key());
  }
  // The same for Scores::apart: what ALiBi adds to all of a row is its offset, if all of the tile's keys lie on one side of the
  // queries. CAPPED: there may be a soft cap.
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
  // A sink takes part in the sum like a key without a value: the rows begin with it.
  template <class Terms> BARACUDA_D void begin_with(const Terms& terms, bool exact = false) {
    if (terms.sink == -numeric<float>::infinity()) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      limit[m][0] = limit[m][1] = terms.sink + slack / terms.c;
      base[m][0] = base[m][1] = exact ? terms.sink : terms.sink * terms.c;
      sum[m][0] = sum[m][1] = lane_id() % 4 == 0 ? terms.sink_weight() : 0.0f;
      if (!exact && math::abs(base[m][0]) >= coarse<float>) sum[m][0] = sum[m][1] = numeric<float>::infinity();
    }
  }

  // Runs of the lane's rows: the mask's words, of elements up to 16 bits, and bits of the weights that dropout leaves.
  struct Found {
    u32 mask[MT][2][KEYS / 8], kept[MT][2];
  };
  // All begin at query i and key j, those of the warp. fetch and add: the mask's elements are M, its rows dense, and the
  // tile is whole; elements that registers have no place for beside the products are loaded by add.
  template <class M, class Terms> BARACUDA_D void fetch(Found& found, const Terms& terms, int i, int j) const {
    if constexpr (sizeof(M) <= 2) each_row([&](int m, int half, int r) {
      terms.template fetch<M, KEYS / 4>(found.mask[m][half], i + r, j + own_key());
    });
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
  // Any mask and tile.
  template <class Terms> BARACUDA_D void add_mask(const Terms& terms, int i, int j, bool careful) {
    if (terms.masked()) terms.with_mask([&](auto kind) {
      using M = decltype(kind);
      each_row([&](int m, int half, int r) {
        u32 words[KEYS / 4];
        if (terms.dense && j + KEYS <= terms.key_len) terms.template fetch<M, KEYS / 4>(words, i + r, j + own_key());
        else terms.template gather<M, KEYS / 4>(words, i + r, j + own_key());
        terms.template add<M, KEYS / 4>(words, run(m, half), careful);
      });
    });
  }
  // Zeros for the weights that dropout takes: sift and drop, or at once where rows are whole blocks of the stream.
  template <class Terms> BARACUDA_D void sift(Found& found, const Terms& terms, int i, int j) const {
    if (terms.drops()) each_row([&](int m, int half, int r) {
      found.kept[m][half] = terms.template kept<KEYS / 4>(i + r, j + own_key());
    });
  }
  template <class Terms> BARACUDA_D void drop(const Terms& terms, int i, int j) {
    each_row([&](int m, int half, int r) { terms.template drop<KEYS / 4>(run(m, half), i + r, j + own_key()); });
  }
  template <class Terms> BARACUDA_D void drop(const Found& found, const Terms& terms) {
    if (terms.drops()) each_row([&](int m, int half, int) {
#pragma unroll
      for (int k = 0; k < KEYS / 4; ++k) {
        float& weight = run(m, half)(k);
        weight = found.kept[m][half] >> k & 1 ? weight : 0.0f;
      }
    });
  }
  // Score k of the lane's run in a row.
  BARACUDA_D auto run(int m, int half) {
    return [this, m, half](int k) -> float& { return s[m][k / 2][2 * half + k % 2]; };
  }
  // f(m, half, row): the row is forgotten, or what is computed from it would be kept from tile to tile, in local memory.
  template <class F> static BARACUDA_D void each_row(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) f(m, half, forgotten(16 * m + 8 * half + lane_id() / 4));
    }
  }

  // Whether the lane's rows may not be what they should: NaN, or scores that the rounding of base makes something else of.
  BARACUDA_D bool suspicious() const { return odd_sums() || odd_outputs(); }
  // Whether weights were taken under a base that is no good: coarse, or lazy and too far below. Then a sum is infinite, which no
  // NaN makes it.
  BARACUDA_D bool astray() const {
    bool found = false;
    each_half([&](int m, int half) { found |= sum[m][half] == numeric<float>::infinity(); });
    return found;
  }
  BARACUDA_D bool odd_sums() const {
    bool found = false;
    each_half([&](int m, int half) { found |= !(sum[m][half] < numeric<float>::infinity()); });
    return found;
  }
  BARACUDA_D bool odd_outputs() const {  // also where infinite ones cancel: an addition is less than a test
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

  // -inf for keys from `left` on, and in row r of the warp before from + r and from past + r on.
  BARACUDA_D void mask(int left, int from, int past) {
    each_half([&](int m, int half) {
      const int row = 16 * m + 8 * half + lane_id() / 4, end = min(left, past + row) - own_key();
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        if (further(n, 0) >= end) s[m][n][2 * half] = -numeric<float>::infinity();
        if (further(n, 1) >= end) s[m][n][2 * half + 1] = -numeric<float>::infinity();
      }
    });
    if (from + 16 * MT <= 1) return;
    each_half([&](int m, int half) {
      const int begin = from + 16 * m + 8 * half + lane_id() / 4 - own_key();
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        if (further(n, 0) < begin) s[m][n][2 * half] = -numeric<float>::infinity();
        if (further(n, 1) < begin) s[m][n][2 * half + 1] = -numeric<float>::infinity();
      }
    });
  }

  // -inf for keys whose bit is not set in their row's.
  BARACUDA_D void hide(const u64 (&seen)[MT][2]) {
    static_assert(KEYS <= 64, "a word of bits a row");
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u64 mine = seen[m][half] >> (lane_id() % 4 * 2);
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          if (!(mine >> (8 * n) & 1)) s[m][n][2 * half] = -numeric<float>::infinity();
          if (!(mine >> (8 * n + 1) & 1)) s[m][n][2 * half + 1] = -numeric<float>::infinity();
        }
      }
    }
  }

  // Scores to weights 2^(s c - base), in place and added up.
  template <Scores KIND = Scores::plain> BARACUDA_D void weigh(float c) {
    raise<KIND>(c);
    each_half([&](int m, int half) { sum[m][half] += power<KIND>(m, half, c); });
  }
  // The same, but a base is that of the first scores its row sees, and no maximum is taken of later ones: it stays until weights
  // have grown beyond `headroom`, which their sums tell. Beyond 2^127 weights are infinite and stay so (`overflown`). A maximum is
  // a sixth of a tile's instructions, and the products want the same registers' ports: head_dim 128, H200, full, 2048 keys 681
  // TFLOP/s instead of 654, causal, 4096 keys 656 instead of 634.
  template <Scores KIND = Scores::plain> BARACUDA_D void weigh_lazily(float c) {
    moved = false;
    if (!settled) {
      raise<KIND>(c, looked);
      bool none = false;
      each_half([&](int m, int half) { none |= limit[m][half] == -numeric<float>::infinity(); });
      looked = true, settled = !__any_sync(all_lanes, none);
    }
    float part[MT][2];
    each_half([&](int m, int half) { part[m][half] = power<KIND>(m, half, c); });
    add_sums(part, c);
  }
  BARACUDA_D void add_sums(float (&part)[MT][2], float c) {
    bool above = false;
    each_half([&](int m, int half) { above |= !(part[m][half] <= headroom<T>); });
    if (__any_sync(all_lanes, above)) shrink(part, c);
    each_half([&](int m, int half) { sum[m][half] += part[m][half]; });
  }
  // Bases to the highest scores of rows where those are above their limit; `only_new`: of rows that have none.
  template <Scores KIND> BARACUDA_D void raise(float c, bool only_new = false) {
    float high[MT][2];
    bool above = false;
    each_half([&](int m, int half) {
      high[m][half] = highest(m, half);
      if constexpr (KIND == Scores::apart) high[m][half] += offset[m][half];
      if (only_new && limit[m][half] != -numeric<float>::infinity()) high[m][half] = -numeric<float>::infinity();
      above |= high[m][half] > limit[m][half];
    });
    moved = __any_sync(all_lanes, above);
    if (moved) move<KIND == Scores::exact>(high, c);
  }
  // Rows whose weights have grown, and their sums, by a power of 2 down, and bases as far up.
  BARACUDA_D void shrink(float (&part)[MT][2], float c) {
    each_half([&](int m, int half) {
      float most = part[m][half];
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
      const bool grown = most > headroom<T> && most < numeric<float>::infinity();
      const u32 exponent = grown ? min(__float_as_uint(most) >> 23, 253u) : 127;  // so that `by` is no subnormal number
      const float by = __uint_as_float((254 - exponent) << 23), up = static_cast<float>(static_cast<int>(exponent) - 127);
      factor[m][half] = moved ? factor[m][half] * by : by;
      base[m][half] += up;
      limit[m][half] += up * math::fast_rcp(c);
      sum[m][half] *= by, part[m][half] *= by;
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) s[m][n][2 * half] *= by, s[m][n][2 * half + 1] *= by;
    });
    moved = true;
  }
  template <Scores KIND> BARACUDA_D float power(int m, int half, float c) {
    float from = base[m][half];
    if constexpr (KIND == Scores::apart) from = math::fma(-offset[m][half], c, from);
    return power_up(m, half, [&](float x) { return KIND == Scores::exact ? (x - from) * c : math::fma(x, c, -from); });
  }
  // The same for products q k, masked already, that have a soft cap and no term besides but sinks: by polynomials (`soft_cap`,
  // schedules/attention/score_terms.py) where no score is large. Most often the sum of a lane's squares tells, in half the time of a
  // maximum.
  template <class Terms> BARACUDA_D void weigh_capped(const Terms& terms) {
    const auto& near = terms.p.near;
    const auto& far = terms.p.far;
    if (settled && terms.sink == -numeric<float>::infinity()) {  // else a base need not be that of a key
      moved = false;
      float part[MT][2], squares[4] = {};
      each([&](float x, int r, int c) {
        float& sum = squares[r / 8 % 2 * 2 + c % 2];
        sum = math::fma(x, x, sum);
      });
      const float size = (squares[0] + squares[1]) + (squares[2] + squares[3]);
      if (__all_sync(all_lanes, size <= near[2] * math::abs(near[2]))) {
        each_half([&](int m, int half) {
          part[m][half] = power_up(m, half, [&](float x) { return math::fma(x, math::fma(x * x, near[1], near[0]), -base[m][half]); });
        });
        return add_sums(part, terms.c);
      }
      bool above = false;
      each_half([&](int m, int half) { above |= !(highest(m, half) <= far[3]) || base[m][half] < far[4]; });
      if (!__any_sync(all_lanes, above)) {
        each_half([&](int m, int half) {
          part[m][half] = power_up(m, half, [&](float x) {
            const float t = x * x;
            return math::fma(x, math::fma(t, math::fma(t, far[2], far[1]), far[0]), -base[m][half]);
          });
        });
        return add_sums(part, terms.c);
      }
    }
    each([&](float& x, int, int) { x = x == -numeric<float>::infinity() ? x : terms.squash(x); });  // what is hidden stays so
    weigh_lazily(terms.c);
  }
  template <class F> static BARACUDA_D void each_half(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) f(m, 0), f(m, 1);
  }
  BARACUDA_D float highest(int m, int half) const {  // of the lane's scores in a row
    float high[2] = {s[m][0][2 * half], s[m][0][2 * half + 1]};
#pragma unroll
    for (int n = 1; n < KEYS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) high[e] = fmaxf(high[e], s[m][n][2 * half + e]);
    }
    return fmaxf(high[0], high[1]);
  }
  template <class F> BARACUDA_D float power_up(int m, int half, const F& power) {
    float part = 0.0f;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      s[m][n][2 * half] = exp2_fast(power(s[m][n][2 * half]));
      s[m][n][2 * half + 1] = exp2_fast(power(s[m][n][2 * half + 1]));
      part += s[m][n][2 * half] + s[m][n][2 * half + 1];
    }
    return part;
  }
  // New bases for rows whose scores, of which each lane has the highest of its own, are above their limit.
  template <bool EXACT> BARACUDA_D void move(float (&high)[MT][2], float c) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& most = high[m][half];
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
        factor[m][half] = 1.0f;
        if (!(most > limit[m][half])) continue;
        const float next = EXACT ? most : most * c, step = base[m][half] - next;
        factor[m][half] = limit[m][half] == -numeric<float>::infinity() ? 0.0f : exp2_fast(EXACT ? step * c : step);
        base[m][half] = next;
        limit[m][half] = most + slack * math::fast_rcp(c);
        float& total = sum[m][half];
        const bool lost = !EXACT && (total == numeric<float>::infinity() || math::abs(next) >= coarse<float>);  // see `astray`
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
          weights[m][n / 2][n % 2 * 2 + half] = pack_pair<T>(s[m][n][2 * half], s[m][n][2 * half + 1]);
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

  // acc += weights times the infinite and NaN values of a tile, by hand: keys that seen(r, key) denies row r of the warp
  // add nothing; those from `left` on are zeros. Layout::at(row, piece) says where a tile's pieces stand.
  template <class Layout, class Seen> BARACUDA_D void add_odd(const T* values, int left, const Seen& is_seen) {
    add_odd_of([&](int j, int n, int e) { return values[Layout::at(j, n) + lane_id() % 4 * 2 + e]; }, left, is_seen);
  }
  // value(j, n, e): of the tile's row j, the lane's column e of piece n.
  template <class Value, class Seen> BARACUDA_D void add_odd_of(const Value& value, int left, const Seen& is_seen) {
    u64 weighty[MT][2][(KEYS + 63) / 64] = {};  // keys whose weight is not 0
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          const u32 pair = weights[m][n / 2][n % 2 * 2 + half];
          weighty[m][half][n / 8] |= static_cast<u64>((pair & 0xffffu ? 1 : 0) | (pair >> 16 ? 2 : 0))
                                     << (n % 8 * 8 + lane_id() % 4 * 2);
        }
#pragma unroll
        for (u64& bits : weighty[m][half]) {
          bits |= __shfl_xor_sync(all_lanes, bits, 1);
          bits |= __shfl_xor_sync(all_lanes, bits, 2);
        }
      }
    }
#pragma unroll 1
    for (int j = 0; j < (RUNS ? KEYS : min(left, KEYS)); ++j) {
      const int key = RUNS ? tile::Runs<KEYS>::row(j) : j;
      float due[MT][2];  // what an infinite value is multiplied by: 1, NaN for a weight of 0, nothing (0) where it is masked
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u64 bits = KEYS > 64 && j >= 64 ? weighty[m][half][(KEYS - 1) / 64] : weighty[m][half][0];
          const bool seen = is_seen(16 * m + lane_id() / 4 + 8 * half, key);
          due[m][half] = !seen ? 0.0f : bits >> j % 64 & 1 ? 1.0f : numeric<float>::nan();
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {  // without branches, which compile ten times slower
        const float x[2] = {to_acc(value(j, n, 0)), to_acc(value(j, n, 1))};
#pragma unroll
        for (int m = 0; m < MT; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            acc[m][n][e] += math::isfinite(x[e % 2]) || due[m][e / 2] == 0.0f ? 0.0f : x[e % 2] * due[m][e / 2];
          }
        }
      }
    }
  }

  // The outputs, divided by the sums and times `again`, to the warp's rows of a tile, from `row` on; and the lse.
  template <class Layout>
  BARACUDA_D void finish(T* tile, int row, float* lse, int rows, float again = 1.0f, float unit = ln_2<float>) {
    float factors[MT][2];
    close(factors, again);
    put_lse(lse, rows, unit);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) tile::put<Layout>(tile, row + 16 * m, 8 * n, acc[m][n], factors[m][0], factors[m][1]);
    }
  }
  // The same by itself: to `cols` columns of out[r * stride] for r < rows, times what close() gave.
  BARACUDA_D void put(T* out, i64 stride, int rows, int cols, const float (&factors)[MT][2]) const {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      put_rows<false>({out + 16 * m * stride, out + (16 * m + 8) * stride}, stride, rows - 16 * m, cols, acc[m], factors[m]);
    }
  }

  // The sums are those of whole rows from here on. What outputs are multiplied by.
  BARACUDA_D void close(float (&factors)[MT][2], float again) {
    each_half([&](int m, int half) { sum[m][half] += __shfl_xor_sync(all_lanes, sum[m][half], 1); });
    each_half([&](int m, int half) { sum[m][half] += __shfl_xor_sync(all_lanes, sum[m][half], 2); });
    each_half([&](int m, int half) { factors[m][half] = sum[m][half] == 0.0f ? 0.0f : again * math::fast_rcp(sum[m][half]); });
  }
  // And then the lse of each row to lse[r] for r < rows, if lse is not null. `unit` is that of the bases: ln 2, or of scores
  // where they are exact.
  BARACUDA_D void put_lse(float* lse, int rows, float unit = ln_2<float>) const {
    const int half = lane_id() % 4;  // two lanes of a quad have a row each
    if (lse == nullptr || half > 1) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      const float total = half == 0 ? sum[m][0] : sum[m][1], from = half == 0 ? base[m][0] : base[m][1];
      const int r = 16 * m + 8 * half + lane_id() / 4;
      if (r < rows) lse[r] = total == 0.0f ? -numeric<float>::infinity() : math::fma(from, unit, math::log(total));
    }
  }
};

}  // namespace attention
}  // namespace baracuda
