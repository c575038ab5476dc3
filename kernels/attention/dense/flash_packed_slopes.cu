// flash_packed_slopes    dslopes[b, h] = -sum_ij |i + shift - j| ds[i,j] of packed sequences, summed where slopes
//   broadcast; ds as in flash_bias_gradients.cuh.
//
// flash_packed_slopes: a block has a tile of queries of one head and walks the keys of their sequence, in the
// accumulator whatever the element. It writes its sum at its first row. flash_packed_slope_sum: a thread for each
// element adds those of its sequences and heads in the order of the rows, so that a sequence's gradient has the bits
// that it has alone.
#include "attention/dense/flash_bias_gradients.cuh"
#include "attention/ragged.cuh"

namespace baracuda {
namespace attention {

// What a block sums: its tile of queries, over the tiles of keys [step, last).
template <int ROWS> struct PackedShare {
  Work work;
  Span<ROWS> span;
  int rows;
  i64 step, last;

  template <class P> BARACUDA_D explicit PackedShare(const P& p) : work(Ragged::find<ROWS>(p)), span(p, work) {
    rows = inside<ROWS>(work.query_len, work.first);
    step = span.template first<tile_keys>() / tile_keys;
    last = (max(span.end(rows), 0) + tile_keys - 1) / tile_keys;
  }
};

template <int ROWS> struct PackedTile : ScoreTile<ROWS> {
  const Work* work;

  template <class P> BARACUDA_D bool find(const P&, const PackedShare<ROWS>& share, i64& step) {
    if (step >= share.last) return false;
    work = &share.work;
    this->q0 = static_cast<int>(work->first), this->k0 = static_cast<int>(step) * tile_keys;
    this->rows = share.rows, this->left = inside<tile_keys>(work->key_len, this->k0);
    this->from = share.span.low - this->k0, this->past = share.span.high - this->k0;
    return true;
  }
  template <class P> BARACUDA_D i64 row(const P&) const { return work->stat; }
  template <class T> BARACUDA_D const T* queries(const void* x, const i64 (&stride)[3]) const {
    return work->template queries<T>(x, stride);
  }
  template <class T> BARACUDA_D const T* keys(const void* x, const i64 (&stride)[3]) const {
    return work->template keys<T>(x, stride) + this->k0 * stride[2];
  }
  template <class Pairs> BARACUDA_D void enter(Pairs& pairs) const {
    pairs.settle(work->query_len, work->key_len, work->shift);
    pairs.enter(work->b, work->h);
  }
};

template <class A, int R> struct SlopeSums {
  static constexpr int LEVEL = 2;
  A sum[R][4];

  template <class Pairs> BARACUDA_D void keep(const Pairs& pairs, int, int, A& weight, A, int i, int j) const {
    if (!is_hidden(weight)) weight *= -static_cast<A>(abs(i + pairs.shift - j));
  }
  template <class Pairs> BARACUDA_D void add(const Pairs&, int n, int e, A weight, A x, int, int) {
    sum[n][e] = math::fma(weight, x, sum[n][e]);
  }
};

}  // namespace attention

template <class T, class P> BARACUDA_D void flash_packed_slopes(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using B = BackwardTile<A, 32>;
  BARACUDA_DYNAMIC_SMEM(A, staging);  // at the end the sums
  const PackedShare<B::rows> share(p);
  if (share.work.query_len == 0) return;
  SlopeSums<A, B::R> sums;
  clear(sums.sum);
  walk_scores<T, PackedTile>(p, share, staging, sums);
  __syncthreads();
  put_scores<B::R>(staging, sums.sum);
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  A sum = 0;
  if (c < tile_keys) {
    for (int r = 0; r < B::rows; ++r) sum += staging[r * score_pitch<A> + c];
  }
  sum = block_reduce<Sum, threads>(sum);
  if (c == 0) static_cast<A*>(p.parts)[share.work.stat] = sum;
}

template <class T, class P> BARACUDA_D void flash_packed_slope_sum(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  const i64 n = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
  if (n >= p.shape[0] * p.shape[1]) return;
  const i64 b = n / p.shape[1], h = n % p.shape[1];
  const RaggedTile* const list = static_cast<const RaggedTile*>(p.list);
  A sum = 0;
  for (i64 tile = 0; tile < p.tiles; ++tile) {
    const RaggedTile t = list[tile];
    if (t.rows == 0 || t.other_len == 0 || (p.shape[0] > 1 && t.b != b)) continue;
    for (i64 head = h; head < p.num_heads; head += p.shape[1]) {
      sum += static_cast<const A*>(p.parts)[head * p.query_len + t.row];
    }
  }
  static_cast<A*>(p.out)[b * p.out_stride[0] + h * p.out_stride[1]] = sum;
}

}  // namespace baracuda
