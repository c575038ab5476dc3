#pragma once
// chunk_ring   what a warp that has 32 rows of W reads of a chunk of 128 of k, ahead of its decoding: codes by lanes, each
//              its own, and scales and zero points by rows, through shared memory.
//
// Lane (g, q) has the run 32 q … 32 q + 31 of the rows g + 8 i, its `lines`. For formats that derive from Grouped
// (quantize/format.cuh), where a run is of one group.
#include "quant_gemm/run_numbers.cuh"
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int chunk_runs = chunk_k / format_run, chunk_lines = 4;

// The codes of a lane's lines in STAGES chunks.
template <class F, int STAGES> struct ChunkRing {
  static constexpr int bytes = format_run * F::bits / 8, unit = F::run_unit, pieces = bytes / unit;
  static constexpr int stage_bytes = chunk_lines * bytes * warp_size, warp_bytes = STAGES * stage_bytes;
  u8* own;
  const u8* from[chunk_lines];  // the next chunk to copy
  int to = 0, at = 0;           // places of the stages that are copied to next, and read

  template <class Row> BARACUDA_D ChunkRing(u8* shared, int chunk, const Row& row) : own(shared + lane_id() * unit) {
#pragma unroll
    for (int i = 0; i < chunk_lines; ++i) {
      from[i] =
          row(lane_id() / 4 + 8 * i).codes + static_cast<i64>(chunk) * (chunk_k / 8 * F::bits) + lane_id() % 4 * bytes;
    }
  }
  static BARACUDA_D void advance(int& place) { place = place == warp_bytes - stage_bytes ? 0 : place + stage_bytes; }

  // Begins to copy a chunk, if there is one; so many copies as begun are waited for.
  BARACUDA_D void copy(bool there) {
    if (there) {
#pragma unroll
      for (int i = 0; i < chunk_lines; ++i) {
#pragma unroll
        for (int j = 0; j < pieces; ++j) {
          u8* const place = own + to + (i * pieces + j) * (warp_size * unit);
          if constexpr (unit == 16) cp_async_16(place, from[i] + j * unit);
          else cp_async<unit>(place, from[i] + j * unit);
        }
        from[i] += chunk_k / 8 * F::bits;
      }
      advance(to);
    }
    cp_async_commit();
  }
  // The next chunk, when STAGES - 1 later ones are under way at most.
  using Words = Vec<u32, code_words(bytes)>;
  BARACUDA_D void take(Words (&words)[chunk_lines]) {
    using W = Word<unit>;
    cp_async_wait<STAGES - 1>();
#pragma unroll
    for (int i = 0; i < chunk_lines * pieces; ++i) {
      reinterpret_cast<W*>(&words[i / pieces])[i % pieces] =
          *reinterpret_cast<const W*>(own + at + i * (warp_size * unit));
    }
    advance(at);
  }
};

// The scales and zero points of a chunk: lane l reads those of row l as bits a chunk ahead, and puts them where all lanes
// find those of their lines: as pairs of T that give eight values at once where T holds them, else as floats. Where four
// neighbours lie so that one access has them, which serves up to four chunks, they stay in registers as they lie.
template <class F, class T> struct ChunkNumbers {
  static constexpr int pitch = warp_size + 4, warp_bytes = chunk_runs * pitch * 8;  // without bank conflicts
  const Stored& w;
  uint2* places;
  const u8 *scales, *zeros;      // of the lane's row
  u32 group, rest, first = ~0u;  // the next chunk's group, and where in it; the group of the chunk of the bits, if any
  u32 scale_bits[chunk_runs], zero_bits[chunk_runs];
  bool single, by_quads;             // a chunk is of one group; the bits are of four neighbours
  bool fresh = true, exact = false;  // the bits are of another chunk than the places; these hold pairs

  static BARACUDA_D int width(int code) { return code == code_f32 ? 4 : code == code_f16 || code == code_bf16 ? 2 : 1; }

  BARACUDA_D ChunkNumbers(const Stored& w, const StoredRow& row, int chunk, u8* shared)
      : w(w), places(reinterpret_cast<uint2*>(shared)),
        scales(static_cast<const u8*>(w.scales) + row.scale * width(w.scale_code)),
        zeros(static_cast<const u8*>(w.zeros)), group(static_cast<u32>(chunk) * chunk_k / w.group),
        rest(static_cast<u32>(chunk) * chunk_k % w.group), single(w.group % chunk_k == 0) {
    if (zeros != nullptr) zeros += row.zero * width(w.zero_code);
    by_quads = w.groups % 4 == 0 && (single || w.group == 2 * format_run || w.group == format_run) &&
               in_quads(scales, w.scale_code, w.scale_steps[2]) &&
               (zeros == nullptr || in_quads(zeros, w.zero_code, w.zero_steps[2]));
  }
  // Asks for those of the next chunk.
  BARACUDA_D void load() {
    fresh = fresh || !single || rest == 0;
    u32 groups[chunk_runs] = {group};
    const bool same_quad = group / 4 == first / 4;
    first = group;
    if (single) {
      rest += chunk_k;
      if (rest == w.group) rest = 0, ++group;
      if (!fresh) return;
    } else {
#pragma unroll
      for (int e = 0; e < chunk_runs; ++e) {
        groups[e] = group;
        rest += format_run;
        if (rest == w.group) rest = 0, ++group;
      }
    }
    if (by_quads) {
      if (same_quad) return;
      read_quad(scales, w.scale_code, scale_bits);
      if (zeros != nullptr) read_quad(zeros, w.zero_code, zero_bits);
      return;
    }
    read(scales, w.scale_code, w.scale_steps[2], groups, scale_bits);
    if (zeros != nullptr) read(zeros, w.zero_code, w.zero_steps[2], groups, zero_bits);
  }
  // Puts the bits that were asked for into their places.
  BARACUDA_D void put() {
    if (!fresh) return;
    fresh = false;
    float scale[chunk_runs], zero[chunk_runs] = {};
    u32 bits[chunk_runs];
    take(scale_bits, w.scale_code, bits);
    with_number(w.scale_code, [&](const auto& number) {
#pragma unroll
      for (int e = 0; e < chunk_runs; ++e) scale[e] = number(bits[e]) * w.scale;
    });
    if (F::has_zeros && zeros != nullptr) {
      take(zero_bits, w.zero_code, bits);
      with_number(w.zero_code, [&](const auto& number) {
#pragma unroll
        for (int e = 0; e < chunk_runs; ++e) zero[e] = number(bits[e]);
      });
    }
    uint2 out[chunk_runs];
    if constexpr (F::template has_pairs<T>) {
      bool all = whole_zeros();
#pragma unroll
      for (int e = 0; e < chunk_runs; ++e) {
        if (e == 0 || !single) all &= F::template Fast<T>::make(scale[e], zero[e], out[e]);
      }
      exact = __all_sync(all_lanes, all);
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < chunk_runs; ++e) {
      if (!exact) out[e] = make_uint2(__float_as_uint(scale[e]), __float_as_uint(zero[e]));
      if (e == 0 || !single) places[e * pitch + lane_id()] = out[e];
    }
    __syncwarp();
  }
  BARACUDA_D Vec<uint2, chunk_lines> get() const {
    Vec<uint2, chunk_lines> numbers;
    const uint2* const from = places + (single ? 0 : lane_id() % 4 * pitch) + lane_id() / 4;
#pragma unroll
    for (int i = 0; i < chunk_lines; ++i) numbers[i] = from[8 * i];
    return numbers;
  }
  BARACUDA_D bool whole_zeros() const { return zeros == nullptr || w.zero_code == code_u8; }

 private:
  template <class U>
  BARACUDA_D void read_as(const u8* from, i64 step, const u32 (&groups)[chunk_runs], u32 (&bits)[chunk_runs]) const {
#pragma unroll
    for (int e = 0; e < chunk_runs; ++e) {
      if (e == 0 || !single) bits[e] = __ldg(reinterpret_cast<const U*>(from) + groups[e] * step);
    }
  }
  BARACUDA_D void read(const u8* from, int code, i64 step, const u32 (&groups)[chunk_runs],
                       u32 (&bits)[chunk_runs]) const {
    if (width(code) == 2) read_as<u16>(from, step, groups, bits);
    else if (width(code) == 1) read_as<u8>(from, step, groups, bits);
    else read_as<u32>(from, step, groups, bits);
  }
  static BARACUDA_D bool in_quads(const u8* from, int code, i64 step) {
    return step == 1 && reinterpret_cast<u64>(from) % (4 * width(code)) == 0;
  }
  BARACUDA_D void read_quad(const u8* from, int code, u32 (&bits)[chunk_runs]) const {
    from += static_cast<i64>(first / 4) * (4 * width(code));
    if (width(code) == 4) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
      bits[0] = four.x, bits[1] = four.y, bits[2] = four.z, bits[3] = four.w;
    } else if (width(code) == 2) {
      const uint2 four = __ldg(reinterpret_cast<const uint2*>(from));
      bits[0] = four.x, bits[1] = four.y;
    } else {
      bits[0] = __ldg(reinterpret_cast<const u32*>(from));
    }
  }
  // The bits of each run of the chunk.
  BARACUDA_D void take(const u32 (&bits)[chunk_runs], int code, u32 (&out)[chunk_runs]) const {
#pragma unroll
    for (int e = 0; e < chunk_runs; ++e) {
      if (!by_quads) out[e] = bits[e];
      else if (single && e > 0) out[e] = out[0];
      else out[e] = of_quad(bits, code, w.group == format_run ? e : first + (w.group == 2 * format_run ? e / 2 : 0));
    }
  }
  // Number `place` mod 4 of a quad.
  static BARACUDA_D u32 of_quad(const u32 (&bits)[chunk_runs], int code, u32 place) {
    const bool odd = place & 1, late = place & 2;
    if (width(code) == 4) return late ? odd ? bits[3] : bits[2] : odd ? bits[1] : bits[0];
    if (width(code) == 2) return (late ? bits[1] : bits[0]) >> (odd ? 16 : 0) & 0xffffu;
    return bits[0] >> (place % 4 * 8) & 255u;
  }
};

}  // namespace baracuda
