#pragma once
// rope       the rotation of rope.cu and rope_kv_append.cu:
//            y[2 of a pair] = (a cos t - b sin t, b cos t + a sin t) * scale,   t = position * inv_freq[pair]
//
// A block has a tile of rows and a group of heads of one tensor. It computes the cosines and sines of its rows' pairs
// in shared memory, once for all heads. A thread owns two chunks of VEC columns of one row that hold whole pairs:
// columns c … and c + split …, split being half of the rotated columns. Pairing "half" joins column k of the first
// chunk with column k of the second, "interleaved" joins neighbours within each. The thread walks every lanes-th head
// of the group, with the chunks of the next two in flight. Chunks beyond the rotated columns are copied. Nothing is
// summed; the bits of an element do not depend on chunks.
//
// Angles are kept in turns, inv_freq / (2 pi). Where the work is in float, a frequency is a fraction of a turn in
// 64-bit fixed point: times the position, modulo a turn, it is one integer product, exact to 2^-44 turns at position
// 2^20. In double it is two doubles: the product's distance from the nearest integer is exact far below a double's
// rounding. Measurements: docs/design/rope.md.
//
// P is a parameter struct with the fields of `ops/attention/rope.py: rotation_params`.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/opaque.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

// Turns per position, as two doubles; the page's table holds those of usual sizes.
template <class P> BARACUDA_D double2 rope_frequency(const P& p, i64 pair) {
  double f;
  if (p.inv_freq == nullptr) {
    if (pair < p.table_pairs) return {p.table[pair][0], p.table[pair][1]};
    f = math::pow(p.base, -(2.0 * static_cast<double>(pair) / static_cast<double>(p.rotary_dim)));
  } else if (p.inv_freq_wide) {
    f = static_cast<const double*>(p.inv_freq)[pair * p.inv_freq_stride];
  } else {
    f = static_cast<const float*>(p.inv_freq)[pair * p.inv_freq_stride];
  }
  const double turn = 0.15915494309189535, turn_low = -9.839338337591243e-18;  // 1 / (2 pi)
  const double head = f * turn;
  return {head, math::fma(f, turn_low, math::fma(f, turn, -head))};
}

// How a frequency is kept for accumulator A, and the sine and cosine of position * frequency turns: NaN where the
// frequency is not finite.
template <class A> struct Angle;
template <> struct Angle<float> {
  struct frequency {
    u64 turn;    // the fraction of a turn in 2^-64
    float unit;  // 2^-63: half turns in [-1, 1), or NaN where the frequency is not finite
  };
  static constexpr float half_turn = 1.0842021724855044e-19f;  // in 2^-64
  static BARACUDA_D frequency keep(double2 f) {
    constexpr double one = 18446744073709551616.0;  // 2^64: a whole turn, which counts as none
    return {__double2ull_rz((f.x - ::floor(f.x)) * one) + static_cast<u64>(__double2ll_rn(f.y * one)),
            math::isfinite(f.x) ? half_turn : numeric<float>::nan()};
  }
  static BARACUDA_D void sincos(i64 position, frequency f, float* s, float* c) {
    const i64 turns = static_cast<i64>(static_cast<u64>(position) * f.turn);
    ::sincospif(static_cast<float>(turns) * f.unit, s, c);
  }
};
template <> struct Angle<double> {
  using frequency = double2;
  static BARACUDA_D double2 keep(double2 f) { return f; }
  static BARACUDA_D void sincos(i64 position, double2 f, double* s, double* c) {
    const double place = static_cast<double>(position), head = place * f.x;
    const double low = math::fma(place, f.y, math::fma(place, f.x, -head));
    const double part = head - math::rint(head), turns = part + low, back = turns - part;
    const double tail = ((part - (turns - back)) + (low - back)) * 6.283185307179586;
    double s0, c0;
    ::sincospi(2.0 * turns, &s0, &c0);
    *s = math::fma(tail, c0, s0);
    *c = math::fma(-tail, s0, c0);
  }
};

// The frequency of a pair as Angle keeps it.
template <class A, class P> BARACUDA_D typename Angle<A>::frequency rope_kept(const P& p, i64 pair) {
  if constexpr (is_same<A, float>) {
    // Read as memory, not as a kernel parameter: those are read one address at a time, and each thread has its own.
    if (p.inv_freq == nullptr && pair < p.table_pairs) return {opaque(&p.turns[0])[pair], Angle<A>::half_turn};
  }
  return Angle<A>::keep(rope_frequency(p, pair));
}

// WIDE chunks are whole or absent; others are loaded element by element, whatever their stride.
template <class T, bool WIDE> using RopeChunk = conditional<WIDE, Chunk, Vec<T, 2>>;
template <class T, bool WIDE> BARACUDA_D void rope_load(RopeChunk<T, WIDE>& x, const T* p, i64 stride, int left) {
  if constexpr (!WIDE) x = load_strided<T, 2>(p, stride, left);
  else if (left > 0) x = load<4>(reinterpret_cast<const u32*>(p));
}
template <class T, bool WIDE> BARACUDA_D void rope_store(T* p, i64 stride, const RopeChunk<T, WIDE>& x, int left) {
  if constexpr (!WIDE) store_strided<T, 2>(p, stride, x, left);
  else if (left > 0) store_streaming(reinterpret_cast<u32*>(p), x);
}
template <class T, bool WIDE> BARACUDA_D auto rope_unpack(const RopeChunk<T, WIDE>& x) {
  if constexpr (WIDE) return to_acc(unpack<T>(x));
  else return to_acc(x);
}
template <class T, bool WIDE, class V> BARACUDA_D RopeChunk<T, WIDE> rope_pack(const V& x) {
  if constexpr (WIDE) return pack<T>(from_acc<T>(x));
  else return from_acc<T>(x);
}

// An element of an array of 32- or 64-bit integers.
BARACUDA_D i64 rope_integer(const void* from, i64 at, bool wide) {
  return wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}

// The axis of positions that a pair turns by; `pair_axes` of the page.
template <class P> BARACUDA_D u32 rope_axis(const P& p, u32 pair) {
  u32 axis = 0;
  if (p.sections == 0) return axis;
  if (p.by_sections[0] == 0) {
#pragma unroll
    for (int k = 0; k + 1 < static_cast<int>(sizeof(p.section_ends) / sizeof(u32)); ++k)
      axis += pair >= p.section_ends[k];
    return axis;
  }
  DivMod{p.by_sections[0], p.by_sections[1], p.by_sections[2]}.divmod(pair, axis);  // interleaved
  return pair < p.section_ends[axis] ? axis : 0;
}
// The position that a pair of place s of sample b turns by.
template <class P> BARACUDA_D u64 rope_position(const P& p, i64 b, i64 s, u32 pair) {
  if (p.positions == nullptr) return static_cast<u64>(s);
  const i64(&n)[3] = p.position_strides;
  const i64 at = rope_axis(p, pair) * n[0] + b * n[1] + s * n[2];
  return static_cast<u64>(rope_integer(p.positions, at, p.positions_wide));
}

// Entry (b, s, pair) of table `which`, of T or of its accumulator.
template <class T, class P> BARACUDA_D acc_t<T> rope_entry(const P& p, int which, i64 b, i64 s, i64 pair) {
  const i64(&n)[3] = p.angle_strides[which];
  const void* const table = which ? p.sin : p.cos;
  const i64 at = b * n[0] + s * n[1] + pair * n[2];
  if (p.tables_wide >> which & 1) return static_cast<const acc_t<T>*>(table)[at];
  return to_acc(static_cast<const T*>(table)[at]);
}

// Rotates the rows of x and x2 into y and y2. APPEND: those of x2 go to row offset[b] + s of a cache, y2, and those of
// x3, unchanged, to y3. Rows that would lie outside the caches are skipped.
template <class T, bool INTERLEAVED, bool WIDE, bool APPEND, class P> BARACUDA_D void rope_rows(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = WIDE ? vec_elems<T> : 2;
  const u32 pairs = static_cast<u32>(p.rotary_dim / 2);
  BARACUDA_DYNAMIC_SMEM(A, cosines);  // of row r's pair k at r * pairs + k
  A* const sines = cosines + p.tile_rows * pairs;

  // The block's tile of rows, and its heads, all of one tensor: kind 0 is x, 1 x2, 2 x3.
  u32 tile, group, row, column;
  const u32 unit_block = divmod(divmod(blockIdx.x, p.tiles, tile), p.groups, group);
  const i64 first_row = static_cast<i64>(tile) * p.tile_rows;
  const int kind = (group >= p.first_group[0]) + (group >= p.first_group[1]);
  const bool values = APPEND && kind == 2;
  if (kind > 0) group -= p.first_group[kind - 1];

  // The thread's row, chunks and heads.
  const u32 lane = divmod(divmod(threadIdx.x, p.block_units, column), p.tile_rows, row);
  const i64 unit = static_cast<i64>(unit_block) * p.block_units + column;
  const bool active = lane < p.lanes && unit < p.units && first_row + row < p.rows;
  u64 first_s;
  const i64 first_b = divmod(static_cast<u64>(first_row), static_cast<u64>(p.seq_len), first_s);
  auto place_row = [&](u32 r, i64& sample, i64& s) {  // a tile's rows are few: no division
    sample = first_b, s = static_cast<i64>(first_s) + r;
    while (s >= p.seq_len) s -= p.seq_len, ++sample;
  };
  i64 b, s;
  place_row(active ? row : 0, b, s);
  const i64 first_head = static_cast<i64>(group) * p.group_heads, head = first_head + lane;
  const i64 span = active ? min(p.group_heads, p.head_counts[kind] - first_head) - lane : 0;
  int left = span > 0 ? static_cast<int>((static_cast<u32>(span) + p.lanes - 1) / p.lanes) : 0;  // heads still to write
  [[maybe_unused]] i64 place = 0;
  if constexpr (APPEND) {
    if (active) place = rope_integer(p.cache_offsets, b * p.cache_offset_stride, p.offsets_wide);
    place = static_cast<i64>(static_cast<u64>(place) + static_cast<u64>(s));  // wraps, as NumPy does
  }

  // The chunks' first columns, and the number of columns from there to the end of their part (rotated or copied).
  const bool turning = !values && unit < p.rotary_units;
  const i64 split = INTERLEAVED ? (pairs + 1) / 2 * 2 : pairs;
  i64 col = turning ? unit * VEC : p.rotary_dim + (unit - p.rotary_units) * VEC;
  i64 col2 = col + (turning ? split : p.copy_units * VEC);
  i64 width = (turning ? split : p.head_dim) - col;
  i64 width2 = (turning ? p.rotary_dim : p.head_dim) - col2;
  if constexpr (APPEND) {
    if (values) {
      col = unit * VEC, col2 = col + p.value_units * VEC;
      width = min(p.value_units * VEC, p.value_dim) - col;
      width2 = width > 0 ? p.value_dim - col2 : 0;
    }
  }
  void *base = kind ? p.x2 : p.x, *base_out = kind ? p.y2 : p.y;
  i64 line = s;
  if constexpr (APPEND) {
    if (values) base = p.x3, base_out = p.y3;
    if (kind > 0) line = place;
  }
  const i64(&n)[4] = p.strides[2 * kind];
  const i64(&m)[4] = p.strides[2 * kind + 1];
  const T* in = static_cast<const T*>(base) + (b * n[0] + head * n[1] + s * n[2] + col * n[3]);
  T* out = static_cast<T*>(base_out) + (b * m[0] + head * m[1] + line * m[2] + col * m[3]);
  const i64 in_apart = WIDE ? col2 - col : (col2 - col) * n[3], out_apart = WIDE ? col2 - col : (col2 - col) * m[3];
  const i64 in_step = p.lanes * n[1], out_step = p.lanes * m[1];

  const int exist = static_cast<int>(max<i64>(min<i64>(width, VEC), 0));
  const int exist2 = static_cast<int>(max<i64>(min<i64>(width2, VEC), 0));

  using Held = RopeChunk<T, WIDE>;
  Held x{}, x2{}, ahead{}, ahead2{};
  auto fetch = [&](Held& one, Held& two) {
    rope_load<T, WIDE>(one, in, n[3], exist);
    rope_load<T, WIDE>(two, in + in_apart, n[3], exist2);
    in += in_step;
  };
  if (left > 0) fetch(x, x2);  // in flight while the angles are computed
  if (left > 1) fetch(ahead, ahead2);

  if (!values && pairs > 0) {
    const u32 rows = static_cast<u32>(min<i64>(p.tile_rows, p.rows - first_row));
    const A scale = static_cast<A>(p.scale());
    u32 pair, r = divmod(threadIdx.x, pairs, pair), kept = pairs;
    typename Angle<A>::frequency frequency{};
    while (r < rows) {
      i64 sample, at;
      place_row(r, sample, at);
      A sine, cosine;
      if (p.cos != nullptr) {
        cosine = rope_entry<T>(p, 0, sample, at, pair);
        sine = rope_entry<T>(p, 1, sample, at, pair);
      } else {
        if (pair != kept) frequency = rope_kept<A>(p, pair), kept = pair;
        u64 position = rope_position(p, sample, at, pair);  // sums wrap, as NumPy's do
        if constexpr (APPEND) {
          if (p.positions == nullptr)
            position += static_cast<u64>(rope_integer(p.cache_offsets, sample * p.cache_offset_stride, p.offsets_wide));
        }
        if constexpr (!APPEND) position += static_cast<u64>(p.offset());
        Angle<A>::sincos(static_cast<i64>(position), frequency, &sine, &cosine);
      }
      cosines[r * pairs + pair] = cosine * scale;
      sines[r * pairs + pair] = p.inverse ? -(sine * scale) : sine * scale;
      r += p.step_rows, pair += p.step_pairs;
      if (pair >= pairs) pair -= pairs, ++r;
    }
    __syncthreads();
  }
  if constexpr (APPEND) {
    if (active && kind > 0 && static_cast<u64>(place) >= static_cast<u64>(p.cache_len)) {
      if (p.status != nullptr) atomicOr(p.status, 1u);
      left = 0;
    }
  }

  // Index of the first chunk's angles, and the distance to those of the second chunk, or of the second column. Values
  // beyond the last pair are never used.
  const int angle = static_cast<int>(row * pairs) + static_cast<int>(INTERLEAVED ? col / 2 : col);
  int other = static_cast<int>(pairs) / 2;
  if constexpr (!WIDE) {
    const int last = static_cast<int>(row * pairs + pairs) - 1;
    other = min(INTERLEAVED ? static_cast<int>(split / 2) : 1, last - angle);
  }
  for (; left > 0; --left) {
    Held y = x, y2 = x2;
    Vec<A, VEC> a, c;
    if (turning) a = rope_unpack<T, WIDE>(x), c = rope_unpack<T, WIDE>(x2);
    x = ahead, x2 = ahead2;
    if (left > 2) fetch(ahead, ahead2);
    if (turning) {
      // Read again for each head: in registers they would cost a quarter of the threads.
      const A* const cosine_at = cosines + forgotten(angle);
      const A* const sine_at = sines + forgotten(angle);
      Vec<A, VEC> sine, cosine;
      if constexpr (WIDE && !INTERLEAVED) {
        cosine = load<VEC>(cosine_at), sine = load<VEC>(sine_at);
      } else {
        constexpr int HALF = VEC / 2;
        const auto s0 = load<HALF>(sine_at), s1 = load<HALF>(sine_at + other);
        const auto c0 = load<HALF>(cosine_at), c1 = load<HALF>(cosine_at + other);
#pragma unroll
        for (int k = 0; k < HALF; ++k) {
          sine[k] = s0[k], sine[HALF + k] = s1[k];
          cosine[k] = c0[k], cosine[HALF + k] = c1[k];
        }
      }
      auto turn = [&](A& u, A& v, int angle) {
        const A u0 = u;
        u = math::fma(u0, cosine[angle], -(v * sine[angle]));
        v = math::fma(v, cosine[angle], u0 * sine[angle]);
      };
      if constexpr (INTERLEAVED) {
#pragma unroll
        for (int j = 0; j < VEC / 2; ++j) {
          turn(a[2 * j], a[2 * j + 1], j);
          turn(c[2 * j], c[2 * j + 1], VEC / 2 + j);
        }
      } else {
#pragma unroll
        for (int j = 0; j < VEC; ++j) turn(a[j], c[j], j);
      }
      y = rope_pack<T, WIDE>(a), y2 = rope_pack<T, WIDE>(c);
    }
    rope_store<T, WIDE>(out, m[3], y, exist);
    rope_store<T, WIDE>(out + out_apart, m[3], y2, exist2);
    out += out_step;
  }
}

}  // namespace baracuda
