// turn_bytes     lines (rows of a, columns of b) of bytes in any strides, copied to rows along k of `pitch` bytes, a
//                multiple of 16:
//
//   y[batch, line, k] = x[batch, line, k]     and zeros from k on
//
// A block copies 64 lines by 64 bytes through shared memory; it reads along the axis that is dense, 16 bytes at a time
// where that are neighbouring lines in aligned rows (`wide`), and writes 16 bytes along k.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

BARACUDA_D void turn_bytes(const TurnBytesParams& p) {
  constexpr int side = 64, pitch = side + 4, threads = 256, each = side * side / threads;
  __shared__ __align__(16) u8 tile[side][pitch];  // [k][line]
  const i64 across = div_up(p.pitch, side), down = div_up(p.lines, side), block = blockIdx.x;
  const i64 batch = block / (across * down), line0 = block / across % down * side, k0 = block % across * side;
  const u8* const from = static_cast<const u8*>(p.x) + batch * p.item_step + line0 * p.line_step + k0 * p.k_step;
  const i64 lines = p.lines - line0, depth = p.k - k0;  // that exist
  const int own = static_cast<int>(threadIdx.x);
  if (p.wide) {
    const int k = own / 4, line = own % 4 * 16;
    const auto bytes = load_vec<u8, 16, true>(from + k * p.k_step + line, k < depth ? lines - line : i64(0));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      *reinterpret_cast<u32*>(&tile[k][line + 4 * w]) = reinterpret_cast<const u32*>(&bytes)[w];
    }
  } else {
#pragma unroll 4
    for (int n = own; n < side * side; n += threads) {
      const int k = p.along ? n % side : n / side, line = p.along ? n / side : n % side;
      tile[k][line] = k < depth && line < lines ? from[line * p.line_step + k * p.k_step] : u8(0);
    }
  }
  __syncthreads();
  const int line = own / 4, k = own % 4 * each;
  if (line >= lines || k0 + k >= p.pitch) return;
  Vec<u8, each> bytes;
#pragma unroll
  for (int e = 0; e < each; ++e) bytes[e] = tile[k + e][line];
  store(static_cast<u8*>(p.y) + ((batch * p.lines + line0 + line) * p.pitch + k0 + k), bytes);
}

}  // namespace baracuda
