// all_reduce   y = x of rank 0 + x of rank 1 + …, on every rank, by reads of the peers' memory (baracuda/peers.cuh).
//
// one_shot: every rank reads all parts. two_shot: rank r reads and sums share r of all parts, then all read the sums.
// Chunk i of a share, of 16 bytes, belongs to thread i modulo the grid's, on every rank; the order of a sum is that of
// combine.cuh. `phases` says what a launch does, all of it on a GPU; y may be x.
#include "combine.cuh"

#include <baracuda/peers.cuh>

namespace baracuda {

constexpr int phase_give = 1, phase_sum = 2, phase_take = 4;

// Chunk i of this rank's own data.
template <class P, class V> BARACUDA_D void keep(const P& peers, i64 i, const V& x) {
  *peers.chunk(peers.p.rank, peers.place(i)) = *reinterpret_cast<const uint4*>(&x);
}

template <class T, PeerOp OP, int R, bool WIDE> BARACUDA_D void one_shot(const PeerParams& p) {
  constexpr int N = vec_elems<T>;
  const Peers<R, PeerParams> peers(p);
  const i64 first = i64(blockIdx.x) * blockDim.x + threadIdx.x, step = i64(gridDim.x) * blockDim.x;
  const i64 chunks = div_up(p.count, N);
  if (p.phases & phase_give) {
    const T* const x = static_cast<const T*>(p.x);
    for (i64 i = first; i < chunks; i += step) {
      keep(peers, i, load_vec<T, N, WIDE>(x + i * N, p.count - i * N));
    }
    peers.signal(0);
  }
  if (p.phases & phase_sum) {
    T* const y = static_cast<T*>(p.y);
    if (!peers.await(0)) return;
    for (i64 i = first; i < chunks; i += step) {
      Vec<T, N> parts[R];
      load_parts(peers, peers.place(i), parts);
      store_vec<T, N, WIDE>(y + i * N, from_acc<T>(combine_parts<OP>(parts)), p.count - i * N);
    }
    peers.finish();
  }
}

template <class T, PeerOp OP, int R, bool WIDE> BARACUDA_D void two_shot(const PeerParams& p) {
  constexpr int N = vec_elems<T>;
  const Peers<R, PeerParams> peers(p);
  const i64 first = i64(blockIdx.x) * blockDim.x + threadIdx.x, step = i64(gridDim.x) * blockDim.x;
  const i64 chunks = div_up(p.count, N), share = div_up(chunks, R);
  if (p.phases & phase_give) {
    const T* const x = static_cast<const T*>(p.x);
    for (i64 i = first; i < share; i += step) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const i64 at = r * share + i;
        if (at < chunks) keep(peers, at, load_vec<T, N, WIDE>(x + at * N, p.count - at * N));
      }
    }
    peers.signal(0);
  }
  if (p.phases & phase_sum) {
    if (!peers.await(0)) return;
    for (i64 i = first; i < share; i += step) {  // nobody else reads this share here before it is summed
      const i64 at = p.rank * share + i;
      if (at >= chunks) break;
      Vec<T, N> parts[R];
      load_parts(peers, peers.place(at), parts);
      keep(peers, at, from_acc<T>(combine_parts<OP>(parts)));
    }
    peers.signal(1);
  }
  if (p.phases & phase_take) {
    T* const y = static_cast<T*>(p.y);
    if (!peers.await(1)) return;
    for (i64 i = first; i < share; i += step) {
      Vec<T, N> sums[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const i64 at = min(r * share + i, chunks - 1);  // all loads first, none of them in a branch
        *reinterpret_cast<uint4*>(&sums[r]) = __ldcg(peers.chunk(r, peers.place(at)));
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const i64 at = r * share + i;
        if (at < chunks) store_vec<T, N, WIDE>(y + at * N, sums[r], p.count - at * N);
      }
    }
    peers.finish();
  }
}

}  // namespace baracuda
