// embedding   y[token, :] = weight[indices[token], :] in words of BYTES bytes; zeros where the index is out of range
//
// Threads take the words of all rows of y in order, so that small rows share a block and large ones span several. A
// thread moves four words, a block apart: four indices, then four words of the table, all in flight together, then the
// stores. I is i32 where the number of words stays below 2^31 and the tokens lie on one axis.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <int BYTES, class I> BARACUDA_D void embedding(const EmbeddingParams& p) {
  using W = Word<BYTES>;
  const W* weight = static_cast<const W*>(p.weight);
  i64 index[embedding_words], column[embedding_words], target[embedding_words];
  const i64 first = static_cast<i64>(blockIdx.x) * blockDim.x * embedding_words + threadIdx.x;
#pragma unroll
  for (int k = 0; k < embedding_words; ++k) {
    const i64 item = first + static_cast<i64>(k) * blockDim.x;
    index[k] = -1;
    if (item >= p.items) continue;
    i64 at[2];
    if constexpr (sizeof(I) == 4) {
      u32 c;
      const i64 token = DivMod{p.by_row[0], p.by_row[1], p.by_row[2]}.divmod(static_cast<u32>(item), c);
      column[k] = c;
      at[0] = token * p.token_strides[0][0], at[1] = token * p.token_strides[1][0];
    } else {
      u64 c;
      const i64 token = divmod(static_cast<u64>(item), static_cast<u64>(p.row_words), c);
      column[k] = c;
      offsets<i64, 2>(token, p.token_rank, p.token_shape, p.token_strides, at);
    }
    index[k] = p.indices_wide ? static_cast<const i64*>(p.indices)[at[0]] : static_cast<const i32*>(p.indices)[at[0]];
    target[k] = at[1] + column[k] * p.y_column;
  }
  W word[embedding_words];
#pragma unroll
  for (int k = 0; k < embedding_words; ++k) {
    word[k] = W{};
    if (static_cast<u64>(index[k]) < static_cast<u64>(p.num_embeddings)) {
      word[k] = load_word<Access::readonly>(weight + (index[k] * p.weight_row + column[k] * p.weight_column));
    }
  }
#pragma unroll
  for (int k = 0; k < embedding_words; ++k) {
    if (first + static_cast<i64>(k) * blockDim.x < p.items) {
      const bool known = static_cast<u64>(index[k]) < static_cast<u64>(p.num_embeddings);
      if (p.status != nullptr && !known) atomicOr(p.status, 1u);
      store_word<Access::streaming>(static_cast<W*>(p.y) + target[k], word[k]);
    }
  }
}

}  // namespace baracuda
