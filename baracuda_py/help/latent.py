"""Examples of latent attention and of the indexer of sparse attention: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_LATENTS = f"""{_RNG}cache = rng.standard_normal((6, 4, 24), dtype=np.float32)
page_table = np.array([[0, 2], [5, 1]], dtype=np.int32)
"""
_INDEXER = f"""{_RNG}q = rng.standard_normal((3, 4, 16), dtype=np.float32)
k = rng.standard_normal((1, 6, 16), dtype=np.float32)
w = rng.standard_normal((3, 4), dtype=np.float32)
starts, ends = np.array([0, 0, 3], dtype=np.int32), np.array([4, 1, 6], dtype=np.int32)
"""
_RECORDS = f"""{_RNG}q = bc.cast(rng.standard_normal((2, 4, 136), dtype=np.float32), "bfloat16")
cache = np.zeros((6, 4, 148), dtype=np.uint8)  # 128 codes, a float32 scale, 8 columns of bfloat16
page_table = np.array([[0, 2], [5, 1]], dtype=np.int32)
"""

LATENT: dict[str, str] = {
    "indexer_k_append": f"""{_RNG}k = rng.standard_normal((3, 128), dtype=np.float32)
k_cache, k_scales = np.zeros((6, 4, 128), dtype=np.uint8), np.zeros((6, 4), dtype=np.float32)
positions, slots = np.array([4, 0, 9]), np.array([20, 4, 13])
bc.indexer_k_append(
    k, k_cache, k_scales, positions=positions, slot_mapping=slots, rotary_dim=64, power_of_two=True
)""",
    "indexer_logits": f"{_INDEXER}logits = bc.indexer_logits(q, k, w, starts=starts, ends=ends)",
    "indexer_topk": f"{_INDEXER}indices = bc.indexer_topk(q, k, w, starts=starts, ends=ends, top_k=2)",
    "mla_decode": f"""{_LATENTS}q = rng.standard_normal((2, 1, 4, 24), dtype=np.float32)
lengths = np.array([7, 3], dtype=np.int32)
y = bc.mla_decode(q, cache, page_table=page_table, lengths=lengths, scale=0.2, d_rope=8)""",
    "mla_decode_fp8": f"""{_RECORDS}lengths = np.array([7, 3], dtype=np.int32)
y = bc.mla_decode_fp8(q[:, None], cache, page_table=page_table, lengths=lengths, scale=0.2, d_rope=8)""",
    "mla_kv_append": f"""{_LATENTS}latent, k_rope = (rng.standard_normal((4, d), dtype=np.float32) for d in (16, 8))
offsets = np.array([5, 1], dtype=np.int32)
bc.mla_kv_append(latent, k_rope, cache, page_table=page_table, cache_offsets=offsets)""",
    "mla_kv_append_fp8": f"""{_RECORDS}codes = np.zeros((6, 4, 128), dtype=np.uint8)
scales, rope = np.zeros((6, 4, 1), dtype=np.float32), bc.cast(np.zeros((6, 4, 8), dtype=np.float32), "bfloat16")
latent, k_rope = (bc.cast(rng.standard_normal((4, d), dtype=np.float32), "bfloat16") for d in (128, 8))
offsets = np.array([5, 1], dtype=np.int32)
bc.mla_kv_append_fp8(latent, k_rope, codes, scales, rope, page_table=page_table, cache_offsets=offsets)""",
    "mla_sparse": f"""{_LATENTS}q = rng.standard_normal((3, 4, 24), dtype=np.float32)
indices = np.array([[0, 23, 7], [5, -1, -1], [11, 2, -1]], dtype=np.int32)
y = bc.mla_sparse(q, cache, indices, scale=0.2, d_rope=8)""",
    "mla_sparse_fp8": f"""{_RECORDS}indices = np.array([[0, 23, 7], [5, -1, -1]], dtype=np.int32)
y = bc.mla_sparse_fp8(q, cache, indices, scale=0.2, d_rope=8)""",
}
