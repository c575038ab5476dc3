// linear_attention_join    the states at the borders of a long sequence's segments, one after another:
//                          S[s] = M[s] S[s - 1] + L[s]; with p.back H[s] = M[s + 1]^T H[s + 1] + L[s].
//
// L, which S takes the place of, and M are what walks of single segments left (chunk_segments.cuh). M is a matrix for the
// delta rule, else a factor a row, that of the border itself either way.
//
// Schedule: without matrices a thread has four columns of a row of the state. With them a block has 16 columns, which are
// in shared memory. All is float32, and sums are chains over the rows of a state.
#include "recurrence/chunk_segments.cuh"

namespace baracuda {

template <class T, int DK, bool DELTA, class P> BARACUDA_D void linear_attention_join(const P& p) {
  using namespace recurrence::chunked;
  constexpr int columns = width / joined, parts = DELTA ? joined : DK * width / (4 * crew);
  const int thread = static_cast<int>(threadIdx.x), part = static_cast<int>(blockIdx.x % parts);
  const i64 tiles = div_up(p.d_v, width), tile = blockIdx.x / parts % tiles;
  const i64 head = blockIdx.x / parts / tiles % p.num_heads;
  i64 n = blockIdx.x / parts / tiles / p.num_heads, row = 0;
  if (p.bounds != nullptr) {  // a sequence that is cut holds a multiple of what is not, and the first of them finds it
    row = n * most_uncut * p.segment;
    n = packed_at(p, row);
  }
  const Sequence rows = sequence_of(p, n);
  const i64 count = segments_of(p, rows.begin, rows.end);
  if (count == 1 || row < rows.begin || row >= rows.end || row - rows.begin >= most_uncut * p.segment) return;
  const i64 first = (p.bounds == nullptr ? n * p.borders_each : div_up(rows.begin, p.segment));
  const i64 step = p.back ? -1 : 1, start = first + (p.back ? count - 2 : 0), steps = count - 2;
  if constexpr (DELTA) {
    constexpr int lanes = crew / DK, own = columns / lanes;
    __shared__ float state[DK * columns];
    const int r = thread % DK, column = thread / DK * own;
    const auto at = [&](i64 s) {
      return carried_at<DK>(p, start + step * s, head, tile).at + r * width + part * columns + column;
    };
    float* const mine = state + r * columns + column;
    float x[own];
#pragma unroll
    for (int c = 0; c < own; ++c) mine[c] = at(0)[c];
#pragma unroll 1
    for (i64 s = 1; s <= steps; ++s) {
      const float* const move = moves_at<DK, true>(p, start + step * s + p.back, head);
      float* const next = at(s);
#pragma unroll
      for (int c = 0; c < own; ++c) x[c] = next[c];
      __syncthreads();
#pragma unroll 4
      for (int j = 0; j < DK; j += 4) {
        Vec<float, 4> m;
        if (p.back) {
#pragma unroll
          for (int e = 0; e < 4; ++e) m[e] = move[r / width * (DK * width) + (j + e) * width + r % width];
        } else {
          m = load<4>(move + j / width * (DK * width) + r * width + j % width);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int c = 0; c < own; ++c) x[c] = math::fma(m[e], state[(j + e) * columns + column + c], x[c]);
        }
      }
      __syncthreads();
#pragma unroll
      for (int c = 0; c < own; ++c) mine[c] = next[c] = x[c];
    }
  } else {
    constexpr int ahead = 4;
    const int i = (part * crew + thread) * 4;
    const auto at = [&](i64 s) { return carried_at<DK>(p, start + step * s, head, tile).at + i; };
    Vec<float, 4> x = load<4>(static_cast<const float*>(at(0)));
#pragma unroll 1
    for (i64 s = 1; s <= steps; s += ahead) {
      Vec<float, 4> next[ahead];
      float by[ahead];
#pragma unroll
      for (int a = 0; a < ahead; ++a) {
        if (s + a > steps) break;
        next[a] = load<4>(static_cast<const float*>(at(s + a)));
        by[a] = moves_at<DK, false>(p, start + step * (s + a), head)[i / width];
      }
#pragma unroll
      for (int a = 0; a < ahead; ++a) {
        if (s + a > steps) break;
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = math::fma(by[a], x[e], next[a][e]);
        store(at(s + a), x);
      }
    }
  }
}

}  // namespace baracuda
