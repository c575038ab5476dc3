#pragma once
// flash_bias_gradients    ds[i,j] = p[i,j] (keep dy[i] v[j] - delta[i]),   p[i,j] = exp(s[i,j] - lse[i]);
//   dmask = ds, dslopes[h] = -sum |i + shift - j| ds, each summed where the operand broadcasts;
//   dsinks[h] = -sum exp(sinks[h] - lse[i]) delta[i]
//
// flash_bias_gradient: a block owns a tile of the gradient's own elements. It walks, in order, the tiles of scores that
// add to it: all batches, heads, queries or keys along which the operand has extent 1. Sums over rows or columns within
// the tile come last. Where there are fewer tiles than fill a device, several blocks share one, each with a run of its
// steps, and flash_bias_sum adds their parts in order. Their number depends on the operand's axes, not on the batch
// where the operand has one, nor on the device. flash_sink_gradients: a block for each head.
#include <baracuda/index.cuh>

#include "attention/block_mask.cuh"
#include "flash_sdpa_backward_simt.cuh"

namespace baracuda {
namespace attention {

// What a block sums: tile (b, h, q, k) of the gradient, number `tile`, over the steps [step, last).
struct Share {
  u64 b, h, q, k, tile, split;
  i64 step, last;
  template <class P> BARACUDA_D explicit Share(const P& p) {
    tile = divmod(static_cast<u64>(blockIdx.x), static_cast<u64>(p.splits), split);
    u64 rest = divmod(tile, static_cast<u64>(p.own[3]), k);
    rest = divmod(rest, static_cast<u64>(p.own[2]), q);
    b = divmod(rest, static_cast<u64>(p.own[1]), h);
    step = static_cast<i64>(split) * p.each;
    last = min(step + p.each, p.steps);
  }
};

// A tile of scores of one head: queries from q0, keys from k0. Row r sees its keys [from + r, min(past + r, left)).
template <int ROWS> struct ScoreTile {
  u32 b, h, kv;
  int q0, k0, rows, left, from, past;

  // Moves `step` to the first step from it on whose tile has a visible pair; false where there is none before the last.
  template <class P> BARACUDA_D bool find(const P& p, const Share& share, i64& step) {
    for (; step < share.last; ++step) {
      u64 b_, h_, q, k, rest = divmod(static_cast<u64>(step), static_cast<u64>(p.loops[3]), k);
      rest = divmod(rest, static_cast<u64>(p.loops[2]), q);
      b_ = divmod(rest, static_cast<u64>(p.loops[1]), h_);
      b = static_cast<u32>(share.b + b_), h = static_cast<u32>(share.h + h_), kv = h / p.group;
      q0 = static_cast<int>(share.q + q) * ROWS, k0 = static_cast<int>(share.k + k) * tile_keys;
      rows = inside<ROWS>(p.query_len, q0), left = inside<tile_keys>(p.key_len, k0);
      const Span<ROWS> span(q0 + p.shift, p.left, p.right, p.key_len);
      from = span.low - k0, past = span.high - k0;
      if (k0 >= span.end(rows) || left <= from) continue;
      if constexpr (has_block_mask<P>) {
        if (!MaskedBlocks<P>(p, b, h).any(q0, ROWS, k0, tile_keys)) continue;
      }
      return true;
    }
    return false;
  }
  // Index of its first row among the rows of all heads.
  template <class P> BARACUDA_D i64 row(const P& p) const {
    return (static_cast<i64>(b) * p.num_heads + h) * p.query_len + q0;
  }
  template <class T> BARACUDA_D const T* queries(const void* x, const i64 (&stride)[3]) const {
    return static_cast<const T*>(x) + b * stride[0] + h * stride[1] + q0 * stride[2];
  }
  template <class T> BARACUDA_D const T* keys(const void* x, const i64 (&stride)[3]) const {
    return static_cast<const T*>(x) + b * stride[0] + kv * stride[1] + k0 * stride[2];
  }
  template <class Pairs> BARACUDA_D void enter(Pairs& pairs) const { pairs.enter(b, h); }
  BARACUDA_D bool sees(int r, int c) const { return c >= from + r && c < min(left, past + r); }
  BARACUDA_D bool whole() const { return rows == ROWS && left == tile_keys; }
  // Whether a row sees less than all 64 keys.
  BARACUDA_D bool cut() const { return left < tile_keys || past < tile_keys || from + ROWS > 1; }
};

// For slopes: the weight times minus the distance between query and key.
template <class A, class P> BARACUDA_D A at_distance(const P& p, A weight, int i, int j) {
  return is_hidden(weight) ? weight : weight * -static_cast<A>(abs(i + static_cast<int>(p.shift) - j));
}
// sum += ds; a hidden pair adds nothing.
template <class A> BARACUDA_D void add_ds(A& sum, A weight, A dy_v, A delta) {
  if (!is_hidden(weight)) sum = math::fma(weight, dy_v - delta, sum);
}

// Walks a block's share, by the Tile that finds its tiles of scores, without tensor cores: ds of every pair that is seen is added to `gradient`, which says of what.
// A score is chains of fma over 32 columns, added in order. `gradient` has
//
//   LEVEL                              of the pairs' terms
//   keep(pairs, n, e, weight, x, i, j) takes what it needs of the thread's pair (n, e), query i and key j, whose product
//                                      is x, and may change the weight
//   add(pairs, n, e, weight, x, i, j)  adds ds = weight x of that pair
template <class T, template <int> class Tile = ScoreTile, class Part, class Gradient, class P>
BARACUDA_D void walk_scores(const P& p, const Part& share, acc_t<T>* staging, Gradient& gradient) {
  using A = acc_t<T>;
  constexpr int D = 32;  // columns are staged in chunks, whatever head_dim is
  using B = BackwardTile<A, D>;
  constexpr int R = B::R;
  Pairs<Gradient::LEVEL, A, P> pairs(p);
  Tile<B::rows> at;
#pragma unroll 1
  for (i64 step = share.step; at.find(p, share, step); ++step) {
    const T* const q = at.template queries<T>(p.q, p.stride[0]);
    const T* const k = at.template keys<T>(p.k, p.stride[1]);
    const T* const v = at.template keys<T>(p.v, p.stride[2]);
    const T* const dy = at.template queries<T>(p.dy, p.stride[3]);
    const A* const delta = static_cast<const A*>(p.delta) + at.row(p);
    const int i0 = at.q0 + thread_row(), j0 = at.k0 + thread_col();
    at.enter(pairs);
    if constexpr (has_block_mask<P>) {
      MaskedBlocks<P>(p, at.b, at.h).settle(pairs, at.q0, B::rows, at.k0, tile_keys);
    }

    // Weights
    A weight[R][4], s[R][4];
    Operands<T> operands{q, p.stride[0][2], at.rows, p.wide & 1, k, p.stride[1][2], at.left, p.wide & 2, p.d_k};
    product<D, true>(s, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      const auto base = r < at.rows ? RowBase<A>::of(p, at.row(p) + r) : RowBase<A>{};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        A through;
        pairs.weight(weight[i][j], through, s[i][j], i0 + 8 * i, j0 + 16 * j, base);
        if (r >= at.rows || !at.sees(r, thread_col() + 16 * j)) weight[i][j] = A(-0.0);
        gradient.keep(pairs, i, j, weight[i][j], s[i][j], i0 + 8 * i, j0 + 16 * j);
      }
    }

    // dP, and ds = weight (dP - delta)
    operands = {dy, p.stride[3][2], at.rows, p.wide & 8, v, p.stride[2][2], at.left, p.wide & 4, p.d_v};
    product<D, true>(s, staging, operands);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = thread_row() + 8 * i;
      const A own = r < at.rows ? delta[r] : A(0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (is_hidden(weight[i][j])) continue;
        if (pairs.drops()) s[i][j] *= pairs.kept(i0 + 8 * i, j0 + 16 * j) ? pairs.again : A(0);
        gradient.add(pairs, i, j, weight[i][j], s[i][j] - own, i0 + 8 * i, j0 + 16 * j);
      }
    }
  }
}

// Offset of element (i, j) of head (b, h) in the gradient.
template <class P> BARACUDA_D i64 place(const P& p, u64 b, u64 h, i64 i, i64 j) {
  return static_cast<i64>(b) * p.out_stride[0] + static_cast<i64>(h) * p.out_stride[1] + i * p.out_stride[2] +
         j * p.out_stride[3];
}

// Writes a tile's sums from shared memory to the gradient, or to this block's part of it, summed along rows or columns
// where the gradient has extent 1. Called by all threads.
template <int ROWS, int THREADS, class A, class P> BARACUDA_D void put_share(const P& p, const Share& share, A* tile) {
  constexpr int PITCH = score_pitch<A>;
  const i64 i0 = static_cast<i64>(share.q) * ROWS, j0 = static_cast<i64>(share.k) * tile_keys;
  const int rows = p.each_row ? inside<ROWS>(p.query_len, i0) : 1;
  const int cols = p.each_col ? inside<tile_keys>(p.key_len, j0) : 1;
  if (!p.each_row) {
    for (int c = threadIdx.x; c < tile_keys; c += THREADS) {
      A sum = 0;
      for (int r = 0; r < ROWS; ++r) sum += tile[r * PITCH + c];
      tile[c] = sum;
    }
    __syncthreads();
  }
  if (!p.each_col) {
    for (int r = threadIdx.x; r < rows; r += THREADS) {
      A sum = 0;
      for (int c = 0; c < tile_keys; ++c) sum += tile[r * PITCH + c];
      tile[r * PITCH] = sum;
    }
    __syncthreads();
  }
  const int across = p.each_col ? tile_keys : 1;  // the tile's pitch in the parts
  const auto each = [&](const auto& f) {
    for (int n = threadIdx.x; n < rows * across; n += THREADS) {
      const int r = p.each_col ? n / tile_keys : n, c = p.each_col ? n % tile_keys : 0;
      if (c < cols) f(r, c, tile[r * PITCH + c]);
    }
  };
  if (p.splits > 1) {
    const i64 size = (p.each_row ? ROWS : 1) * across;
    A* const part = static_cast<A*>(p.parts) + (share.tile * p.splits + share.split) * size;
    each([&](int r, int c, A x) { part[r * across + c] = x; });
  } else {
    const i64 first = place(p, share.b, share.h, i0, j0);
    with_kind<A>(p.out_kind, [&](auto kind) {
      using Out = decltype(kind);
      Out* const out = static_cast<Out*>(p.out) + first;
      each([&](int r, int c, A x) { out[r * p.out_stride[2] + c * p.out_stride[3]] = cast<Out>(x); });
    });
  }
}

}  // namespace attention

// Adds the parts of every element of the gradient, in order. ROWS as in the kernel that wrote them.
template <class T, int ROWS, class P> BARACUDA_D void flash_bias_sum(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  const u64 n = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= static_cast<u64>(p.elements)) return;
  u64 i = 0, j = 0, rest = n;
  if (p.each_col) rest = divmod(rest, static_cast<u64>(p.key_len), j);
  if (p.each_row) rest = divmod(rest, static_cast<u64>(p.query_len), i);
  u64 h;
  const u64 b = divmod(rest, static_cast<u64>(p.own[1]), h);
  const u64 tile = (rest * p.own[2] + i / ROWS) * p.own[3] + j / tile_keys;
  const i64 pitch = p.each_col ? tile_keys : 1, size = (p.each_row ? ROWS : 1) * pitch;
  const A* part = static_cast<const A*>(p.parts) + tile * p.splits * size + i % ROWS * pitch + j % tile_keys;
  A sum = 0;
#pragma unroll 4
  for (i64 split = 0; split < p.splits; ++split, part += size) sum += *part;
  with_kind<A>(p.out_kind, [&](auto kind) {
    using Out = decltype(kind);
    static_cast<Out*>(p.out)[place(p, b, h, static_cast<i64>(i), static_cast<i64>(j))] = cast<Out>(sum);
  });
}

// exp(x) of a sink far below its row: also where that is subnormal, which exp2_fast makes 0.
template <class A> BARACUDA_D A weight_of_sink(A x) {
  constexpr A lowest = A(1.603810890548638e-28);  // exp(-64)
  return x < A(-64) ? attention::replayed_weight(x + A(64)) * lowest : attention::replayed_weight(x);
}

template <class T, class P> BARACUDA_D void flash_sink_gradients(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  constexpr int THREADS = 1024, AHEAD = 4;  // rows in flight for each thread
  const i64 rows = p.query_len, h = blockIdx.x, heads = gridDim.x;
  const A sink = static_cast<const A*>(p.sinks)[h];
  A sum = 0;
  for (i64 b = 0; b < p.batch_size; ++b) {
    const i64 row0 = (b * heads + h) * rows;
    const A* const delta = static_cast<const A*>(p.delta) + row0;
    for (i64 first = threadIdx.x; first < rows; first += AHEAD * THREADS) {
      RowBase<A> x[AHEAD];
      A d[AHEAD];
#pragma unroll
      for (int n = 0; n < AHEAD; ++n) {
        const i64 i = first + n * THREADS;
        x[n] = i < rows ? RowBase<A>::of(p, row0 + i) : RowBase<A>{};
        d[n] = i < rows ? delta[i] : A(0);
      }
#pragma unroll
      for (int n = 0; n < AHEAD; ++n) {
        sum = math::fma(-weight_of_sink(sink - x[n].base - x[n].rest), d[n], sum);
      }
    }
  }
  sum = block_reduce<Sum, THREADS>(sum);
  if (threadIdx.x == 0) static_cast<A*>(p.dsinks)[h] = sum;
}

}  // namespace baracuda
