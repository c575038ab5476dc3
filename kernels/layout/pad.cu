// pad        y = x with more or fewer elements at the ends of its axes; its gradient adds up what was read. No atomics.
//
// Every element of y finds its own in x, axis by axis: i - before where that lies in x, else the nearest (replicate),
// the one a whole number of extents away (circular), a mirrored one (reflect: the ends stand once; symmetric: twice), or
// none, and it is the padding value. With `gap` elements between neighbours of x those between are the value, too.
// pad_words     words of BYTES, which lie in x as in y; four in flight a thread.
// pad_pieces    y dense: 16 bytes of it, of elements that may lie anywhere in x.
// pad_backward  a thread for each element of x: it sums the elements of dy that read it, the last axis moving fastest,
//               along an axis in ascending order, mirrored ones behind the others.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

enum class PadMode { constant, reflect, replicate, circular, symmetric };

BARACUDA_D i64 modulo(i64 a, i64 b) {
  const i64 rest = a % b;
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
  constexpr int words = 4;
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

template <int BYTES, class P> BARACUDA_D void pad_pieces(const P& p) {
  using W = Word<BYTES>;
  constexpr int width = 16 / BYTES;
  const i64 first = (static_cast<i64>(blockIdx.x) * map_threads + threadIdx.x) * width;
  if (first >= p.count) return;
  const W value = pad_value<BYTES>(p);
  const int last = p.rank - 1;
  const i64 columns = p.shape[last], step = p.x_steps[last];
  u64 column;
  i64 row = static_cast<i64>(divmod(static_cast<u64>(first), static_cast<u64>(columns), column));
  i64 i = static_cast<i64>(column), base, unused;
  bool inside = pad_place(p, last, row, base, unused);
  const W* const x = static_cast<const W*>(p.x);
  Vec<W, width> chunk;
  const i64 j0 = i - p.before[last];
  if (inside && p.gap[last] == 1 && j0 >= 0 && j0 + width <= p.extent[last] && i + width <= columns) {
    const W* const from = x + base + j0 * step;
    if (step == 1 && (reinterpret_cast<u64>(from) & 15) == 0) {
      chunk = load<width>(from);
    } else {
#pragma unroll
      for (int k = 0; k < width; ++k) chunk[k] = from[k * step];
    }
  } else {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      chunk[k] = value;
      if (first + k < p.count) {
        if (i == columns) {
          i = 0;
          inside = pad_place(p, last, ++row, base, unused);
        }
        i64 j;
        if (inside && pad_source(p, last, i, j)) chunk[k] = x[base + j * step];
        ++i;
      }
    }
  }
  store_vec<W, width, true, Access::streaming>(static_cast<W*>(p.y) + first, chunk, p.count - first);
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

template <class T, class P> BARACUDA_D void pad_backward(const P& p) {
  using A = acc_t<T>;
  const i64 e = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.count) return;
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

}  // namespace baracuda
