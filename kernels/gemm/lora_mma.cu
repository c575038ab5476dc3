// lora_mma   lora_matmul of many tokens on tensor cores, of f16 or bf16.
//   lora_shrink_mma  A[i] x[t] for 64 tokens and 64 of the rank, over one split of k, in float
//   lora_expand_mma  h[t], the sum of the splits, as the sum of two 16-bit numbers, hi and lo, and
//                    y[t] = base[t] + scale[i] (B[i] hi[t] + B[i] lo[t]) for 32 tokens, 128 columns at a time
//
// B_K: whether k, else the other axis, has stride 1 in the adapters' matrices. With p.order, of gemm/lora_order.cu, a tile
// is tokens of one adapter, wherever they are. Without it a tile is neighbours, a block multiplies all of them by the
// matrices of an adapter that some have, and keeps the rows of those; p.shares blocks have a tile's adapters alternately.
// What fixes the order of sums: a split is one chain of mma_deep, whose length depends on extents and the device alone;
// splits are added in their order, and the rank is one chain, 16 of hi and 16 of lo alternately. p.wide: a bit for each
// matrix whose rows in memory start 16-byte aligned.
#include "gemm/lora.cuh"
#include "gemm/slices.cuh"

namespace baracuda {

// ops/gemm/lora_rows.py has the sizes of tiles; lora_listed: tokens of a tile of the list, of which a block has all or some.

// A tile's tokens and their places among the rows of p.parts, which are those of the list, or the tokens themselves.
template <int MOST, int THREADS> struct LoraOwners : LoraTile<MOST, THREADS> {
  using Base = LoraTile<MOST, THREADS>;
  const i64* tokens;
  bool alike;  // whether all have one adapter
  template <class P>
  BARACUDA_D LoraOwners(const P& p, i64 index)
      : Base(p.order == nullptr ? Base(p, index) : listed(p, index)), alike(p.order != nullptr) {
    __shared__ i64 who[MOST];
    if (const int t = static_cast<int>(threadIdx.x); t < this->count) {
      const i64 place = this->first + t;
      who[t] = alike ? static_cast<const i32*>(p.order)[place] : place;
    }
    tokens = who;
    __syncthreads();
  }
  // Calls f(adapter) for each of the tile's adapters that are the block's.
  template <class F> BARACUDA_D void each_adapter(i64 share, int shares, const F& f) const {
    u64 left = alike ? static_cast<u64>(this->count > 0) : this->firsts();
#pragma unroll 1
    for (int n = 0; left != 0; ++n, left &= left - 1) {
      if (n % shares != share) continue;
      f(this->adapters[__ffsll(static_cast<long long>(left)) - 1]);
      __syncthreads();  // what comes next writes shared memory where warps may still read
    }
  }

 private:
  template <class P> static BARACUDA_D Base listed(const P& p, i64 index) {
    constexpr int blocks = lora_listed / MOST;  // of a tile of the list
    __shared__ int found[MOST];
    const auto tile = load<4>(static_cast<const i32*>(p.list) + index / blocks * 4);
    const int skip = static_cast<int>(index % blocks) * MOST, count = max(0, min(tile[1] - skip, MOST));
    if (const int t = static_cast<int>(threadIdx.x); t < count) found[t] = tile[2];
    return Base(tile[0] + skip, count, found);
  }
};

// Tokens' rows, wherever they are, as slices of DEPTH along k: those of `Slices` with K_MAJOR.
template <class T, int ROWS, int DEPTH, int THREADS> struct LoraRows {
  static constexpr int size = ROWS * DEPTH, pieces = DEPTH / lora_vec, step = THREADS / pieces, each = ROWS / step;
  using Place = Twist<DEPTH * sizeof(T)>;
  static_assert(step % 8 == 0 && ROWS % step == 0, "the rows a thread copies share one twist");

  const T* from[each];  // null beyond the last token
  bool wide;

  template <class Tile> BARACUDA_D LoraRows(const T* x, i64 stride, const Tile& tile, bool wide) : wide(wide) {
#pragma unroll
    for (int n = 0; n < each; ++n) {
      const int row = first() + n * step;
      from[n] = row < tile.count ? x + tile.tokens[row] * stride + col() : nullptr;
    }
  }
  BARACUDA_D void copy(T* slice, int left) {
    T* const to = slice + Place::at(first(), col() / lora_vec) / static_cast<int>(sizeof(T));
#pragma unroll
    for (int n = 0; n < each; ++n) {
      if (from[n] == nullptr) {
        store(to + n * step * DEPTH, Vec<T, lora_vec>{});
        continue;
      }
      const int there = min(max(left - col(), 0), lora_vec);
      if (wide) cp_async_16_of(to + n * step * DEPTH, from[n], there * static_cast<int>(sizeof(T)));
      else store(to + n * step * DEPTH, load_strided<T, lora_vec>(from[n], 1, there));
      from[n] += DEPTH;
    }
  }

 private:
  static BARACUDA_D int first() { return static_cast<int>(threadIdx.x) / pieces; }
  static BARACUDA_D int col() { return static_cast<int>(threadIdx.x) % pieces * lora_vec; }
};

// 64 tokens by 64 of the rank of four warps, each of which has 16 tokens; of a lower rank only its columns are multiplied,
// 16 at a time.
template <class T, bool B_K> struct LoraShrinkTile {
  static constexpr int threads = lora_shrink_threads, rows = lora_listed, cols = lora_listed, depth = lora_shrink_depth,
                       stages = lora_shrink_stages;
  static constexpr int NT = cols / 8;
  using Left = LoraRows<T, rows, depth, threads>;
  using Right = Slices<T, B_K, cols, depth, threads>;
  static constexpr int stage_size = Left::size + Right::size;  // elements

  float acc[NT][4] = {};

  // The products over k, of which there is some. The ring is free when all warps are back.
  BARACUDA_D void add(T* ring, Left a, Right b, int k) {
    int next = 0, into = 0;  // what of k is copied next, and its stage
    const auto copy_next = [&] {
      if (next < k) {
        a.copy(ring + into * stage_size, min(k - next, depth));
        b.copy(ring + into * stage_size + Left::size, min(k - next, depth));
        next += depth;
        into = into + 1 == stages ? 0 : into + 1;
      }
      cp_async_commit();
    };
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) copy_next();
    const int columns = b.extent, warp = static_cast<int>(threadIdx.x) / warp_size;
    const Fragments<T, true, true, rows, depth> left(ring, 16 * warp);
    const Fragments<T, false, B_K, cols, depth> right(ring + Left::size, 0);
    u32 now = 0;  // where the stage is that is read, in bytes
#pragma unroll 1
    for (int k0 = 0; k0 < k; k0 += depth) {
      // Wait for the stage. Then all warps are done with the stage before, too, which a later slice is copied to.
      cp_async_wait<stages - 2>();
      __syncthreads();
      copy_next();
      multiply(left, right, columns, now);
      constexpr u32 bytes = stage_size * sizeof(T);
      now = now + bytes == stages * bytes ? 0 : now + bytes;
    }
    cp_async_wait<0>();
  }
  // Calls sink(row, column, two sums) for all of the lane's.
  template <class Sink> BARACUDA_D void finish(const Sink& sink) const {
    const int row = static_cast<int>(threadIdx.x) / warp_size * 16 + lane_id() / 4;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sink(row + 8 * half, 8 * n + lane_id() % 4 * 2, Vec<float, 2>{{acc[n][2 * half], acc[n][2 * half + 1]}});
      }
  }

 private:
  // Adds the products of the stage at byte `offset`, of so many columns.
  template <class LeftFragments, class RightFragments>
  BARACUDA_D void multiply(const LeftFragments& left, const RightFragments& right, int columns, u32 offset) {
#pragma unroll
    for (int step = 0; step < depth / 16; ++step) {
      u32 of_x[4];
      left.read(of_x, 0, step, offset);
#pragma unroll
      for (int n = 0; n < NT / 2; ++n) {
        if (16 * n >= columns) break;
        u32 two[4];
        right.read(two, 16 * n, step, offset);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u32 of_a[2] = {two[2 * half], two[2 * half + 1]};
          mma_deep<T>(acc[2 * n + half], of_x, of_a);
        }
      }
    }
  }
};

template <class T, bool B_K> BARACUDA_D void lora_shrink_mma(const LoraShrinkMmaParams& p) {
  using Tile = LoraShrinkTile<T, B_K>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const i64 columns = max<i64>(1, div_up(p.rank, i64(Tile::cols)));
  const i64 share = blockIdx.x % p.shares, index = blockIdx.x / p.shares;
  const i64 r0 = index % columns * Tile::cols, split = index / columns % p.splits;
  const i64 pitch = round_up(p.rank, i64(lora_vec));
  const i64 k0 = split * p.each * Tile::depth, k = min(p.k - k0, p.each * Tile::depth);
  const LoraOwners<Tile::rows, Tile::threads> tile(p, index / (columns * p.splits));
  const T* const x = static_cast<const T*>(p.x) + k0;
  // Copy the tile's rows of x, if they are wanted.
  if (p.copy != nullptr && r0 == 0 && share == 0) {
    const i64 pieces = div_up(k, i64(lora_vec));
#pragma unroll 4
    for (i64 e = threadIdx.x; e < tile.count * pieces; e += Tile::threads) {
      const i64 t = tile.tokens[e / pieces], at = e % pieces * lora_vec, left = k - at;
      T* const to = static_cast<T*>(p.copy) + t * p.copy_step[0] + (k0 + at) * p.copy_step[1];
      const auto piece = lora_load(x + t * p.x_step[0] + at, i64(1), left, p.wide & 1);
      if ((p.wide & 4) && left >= lora_vec) store(to, piece);
      else store_strided(to, p.copy_step[1], piece, left);
    }
  }
  float* const partials = static_cast<float*>(p.parts) + (split * p.tokens + tile.first) * pitch;
  tile.each_adapter(share, p.shares, [&](int adapter) {
    const i64 rank = lora_rank(p, adapter);
    if (rank <= r0) return;
    const T* const matrix = static_cast<const T*>(p.a) + i64(adapter) * p.a_step[0] + k0 * (B_K ? 1 : p.a_step[2]);
    const typename Tile::Left left(x, p.x_step[0], tile, p.wide & 1);
    const typename Tile::Right right(matrix, p.a_step[1], p.a_step[2], r0, rank, (p.wide & 2) != 0);
    Tile product;
    product.add(ring, left, right, static_cast<int>(k));
    // Store the partial sums.
    product.finish([&](int row, int col, const Vec<float, 2>& two) {
      if (row < tile.count && tile.adapters[row] == adapter && r0 + col < pitch) {
        store(partials + row * pitch + r0 + col, two);
      }
    });
  });
}

// 32 tokens by 128 columns of eight warps, each of which has 16 by 32. The rank is cut into chunks of 32, filled up with
// zeros; hi and lo of all chunks stay in shared memory, and B comes through a ring of stages, a chunk each.
template <class T, bool B_K> struct LoraExpandTile {
  static constexpr int threads = lora_expand_threads, rows = lora_expand_rows, cols = lora_expand_cols,
                       depth = lora_expand_depth, stages = lora_expand_stages;
  static constexpr int NT = 4, half = rows * depth, pitch = 32 + 8;
  using Right = Slices<T, B_K, cols, depth, threads>;
  using Owners = LoraOwners<rows, threads>;
  using Base = Vec<T, lora_vec>[2];  // eight columns of two of the warp's rows

  const LoraExpandMmaParams& p;
  const Owners& tile;
  const int adapter;
  const int rank, chunks;
  T *const h, *const ring;
  float* const staging;  // of this warp

  BARACUDA_D LoraExpandTile(const LoraExpandMmaParams& p, const Owners& tile, int adapter, T* shared)
      : p(p), tile(tile), adapter(adapter), rank(lora_rank(p, adapter)), chunks(div_up(rank, depth)),
        h(shared + stages * Right::size), ring(shared),
        staging(reinterpret_cast<float*>(h + 2 * half * div_up(static_cast<int>(p.rank), depth)) +
                static_cast<int>(threadIdx.x) / warp_size * (16 * pitch)) {}

  static BARACUDA_D int warp_row() { return static_cast<int>(threadIdx.x) / (4 * warp_size) * 16; }
  static BARACUDA_D int warp_col() { return static_cast<int>(threadIdx.x) / warp_size % 4 * 32; }

  // The sum of the splits for token `row` of the tile and eight of the rank from r on; 0 where there is none.
  BARACUDA_D Vec<float, lora_vec> sum(int row, int r) const {
    constexpr int flight = 4;
    const i64 pitch = round_up(p.rank, i64(lora_vec));
    Vec<float, lora_vec> total = {};
    if (row >= tile.count || tile.adapters[row] != adapter || r >= rank) return total;
    const float* const at = static_cast<const float*>(p.parts) + (tile.first + row) * pitch + r;
#pragma unroll 1
    for (i64 s = 0; s < p.splits; s += flight) {
      Vec<float, lora_vec> partial[flight];
#pragma unroll
      for (int n = 0; n < flight; ++n) partial[n] = load<lora_vec>(at + min(s + n, p.splits - 1) * p.tokens * pitch);
#pragma unroll
      for (int n = 0; n < flight; ++n) {
        if (s + n >= p.splits) break;
#pragma unroll
        for (int e = 0; e < lora_vec; ++e) total[e] += partial[n][e];
      }
    }
#pragma unroll
    for (int e = 0; e < lora_vec; ++e) total[e] = r + e < rank ? total[e] : 0.0f;
    return total;
  }
  // hi and lo of the tile, [chunk][hi or lo][token][32 of the rank].
  BARACUDA_D void put_h() const {
    const int pieces = chunks * (depth / lora_vec);
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * pieces; i += threads) {
      const int row = i / pieces, piece = i % pieces;
      Vec<float, lora_vec> rest = sum(row, piece * lora_vec);
      const auto hi = from_acc<T>(rest);
#pragma unroll
      for (int e = 0; e < lora_vec; ++e) {
        const float left = rest[e] - to_acc(hi[e]);
        rest[e] = math::isfinite(left) ? left : 0.0f;  // where hi is infinite it says all
      }
      T* const to =
          h + piece / 4 * (2 * half) + Twist<depth * sizeof(T)>::at(row, piece % 4) / static_cast<int>(sizeof(T));
      store(to, hi);
      store(to + half, from_acc<T>(rest));
    }
  }
  BARACUDA_D bool has(int row) const { return row < tile.count && tile.adapters[row] == adapter; }
  // Of eight columns number i of the warp's, of 64 columns: the row in the tile and the column.
  static BARACUDA_D int row_of(int i) { return warp_row() + 8 * i + lane_id() / 4; }
  BARACUDA_D void load_base(Base& base, i64 n0) const {
    if (p.base == nullptr) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const i64 n = n0 + warp_col() + lane_id() % 4 * lora_vec;
      if (!has(row_of(i)) || n >= p.n) continue;
      const T* const at = static_cast<const T*>(p.base) + tile.tokens[row_of(i)] * p.base_step[0] + n * p.base_step[1];
      base[i] = lora_load(at, p.base_step[1], p.n - n, (p.wide & 2) != 0);
    }
  }
  // Epilogue: the sums of 128 columns, and base, as y.
  BARACUDA_D void finish(const float (&acc)[NT][4], const Base& base, float scale, i64 n0) const {
    float* const own = staging + lane_id() / 4 * pitch + lane_id() % 4 * 2;
    __syncwarp();  // all lanes have read the sums before
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int low = 0; low < 2; ++low) {
        store(own + 8 * low * pitch + 8 * n, Vec<float, 2>{{acc[n][2 * low], acc[n][2 * low + 1]}});
      }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const i64 n = n0 + warp_col() + lane_id() % 4 * lora_vec, left = p.n - n;
      if (!has(row_of(i)) || left <= 0) continue;
      const auto sum = load<lora_vec>(staging + (8 * i + lane_id() / 4) * pitch + lane_id() % 4 * lora_vec);
      Vec<float, lora_vec> y;
#pragma unroll
      for (int e = 0; e < lora_vec; ++e) {
        y[e] = adapter < 0 ? 0.0f : scale * sum[e];
        if (p.base != nullptr) y[e] = adapter < 0 ? to_acc(base[i][e]) : math::fma(scale, sum[e], to_acc(base[i][e]));
      }
      T* const at = static_cast<T*>(p.y) + tile.tokens[row_of(i)] * p.y_step[0] + n * p.y_step[1];
      if ((p.wide & 4) && left >= lora_vec) store(at, from_acc<T>(y));
      else store_strided(at, p.y_step[1], from_acc<T>(y), left);
    }
  }
  // The slices of B one after the other: columns first, of each all chunks of the rank.
  struct NextSlice {
    const T* matrix;
    int column = 0, chunk = 0, stage = 0;
  };
  // Issues the copies of the next slice of columns begin … begin + count - 1, if there is one; one group in any case.
  BARACUDA_D void copy_next(NextSlice& next, i64 begin, int count) const {
    if (next.column < count && chunks != 0) {
      const T* const from = next.matrix + next.chunk * (B_K ? depth : depth * p.b_step[2]);
      Right right(from, p.b_step[1], p.b_step[2], begin + next.column, p.n, (p.wide & 1) != 0);
      right.copy(ring + next.stage * Right::size, min(rank - next.chunk * depth, depth));
      next.stage = next.stage + 1 == stages ? 0 : next.stage + 1;
      if (++next.chunk == chunks) next.chunk = 0, next.column += cols;
    }
    cp_async_commit();
  }
  // Adds the products of chunk c, whose slice of B is in a stage.
  template <class LeftFragments, class RightFragments>
  BARACUDA_D void multiply(float (&acc)[NT][4], const LeftFragments& left, const RightFragments& right, int c,
                           int stage) const {
#pragma unroll
    for (int step = 0; step < depth / 16; ++step) {
      if (c * depth + 16 * step >= rank) break;
      const u32 at = static_cast<u32>(c * (2 * half) * sizeof(T));
      u32 hi[4], lo[4], two[2][4];
      left.read(hi, 0, step, at);
      left.read(lo, 0, step, at + static_cast<u32>(half * sizeof(T)));
#pragma unroll
      for (int n = 0; n < 2; ++n) right.read(two[n], 16 * n, step, static_cast<u32>(stage * Right::size * sizeof(T)));
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const u32 of[2] = {two[n / 2][n % 2 * 2], two[n / 2][n % 2 * 2 + 1]};
        mma_deep<T>(acc[n], hi, of);
        mma_deep<T>(acc[n], lo, of);
      }
    }
  }
  // Columns begin … begin + count - 1 in steps of 128.
  BARACUDA_D void run(i64 begin, int count) const {
    const float scale =
        p.scale == nullptr || adapter < 0 ? 1.0f : static_cast<const float*>(p.scale)[i64(adapter) * p.scale_step];
    NextSlice next{static_cast<const T*>(p.b) + (adapter < 0 ? 0 : i64(adapter) * p.b_step[0])};
#pragma unroll
    for (int n = 0; n < stages - 1; ++n) copy_next(next, begin, count);
    Base base, next_base;
    load_base(next_base, begin);
    put_h();
    const Fragments<T, true, true, rows, depth> left(h, warp_row());
    const Fragments<T, false, B_K, cols, depth> right(ring, warp_col());
    int stage = 0;  // that is read
#pragma unroll 1
    for (int n0 = 0; n0 < count; n0 += cols) {
      base[0] = next_base[0], base[1] = next_base[1];
      if (n0 + cols < count) load_base(next_base, begin + n0 + cols);
      float acc[NT][4] = {};
#pragma unroll 1
      for (int c = 0; c < chunks; ++c) {
        // Wait for the stage. Then all warps are done with the stage before, too, which a later slice is copied to.
        cp_async_wait<stages - 2>();
        __syncthreads();
        copy_next(next, begin, count);
        multiply(acc, left, right, c, stage);
        stage = stage + 1 == stages ? 0 : stage + 1;
      }
      finish(acc, base, scale, begin + n0);
    }
    cp_async_wait<0>();
  }
};

template <class T, bool B_K> BARACUDA_D void lora_expand_mma(const LoraExpandMmaParams& p) {
  using Tile = LoraExpandTile<T, B_K>;
  BARACUDA_DYNAMIC_SMEM(T, shared);
  const i64 share = blockIdx.x % p.shares, index = blockIdx.x / p.shares, begin = index % p.ranges * p.each;
  const typename Tile::Owners tile(p, index / p.ranges);
  tile.each_adapter(share, p.shares, [&](int adapter) {
    Tile(p, tile, adapter, shared).run(begin, static_cast<int>(min(p.each, p.n - begin)));
  });
}

}  // namespace baracuda
