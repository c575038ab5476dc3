// all_reduce_norm   h = round(sum over ranks of x) + residual;  y = h * rstd * weight;  rstd = 1 / sqrt(mean(h^2) + eps)
//
// The sum is all_reduce's (combine.cuh, baracuda/peers.cuh), the norm that of norm/forward.cuh with the same kernel for a
// row of so many columns: the bits are those of the two, one after another. Without TWO every rank reads all parts; with
// it rank r sums share r of the rows, and every rank reads the sums and normalises all rows.
#include "../norm/forward.cuh"
#include "combine.cuh"

#include <baracuda/peers.cuh>

namespace baracuda {

constexpr int norm_gives = 1, norm_sums = 2, norm_takes = 4;

template <class T, class W, int THREADS, int LANES, int CHUNKS, int R, bool TWO, class P>
BARACUDA_D void all_reduce_norm(const P& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>, GROUPS = THREADS / LANES, SHARES = TWO ? R : 1;
  __shared__ __align__(16) unsigned char memory[norm::Boards<A, LANES>::bytes];
  norm::Boards<A, LANES> boards(memory);
  const Peers<R, P> peers(p);
  const int group = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
  const int cols = static_cast<int>(p.cols);
  const i64 share = div_up(p.rows, static_cast<i64>(SHARES)), tiles = div_up(share, static_cast<i64>(GROUPS));

  // Calls f(row, whether it is one) for this group's rows of a share, the same on every rank.
  auto each = [&](int of, auto f) {
#pragma unroll 1
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const i64 at = tile * GROUPS + group, row = of * share + at;
      f(row, at < share && row < p.rows);
    }
  };
  auto column = [&](int c) { return (c * LANES + lane) * VEC; };
  auto place = [&](i64 row, int c) { return peers.place((row * cols + column(c)) / VEC); };
  auto summed = [&](i64 row, int c) {
    Vec<T, VEC> parts[R];
    load_parts(peers, place(row, c), parts);
    return pack<T>(from_acc<T>(combine_parts<PeerOp::sum>(parts)));
  };

  if (p.phases & norm_gives) {
#pragma unroll 1
    for (int s = 0; s < SHARES; ++s) {
      each(s, [&](i64 row, bool live) {
        const T* const x = static_cast<const T*>(p.x) + RowAt<true>(p, live ? row : 0).offset(p, norm::X);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const Chunk v = load_chunk<T, true>(p, norm::X, x, column(c), live ? cols - column(c) : 0);
          if (live && column(c) < cols) *peers.chunk(p.rank, place(row, c)) = *reinterpret_cast<const uint4*>(&v);
        }
      });
    }
    peers.signal(0);
  }
  if (TWO && p.phases & norm_sums) {
    if (!peers.await(0)) return;
    each(p.rank, [&](i64 row, bool live) {
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        if (!live || column(c) >= cols) continue;
        const Chunk v = summed(row, c);
        *peers.chunk(p.rank, place(row, c)) = *reinterpret_cast<const uint4*>(&v);
      }
    });
    peers.signal(1);
  }
  if (!(p.phases & norm_takes) || !peers.await(TWO ? 1 : 0)) return;
  norm::Affine<T, W, false, true> affine[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) affine[c].load(p, column(c), cols - column(c));
#pragma unroll 1
  for (int s = 0; s < SHARES; ++s) {
    each(s, [&](i64 row, bool live) {
      const RowAt<true> at(p, live ? row : 0);
      auto left = [&](int c) { return live ? cols - column(c) : 0; };
      Chunk v[CHUNKS];
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        v[c] = Chunk{};
        if (left(c) <= 0) continue;
        if constexpr (TWO) *reinterpret_cast<uint4*>(&v[c]) = __ldcg(peers.chunk(s, place(row, c)));
        else v[c] = summed(row, c);
      }
      norm::add_residual<T, true, CHUNKS, (CHUNKS < 4 ? CHUNKS : 4)>(
          p, v, [&](int c) { return norm::Place<true, int>{at, column(c), left(c)}; });
      norm::Statistics<A> found[1];
      u32 lost =
          norm::statistics<T, LANES, CHUNKS, false, true>(p, v, found, boards, [&](int, int c) { return left(c); });
      if (!live) lost = 0;
      const bool kept = !norm::leaves_range<T> || lost == 0;
      T* const y = static_cast<T*>(p.y) + at.offset(p, norm::Y);
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        const Chunk made = affine[c].apply(p, norm::normalize<false>(norm::widen_chunk<T>(v[c]), found[0]));
        store_chunk<T, true>(p, norm::Y, y, column(c), made, kept ? left(c) : 0);
      }
      norm::rescue<T, W, LANES, 1, false, true>(p, lost, row, GROUPS, lane);
    });
  }
  peers.finish();
}

}  // namespace baracuda
