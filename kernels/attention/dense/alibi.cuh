#pragma once
// alibi      chunks of a [batch, heads, queries, keys] tensor, and the distance key - query of their elements.
//
// Each head's matrix is cut, in logical order, into chunks of VEC elements. P is a parameter struct with the fields of
// `ops/attention/alibi.py: chunk_params`; strides[n] are those of operand n along batch, head, query and key.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

struct AlibiMatrix {
  i64 batch, head;
};

// The matrix that holds chunk c of the tensor, and the chunk's number in it.
template <class P> BARACUDA_D AlibiMatrix alibi_matrix(const P& p, i64 c, i64& chunk) {
  if (p.narrow) {
    u32 rest, head;
    const u32 matrix = DivMod{p.by_matrix[0], p.by_matrix[1], p.by_matrix[2]}.divmod(static_cast<u32>(c), rest);
    const u32 batch = DivMod{p.by_heads[0], p.by_heads[1], p.by_heads[2]}.divmod(matrix, head);
    chunk = rest;
    return {static_cast<i64>(batch), static_cast<i64>(head)};
  }
  u64 rest, head;
  const u64 matrix = divmod(static_cast<u64>(c), static_cast<u64>(p.matrix_chunks), rest);
  const u64 batch = divmod(matrix, static_cast<u64>(p.heads), head);
  chunk = static_cast<i64>(rest);
  return {static_cast<i64>(batch), static_cast<i64>(head)};
}

// Query and key of element e of a matrix.
struct AlibiCell {
  i64 query, key;
};
template <class P> BARACUDA_D AlibiCell alibi_cell(const P& p, i64 e) {
  if (p.narrow) {
    u32 key;
    const u32 query = DivMod{p.by_keys[0], p.by_keys[1], p.by_keys[2]}.divmod(static_cast<u32>(e), key);
    return {static_cast<i64>(query), static_cast<i64>(key)};
  }
  u64 key;
  const u64 query = divmod(static_cast<u64>(e), static_cast<u64>(p.keys), key);
  return {static_cast<i64>(query), static_cast<i64>(key)};
}
template <class P> BARACUDA_D void next_cell(const P& p, AlibiCell& at) {
  if (++at.key == p.keys) at.key = 0, ++at.query;
}

// Whether the VEC elements from `at` on lie in one row, at distances that a float adds exactly: nearly always.
template <int VEC, class P> BARACUDA_D bool alibi_plain(const P& p, const AlibiCell& at) {
  constexpr i64 near = 1 << 23;
  const i64 first = at.key - at.query;
  return at.key + VEC <= p.keys && -near < first && first < near;
}
template <class A> BARACUDA_D A alibi_start(const AlibiCell& at) {
  return static_cast<A>(static_cast<i32>(at.key) - static_cast<i32>(at.query));
}

}  // namespace baracuda
