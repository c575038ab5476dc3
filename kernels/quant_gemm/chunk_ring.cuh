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

constexpr int chunk_k = 128, chunk_runs = chunk_k / format_run, chunk_lines = 4;

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
// find those of their lines: as pairs of T that give eight values at once where T holds them, else as floats.
template <class F, class T> struct ChunkNumbers {
  static constexpr int pitch = warp_size + 4, warp_bytes = chunk_runs * pitch * 8;  // without bank conflicts
  const Stored& w;
  uint2* places;
  const u8 *scales, *zeros;  // of the lane's row
  u32 group, rest, scale_bits[chunk_runs], zero_bits[chunk_runs];
  bool single, fresh = true, exact = false;  // a chunk is of one group; the bits are of another chunk than the places

  static BARACUDA_D int width(int code) { return code == code_f32 ? 4 : code == code_f16 || code == code_bf16 ? 2 : 1; }

  BARACUDA_D ChunkNumbers(const Stored& w, const StoredRow& row, int chunk, u8* shared)
      : w(w), places(reinterpret_cast<uint2*>(shared)),
        scales(static_cast<const u8*>(w.scales) + row.scale * width(w.scale_code)),
        zeros(static_cast<const u8*>(w.zeros)), group(static_cast<u32>(chunk) * chunk_k / w.group),
        rest(static_cast<u32>(chunk) * chunk_k % w.group), single(w.group % chunk_k == 0) {
    if (zeros != nullptr) zeros += row.zero * width(w.zero_code);
  }
  // Asks for those of the next chunk.
  BARACUDA_D void load() {
    fresh = fresh || !single || rest == 0;
    u32 groups[chunk_runs] = {group};
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
    read(scales, w.scale_code, w.scale_steps[2], groups, scale_bits);
    if (zeros != nullptr) read(zeros, w.zero_code, w.zero_steps[2], groups, zero_bits);
  }
  // Puts the bits that were asked for into their places.
  BARACUDA_D void put() {
    if (!fresh) return;
    fresh = false;
    float scale[chunk_runs], zero[chunk_runs] = {};
    with_number(w.scale_code, [&](const auto& number) {
#pragma unroll
      for (int e = 0; e < chunk_runs; ++e) scale[e] = number(scale_bits[e]) * w.scale;
    });
    if (F::has_zeros && zeros != nullptr) {
      with_number(w.zero_code, [&](const auto& number) {
#pragma unroll
        for (int e = 0; e < chunk_runs; ++e) zero[e] = number(zero_bits[e]);
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
  BARACUDA_D void get(uint2 (&numbers)[chunk_lines]) const {
    const uint2* const from = places + (single ? 0 : lane_id() % 4 * pitch) + lane_id() / 4;
#pragma unroll
    for (int i = 0; i < chunk_lines; ++i) numbers[i] = from[8 * i];
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
};

}  // namespace baracuda
