// line_sums  sums of integers of 8 bits along k, of every line (row of a or column of b) and group of k:
//
//   sums[batch, line, g] = Σ over k of group g   x[batch, line, k]
//
// in 64 bits. A warp takes a line and a group, its lanes along k, 16 bytes at a time where lines lie so; or, ACROSS, 32
// neighbouring lines and a group, a lane each, where they are what is dense in memory. Integers have no order of sums.
#include <baracuda/index.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

BARACUDA_D int byte_value(u8 x, bool is_unsigned) {
  return is_unsigned ? static_cast<int>(x) : static_cast<int>(static_cast<i8>(x));
}

BARACUDA_D void line_sums(const LineSumsParams& p) {
  const i64 blocks = p.across ? div_up(p.lines, warp_size) : p.lines;
  const i64 each = blocks * p.groups, warps = thread_count<i64>() / warp_size;
  const bool is_unsigned = p.is_unsigned;
  for (i64 w = thread_index<i64>() / warp_size; w < each * p.items; w += warps) {
    const i64 batch = w / each, block = w % each / p.groups, g = w % p.groups;
    i64 begin[1];
    offsets<i64, 1>(batch, p.batch_rank, p.batch_shape, p.batch, begin);
    const i64 first = g * p.group, last = min(first + p.group, p.k);
    const i64 line = p.across ? block * warp_size + lane_id() : block;
    const u8* const from = static_cast<const u8*>(p.x) + begin[0] + line * p.line_step;
    i64 sum = 0;
    if (p.across) {
      if (line < p.lines) {
        for (i64 k = first; k < last; ++k) sum += byte_value(from[k * p.k_step], is_unsigned);
      }
    } else if (p.wide) {
      for (i64 k = first + 16 * lane_id(); k < last; k += 16 * warp_size) {
        const auto bytes = load_vec<u8, 16, true>(from + k, last - k);
        int some = 0;
#pragma unroll
        for (int e = 0; e < 16; ++e) some += byte_value(bytes[e], is_unsigned);
        sum += some;
      }
    } else {
      for (i64 k = first + lane_id(); k < last; k += warp_size) sum += byte_value(from[k * p.k_step], is_unsigned);
    }
    if (!p.across) sum = warp_reduce<Sum>(sum);
    if (p.across ? line < p.lines : lane_id() == 0) {
      static_cast<i64*>(p.sums)[(batch * p.lines + line) * p.groups + g] = sum;
    }
  }
}

}  // namespace baracuda
