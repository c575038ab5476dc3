// scatter_lines  as scatter, of lines whose rows are single elements and whose tokens a block holds.
//
// A block has a line, or a range of its positions. It reads every token of the line once, keeps the value in shared memory
// and links the token to its position: `heads` has one token of each position, `next` the one that was there before. Which
// token is at the head depends on who came first, so a thread takes the tokens of its position by number, the least
// first: the order of a sum is that of the tokens alone. A list of more than 32 is left to a warp, which passes through
// all tokens of the line. scatter_line_words keeps the largest token of each position instead.
//
// Tokens and positions step evenly. Operands 0 to 3 of the map are y, x, src and the number of the line.
#include <baracuda/reduce.cuh>
#include <baracuda/wanted.cuh>

#include "indexing/scatter_tokens.cuh"

namespace baracuda {

template <class T> constexpr int line_loads = sizeof(T) > 4 ? 2 : 4;  // tokens, or elements, of a thread in flight
constexpr u16 no_token = 0xffff;                                      // and no position

// What a block has to do, and where it lies.
struct LineBlock {
  i64 y, x, src, index;  // offsets of the line
  i64 first;             // of its positions
  int rows, tokens;
  template <class P> BARACUDA_D explicit LineBlock(const P& p) {
    const i64 c[1] = {static_cast<i64>(blockIdx.x) / p.ranges};
    i64 at[1][4];
    map_offsets(p, c, at);
    y = at[0][0], x = at[0][1], src = at[0][2], index = line_index(p, at[0][3]);
    first = static_cast<i64>(blockIdx.x) % p.ranges * p.range_pitch;
    rows = static_cast<int>(min(p.extent - first, static_cast<i64>(p.range_pitch)));
    tokens = index == no_line ? 0 : static_cast<int>(p.tokens);
  }
};

// Calls put(token, row, value) for each token of the line: row -1 where it names none of the block's.
template <class W, class P, class F> BARACUDA_D void line_tokens(const P& p, const LineBlock& line, const F& put) {
  constexpr int loads = line_loads<W>;
  const W* src = static_cast<const W*>(p.src) + line.src;
  const int threads = static_cast<int>(blockDim.x), last = line.tokens - 1;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < line.tokens; base += threads * loads) {
    i64 index[loads];
    int row[loads];
    W value[loads];
    // A token beyond the last is that one again, which names nothing then.
    if (p.index_wide) {
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        index[u] =
            static_cast<const i64*>(p.index)[line.index + (min(base + u * threads, last)) * p.token_strides[0][0]];
      }
    } else {
      i32 narrow[loads];
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        narrow[u] =
            static_cast<const i32*>(p.index)[line.index + (min(base + u * threads, last)) * p.token_strides[0][0]];
      }
#pragma unroll
      for (int u = 0; u < loads; ++u) index[u] = narrow[u] == numeric<i32>::lowest() ? no_index : narrow[u];
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      if (base + u * threads > last) index[u] = no_index;
      const i64 position = position_of(index[u], p.extent);
      report_index(p.status, index[u], position);
      const u64 in_range = static_cast<u64>(position - line.first);
      row[u] = position >= 0 && in_range < static_cast<u64>(line.rows) ? static_cast<int>(in_range) : -1;
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      if (row[u] >= 0) value[u] = src[(base + u * threads) * p.token_strides[1][0]];
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      if (base + u * threads < line.tokens) put(base + u * threads, row[u], value[u]);
    }
  }
}

// Four rows more than there are may be cleared.
BARACUDA_D void clear_heads(i32* heads, int rows) {
  const i32 none[4] = {-1, -1, -1, -1};
  for (int i = static_cast<int>(threadIdx.x) * 4; i < rows; i += static_cast<int>(blockDim.x) * 4) {
    *reinterpret_cast<int4*>(heads + i) = int4{none[0], none[1], none[2], none[3]};
  }
}

template <class F, class T, class P> BARACUDA_D void scatter_line(const P& p) {
  constexpr int loads = line_loads<acc_t<T>>;
  __shared__ i32 queued;
  const LineBlock line(p);
  const int pitch = round_up(static_cast<int>(p.tokens), 8), threads = static_cast<int>(blockDim.x);
  BARACUDA_DYNAMIC_SMEM(i32, heads);
  T* const values = reinterpret_cast<T*>(heads + p.range_pitch);
  u16* const next = reinterpret_cast<u16*>(values + pitch);
  u16* const rows = next + pitch;
  u16* const queue = rows + pitch;  // rows of long lists: at most one for every 33 tokens
  if (threadIdx.x == 0) queued = 0;
  clear_heads(heads, line.rows);
  __syncthreads();
  line_tokens<T>(p, line, [&](int token, int row, const T& value) {
    rows[token] = row < 0 ? no_token : static_cast<u16>(row);
    if (row < 0) return;
    values[token] = value;
    next[token] = static_cast<u16>(atomicExch(heads + row, token));  // -1 becomes no_token
  });
  __syncthreads();

  const bool same = p.x == p.y;  // an element that no token names stays as it is
  T* const y = static_cast<T*>(p.y) + line.y;
  const T* const x = static_cast<const T*>(p.x) + line.x;
  const auto begun = [&](int row) {
    return combine_with<F, 1>(p.x == nullptr ? nullptr : x + (line.first + row) * p.x_step, p.fresh);
  };
  const auto finish = [&](int row, const Combined<F, T, 1>& all) {
    store(y + (line.first + row) * p.row_strides[0], all.finish());
  };
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < line.rows; base += threads * loads) {
    i32 head[loads];
    Packed<T, 1> old[loads];
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const int row = base + u * threads;
      head[u] = row < line.rows ? heads[row] : -1;
      const bool wanted = p.x != nullptr && row < line.rows && !(same && head[u] < 0);
      old[u].load_if(x + (line.first + row) * p.x_step, wanted);
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const int row = base + u * threads;
      if (row >= line.rows || (same && head[u] < 0)) continue;
      Combined<F, T, 1> all{to_acc(old[u].unpacked()), p.fresh != 0};
      int count = 0, least = no_token;
      for (int t = head[u]; t >= 0 && count <= line_list; ++count) {
        least = min(least, t);
        t = next[t] == no_token ? -1 : next[t];
      }
      if (count > line_list) {
        queue[atomicAdd(&queued, 1)] = static_cast<u16>(row);
        continue;
      }
#pragma unroll 1
      for (int k = 0; k < count; ++k) {
        all.add(Vec<T, 1>{values[least]});
        const int done = least;
        least = no_token;
        if (k + 1 == count) break;
        for (int t = head[u]; t >= 0;) {
          if (t > done) least = min(least, t);
          t = next[t] == no_token ? -1 : next[t];
        }
      }
      finish(row, all);
    }
  }
  __syncthreads();
  const int lane = lane_id();
#pragma unroll 1
  for (int q = static_cast<int>(threadIdx.x) / warp_size; q < queued; q += threads / warp_size) {
    const int row = queue[q];
    auto all = begun(row);
#pragma unroll 4
    for (int base = 0; base < line.tokens; base += warp_size) {
      const int token = base + lane;
      u32 votes = __ballot_sync(full_warp, token < line.tokens && rows[token] == row);
      for (; votes != 0; votes &= votes - 1) all.add(Vec<T, 1>{values[base + __ffs(votes) - 1]});
    }
    if (lane == 0) finish(row, all);
  }
}

// Words of BYTES, of which the last token of each position wins.
template <int BYTES, class P> BARACUDA_D void scatter_line_words(const P& p) {
  using W = Word<BYTES>;
  constexpr int loads = line_loads<W>;
  const LineBlock line(p);
  const int threads = static_cast<int>(blockDim.x);
  BARACUDA_DYNAMIC_SMEM(i32, heads);
  W* const values = reinterpret_cast<W*>(heads + p.range_pitch);
  clear_heads(heads, line.rows);
  __syncthreads();
  line_tokens<W>(p, line, [&](int token, int row, const W& value) {
    if (row < 0) return;
    values[token] = value;
    atomicMax(heads + row, token);
  });
  __syncthreads();
  const bool same = p.x == p.y;
  W* const y = static_cast<W*>(p.y) + line.y;
  const W* const x = static_cast<const W*>(p.x) + line.x;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < line.rows; base += threads * loads) {
    W word[loads];
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const int row = base + u * threads, token = row < line.rows ? heads[row] : -1;
      word[u] = W{};
      if (token >= 0) word[u] = values[token];
      else if (p.x != nullptr && row < line.rows && !same) {
        word[u] = x[(line.first + row) * p.x_step];
      }
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const int row = base + u * threads;
      if (row >= line.rows || (same && heads[row] < 0)) continue;
      y[(line.first + row) * p.row_strides[0]] = word[u];
    }
  }
}

}  // namespace baracuda
