// pad        y = x with more or fewer elements at the ends of its axes; its gradient adds up what was read. No atomics.
//
// Every element of y finds its own in x, axis by axis: i - before where that lies in x, else the nearest (replicate),
// the one a whole number of extents away (circular), a mirrored one (reflect: the ends stand once; symmetric: twice), or
// none, and it is the padding value. With `gap` elements between neighbours of x those between are the value, too.
// pad_words     words of BYTES, which lie in x as in y; four in flight a thread.
// pad_pieces    y dense: 16 bytes of it a thread. Where all of them lie in x side by side, words of x are shifted into
//               place. The others, at ends of rows, a block lists and makes behind: each element is looked for, without
//               divisions, and all of them are read at once.
// pad_backward  a thread for each element of x: it sums the elements of dy that read it, the last axis moving fastest,
//               along an axis in ascending order, mirrored ones behind the others.
// schedules/pad.py has the numbers of elements in flight, and PadMode.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/wanted.cuh>

namespace baracuda {

BARACUDA_D i64 modulo(i64 a, i64 b) {
  const bool narrow = a == static_cast<i32>(a) && b == static_cast<i32>(b);  // of 32 bits it takes a third of the time
  const i64 rest = narrow ? static_cast<i32>(a) % static_cast<i32>(b) : a % b;
  return rest < 0 ? rest + b : rest;
}

// The index in x of place i along axis a of y; whether there is one.
template <class P> BARACUDA_D bool pad_source(const P& p, int a, i64 i, i64& j) {
  const i64 n = p.extent[a];
  const PadMode mode = static_cast<PadMode>(p.mode);
  j = i - p.before[a];
  if (mode == PadMode::constant) {
    if (p.gap[a] != 1) {
      if (j < 0 || j % p.gap[a] != 0) return false;
      j /= p.gap[a];
    }
    return static_cast<u64>(j) < static_cast<u64>(n);
  }
  if (static_cast<u64>(j) < static_cast<u64>(n)) return true;
  if (mode == PadMode::replicate || n == 1) {
    j = j < 0 ? 0 : n - 1;
  } else if (mode == PadMode::circular) {
    j = modulo(j, n);
  } else {
    const i64 twice = mode == PadMode::reflect ? 1 : 0;  // 1: the ends stand once in a period
    const i64 period = 2 * (n - twice);
    j = modulo(j, period);
    if (j >= n) j = period - 1 + twice - j;
  }
  return true;
}

// The offsets in x and y of element e of the first `rank` axes, and whether x has it.
template <class I, class P> BARACUDA_D bool pad_offsets(const P& p, int rank, i64 e, i64& in_x, i64& in_y) {
  using W = conditional<sizeof(I) == 4, u32, u64>;
  W rest = static_cast<W>(e);
  bool inside = true;
  in_x = 0, in_y = 0;
#pragma unroll 1
  for (int a = rank - 1; a >= 0; --a) {
    W i = rest;
    if (a > 0) rest = divmod(rest, p.dividers[a], p.shape[a], i);
    i64 j;
    inside &= pad_source(p, a, static_cast<i64>(i), j);
    in_x += j * p.x_steps[a];
    in_y += static_cast<i64>(i) * p.y_steps[a];
  }
  return inside;
}
template <class P> BARACUDA_D bool pad_place(const P& p, int rank, i64 e, i64& in_x, i64& in_y) {
  return p.narrow ? pad_offsets<i32>(p, rank, e, in_x, in_y) : pad_offsets<i64>(p, rank, e, in_x, in_y);
}

// A word of padding: the parameters hold 16 bytes of it.
template <int BYTES, class P> BARACUDA_D Word<BYTES> pad_value(const P& p) {
  const u64 low = static_cast<u64>(p.value[0]), high = static_cast<u64>(p.value[1]);
  const u32 first = static_cast<u32>(low), second = static_cast<u32>(low >> 32);
  if constexpr (BYTES == 16) return uint4{first, second, static_cast<u32>(high), static_cast<u32>(high >> 32)};
  else if constexpr (BYTES == 8) return uint2{first, second};
  else return static_cast<Word<BYTES>>(first);
}

template <int BYTES, class P> BARACUDA_D void pad_words(const P& p) {
  using W = Word<BYTES>;
  constexpr int words = pad_in_flight;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * words) + threadIdx.x;
  if (first >= p.count) return;
  const W value = pad_value<BYTES>(p);
  i64 in_y[words];
  W word[words];
#pragma unroll
  for (int u = 0; u < words; ++u) {
    i64 in_x;
    const bool inside = pad_place(p, p.rank, min(first + u * map_threads, p.count - 1), in_x, in_y[u]);
    word[u] = value;
    if (inside) word[u] = static_cast<const W*>(p.x)[in_x];
  }
#pragma unroll
  for (int u = 0; u < words; ++u) {
    if (first + u * map_threads >= p.count) break;
    store_word<Access::streaming>(static_cast<W*>(p.y) + in_y[u], word[u]);
  }
}

// As pad_source along the last axis, whose neighbours lie side by side and whose padding is not longer than x: no
// divisions.
BARACUDA_D bool pad_near(PadMode mode, i64 n, i64& j) {
  const i64 twice = mode == PadMode::reflect ? 1 : 0;
  if (static_cast<u64>(j) < static_cast<u64>(n)) return true;
  if (mode == PadMode::constant) return false;
  if (mode == PadMode::replicate) j = j < 0 ? 0 : n - 1;
  else if (mode == PadMode::circular) j += j < 0 ? n : -n;
  else j = (j < 0 ? twice - 1 : 2 * n - 1 - twice) - j;
  return true;
}

// 16 bytes from an address that is a multiple of BYTES, by the words of 4 bytes that hold some of them.
template <int BYTES> BARACUDA_D uint4 load_shifted(const void* from) {
  constexpr u64 low = 3;
  const u32* const words = reinterpret_cast<const u32*>(reinterpret_cast<u64>(from) & ~low);
  const u32 shift = static_cast<u32>(reinterpret_cast<u64>(from) & low) * 8;
  const u32 a = words[0], b = words[1], c = words[2], d = words[3];
  if constexpr (BYTES >= 4) return uint4{a, b, c, d};
  const u32 e = shift ? words[4] : 0;
  return uint4{__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
               __funnelshift_r(d, e, shift)};
}

// Row and column of element `first` of a dense y.
template <class P> BARACUDA_D void pad_row(const P& p, i64 first, i64& row, i64& i) {
  const int last = p.rank - 1;
  if (p.narrow) {
    u32 column;
    row = divmod(static_cast<u32>(first), p.dividers[last], p.shape[last], column), i = column;
  } else {
    u64 column;
    row = static_cast<i64>(divmod(static_cast<u64>(first), static_cast<u64>(p.shape[last]), column));
    i = static_cast<i64>(column);
  }
}

// The piece from element `first` on where it lies in x side by side; whether it does.
template <int BYTES, class P> BARACUDA_D bool pad_inner(const P& p, i64 first) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES, unit = BYTES < 4 ? 4 / BYTES : 1;  // elements of the words that are shifted
  const int last = p.rank - 1;
  const i64 columns = p.shape[last], n = p.extent[last];
  i64 row, i, base, unused;
  pad_row(p, first, row, i);
  const i64 j0 = i - p.before[last];
  if (p.x_steps[last] != 1 || j0 < 0 || j0 + width > n || i + width > columns) return false;
  if (!pad_place(p, last, row, base, unused)) return false;
  const W* const from = static_cast<const W*>(p.x) + base + j0;
  const u64 address = reinterpret_cast<u64>(from);
  const i64 lead = BYTES < 4 ? static_cast<i64>(address & 3) / BYTES : 0, trail = lead ? unit - lead : 0;
  uint4 piece;
  if ((address & 15) == 0) piece = *reinterpret_cast<const uint4*>(from);
  else if (j0 >= lead && j0 + width + trail <= n) piece = load_shifted<BYTES>(from);
  else return false;
  __stcs(reinterpret_cast<uint4*>(static_cast<W*>(p.y) + first), piece);
  return true;
}

// Any piece, of one row or the ends of two: a row has a piece at least.
template <int BYTES, class P> BARACUDA_D void pad_outer(const P& p, i64 first) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES;
  const int last = p.rank - 1;
  const i64 columns = p.shape[last], n = p.extent[last], step = p.x_steps[last];
  i64 row, i, base, unused, next = 0;  // next: where the row begins that the piece reaches
  pad_row(p, first, row, i);
  bool inside = pad_place(p, last, row, base, unused), next_inside = false;
  if (i + width > columns && first + columns - i < p.count) next_inside = pad_place(p, last, row + 1, next, unused);
  const PadMode mode = static_cast<PadMode>(p.mode);
  W word[width];
  u32 found = 0;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    if (i + k == columns) base = next, inside = next_inside;
    i64 j = i + k - p.before[last] - (i + k >= columns ? columns : 0);
    const bool has = first + k < p.count && inside && pad_near(mode, n, j);
    load_wanted(word[k], static_cast<const W*>(p.x) + base + j * step, has);
    found |= static_cast<u32>(has) << k;
  }
  const W value = pad_value<BYTES>(p);
  Vec<W, width> piece;
#pragma unroll
  for (int k = 0; k < width; ++k) piece[k] = found >> k & 1 ? word[k] : value;
  store_vec<W, width, true, Access::streaming>(static_cast<W*>(p.y) + first, piece, p.count - first);
}

template <int BYTES, class P> BARACUDA_D void pad_pieces(const P& p) {
  constexpr int width = 16 / BYTES;
  __shared__ int listed;
  __shared__ u16 list[map_threads];
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  const i64 first = static_cast<i64>(blockIdx.x) * map_threads * width;
  const i64 own = first + threadIdx.x * width;
  if (own < p.count && !(own + width <= p.count && pad_inner<BYTES>(p, own))) {
    list[atomicAdd(&listed, 1)] = static_cast<u16>(threadIdx.x);
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < listed) pad_outer<BYTES>(p, first + list[threadIdx.x] * width);
}

// ---- backward -------------------------------------------------------------------------------------------------------

// The places of an axis that read index j: two progressions of one step.
struct PadReaders {
  i64 first[2], count[2], step;

  BARACUDA_D i64 total() const { return count[0] + count[1]; }
  BARACUDA_D i64 place(i64 t) const { return t < count[0] ? first[0] + t * step : first[1] + (t - count[0]) * step; }
};

template <class P> BARACUDA_D PadReaders pad_readers(const P& p, int a, i64 j) {
  const i64 n = p.extent[a], before = p.before[a], length = p.shape[a];
  const PadMode mode = static_cast<PadMode>(p.mode);
  PadReaders r{{0, 0}, {0, 0}, 1};
  if (mode == PadMode::replicate || n == 1) {
    const i64 low = j == 0 ? 0 : max(j + before, static_cast<i64>(0));
    const i64 high = j == n - 1 ? length - 1 : min(j + before, length - 1);
    r.first[0] = low, r.count[0] = max(high - low + 1, static_cast<i64>(0));
    return r;
  }
  const bool reflect = mode == PadMode::reflect, mirrored = mode != PadMode::circular;
  r.step = !mirrored ? n : reflect ? 2 * n - 2 : 2 * n;
  r.first[0] = modulo(j + before, r.step);
  r.first[1] = modulo(before - j - (reflect ? 0 : 1), r.step);
  const bool alone = !mirrored || (reflect && (j == 0 || j == n - 1));
  for (int k = 0; k < (alone ? 1 : 2); ++k) {
    if (r.first[k] < length) r.count[k] = (length - 1 - r.first[k]) / r.step + 1;
  }
  return r;
}

// Of element e: the offsets of the element in x and of the one place that reads it, if it is one, `before` further along
// each axis: where the index lies between the axis's first and last one that padding reads again.
template <class U, class P> BARACUDA_D bool pad_read_once(const P& p, i64 e, i64& in_x, i64& in_y) {
  U rest = static_cast<U>(e);
  bool once = true;
  in_x = 0, in_y = 0;
#pragma unroll 1
  for (int a = p.rank - 1; a >= 0; --a) {
    U one = rest;
    if (a > 0) rest = divmod(rest, p.dividers[a], p.extent[a], one);
    const i64 j = static_cast<i64>(one);
    once = once && j >= p.once[0][a] && j < p.once[1][a];
    in_x += j * p.x_steps[a], in_y += (j + p.before[a]) * p.y_steps[a];
  }
  return once;
}

// The sum over all places that read element e.
template <class T, class P> BARACUDA_D void pad_sum(const P& p, i64 e) {
  using A = acc_t<T>;
  PadReaders readers[max_axes];
  u64 rest = static_cast<u64>(e);
  i64 in_x = 0, total = 1;
#pragma unroll 1
  for (int a = p.rank - 1; a >= 0; --a) {
    u64 j = rest;
    if (a > 0) rest = divmod(rest, static_cast<u64>(p.extent[a]), j);
    in_x += static_cast<i64>(j) * p.x_steps[a];
    readers[a] = pad_readers(p, a, static_cast<i64>(j));
    total *= readers[a].total();
  }
  A sum = A(0);
#pragma unroll 1
  for (i64 t = 0; t < total; ++t) {
    u64 left = static_cast<u64>(t);
    i64 at = 0;
#pragma unroll 1
    for (int a = p.rank - 1; a >= 0; --a) {
      u64 one = 0;
      if (readers[a].total() > 1) left = divmod(left, static_cast<u64>(readers[a].total()), one);
      at += readers[a].place(static_cast<i64>(one)) * p.y_steps[a];
    }
    sum = sum + to_acc(static_cast<const T*>(p.y)[at]);
  }
  static_cast<T*>(p.x)[in_x] = from_acc<T>(sum);
}

// A block has four elements a thread. Those that several places read, or none, it lists and sums behind.
template <class T, class P> BARACUDA_D void pad_backward(const P& p) {
  constexpr int items = pad_backward_elements;
  __shared__ int listed;
  __shared__ u16 list[map_threads * items];
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, first = block * (map_threads * items);
  Packed<T, 1> word[items];
  i64 in_x[items], in_y;
  bool once[items];
#pragma unroll
  for (int u = 0; u < items; ++u) {
    const int own = static_cast<int>(threadIdx.x) + u * map_threads;
    const i64 e = min(first + own, p.count - 1);
    once[u] = p.narrow ? pad_read_once<u32>(p, e, in_x[u], in_y) : pad_read_once<u64>(p, e, in_x[u], in_y);
    once[u] = once[u] && first + own < p.count;
    word[u].load_if(static_cast<const T*>(p.y) + in_y, once[u]);
    if (!once[u] && first + own < p.count) list[atomicAdd(&listed, 1)] = static_cast<u16>(own);
  }
#pragma unroll
  for (int u = 0; u < items; ++u) {
    if (once[u]) static_cast<T*>(p.x)[in_x[u]] = word[u].unpacked()[0];
  }
  __syncthreads();
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x); t < listed; t += map_threads) pad_sum<T>(p, first + list[t]);
}

}  // namespace baracuda
