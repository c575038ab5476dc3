// linear_attention_backward    gradients of linear_attention, every kind, from states that are computed again.
//
// Schedule: linear_attention.cu has saved the state after every 64 steps. A block, which has 32 columns of one head's state
// as there, goes through those pieces from the last to the first: it computes the states of a piece again, keeps them in
// its part of the workspace, and walks back over its steps with the gradient of the state in registers. What is summed
// over columns (dq, dk, dg, ...) goes to the workspace tile by tile and is added by recurrence_sum in the order of heads
// and tiles; within a tile over a group's two columns, the groups of a warp, and the warps. So every order is fixed by the
// step's place in its sequence and by the widths alone.
#include "recurrence/recurrence.cuh"

namespace baracuda {
namespace recurrence {

constexpr int piece = 64, back_elements = 1024, warps = threads / warp_size;
enum Slot { slot_q, slot_k, slot_a, slot_b, slot_channel, slots };

// What the threads of a warp that have the same row know of it goes to row `slot` of `sums`, [slot][warp][DK].
template <int DK, class A> BARACUDA_D void put(A* sums, int slot, const A (&part)[DK / group_lanes]) {
  A* const mine = sums + (slot * warps + static_cast<int>(threadIdx.x) / warp_size) * DK;
#pragma unroll
  for (int r = 0; r < DK / group_lanes; ++r) {
    A x = part[r];
    x += __shfl_xor_sync(full_warp, x, 8);
    x += __shfl_xor_sync(full_warp, x, 16);
    if (lane_id() < group_lanes) mine[row_of<DK>(r)] = x;
  }
}
template <int DK, class A> BARACUDA_D A sum_of_warps(const A* sums, int slot, int d) {
  A x = A(0);
#pragma unroll
  for (int warp = 0; warp < warps; ++warp) x += sums[(slot * warps + warp) * DK + d];
  return x;
}
// to[row] = sum over the thread's columns of state[row][c] x[c], times a factor.
template <class A, int DK>
BARACUDA_D void across(A (&to)[DK / group_lanes], const State<A, DK>& state, const A (&x)[columns]) {
#pragma unroll
  for (int r = 0; r < DK / group_lanes; ++r) to[r] = math::fma(state.x[r][1], x[1], state.x[r][0] * x[0]);
}

}  // namespace recurrence

template <class T, int DK, class P> BARACUDA_D void linear_attention_backward(const P& p) {
  using namespace recurrence;
  using A = acc_t<T>;
  using Tile = Steps<T, A, DK, back_elements>;
  constexpr int R = DK / group_lanes, most = Tile::most;
  BARACUDA_DYNAMIC_SMEM(A, shared);
  __shared__ A factors[most], betas[most], dots[2][warps];
  Tile tile;
  A* const slopes = tile.place(p, shared);       // dy, [most][32]
  A* const sums = slopes + most * tile_columns;  // [slots][warps][DK]
  A* const bonus = sums + slots * warps * DK;    // [DK]
  const i64 tiles = div_up(p.d_v, tile_columns), works = p.num_states * p.num_heads * tiles;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const A scale = static_cast<A>(p.scale);
  A* const scratch = static_cast<A*>(p.scratch) + static_cast<i64>(blockIdx.x) * piece * DK * tile_columns;
#pragma unroll 1
  for (i64 work = blockIdx.x; work < works; work += gridDim.x) {
    const i64 tile_of = work % tiles, column = tile_of * tile_columns, head = work / tiles % p.num_heads;
    const i64 n = work / tiles / p.num_heads, batch = p.bounds == nullptr ? n : 0;
    const int left = static_cast<int>(min<i64>(tile_columns, p.d_v - column));
    const Rows rows = rows_of(p, n);
    const i64 all_rows = p.batch_size * p.seq_len * p.num_heads;
    const auto place = [&](i64 row) { return (batch * p.seq_len + row) * p.num_heads + head; };
    const auto keep = [&](void* part, i64 row, i64 d, A x) {
      if (part != nullptr) static_cast<A*>(part)[(tile_of * all_rows + place(row)) * p.d_k + d] = x;
    };
    const auto keep_number = [&](void* part, i64 row, A x) {
      if (part != nullptr) static_cast<A*>(part)[tile_of * all_rows + place(row)] = x;
    };
    const auto clear = [&](i64 from, i64 to) {  // rows of no sequence
      for (i64 row = from; row < to; ++row) {
        for (int d = threadIdx.x; d < p.d_k; d += threads) {
          keep(p.part_q, row, d, A(0)), keep(p.part_k, row, d, A(0)), keep(p.part_channel, row, d, A(0));
          keep(p.part_a, row, d, A(0)), keep(p.part_b, row, d, A(0));
        }
        if (threadIdx.x == 0) keep_number(p.part_g, row, A(0)), keep_number(p.part_beta, row, A(0));
        if (p.part_v != nullptr && threadIdx.x < left)
          static_cast<A*>(p.part_v)[place(row) * p.d_v + column + threadIdx.x] = A(0);
      }
    };
    if (p.bounds != nullptr) {
      if (n == 0) clear(0, rows.begin);
      if (n == p.num_states - 1) clear(rows.end, p.seq_len);
    }
    __syncthreads();  // the work before has read `bonus`
    if (p.bonus != nullptr) {
      for (int d = threadIdx.x; d < DK; d += threads)
        bonus[d] = d < p.d_k ? static_cast<const A*>(p.bonus)[head * p.bonus_stride + d] : A(0);
    }
    State<A, DK> slope, after, before;  // slope: of the state
    slope.clear();
    if (p.dfinal_state != nullptr)
      slope.read(row_at<A>(p.dfinal_state, p.dfinal_stride, n, head, 0) + column, p.dfinal_stride[2], p.d_k, left);
    A dbonus[R] = {};
    const i64 first_state = p.bounds == nullptr ? batch * (p.seq_len / piece) : rows.begin / piece;
#pragma unroll 1
    for (i64 c = div_up(rows.end - rows.begin, piece) - 1; c >= 0; --c) {
      const i64 start = rows.begin + c * piece;
      const int count = static_cast<int>(min<i64>(piece, rows.end - start));
      after.clear();
      if (c > 0) {
        const i64 at = ((first_state + c - 1) * p.num_heads + head) * p.d_k * p.d_v + column;
        after.read(static_cast<const A*>(p.states) + at, p.d_v, p.d_k, left);
      } else if (p.initial_state != nullptr) {
        after.read(row_at<A>(p.initial_state, p.initial_stride, n, head, 0) + column, p.initial_stride[2], p.d_k, left);
      }
      const auto load_tile = [&](int from, int steps) {
        __syncthreads();  // all have read the tile before
        tile.load(p, factors, betas, batch, start + from, head, column, steps);
        load_columns<T>(slopes, row_at<T>(p.dy, p.stride[4], batch, start + from, head) + column, p.stride[4][1], steps,
                        left);
        __syncthreads();
      };
#pragma unroll 1
      for (int from = 0; from < count; from += most) {
        const int steps = min(most, count - from);
        load_tile(from, steps);
#pragma unroll 1
        for (int s = 0; s < steps; ++s) {
          A* const to = scratch + static_cast<i64>(from + s) * DK * tile_columns + threadIdx.x;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            to[2 * r * threads] = after.x[r][0];
            to[(2 * r + 1) * threads] = after.x[r][1];
          }
          Update<A, DK> update;
          update.step(p, after, tile, factors, betas, s);
        }
      }
#pragma unroll 1
      for (int from = (count - 1) / most * most; from >= 0; from -= most) {
        const int steps = min(most, count - from);
        load_tile(from, steps);
#pragma unroll 1
        for (int s = steps - 1; s >= 0; --s) {
          const i64 row = start + from + s;
          const A* const kept = scratch + static_cast<i64>(from + s) * DK * tile_columns + threadIdx.x;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            before.x[r][0] = kept[2 * r * threads];
            before.x[r][1] = kept[(2 * r + 1) * threads];
          }
          A k[R], x[R], part[R], alpha[R];
          A dy[columns], v[columns], error[columns], written[columns], dv[columns];
#pragma unroll
          for (int i = 0; i < columns; ++i) {
            dy[i] = scale * slopes[s * tile_columns + first_column() + i];
            v[i] = tile.v[s * tile_columns + first_column() + i];
          }
          read_rows<DK>(k, tile.k + s * DK);
          read_rows<DK>(x, tile.q + s * DK);
          const A seen = math::fma(v[1], dy[1], v[0] * dy[0]);
          if (p.bonus == nullptr) {
            slope.add(x, dy);
            across(part, after, dy);
          } else {
            A u[R];
            read_rows<DK>(u, bonus);
            across(part, before, dy);
#pragma unroll
            for (int r = 0; r < R; ++r) {
              part[r] = math::fma(u[r] * k[r], seen, part[r]);
              dbonus[r] = math::fma(x[r] * k[r], seen, dbonus[r]);
            }
          }
          put<DK>(sums, slot_q, part);
          const A factor = p.g != nullptr ? factors[s] : A(1);
#pragma unroll
          for (int r = 0; r < R; ++r) alpha[r] = factor;
          if (tile.decays != nullptr) {
            read_rows<DK>(alpha, tile.decays + s * DK);
          }
#pragma unroll
          for (int i = 0; i < columns; ++i) error[i] = written[i] = v[i];
          if (p.beta != nullptr) {
            A known[columns];
#pragma unroll
            for (int r = 0; r < R; ++r) x[r] = k[r] * alpha[r];
            before.dot(known, x);
#pragma unroll
            for (int i = 0; i < columns; ++i) error[i] = v[i] - known[i], written[i] = betas[s] * error[i];
          }
          slope.dot(dv, k);
          across(part, slope, written);
          A dbeta = A(0);
          if (p.beta != nullptr) {
            A back[columns], fades[R];
            dbeta = math::fma(dv[1], error[1], dv[0] * error[0]);
#pragma unroll
            for (int i = 0; i < columns; ++i) dv[i] *= betas[s], back[i] = -dv[i];
            slope.add(k, back);
            across(fades, before, back);
#pragma unroll
            for (int r = 0; r < R; ++r) part[r] = math::fma(alpha[r], fades[r], part[r]);
          }
          if (p.bonus != nullptr) {
            A u[R], weight = A(0);
            read_rows<DK>(u, bonus);
            read_rows<DK>(x, tile.q + s * DK);
#pragma unroll
            for (int r = 0; r < R; ++r) {
              part[r] = math::fma(x[r] * u[r], seen, part[r]);
              weight = math::fma(x[r] * u[r], k[r], weight);
            }
            weight = sum_of_group(weight);
#pragma unroll
            for (int i = 0; i < columns; ++i) dv[i] = math::fma(weight, dy[i], dv[i]);
          }
          put<DK>(sums, slot_k, part);
          A reading[columns];
          if (tile.a != nullptr) {
            A read[columns];
            read_rows<DK>(x, tile.a + s * DK);
            before.dot(read, x);
            across(part, slope, read);
            put<DK>(sums, slot_b, part);
            read_rows<DK>(x, tile.b + s * DK);
            slope.dot(reading, x);
            across(part, before, reading);
            put<DK>(sums, slot_a, part);
          }
          A dg = A(0);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            part[r] = math::fma(slope.x[r][1], before.x[r][1], slope.x[r][0] * before.x[r][0]) * alpha[r];
            dg += part[r];
          }
          if (tile.decays != nullptr) put<DK>(sums, slot_channel, part);
          slope.scale(alpha);
          if (tile.a != nullptr) {
            read_rows<DK>(x, tile.a + s * DK);
            slope.add(x, reading);
          }
          if (p.bonus != nullptr) {
            read_rows<DK>(x, tile.q + s * DK);
            slope.add(x, dy);
          }
          dg = sum_of_group(dg);
#pragma unroll
          for (int lane = group_lanes; lane < warp_size; lane *= 2) {
            dg += __shfl_xor_sync(full_warp, dg, lane);
            dbeta += __shfl_xor_sync(full_warp, dbeta, lane);
          }
          if (lane_id() == 0) dots[0][warp] = dg, dots[1][warp] = dbeta;
          if (group_lane() == 0) {
            tile.v[s * tile_columns + first_column()] = dv[0];
            tile.v[s * tile_columns + first_column() + 1] = dv[1];
          }
          __syncthreads();
          for (int d = threadIdx.x; d < p.d_k; d += threads) {
            if (p.part_q != nullptr) keep(p.part_q, row, d, sum_of_warps<DK>(sums, slot_q, d));
            if (p.part_k != nullptr) keep(p.part_k, row, d, sum_of_warps<DK>(sums, slot_k, d));
            if (p.part_a != nullptr) keep(p.part_a, row, d, sum_of_warps<DK>(sums, slot_a, d));
            if (p.part_b != nullptr) keep(p.part_b, row, d, sum_of_warps<DK>(sums, slot_b, d));
            if (p.part_channel != nullptr) keep(p.part_channel, row, d, sum_of_warps<DK>(sums, slot_channel, d));
          }
          if (threadIdx.x < 2) {
            A x = A(0);
            for (int i = 0; i < warps; ++i) x += dots[threadIdx.x][i];
            keep_number(threadIdx.x ? p.part_beta : p.part_g, row, x);
          }
          if (p.part_v != nullptr && threadIdx.x < left)
            static_cast<A*>(p.part_v)[place(row) * p.d_v + column + threadIdx.x] =
                tile.v[s * tile_columns + threadIdx.x];
          __syncthreads();
          after = before;
        }
      }
    }
    if (p.dinitial_state != nullptr)
      slope.write(row_at<A>(p.dinitial_state, p.dinitial_stride, n, head, 0) + column, p.dinitial_stride[2], p.d_k,
                  left);
    if (p.part_bonus != nullptr) {
      __syncthreads();
      put<DK>(sums, slot_q, dbonus);
      __syncthreads();
      A* const to = static_cast<A*>(p.part_bonus) + ((n * tiles + tile_of) * p.num_heads + head) * p.d_k;
      for (int d = threadIdx.x; d < p.d_k; d += threads) to[d] = sum_of_warps<DK>(sums, slot_q, d);
    }
  }
}

}  // namespace baracuda
