#pragma once
// radix_sort  stable sorts of rows by keys of 1, 2, 4 or 8 bytes, with the place of each key in its row as payload.
//
// Keys are bits: `KeyOrder` turns those of a float, a signed or an unsigned integer into unsigned numbers of the same
// order, which a pass sorts by one digit of 8 bits, the lowest first. Ranks are counts and nothing else, so the result
// depends on the keys alone. Rows of three lengths have a sort each: of a warp (sort_warp), of a block (sort_block), and
// of many blocks (radix_clear, radix_count, then radix_pass for every digit).
//
// A radix_pass reads its tile once and writes it once. What the tiles before it have of a digit is found by decoupled
// look-back (Merrill and Garland 2016; Adinets and Merrill 2022, "Onesweep"): a tile leaves its own counts, then those
// up to its end, each in one word with a flag. Blocks start in the order of their numbers, see lookback.cuh.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

constexpr int digit_bits = 8, digits = 1 << digit_bits;

// Bits of a key, as a word of its size.
template <int BYTES> struct KeyWord_;
// clang-format off
template <> struct KeyWord_<1> { using type = u8; };
template <> struct KeyWord_<2> { using type = u16; };
template <> struct KeyWord_<4> { using type = u32; };
template <> struct KeyWord_<8> { using type = u64; };
// clang-format on
template <class T> using key_word = typename KeyWord_<sizeof(T)>::type;

// How keys are ordered; `order` of the parameters, which schedules/radix_sort.py fills.
template <class U> struct KeyOrder {
  U sign, rest;             // the top bit, and the bits that a negative float has turned round
  U low, span;              // of floats: the code of -inf, and +inf less that; beyond lie NaN
  U minus_zero, plus_zero;  // the codes that are one number
  U flip;                   // all ones for a descending order
  BARACUDA_D explicit KeyOrder(const u64 (&order)[7])
      : sign(static_cast<U>(order[0])), rest(static_cast<U>(order[1])), low(static_cast<U>(order[2])),
        span(static_cast<U>(order[3])), minus_zero(static_cast<U>(order[4])), plus_zero(static_cast<U>(order[5])),
        flip(static_cast<U>(order[6])) {}

  // A key's code has the order of the numbers but for zeros and NaN, and can be turned back.
  BARACUDA_D U code(U raw) const { return static_cast<U>(turned(raw) ^ sign); }
  BARACUDA_D U raw(U code) const { return turned(static_cast<U>(code ^ sign)); }
  // The number that codes are sorted by: every NaN is above +inf, zeros are equal.
  BARACUDA_D U rank(U code) const {
    U r = static_cast<U>(code - low) > span ? static_cast<U>(~U(0)) : code;
    r = r == minus_zero ? plus_zero : r;
    return static_cast<U>(r ^ flip);
  }

 private:
  BARACUDA_D U turned(U raw) const { return static_cast<U>(raw >> (8 * sizeof(U) - 1) ? raw ^ rest : raw); }
};

template <class U> BARACUDA_D u32 digit_of(U rank, int shift) { return static_cast<u32>(rank >> shift) & (digits - 1); }

// ---- ranks within a tile --------------------------------------------------------------------------------------------

// The lanes of the warp that have the same digit.
BARACUDA_D u32 same_digit(u32 digit) {
  u32 same = full_warp;
#pragma unroll
  for (int b = 0; b < digit_bits; ++b) {
    const bool on = digit >> b & 1;
    const u32 votes = __ballot_sync(full_warp, on);
    same &= on ? votes : ~votes;
  }
  return same;
}

// Keys of a tile in warp-striped order: item i of a lane is key (warp * per + i) * 32 + lane, where each warp has `per`
// items a lane. The rank of a key: the keys of lower digits, those of warps before, those before it in its own.
template <int THREADS, int ITEMS> struct TileRanks {
  static constexpr int warps = THREADS / warp_size, own = THREADS < digits ? digits / THREADS : 1;
  struct Memory {
    alignas(16) u16 count[warps][digits];
    u32 start[digits];
    u32 scratch[warps];
  };
  Memory& memory;

  // put(i, rank): the keys before item i in its warp that have its digit. Then `count` has each warp's keys by digit.
  template <class D, class F> BARACUDA_D void count(const D& digit, int per, const F& put) const {
    const int lane = lane_id();
    u16* const mine = memory.count[threadIdx.x / warp_size];
    store(mine + lane * (digits / warp_size), Vec<u16, digits / warp_size>{});
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (i >= per) break;
      const u32 d = digit(i), same = same_digit(d), before = same & ((1u << lane) - 1u), base = mine[d];
      __syncwarp();
      if (before == 0) mine[d] = static_cast<u16>(base + __popc(same));
      put(i, base + __popc(before));
      __syncwarp();
    }
    __syncthreads();
  }
  // Of the thread's own digits, total[j] = the keys of the tile; `count` becomes those of the warps before.
  BARACUDA_D void sum(u32 (&total)[own]) const {
#pragma unroll
    for (int j = 0; j < own; ++j) {
      total[j] = 0;
      if (digit(j) >= digits) continue;
#pragma unroll 4
      for (int w = 0; w < warps; ++w) {
        const u32 n = memory.count[w][digit(j)];
        memory.count[w][digit(j)] = static_cast<u16>(total[j]);
        total[j] += n;
      }
    }
  }
  // `start` becomes the keys of lower digits. Ends with a barrier.
  BARACUDA_D void scan(const u32 (&total)[own]) const {
    u32 all = 0;
#pragma unroll
    for (int j = 0; j < own; ++j) all += total[j];
    u32 before = block_scan<Sum, THREADS>(all, memory.scratch) - all;
#pragma unroll
    for (int j = 0; j < own; ++j) {
      if (digit(j) < digits) memory.start[digit(j)] = before;
      before += total[j];
    }
    __syncthreads();
  }
  // What to add to the rank of a key of digit d.
  BARACUDA_D u32 before(u32 d) const { return memory.start[d] + memory.count[threadIdx.x / warp_size][d]; }
  static BARACUDA_D int digit(int j) { return static_cast<int>(threadIdx.x) * own + j; }
};

// ---- operands -------------------------------------------------------------------------------------------------------

// Where a row begins in keys (0), sorted keys (1), sorted places (2), and how they step along it.
struct SortRow {
  i64 at[3];
  template <class P> BARACUDA_D SortRow(const P& p, i64 row) { row_offsets(p, row, at); }
};
// Writes the key and the place of number g of a sorted row, where that is in the window [first, first + most).
template <class U, class P> BARACUDA_D void put_sorted(const P& p, const SortRow& row, u32 g, U key, u32 place) {
  const u32 at = g - static_cast<u32>(p.first);
  if (at >= static_cast<u32>(p.most)) return;
  if (p.sorted != nullptr) static_cast<U*>(p.sorted)[row.at[1] + at * p.step[1]] = key;
  if (p.places == nullptr) return;
  const i64 to = row.at[2] + at * p.step[2];
  if (p.places_wide) static_cast<i64*>(p.places)[to] = place;
  else static_cast<u32*>(p.places)[to] = place;
}

// ---- rows of up to 128 keys, a warp each ----------------------------------------------------------------------------

// A bitonic network (Batcher 1968) over pairs (key, place), which are all different. Key i * 32 + lane is item i.
template <class U, int ITEMS, class P> BARACUDA_D void sort_warp(const P& p) {
  const int lane = lane_id();
  const i64 index = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / warp_size;
  if (index >= p.rows) return;
  const SortRow row(p, index);
  const KeyOrder<U> order(p.order);
  const U* keys = static_cast<const U*>(p.keys) + row.at[0];
  const u32 n = static_cast<u32>(p.cols);
  U key[ITEMS];
  u32 place[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    place[i] = i * warp_size + lane;
    key[i] = static_cast<U>(~U(0));
    if (place[i] < n) key[i] = order.rank(order.code(keys[place[i] * p.step[0]]));
  }
  constexpr int size = ITEMS * warp_size;
#pragma unroll
  for (int run = 2; run <= size; run *= 2) {
#pragma unroll
    for (int far = run / 2; far > 0; far /= 2) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (far >= warp_size) {
          const int j = i ^ (far / warp_size);
          if (j < i) continue;
          const bool down = (i * warp_size & run) != 0;
          const bool more = key[i] > key[j] || (key[i] == key[j] && place[i] > place[j]);
          if (more != down) {
            const U k = key[i];
            const u32 at = place[i];
            key[i] = key[j], place[i] = place[j];
            key[j] = k, place[j] = at;
          }
        } else {
          const U k = shuffle_xor(key[i], far);
          const u32 at = shuffle_xor(place[i], far);
          const bool more = key[i] > k || (key[i] == k && place[i] > at);
          const bool lower = (lane & far) == 0, down = ((i * warp_size + lane) & run) != 0;
          if (more == (lower != down)) key[i] = k, place[i] = at;
        }
      }
    }
  }
  // Keys are taken from the row again, as NaN and zeros have lost their bits.
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (place[i] < n) put_sorted(p, row, i * warp_size + lane, keys[place[i] * p.step[0]], place[i]);
  }
}

// ---- rows that a block holds ----------------------------------------------------------------------------------------

template <class U, int THREADS, int ITEMS, class P> BARACUDA_D void sort_block(const P& p) {
  using Ranks = TileRanks<THREADS, ITEMS>;
  __shared__ typename Ranks::Memory memory;
  BARACUDA_DYNAMIC_SMEM(U, keys);  // p.cols keys, then their places, rounded up to whole warps
  const Ranks ranks{memory};
  const KeyOrder<U> order(p.order);
  const SortRow row(p, static_cast<i64>(blockIdx.x));
  const int n = static_cast<int>(p.cols), per = div_up(n, THREADS);
  const int padded = round_up(n, warp_size), lane = lane_id();
  const int begin = static_cast<int>(threadIdx.x) / warp_size * per * warp_size + lane;
  u16* const places = reinterpret_cast<u16*>(keys + padded);
  const U* source = static_cast<const U*>(p.keys) + row.at[0] + begin * p.step[0];
  U key[ITEMS];
  u32 place[ITEMS];  // in the low half; in the high one the rank, while there is one
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int at = begin + i * warp_size;
    key[i] = U(0), place[i] = at;
    if (i < per && at < n) key[i] = order.code(*source);
    source += warp_size * p.step[0];
  }
#pragma unroll 1
  for (int shift = 0; shift < p.bits; shift += digit_bits) {
    // Keys beyond the row have the highest digit and stand behind all others, so that they stay there.
    const auto digit = [&](int i) {
      return begin + i * warp_size < n ? digit_of(order.rank(key[i]), shift) : u32(digits - 1);
    };
    u32 total[Ranks::own];
    ranks.count(digit, per, [&](int i, u32 rank) { place[i] |= rank << 16; });
    ranks.sum(total);
    ranks.scan(total);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (i >= per || begin + i * warp_size >= n) break;
      const u32 to = (place[i] >> 16) + ranks.before(digit(i));
      keys[to] = key[i], places[to] = static_cast<u16>(place[i]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int at = begin + i * warp_size;
      if (i < per && at < n) key[i] = keys[at], place[i] = places[at];
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int at = begin + i * warp_size;
    if (i < per && at < n) put_sorted(p, row, at, order.raw(key[i]), place[i] & 0xffff);
  }
}

// ---- longer rows ----------------------------------------------------------------------------------------------------

// Zeroes the counts and the states.
template <class P> BARACUDA_D void radix_clear(const P& p) {
  for (i64 i = thread_index(); i < p.marks; i += thread_count()) static_cast<u32*>(p.counts)[i] = 0;
}

// counts[row][pass][digit]: the keys of the row by every digit. A block has a part of a row. Integers: in any order.
template <class U, int THREADS, class P> BARACUDA_D void radix_count(const P& p) {
  constexpr int copies = 4, loads = 8, passes = sizeof(U);
  __shared__ u32 count[passes][digits][copies];
  for (int i = threadIdx.x; i < passes * digits * copies; i += THREADS) (&count[0][0][0])[i] = 0;
  __syncthreads();
  const i64 index = static_cast<i64>(blockIdx.x) / p.parts, part = static_cast<i64>(blockIdx.x) % p.parts;
  const i64 share = div_up(p.cols, static_cast<i64>(p.parts)), begin = part * share, end = min(begin + share, p.cols);
  const SortRow row(p, index);
  const KeyOrder<U> order(p.order);
  const U* keys = static_cast<const U*>(p.keys) + row.at[0];
  const int copy = threadIdx.x % copies;
#pragma unroll 1
  for (i64 first = begin + threadIdx.x; first < end; first += THREADS * loads) {
    U key[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const i64 at = first + k * THREADS;
      if (at < end) key[k] = keys[at * p.step[0]];
    }
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      if (first + k * THREADS >= end) break;
      const U rank = order.rank(order.code(key[k]));
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        if (pass * digit_bits < p.bits) atomicAdd(&count[pass][digit_of(rank, pass * digit_bits)][copy], 1u);
      }
    }
  }
  __syncthreads();
  const int all = div_up(p.bits, digit_bits) * digits;
  u32* const out = static_cast<u32*>(p.counts) + index * all;
  for (int i = threadIdx.x; i < all; i += THREADS) {
    u32 sum = 0;
#pragma unroll
    for (int c = 0; c < copies; ++c) sum += (&count[0][0][0])[i * copies + c];
    if (sum != 0) atomicAdd(out + i, sum);
  }
}

// A state says how many keys of a digit a tile has (own), or the tile and all before it, lower digits included (up_to).
// States of earlier passes lie in the same words; the flag has the number of the pass. What a word says needs no other
// memory, so it is read and written relaxed. PITCH: words from a tile to the next.
// PTX ISA, Data Movement and Conversion Instructions: ld, st, .relaxed (PTX 6.0, sm_70).
template <int PITCH> struct TileStates {
  u64* words;
  u32 own, up_to;
  // clang-format off
  BARACUDA_D void leave(u32 flag, u32 count) const {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
                 :: "l"(__cvta_generic_to_global(words)), "l"(static_cast<u64>(flag) << 32 | count) : "memory");
  }
  BARACUDA_D u64 seen(i64 back) const {
    u64 now;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                 : "=l"(now) : "l"(__cvta_generic_to_global(words - back * PITCH)) : "memory");
    return now;
  }
  // clang-format on
  // The keys before those of this tile, of which there are `tile` before it.
  BARACUDA_D u32 look_back(i64 tile) const {
    constexpr int at_once = 4;
    u32 sum = 0;
    for (i64 back = 1; back <= tile;) {
      u64 word[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) word[k] = back + k <= tile ? seen(back + k) : 0;
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const u32 flag = static_cast<u32>(word[k] >> 32);
        if (flag != own && flag != up_to) break;
        sum += static_cast<u32>(word[k]);
        if (flag == up_to) return sum;
        ++back;
      }
    }
    return sum;
  }
};

// A pass over one digit: a tile of a row a block. The first pass reads the keys through their strides and counts places
// itself, the last one writes the results; keys are codes between them.
template <class U, int THREADS, int ITEMS, class P> BARACUDA_D void radix_pass(const P& p) {
  using Ranks = TileRanks<THREADS, ITEMS>;
  static_assert(Ranks::own == 1, "a digit a thread");
  constexpr int size = THREADS * ITEMS;
  __shared__ typename Ranks::Memory memory;
  __shared__ u32 shift_of[digits];  // from the place of a key in its tile to that in its row
  BARACUDA_DYNAMIC_SMEM(U, keys);
  u32* const places = reinterpret_cast<u32*>(keys + size);
  const Ranks ranks{memory};
  const KeyOrder<U> order(p.order);
  const i64 index = static_cast<i64>(blockIdx.x) / p.tiles, tile = static_cast<i64>(blockIdx.x) % p.tiles;
  const SortRow row(p, index);
  const u32 first = static_cast<u32>(tile * size), left = static_cast<u32>(min(p.cols - tile * size, i64(size)));
  const u32 begin = threadIdx.x / warp_size * (ITEMS * warp_size) + lane_id();
  const U* source = static_cast<const U*>(p.keys) + row.at[0] + (first + begin) * p.step[0];
  U key[ITEMS];
  u32 rank[ITEMS / 2] = {};  // two in a word
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 at = begin + i * warp_size;
    key[i] = U(0);
    if (at < left) key[i] = *source;
    source += warp_size * p.step[0];
  }
  if (p.begins) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) key[i] = order.code(key[i]);
  }
  const auto digit = [&](int i) {
    return begin + i * warp_size < left ? digit_of(order.rank(key[i]), p.shift) : u32(digits - 1);
  };
  ranks.count(digit, ITEMS, [&](int i, u32 before) { rank[i / 2] |= before << 16 * (i % 2); });
  u32 total[1];
  ranks.sum(total);
  const bool counts = threadIdx.x < digits;
  const u32 mine = threadIdx.x;
  const TileStates<digits> states{
      static_cast<u64*>(p.states) + static_cast<i64>(blockIdx.x) * digits + (counts ? mine : 0),
      static_cast<u32>(2 * p.number + 1), static_cast<u32>(2 * p.number + 2)};
  if (counts && mine == digits - 1) total[0] -= size - left;  // what is beyond the row
  if (counts && tile > 0) states.leave(states.own, total[0]);
  u32 before = 0;
  if (tile == 0) {
    const u32* all = static_cast<const u32*>(p.counts) + (index * p.passes + p.number) * digits;
    const u32 own = counts ? all[mine] : 0;
    before = block_scan<Sum, THREADS>(own, memory.scratch) - own;
    __syncthreads();
  }
  ranks.scan(total);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 to = ranks.before(digit(i));
    rank[i / 2] += to << 16 * (i % 2);
    keys[rank[i / 2] >> 16 * (i % 2) & 0xffff] = key[i];
  }
  const u32* carried = p.carried == nullptr ? nullptr : static_cast<const u32*>(p.carried) + index * p.cols + first;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 at = begin + i * warp_size, to = rank[i / 2] >> 16 * (i % 2) & 0xffff;
    places[to] = carried != nullptr && at < left ? carried[at] : first + at;
  }
  if (counts) {
    if (tile > 0) before = states.look_back(tile);
    states.leave(states.up_to, before + total[0]);
    shift_of[mine] = before - memory.start[mine];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const u32 at = threadIdx.x + i * THREADS;
    if (at >= left) break;
    const U k = keys[at];
    put_sorted(p, row, shift_of[digit_of(order.rank(k), p.shift)] + at, p.ends ? order.raw(k) : k, places[at]);
  }
}

}  // namespace baracuda
