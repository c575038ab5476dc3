// decode_stream   moe_decode on sm_90a, two launches: h[s] = unit(gate[e] x[t], up[e] x[t]) for the slots s of every
//                 expert e that some token chose, and then y[t] = Σ_j weights[t, j] (down[e] h[t k + j] + bias[e]).
//
// A work tile is `share` columns of an expert's matrix times its slots, up to 32 of them: gemm/skinny.cuh, whose tensor
// cores' tile has the columns along its rows. Blocks sort the slots by expert for themselves. A producer warp has TMA read
// the columns, and the row of each slot where it stands, a lane a row: nothing is gathered before. Each sum is one chain
// in the order of k, by the instruction of gemm/wgmma.cuh, so that a token has the bits that it has among many.
//
// The second launch rounds what a slot comes to, z. The block that is the last to finish a column tile adds it up, slots
// in their order whoever it is: a counter for each column tile, which the first launch clears.
#include "gemm/skinny.cuh"
#include "moe/chunks.cuh"

namespace baracuda {
namespace moe {

// What Skinny reads of a product.
struct Alone {
  static constexpr int cluster = 1;
  i64 k;
  BARACUDA_D double alpha() const { return 1.0; }
};

template <class T, bool ACROSS, bool GATED, bool LAST, class P>
struct Stream : gemm::Skinny<T, decode_rows, ACROSS, GATED, Alone, void> {
  using Base = gemm::Skinny<T, decode_rows, ACROSS, GATED, Alone, void>;
  using Place = typename Base::Place;
  using Base::ring, Base::full, Base::empty, Base::slices;
  static constexpr int RIGHTS = Base::RIGHTS, LINE = Base::LINE, ROWS = decode_rows;
  const P& q;
  Chunks& chunks;

  BARACUDA_D Stream(const P& q, const Alone& product, unsigned char* shared, Chunks& chunks)
      : Base(product, shared), q(q), chunks(chunks) {}

  // Calls f(chunk, first column) for the work tiles of this block, which is persistent.
  template <class F> BARACUDA_D void for_tiles(const F& f) const {
    for (int n = static_cast<int>(blockIdx.x); n < chunks.count * q.column_tiles; n += static_cast<int>(gridDim.x)) {
      f(n / q.column_tiles, n % q.column_tiles * q.share);
    }
  }
  BARACUDA_D int rows_of(int chunk) const { return chunks.begin[chunk + 1] - chunks.begin[chunk]; }
  BARACUDA_D int slot_of(int chunk, int row) const { return chunks.slot[chunks.begin[chunk] + row]; }

  // ---- the producer: a warp ----

  BARACUDA_D void produce() const {
    if (lane_id() == 0) prefetch_map(q.a_map), prefetch_map(q.b_map);
    Place at;
    for_tiles([&](int chunk, int n) {
      const int rows = rows_of(chunk), expert = chunks.of[chunk];
      const int slot = slot_of(chunk, min(lane_id(), rows - 1)), row = LAST ? slot : slot / q.choices;
      for (int s = 0; s < slices; ++s, at.advance()) {
        const int k = s * Base::DEPTH;
        unsigned char* const to = ring + at.index * Base::STAGE_BYTES;
        Barrier& barrier = full[at.index];
        if (lane_id() == 0) {
          // Wait until the stage is empty.
          empty[at.index].wait(at.parity ^ 1);
          // Issue TMA; the full barrier counts its bytes.
          arrive_expecting(barrier, static_cast<u32>(RIGHTS * q.share + rows) * LINE);
          this->load_columns(to, q.b_map, barrier, n, k, expert * q.b_step);
          if constexpr (GATED) this->load_columns(to + Base::B_BYTES, q.up_map, barrier, n, k, expert * q.up_step);
        }
        __syncwarp();
        if (lane_id() < rows) {
          tensor_load(to + RIGHTS * Base::B_BYTES + lane_id() * LINE, q.a_map, barrier, k, row, 0);
        }
      }
    });
  }

  // ---- the consumers: a warpgroup ----

  // Epilogue: a warp's 16 columns by way of its staging, where each thread finds 8 of them, of one slot, together.
  BARACUDA_D void finish(const float (&acc)[RIGHTS][ROWS / 8][4], int chunk, int n) const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size, expert = chunks.of[chunk];
    if (16 * warp >= q.share) return;
    float* const own = this->staging + warp * Base::STAGING;
    __syncwarp();
#pragma unroll
    for (int r = 0; r < RIGHTS; ++r) this->put(own + r * ROWS * Base::PITCH, acc[r]);
    __syncwarp();
#pragma unroll 1
    for (int e = lane_id(); e < 2 * rows_of(chunk); e += warp_size) {
      const int row = e / 2, first = 16 * warp + e % 2 * 8;
      const i64 column = static_cast<i64>(n) + first, left = q.n - column;
      if (first >= q.share || left <= 0) continue;
      const float* const from = own + row * Base::PITCH + e % 2 * 8;
      auto x = this->get(from);
      add_bias<T>(x, q.bias, q.bias_steps, expert, column, left);
      if constexpr (!LAST) {
        auto up = GATED ? this->get(from + ROWS * Base::PITCH) : x;
        if constexpr (GATED) add_bias<T>(up, q.up_bias, q.up_bias_steps, expert, column, left);
        apply_unit<T, GATED>(q, x, up);
      }
      store_vec<T, 8, true>(static_cast<T*>(q.made) + slot_of(chunk, row) * q.pitch + column, from_acc<T>(x), left);
    }
  }
  // y of the tokens in the tile's columns.
  BARACUDA_D void add_slots(int n) const {
    const int octets = q.share / 8;
    for (int e = static_cast<int>(threadIdx.x); e < q.tokens * octets; e += Base::WARPS * warp_size) {
      const int token = e / octets;
      const i64 column = static_cast<i64>(n) + e % octets * 8, left = q.n - column;
      if (left <= 0) continue;
      Vec<float, 8> sum{};
      for (int j = 0; j < q.choices; ++j) {
        const int slot = token * q.choices + j;
        if (chunks.expert[slot] < 0) continue;
        const auto z = to_acc(load<8>(static_cast<const T*>(q.made) + slot * q.pitch + column));
        const float weight = weight_of<T>(q, token, j);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum[k] += z[k] * weight;
      }
      T* const to = static_cast<T*>(q.y) + token * q.y_steps[0] + column * q.y_steps[1];
      if (q.wide_y) store_vec<T, 8, true>(to, from_acc<T>(sum), left);
      else store_strided(to, q.y_steps[1], from_acc<T>(sum), left);
    }
  }
  // Adds up the tile's columns in the block that finds all their chunks done.
  BARACUDA_D void end_tile(int n) const {
    __shared__ u32 done;
    constexpr int threads = Base::WARPS * warp_size;
    __threadfence();
    sync_threads<threads>(1);
    if (threadIdx.x == 0) done = atomicAdd(static_cast<u32*>(q.counters) + n / q.share, 1u) + 1;
    sync_threads<threads>(1);
    if (done != static_cast<u32>(chunks.count)) return;
    __threadfence();
    add_slots(n);
  }
  BARACUDA_D void consume() const {
    Place at;
    for_tiles([&](int chunk, int n) {
      float acc[RIGHTS][ROWS / 8][4];
      this->multiply(acc, at);
      finish(acc, chunk, n);
      if constexpr (LAST) end_tile(n);
    });
    if constexpr (LAST) {
      if (chunks.count != 0) return;
      // No slot has an expert: zeros.
      for (int n = static_cast<int>(blockIdx.x); n < q.column_tiles; n += static_cast<int>(gridDim.x)) {
        add_slots(n * q.share);
      }
    }
  }

  BARACUDA_D void run() const {
    if (threadIdx.x == 0) this->init();
    __syncthreads();
    if (threadIdx.x < Base::WARPS * warp_size) consume();
    else produce();
  }
};

}  // namespace moe

template <class T, bool ACROSS, bool GATED, bool LAST> BARACUDA_D void moe_decode_stream(const MoeStreamParams& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, shared);
  __shared__ moe::Chunks chunks;
  if constexpr (!LAST) {
    if (blockIdx.x == 0) {
      for (int n = threadIdx.x; n < p.clear; n += blockDim.x) static_cast<u32*>(p.counters)[n] = 0;
    }
  }
  moe::sort_slots(p, chunks);
  const moe::Alone product{p.k};
  moe::Stream<T, ACROSS, GATED, LAST, MoeStreamParams>(p, product, shared, chunks).run();
}

}  // namespace baracuda
