#pragma once
// chunk_decode   what a lane has of a chunk of codes (chunk_ring.cuh), as pairs of T for products: of each line eight
//                values of its run at a time, j with j + 4 in a pair. A value is the format's float32 number, rounded once.
//
// Which k stands in which place of a fragment of mma.sync is free as long as both operands agree. Of eight of each run a
// first product takes 0, 4, 1, 5, a second 2, 6, 3, 7: so lie codes of 4 bits whose places in a word are 16 bits apart.
#include "quant_gemm/chunk_ring.cuh"

namespace baracuda {

template <class T> BARACUDA_D void eight_to_pairs(const float* values, u32 (&pairs)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) pairs[j] = pack_pair<T>(values[j], values[j + 4]);
}
// Calls body(n, pairs) for the n-th eight of the runs of all lines, which decode(line, n, pairs) makes.
template <class Body, class Line> BARACUDA_D void by_eights(const Body& body, const Line& decode) {
#pragma unroll
  for (int n = 0; n < format_run / format_part; ++n) {
    u32 pairs[chunk_lines][4];
#pragma unroll
    for (int line = 0; line < chunk_lines; ++line) decode(line, n, pairs[line]);
    body(n, pairs);
  }
}
// Adds eight of k of the lines from `first` on, pairs (j, j + 4), times those of tile t of x, which lie in order.
template <class T, int COUNT, int MT, int NT>
BARACUDA_D void multiply_pairs(float (&acc)[MT][NT][4], int first, int t, const u32 (&pairs)[COUNT][4],
                               const uint4& of) {
  const u32 of_x[2][2] = {{__byte_perm(of.x, of.z, 0x5410), __byte_perm(of.x, of.z, 0x7632)},
                          {__byte_perm(of.y, of.w, 0x5410), __byte_perm(of.y, of.w, 0x7632)}};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
      const u32 of_w[4] = {pairs[i][2 * j], pairs[i + 1][2 * j], pairs[i][2 * j + 1], pairs[i + 1][2 * j + 1]};
      mma_m16n8k16<T>(acc[(first + i) / 2][t], of_w, of_x[j]);
    }
  }
}

// Puts eight values of each line, which decode(line, values) makes, into pairs that are zeros before, if they are there.
template <class T, class Decode>
BARACUDA_D void decode_eights(bool there, const Decode& decode, u32 (&pairs)[chunk_lines][4]) {
  // One line at a time, which is put among registers, as those have no index: what decodes any layout is long.
#pragma unroll 1
  for (int line = 0; there && line < chunk_lines; ++line) {
    float values[format_part];
    u32 own[4];
    decode(line, values);
    eight_to_pairs<T>(values, own);
#pragma unroll
    for (int e = 0; e < 4 * chunk_lines; ++e) {
      if (e / 4 == line) pairs[e / 4][e % 4] = own[e % 4];
    }
  }
}
// Calls body(line, n, pairs) for the n-th eight of the runs of the lines `line` and `line` + 1; decode(line, values) makes
// such a run.
template <class T, class Decode, class Body> BARACUDA_D void by_whole_runs(const Decode& decode, const Body& body) {
#pragma unroll
  for (int line = 0; line < chunk_lines; line += 2) {
    u32 pairs[format_run / format_part][2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float values[format_run];
      decode(line + half, values);
#pragma unroll
      for (int n = 0; n < format_run / format_part; ++n) eight_to_pairs<T>(values + n * format_part, pairs[n][half]);
    }
#pragma unroll
    for (int n = 0; n < format_run / format_part; ++n) body(line, n, pairs[n]);
  }
}

// Codes of later chunks go to the L2 cache: two lanes for each of the warp's 32 rows, in sectors of 32 bytes.
struct CodesAhead {
  static constexpr int chunks = 3;
  const u8* rows[2];
  template <class Row>
  BARACUDA_D explicit CodesAhead(const Row& row) : rows{row(lane_id() / 2).codes, row(lane_id() / 2 + 16).codes} {}
  template <class P> BARACUDA_D void prefetch(const P& p, int chunk) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u8* const from = rows[i] + chunk * p.chunk_bytes;
      for (int at = lane_id() % 2 * 32; at < p.chunk_bytes; at += 64) prefetch_l2(from + at);
    }
  }
};

template <class F, class T> struct ChunkDecode {
  typename F::Decoder decoder;
  typename F::template Fast<T> fast;
  BARACUDA_D explicit ChunkDecode(const Stored& w) : fast(w) {}

  // Calls body(n, pairs) for the n-th eight of the runs of all lines.
  template <class Words, class Body>
  BARACUDA_D void operator()(const Words (&words)[chunk_lines], const ChunkNumbers<F, T>& numbers,
                             const Body& body) const {
    const auto own = numbers.get();
    if constexpr (F::template has_pairs<T>) {
      if (numbers.exact) {
        by_eights(body, [&](int line, int n, u32(&pairs)[4]) { fast.pairs(words[line][n], own[line], pairs); });
        return;
      }
    }
    if constexpr (F::is_shifted) {
      if (numbers.whole_zeros()) {
        shifted(words, own, body);
        return;
      }
    }
    by_eights(body, [&](int line, int n, u32(&pairs)[4]) {
      float values[format_part];
#pragma unroll
      for (int j = 0; j < format_part; ++j) {
        values[j] = decoder(words[line], n * format_part + j);
        if constexpr (F::has_zeros) values[j] -= __uint_as_float(own[line].y);
        values[j] *= __uint_as_float(own[line].x);
      }
      eight_to_pairs<T>(values, pairs);
    });
  }

 private:
  // Where zero points are whole numbers they and the constants of `Shifted` are one difference.
  template <class Words, class Body>
  BARACUDA_D void shifted(const Words (&words)[chunk_lines], const Vec<uint2, chunk_lines>& own,
                          const Body& body) const {
    constexpr int biases = F::Shifted::biases;
    float minus[chunk_lines][biases];
#pragma unroll
    for (int e = 0; e < chunk_lines * biases; ++e) {
      minus[e / biases][e % biases] = F::Shifted::bias(e % biases) + __uint_as_float(own[e / biases].y);
    }
    by_eights(body, [&](int line, int n, u32(&pairs)[4]) {
      float values[format_part];
#pragma unroll
      for (int j = 0; j < format_part; ++j) {
        values[j] = fast.shifted(words[line], n * format_part + j) - minus[line][j % biases];
        values[j] *= __uint_as_float(own[line].x);
      }
      eight_to_pairs<T>(values, pairs);
    });
  }
};

}  // namespace baracuda
