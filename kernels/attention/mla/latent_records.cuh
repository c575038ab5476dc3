#pragma once
// latent_records   cells of fp8 (FlashMLA): d_latent codes of e4m3, a float32 scale for each 128 of them, then d_rope columns
// of 16 bits; 656 bytes for 512 + 64. A column of the latent is its code times the scale, rounded to T.
//
// Strides of the cache count bytes. P::wide: records and what they consist of start 16-byte aligned.
#include "attention/mla/latent.cuh"

#include <baracuda/fp8.cuh>
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace mla {

// N bytes, of which `left` are there, zeros for the others.
template <int N> BARACUDA_D void copy_bytes(void* to, const u8* from, int left = N) {
#pragma unroll
  for (int n = 0; n < N; ++n) static_cast<u8*>(to)[n] = n < left ? from[n] : u8(0);
}

// Eight columns of a latent.
template <class T> BARACUDA_D uint4 decode_eight(const uint2& codes, float scale) {
  u32 out[4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const uint2 four = widen_four<e4m3>(n == 0 ? codes.x : codes.y);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const u32 two = m == 0 ? four.x : four.y;
      const float2 x = __half22float2(*reinterpret_cast<const __half2*>(&two));
      out[2 * n + m] = pack_pair<T>(x.x * scale, x.y * scale);
    }
  }
  return uint4{out[0], out[1], out[2], out[3]};
}

struct Fp8Record {
  static constexpr bool plain = false;
  template <class T> using Stored = u8;

  // Where the scale of a column is, and the rope.
  template <class P> BARACUDA_D static int scale_at(const P& p, int column) { return p.d_latent + column / 128 * 4; }
  template <class P> BARACUDA_D static int rope_at(const P& p) { return p.d_latent + p.d_latent / 32; }

  // Copies eight columns of the rope; asynchronously where records are wide.
  template <class T, class P>
  BARACUDA_D static void copy_rope(const P& p, T* rope, int row, int piece, const u8* from, bool there) {
    T* const to = rope + tile::at<64>(row, piece);
    const int left = there ? p.d_rope - 8 * piece : 0;
    const u8* const at = from + rope_at(p) + 16 * piece;
    if (p.wide) {
      cp_async_16(to, left > 0 ? at : from, left > 0);
    } else {
      Vec<T, 8> x;
      copy_bytes<16>(&x, at, 2 * left);
      store(to, x);
    }
  }
  // Copies, for D + 64 columns of a row, the piece of eight columns of each 64 that is the thread's.
  template <int ROWS, int D, class T, class P>
  BARACUDA_D static void copy_row(const P& p, T* tile, T* rope, int row, int piece, const u8* from, bool there) {
#pragma unroll
    for (int c = 0; c < D; c += 64) {
      const int column = c + 8 * piece;
      uint2 codes{0, 0};
      float scale = 0.0f;
      if (there && column < p.d_latent) {
        if (p.wide) {
          codes = *reinterpret_cast<const uint2*>(from + column);
          scale = *reinterpret_cast<const float*>(from + scale_at(p, column));
        } else {
          copy_bytes<8>(&codes, from + column);
          copy_bytes<4>(&scale, from + scale_at(p, column));
        }
      }
      *reinterpret_cast<uint4*>(tile + c * ROWS + tile::at<64>(row, piece)) = decode_eight<T>(codes, scale);
    }
    copy_rope(p, rope, row, piece, from, there);
  }
};

}  // namespace mla
}  // namespace baracuda
