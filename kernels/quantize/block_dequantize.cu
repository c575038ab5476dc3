// block_dequantize   the values of a stored matrix.
//
// A warp has a strip of 1024 neighbours of a row in four parts of 256, and of each part a lane has 8: what a warp reads
// of codes and what it writes of values are neighbours then, and all that a lane reads is under way together. Rows that
// are short or do not lie so go by pieces of 8 values, a thread for each.
#include "quant_gemm/run_numbers.cuh"

namespace baracuda {

constexpr int dequantize_part = warp_size * format_part;  // values; the page has how many parts

BARACUDA_D i64 quotient(i64 x, u32 by) { return x <= 0xffffffffll ? static_cast<u32>(x) / by : x / by; }

template <class T, class P> struct DequantizedRow {
  StoredRow from;
  T* to;
  BARACUDA_D DequantizedRow(const P& p, const Stored& w, i64 row)
      : DequantizedRow(p, w, row, p.n == p.rows ? 0 : quotient(row, static_cast<u32>(p.n))) {}

 private:
  BARACUDA_D DequantizedRow(const P& p, const Stored& w, i64 row, i64 batch)
      : from(w, batch, row - batch * p.n), to(static_cast<T*>(p.y) + row * p.y_step) {}
};

template <class T> BARACUDA_D void put_values(T* to, const float (&x)[format_part], bool wide) {
  Vec<float, format_part> values;
#pragma unroll
  for (int j = 0; j < format_part; ++j) values[j] = x[j];
  const auto y = cast_vec<T>(values);
  if (wide) store(to, y);
  else store_strided(to, 1, y, format_part);
}

// A lane's values of a strip.
template <class F, class T, class P> struct Strip {
  const P& p;
  const Stored& w;
  const DequantizedRow<T, P>& row;
  u32 first, lane_k;  // value of the row, of the lane's in the strip's first part, and of a part

  BARACUDA_D u32 k(int part) const { return first + part * dequantize_part; }
  BARACUDA_D bool there(int part) const { return k(part) < static_cast<u32>(p.k); }
  BARACUDA_D bool full() const { return first - lane_k + dequantize_parts * dequantize_part <= static_cast<u32>(p.k); }
  // A row whose codes begin with those of the warp's part.
  BARACUDA_D StoredRow part_of(int part) const {
    StoredRow found = row.from;
    found.codes += k(part) / dequantize_part * static_cast<u32>(p.part_bytes);
    return found;
  }
  BARACUDA_D void put(int part, const float (&x)[format_part]) const {
    put_values(row.to + first + part * dequantize_part, x, true);
  }
  // The groups that the lane's values of the parts are in.
  BARACUDA_D void find_groups(u32 (&groups)[dequantize_parts]) const {
    GroupOf of(first, w.group), part;
    part.group = static_cast<u32>(p.part_groups), part.rest = static_cast<u32>(p.part_rest);
#pragma unroll
    for (int i = 0; i < dequantize_parts; ++i, of.advance(part, w.group)) groups[i] = of.group;
  }

  BARACUDA_D void run_full() const {
    if constexpr (is_grouped<F>) {
      float x[dequantize_parts][format_part];
      u32 groups[dequantize_parts];
      find_groups(groups);
      RunNumbers<dequantize_parts> numbers;
      numbers.load(w, groups, [&](int) { return row.from; });
#pragma unroll
      for (int i = 0; i < dequantize_parts; ++i) F::codes(w, part_of(i), lane_k, x[i]);
      float scale[dequantize_parts], zero[dequantize_parts];
      numbers.get(w, scale, zero);
#pragma unroll
      for (int i = 0; i < dequantize_parts; ++i) {
#pragma unroll
        for (int j = 0; j < format_part; ++j) x[i][j] = (x[i][j] - zero[i]) * scale[i];
        put(i, x[i]);
      }
    } else {
#pragma unroll 1
      for (int of = 0; of < dequantize_parts; of += 2) {  // the many loads of two are enough
        float x[2][format_part];
#pragma unroll
        for (int i = 0; i < 2; ++i) F::decode(w, part_of(of + i), lane_k, x[i]);
#pragma unroll
        for (int i = 0; i < 2; ++i) put(of + i, x[i]);
      }
    }
  }
  // Of the last strip of a row, which may have fewer values.
  BARACUDA_D void run_some() const {
#pragma unroll 1
    for (int i = 0; i < dequantize_parts && there(i); ++i) {
      float x[format_part];
      F::decode(w, row.from, k(i), x);
      put(i, x);
    }
  }
  // Of any strip where every column says which group it is in.
  BARACUDA_D void run_by_index() const {
    if constexpr (is_grouped<F>) {
#pragma unroll 1
      for (int i = 0; i < dequantize_parts && there(i); ++i) {
        u32 groups[format_part];
#pragma unroll
        for (int j = 0; j < format_part; ++j) groups[j] = w.group_of(k(i) + j);
        RunNumbers<format_part> numbers;
        numbers.load(w, groups, [&](int) { return row.from; });
        float x[format_part], scale[format_part], zero[format_part];
        F::codes(w, part_of(i), lane_k, x);
        numbers.get(w, scale, zero);
#pragma unroll
        for (int j = 0; j < format_part; ++j) x[j] = (x[j] - zero[j]) * scale[j];
        put(i, x);
      }
    }
  }
};

template <class F, class T> BARACUDA_D void block_dequantize(const BlockDequantizeParams& p) {
  using P = BlockDequantizeParams;
  const Stored stored(p);
  const i64 thread = i64(blockIdx.x) * dequantize_threads + threadIdx.x;
  if (p.strips != 0) {
    const i64 warp = thread / warp_size, of = quotient(warp, static_cast<u32>(p.strips));
    if (of >= p.rows) return;
    Stored simple = stored;  // the compiler is to know
    simple.whole = true;
    const u32 lane_k = threadIdx.x % warp_size * format_part, strip = static_cast<u32>(warp - of * p.strips);
    const u32 first = strip * (dequantize_parts * dequantize_part) + lane_k;
    const DequantizedRow<T, P> row(p, simple, of);
    const Strip<F, T, P> own{p, simple, row, first, lane_k};
    if (is_grouped<F> && stored.index != nullptr) return own.run_by_index();
    simple.index = nullptr;
    if (own.full()) own.run_full();
    else own.run_some();
    return;
  }
  const i64 of = quotient(thread, static_cast<u32>(p.k / format_part));
  if (of >= p.rows) return;
  const i64 k = (thread - of * (p.k / format_part)) * format_part;
  const DequantizedRow<T, P> row(p, stored, of);
  float x[format_part];
  F::decode(stored, row.from, k, x);
  put_values(row.to + k, x, p.wide != 0);
}

}  // namespace baracuda
