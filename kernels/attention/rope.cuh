#pragma once
// rope       the rotation of rope.cu and rope_kv_append.cu:
//            y[2 of a pair] = (a cos t - b sin t, b cos t + a sin t) * scale,   t = position * inv_freq[pair]
//
// A thread owns two chunks of VEC columns of one row, chosen so that they hold whole pairs: columns c … and c + split …
// with split the half of the rotated columns. Pairing "half" joins column k of the one with column k of the other,
// "interleaved" joins neighbours within each. The angles are computed once and serve all heads of the thread's group,
// the next head's chunks in flight while one is turned. Chunks beyond the rotated columns are copied.
// There are no sums; the bits of an element do not depend on the chunking.
//
// Angles are kept in turns, inv_freq / (2 pi). Where the work is in float, a frequency is a fraction of a turn in
// 64-bit fixed point: times the position, modulo a turn, is one integer product, exact to 2^-44 turns at position 2^20
// (in two doubles it cost 95 instruction slots an angle against 45, and the op 30 % of its time). For double, two
// doubles: what is left of the product less the nearest integer is exact far below a double's rounding.
//
// P is a parameter struct with the fields of `ops/attention/rope.py: rotation_params`.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// Turns per position, in two words: the page's table holds those of usual sizes.
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

// How a frequency is kept for accumulator A, and the sine and cosine of position * frequency turns.
template <class A> struct Angle;
template <> struct Angle<float> {
  using frequency = u64;
  static BARACUDA_D u64 keep(double2 f) {
    constexpr double one = 18446744073709551616.0;  // 2^64: a whole turn, which is none
    return __double2ull_rz((f.x - ::floor(f.x)) * one) + static_cast<u64>(__double2ll_rn(f.y * one));
  }
  static BARACUDA_D void sincos(i64 position, u64 f, float* s, float* c) {
    const i64 turns = static_cast<i64>(static_cast<u64>(position) * f);
    ::sincospif(static_cast<float>(turns) * 1.0842021724855044e-19f, s, c);  // 2^-63: half turns in [-1, 1)
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

// WIDE chunks are whole or absent; others are fetched element by element, whatever their stride.
template <int VEC, bool WIDE, class T> BARACUDA_D Vec<T, VEC> rope_load(const T* p, i64 stride, i64 left) {
  if constexpr (WIDE) return left > 0 ? load_streaming<VEC>(p) : Vec<T, VEC>{};
  else return load_strided<T, VEC>(p, stride, left);
}
template <int VEC, bool WIDE, class T> BARACUDA_D void rope_store(T* p, i64 stride, const Vec<T, VEC>& x, i64 left) {
  if constexpr (!WIDE) store_strided<T, VEC>(p, stride, x, left);
  else if (left > 0) store_streaming(p, x);
}

// out[k] = entry pairs[k] of the row at `from` of a table of T or of its accumulator; 0 where there is no such pair.
template <class T, int VEC, class P>
BARACUDA_D void rope_table(const P& p, int which, const void* table, i64 b, i64 s, const i64 (&pairs)[VEC],
                           acc_t<T> (&out)[VEC]) {
  const i64(&n)[3] = p.table_strides[which];
  auto read = [&](const auto* row) {
#pragma unroll
    for (int k = 0; k < VEC; ++k) out[k] = pairs[k] < p.rotary_dim / 2 ? to_acc(row[pairs[k] * n[2]]) : acc_t<T>(0);
  };
  if (p.tables_wide >> which & 1) read(static_cast<const acc_t<T>*>(table) + (b * n[0] + s * n[1]));
  else read(static_cast<const T*>(table) + (b * n[0] + s * n[1]));
}

// The rows of x and x2 turned to y and y2. APPEND: those of x2 go to row offset[b] + s of a cache, y2; and so do those
// of x3, as they are, to y3. Rows that would lie outside the caches are left out.
template <class T, bool INTERLEAVED, bool WIDE, bool APPEND, class P> BARACUDA_D void rope_rows(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = WIDE ? vec_elems<T> : 2, SIDES = APPEND ? 6 : 4;
  using Frequency = typename Angle<A>::frequency;
  BARACUDA_DYNAMIC_SMEM(Frequency, frequencies);

  u64 unit = 0, s = 0, group = 0, rest = thread_index<u64>();
  const bool active = rest < static_cast<u64>(p.items);
  rest = divmod(rest, static_cast<u64>(p.units), unit);
  rest = divmod(rest, static_cast<u64>(max<i64>(p.seq_len, 1)), s);
  const i64 b = divmod(rest, static_cast<u64>(p.groups), group);
  i64 head = group * p.group_heads;
  const i64 turned = p.heads + p.heads2;  // heads from here on are values
  i64 end = turned;
  if constexpr (APPEND) end += p.heads3;
  end = active ? min(head + p.group_heads, end) : 0;

  // The chunks' first columns and how many columns from there belong to the part (rotated or copied) they lie in.
  const i64 pairs = p.rotary_dim / 2;
  const bool turning = static_cast<i64>(unit) < p.rotary_units;
  const i64 split = INTERLEAVED ? (pairs + 1) / 2 * 2 : pairs;
  const i64 copies = p.copy_units;
  const i64 col = turning ? unit * VEC : p.rotary_dim + (static_cast<i64>(unit) - p.rotary_units) * VEC;
  const i64 col2 = col + (turning ? split : copies * VEC);
  const i64 left = (turning ? split : p.head_dim) - col;
  const i64 left2 = (turning ? p.rotary_dim : p.head_dim) - col2;
  [[maybe_unused]] i64 place = 0, col3 = 0, left3 = 0, left4 = 0;
  if constexpr (APPEND) {
    const i64 at = b * p.cache_offset_stride;
    if (active) {
      const void* const from = p.cache_offsets;
      place = p.offsets_wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
    }
    place = static_cast<i64>(static_cast<u64>(place) + s);  // wraps, as NumPy does
    col3 = unit * VEC;
    left3 = p.value_units * VEC - col3;
    if (p.value_dim - col3 < left3) left3 = p.value_dim - col3;
    left4 = left3 > 0 ? p.value_dim - col3 - p.value_units * VEC : 0;
  }

  // Where head 0 starts in x, y, x2, y2, and how far its second chunk lies from the first: computed once, since with
  // the products in the loop over heads the op was bound by integer arithmetic (183 us against 159 on 268 MB, H200).
  T* start[SIDES];
  i64 apart[SIDES];
#pragma unroll
  for (int i = 0; i < SIDES; ++i) {
    const i64(&n)[4] = p.strides[i];
    void* base = i == 0 ? p.x : i == 1 ? p.y : i == 2 ? p.x2 : p.y2;
    i64 row = static_cast<i64>(s), first = col, second = col2 - col;
    if constexpr (APPEND) {
      if (i > 3) base = i == 4 ? p.x3 : p.y3, first = col3, second = p.value_units * VEC;
      if (i == 3 || i == 5) row = place;
    }
    start[i] = static_cast<T*>(base) + (b * n[0] + row * n[2] + first * n[3]);
    apart[i] = second * n[3];
  }
  // Of what belongs to x, x2 and x3, the one for head h.
  auto of = [&](i64 h, auto one, auto two, [[maybe_unused]] auto three) {
    if constexpr (APPEND) {
      if (h >= turned) return three;
    }
    return h >= p.heads ? two : one;
  };
  constexpr int THIRD = APPEND ? 4 : 2;
  // Chunk `which` of head h in the input (side 0) or the output (side 1).
  auto address = [&](i64 h, int side, int which) {
    T* const from = of(h, start[side], start[side + 2], start[side + THIRD]);
    const i64 step = of(h, p.strides[side][1], p.strides[side + 2][1], p.strides[side + THIRD][1]);
    return from + (of(h, h, h - p.heads, h - turned) * step +
                   (which ? of(h, apart[side], apart[side + 2], apart[side + THIRD]) : 0));
  };
  auto stride = [&](i64 h, int side) {
    return of(h, p.strides[side][3], p.strides[side + 2][3], p.strides[side + THIRD][3]);
  };

  // One head ahead took 145 us on 268 MB, two 158, four with none ahead 159 (H200).
  Vec<T, VEC> x, x2, ahead, ahead2;
  auto fetch = [&](i64 h, Vec<T, VEC>& one, Vec<T, VEC>& two) {
    if (h >= end) return;
    one = rope_load<VEC, WIDE>(address(h, 0, 0), stride(h, 0), of(h, left, left, left3));
    two = rope_load<VEC, WIDE>(address(h, 0, 1), stride(h, 0), of(h, left2, left2, left4));
  };
  fetch(head, x, x2);  // in flight while the angles are made

  for (i64 pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    frequencies[pair] = Angle<A>::keep(rope_frequency(p, pair));
  }
  __syncthreads();
  if constexpr (APPEND) {
    if (active && static_cast<u64>(place) >= static_cast<u64>(p.cache_len)) {
      if (p.status != nullptr) atomicOr(p.status, 1u);
      end = min(end, p.heads);
    }
  }
  if (head >= end) return;

  A sine[VEC], cosine[VEC];
  if (turning && (!APPEND || head < turned)) {
    i64 pair[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      pair[k] = !INTERLEAVED ? col + k : k < VEC / 2 ? col / 2 + k : col2 / 2 + (k - VEC / 2);
    }
    if (p.cos != nullptr) {
      rope_table<T>(p, 0, p.cos, b, static_cast<i64>(s), pair, cosine);
      rope_table<T>(p, 1, p.sin, b, static_cast<i64>(s), pair, sine);
    } else {
      i64 position = APPEND ? place : static_cast<i64>(s);
      if (p.positions != nullptr) {
        const i64 at = b * p.position_strides[0] + static_cast<i64>(s) * p.position_strides[1];
        const void* const from = p.positions;
        position = p.positions_wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
      }
      if constexpr (!APPEND) {
        position = static_cast<i64>(static_cast<u64>(position) + static_cast<u64>(p.offset()));  // wraps, as NumPy does
      }
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        Angle<A>::sincos(position, pair[k] < pairs ? frequencies[pair[k]] : Frequency{}, &sine[k], &cosine[k]);
      }
    }
    if (p.scale_ptr != nullptr || p.scale_value != 1) {
      const A scale = static_cast<A>(p.scale());
#pragma unroll
      for (int k = 0; k < VEC; ++k) sine[k] *= scale, cosine[k] *= scale;
    }
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      if (p.inverse) sine[k] = -sine[k];
    }
  }

  for (; head < end; ++head) {
    fetch(head + 1, ahead, ahead2);
    if (turning && (!APPEND || head < turned)) {
      auto a = to_acc(x), c = to_acc(x2);
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
      x = from_acc<T>(a);
      x2 = from_acc<T>(c);
    }
    rope_store<VEC, WIDE>(address(head, 1, 0), stride(head, 1), x, of(head, left, left, left3));
    rope_store<VEC, WIDE>(address(head, 1, 1), stride(head, 1), x2, of(head, left2, left2, left4));
    x = ahead;
    x2 = ahead2;
  }
}

}  // namespace baracuda
