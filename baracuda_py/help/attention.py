"""Examples of the functions of attention and of caches that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_QKV = f"{_RNG}q, k, v = (rng.standard_normal((1, 2, 8, 16), dtype=np.float32) for _ in range(3))\n"
_PAGES = f"""{_RNG}q = rng.standard_normal((2, 4, 16), dtype=np.float32)
k_cache, v_cache = (rng.standard_normal((6, 2, 4, 16), dtype=np.float32) for _ in range(2))
page_table = np.array([[0, 2], [5, 1]], dtype=np.int32)
lengths = np.array([7, 3], dtype=np.int32)
"""
_STREAMS = f"{_RNG}x = rng.standard_normal((2, 6, 4, 16), dtype=np.float32)  # 4 streams\n"
_HALF = f"{_QKV}q, k, v = (bc.cast(x, 'bfloat16') for x in (q, k, v))\n"

ATTENTION: dict[str, str] = {
    "attention_flash": f"{_QKV}y = bc.attention_flash(q, k, v)",
    "attention_flash_causal": f"{_QKV}y = bc.attention_flash_causal(q, k, v)",
    "attention_flash_causal_with_stats": f"{_QKV}y, lse = bc.attention_flash_causal_with_stats(q, k, v)",
    "attention_flash_with_stats": f"{_QKV}y, lse = bc.attention_flash_with_stats(q, k, v)",
    "attention_tc": f"{_HALF}y = bc.attention_tc(q, k, v)",
    "attention_tc_causal": f"{_HALF}y = bc.attention_tc_causal(q, k, v)",
    "batch_paged_decode": f"""{_PAGES}y = bc.batch_paged_decode(
    q, k_cache, v_cache, page_table=page_table, lengths=lengths
)""",
    "batch_paged_decode_fp8": f"""{_PAGES}k_cache, v_cache = (bc.cast(c, "float8_e4m3fn") for c in (k_cache, v_cache))
q = bc.cast(q, "bfloat16")
y = bc.batch_paged_decode_fp8(q, k_cache, v_cache, page_table=page_table, lengths=lengths)""",
    "batch_paged_extend": f"""{_PAGES}q = rng.standard_normal((5, 4, 16), dtype=np.float32)
qo_indptr = np.array([0, 3, 5], dtype=np.int32)
tree = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0]], dtype=bool)
y = bc.batch_paged_extend(q, k_cache, v_cache, qo_indptr, tree, page_table=page_table, lengths=lengths)""",
    "batch_paged_extend_quantized": f"""{_PAGES}q = rng.standard_normal((5, 4, 16), dtype=np.float32)
qo_indptr = np.array([0, 3, 5], dtype=np.int32)
scales = np.abs(k_cache).max(axis=-1, keepdims=True) / 127
codes = np.rint(k_cache / scales).astype(np.int8)
y = bc.batch_paged_extend_quantized(
    q, codes, codes, qo_indptr, scales, scales, page_table=page_table, lengths=lengths
)""",
    "batch_paged_prefill": f"""{_PAGES}q = rng.standard_normal((5, 4, 16), dtype=np.float32)
qo_indptr = np.array([0, 3, 5], dtype=np.int32)
y = bc.batch_paged_prefill(q, k_cache, v_cache, qo_indptr, page_table=page_table, lengths=lengths, is_causal=True)""",
    "cascade_paged_attention": f"""{_PAGES}q = rng.standard_normal((5, 4, 16), dtype=np.float32)
shared, own = np.array([0, 5], dtype=np.int32), np.array([0, 3, 5], dtype=np.int32)
y = bc.cascade_paged_attention(
    q, k_cache, v_cache, [shared, own], page_table=[page_table[:1, 1:], page_table], lengths=[lengths[1:], lengths]
)""",
    "neighborhood_attention": f"""{_RNG}q, k, v = rng.standard_normal((3, 1, 6, 8, 2, 16), dtype=np.float32)
y = bc.neighborhood_attention(q, k, v, kernel_size=(3, 5))""",
    "dot_product_attention": f"{_QKV}y = bc.dot_product_attention(q, k, v, is_causal=True)",
    "flash_sdpa_varlen_backward": f"""{_RNG}shape = (7, 2, 16)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
bounds = np.array([0, 3, 7], dtype=np.int32)
y, lse = bc.flash_sdpa_varlen(q, k, v, bounds, bounds, is_causal=True, return_lse=True)
dq, dk, dv = bc.flash_sdpa_varlen_backward(q, k, v, y, lse, dy, bounds, bounds, is_causal=True)""",
    "paged_kv_append": f"""{_RNG}k_new, v_new = (rng.standard_normal((2, 2, 16), dtype=np.float32) for _ in range(2))
k_cache, v_cache = (np.zeros((6, 2, 4, 16), np.float32) for _ in range(2))
page_table = np.array([[0, 2], [5, 1]], dtype=np.int32)
cache_offsets, token_indptr = np.array([6, 2], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)
bc.paged_kv_append(
    k_new, v_new, k_cache, v_cache, page_table=page_table, cache_offsets=cache_offsets, token_indptr=token_indptr
)""",
    "paged_kv_append_fp8": f"""{_RNG}k_new, v_new = rng.standard_normal((2, 2, 2, 16), dtype=np.float32)
k_cache, v_cache = (np.zeros((6, 2, 4, 16), np.uint8) for _ in range(2))
page_table, cache_offsets = np.array([[0, 2], [5, 1]], dtype=np.int32), np.array([6, 2], dtype=np.int32)
bc.paged_kv_append_fp8(
    k_new, v_new, k_cache, v_cache, page_table=page_table, cache_offsets=cache_offsets, k_scale=0.01, v_scale=0.01
)""",
    "paged_kv_append_quantized": f"""{_RNG}k_new, v_new = rng.standard_normal((2, 2, 2, 16), dtype=np.float32)
k_cache, v_cache = (np.zeros((6, 2, 4, 16), np.int8) for _ in range(2))
k_scales, v_scales = (np.zeros((6, 2, 4, 1), np.float32) for _ in range(2))
page_table, cache_offsets = np.array([[0, 2], [5, 1]], dtype=np.int32), np.array([6, 2], dtype=np.int32)
bc.paged_kv_append_quantized(
    k_new, v_new, k_cache, v_cache, k_scales, v_scales, page_table=page_table, cache_offsets=cache_offsets
)""",
    "qk_norm_rope_append": f"""{_RNG}packed = rng.standard_normal((3, 4 + 2 + 2, 16), dtype=np.float32)
q, k, v = packed[:, :4], packed[:, 4:6], packed[:, 6:]
k_cache, v_cache = (np.zeros((6, 2, 4, 16), np.float32) for _ in range(2))
positions, slots = np.array([4, 0, 9]), np.array([20, 4, 13])
y = bc.qk_norm_rope_append(q, k, v, k_cache, v_cache, positions, slot_mapping=slots)""",
    "rope_quantize_fp8": f"""{_RNG}q = rng.standard_normal((5, 4, 24), dtype=np.float32)
k = rng.standard_normal((5, 24), dtype=np.float32)  # of latent attention: no heads
positions = np.arange(5)
yq_rope, yk_rope, yq_nope, yk_nope = bc.rope_quantize_fp8(
    q[..., 16:], k[..., 16:], positions, q[..., :16], k[..., :16], quant_scale_q=4.0, quant_scale_kv=4.0
)""",
    "rope_varlen": f"""{_RNG}q, k = (rng.standard_normal((7, n, 16), dtype=np.float32) for n in (4, 2))
cu_seqlens, offsets = np.array([0, 3, 7], dtype=np.int32), np.array([0, 12], dtype=np.int32)
yq, yk = bc.rope_varlen(q, cu_seqlens, k, offsets=offsets)""",
    "rope_varlen_backward": f"""{_RNG}dq, dk = (rng.standard_normal((7, n, 16), dtype=np.float32) for n in (4, 2))
cu_seqlens, offsets = np.array([0, 3, 7], dtype=np.int32), np.array([0, 12], dtype=np.int32)
dx, dx2 = bc.rope_varlen_backward(dq, cu_seqlens, dk, offsets=offsets)""",
    "block_importance": f"""{_RNG}q = rng.standard_normal((1, 4, 128, 16), dtype=np.float32)
k = rng.standard_normal((1, 2, 7, 16), dtype=np.float32)  # of 32 tokens each, from every 16th on
y, lse = bc.flash_sdpa(q, k, k, mask="k * 16 + 32 <= q + 1", return_lse=True)
importance = bc.block_importance(q, k, lse)""",
    "native_sparse_attention": f"""{_RNG}q = rng.standard_normal((1, 8, 256, 16), dtype=np.float32)
k, v = (rng.standard_normal((1, 2, 256, 16), dtype=np.float32) for _ in range(2))
gates = [rng.random((1, 8, 256), dtype=np.float32) for _ in range(3)]
y = bc.native_sparse_attention(q, k, v, *gates, selected=4, window=64)""",
    "moba_attention": f"""{_RNG}q, k, v = (rng.standard_normal((1, 4, 256, 16), dtype=np.float32) for _ in range(3))
y = bc.moba_attention(q, k, v, block_size=64, top_k=2)""",
    "forgetting_attention": f"""{_QKV}g = np.log(rng.uniform(0.9, 1, (1, 2, 8))).astype(np.float32)  # of the gates
y = bc.forgetting_attention(q, k, v, g)""",
    "multi_token_attention": f"""{_QKV}key_query = rng.standard_normal((2, 1, 3, 5), dtype=np.float32)
heads = rng.standard_normal((2, 2, 1, 1), dtype=np.float32)
y = bc.multi_token_attention(q, k, v, key_query, heads)""",
    "path_attention": f"""{_QKV}w = bc.normalize(rng.standard_normal((1, 2, 8, 16), dtype=np.float32), axis=-1)
beta = rng.uniform(0, 2, (1, 2, 8)).astype(np.float32)
y = bc.path_attention(q, k, v, w, beta)""",
    "hyper_connection_post": f"""{_STREAMS}y = rng.standard_normal((2, 6, 16), dtype=np.float32)  # what a layer made
post, res = np.ones(4, np.float32), np.eye(4, dtype=np.float32)
x = bc.hyper_connection_post(y, x, post, res)""",
    "hyper_connection_pre": f"{_STREAMS}y = bc.hyper_connection_pre(x, np.full(4, 0.25, np.float32))",
    "hyper_connection_weights": f"""{_STREAMS}alpha, beta = np.eye(4, 5, 1, dtype=np.float32), np.ones(4, np.float32)
alpha[0, 0] = 1  # the layer reads the first stream, and all streams get what it makes
fn, gn = rng.standard_normal((16, 5), dtype=np.float32), rng.standard_normal(16, dtype=np.float32)
scale = np.float32([0.01])
pre, post, res = bc.hyper_connection_weights(bc.layer_norm(x), alpha, beta, fn, gn, scale, scale)""",
    "mhc_weights": f"""{_STREAMS}weight = rng.standard_normal((24, 64), dtype=np.float32)
scale, bias = np.full(3, 0.01, np.float32), np.zeros(24, np.float32)
pre, post, res = bc.mhc_weights(x, weight, scale, bias)
x = bc.hyper_connection_post(bc.silu(bc.hyper_connection_pre(x, pre)), x, post, res)""",
    "sinkhorn": f"{_RNG}x = rng.standard_normal((3, 4, 4), dtype=np.float32)\ny = bc.sinkhorn(x)",
    "sage_attention": f"""{_RNG}q, k, v = (rng.standard_normal((1, 4, 128, 64)).astype(np.float16) for _ in range(3))
y = bc.sage_attention(q, k, v, is_causal=True)""",
    "flash_sdpa_fp8": f"""{_RNG}shape = (1, 4, 128, 64)
x = [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
(q, q_scale), (k, k_scale), (v, v_scale) = (
    bc.dynamic_quantize(one, block_shape=(1, 1, 0, 0), to_element="float8_e4m3fn") for one in x
)
descales = [scale.reshape(1, 4) for scale in (q_scale, k_scale, v_scale)]
y = bc.flash_sdpa_fp8(q, k, v, *descales)""",
    "quantized_sdpa": f"""{_RNG}shape = (1, 4, 128, 64)
q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
q8, q_scale = bc.dynamic_quantize(q, block_shape=(1, 1, 16, 0))
k8, k_scale = bc.dynamic_quantize(k, block_shape=(1, 1, 64, 0))
y = bc.quantized_sdpa(q8, k8, v, q_scale[..., 0], k_scale[..., 0], q_block=16, k_block=64)""",
    "block_select_attention": f"""{_RNG}shape = (1, 4, 128, 16)
q, k, v = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
blocks = np.array([0, 1]).repeat(64)[None, None, :, None].repeat(4, 1)  # each query's own block of 64 keys
y = bc.block_select_attention(q, k, v, blocks, is_causal=True)""",
    "skip_softmax_attention": f"""{_RNG}q = rng.standard_normal((1, 4, 256, 16), dtype=np.float32)
centres = rng.standard_normal((1, 4, 4, 16), dtype=np.float32)
k, v = 3 * np.repeat(centres, 64, axis=2), rng.standard_normal((1, 4, 256, 16), dtype=np.float32)
y = bc.skip_softmax_attention(q, k, v, threshold=1e-4)""",
    "sliding_tile_attention": f"""{_RNG}shape = (1, 2, 3 * 2 * 4 * 16 + 7, 8)  # tiles of 16 tokens, and 7 of text
q, k, v = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
y = bc.sliding_tile_attention(q, k, v, (3, 2, 4), 16, window=(3, 1, 3), text_length=7)""",
    "block_select_attention_varlen": f"""{_RNG}shape = (160, 4, 16)
q, k, v = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
cu_seqlens = np.array([0, 100, 160], dtype=np.int32)
blocks = np.zeros((160, 4, 1), np.int32)  # the first block of the token's sequence
y = bc.block_select_attention_varlen(q, k, v, blocks, cu_seqlens)""",
    "block_select_attention_varlen_backward": f"""{_RNG}shape = (160, 4, 16)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
lists = np.zeros((160, 4, 1), np.int32), np.array([0, 100, 160], dtype=np.int32)
y, lse = bc.block_select_attention_varlen(q, k, v, *lists, return_lse=True)
dq, dk, dv = bc.block_select_attention_varlen_backward(q, k, v, *lists, y, lse, dy)""",
    "block_select_attention_backward": f"""{_RNG}shape = (1, 4, 128, 16)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
blocks = np.array([0, 1]).repeat(64)[None, None, :, None].repeat(4, 1)
y, lse = bc.block_select_attention(q, k, v, blocks, return_lse=True)
dq, dk, dv = bc.block_select_attention_backward(q, k, v, blocks, y, lse, dy)""",
    "sdpa_variable_block_sparse": f"""{_RNG}shape = (1, 2, 128, 16)
q, k, v = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
mask = np.array([[True, False], [True, True]])[None].repeat(2, 0)
y = bc.sdpa_variable_block_sparse(q, k, v, mask, np.array([[100, 28]] * 2), np.array([[50, 78]] * 2))""",
    "sdpa_variable_block_sparse_backward": f"""{_RNG}shape = (1, 2, 128, 16)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
blocks = np.array([[[True, False], [True, True]]] * 2), np.array([[100, 28]] * 2), np.array([[50, 78]] * 2)
y, lse = bc.sdpa_variable_block_sparse(q, k, v, *blocks, return_lse=True)
dq, dk, dv = bc.sdpa_variable_block_sparse_backward(q, k, v, *blocks, y, lse, dy)""",
    "hstu_attention": f"""{_RNG}q, k, v = (rng.standard_normal((9, 2, 8), dtype=np.float32) for _ in range(3))
y = bc.hstu_attention(q, k, v, np.array([0, 4, 9]), max_seqlen=5)""",
    "hstu_attention_backward": f"""{_RNG}shape = (9, 2, 8)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
dq, dk, dv = bc.hstu_attention_backward(q, k, v, np.array([0, 4, 9]), dy, max_seqlen=5)""",
    "sdpa_block_sparse_backward": f"""{_RNG}shape = (1, 2, 128, 16)
q, k, v, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(4))
pattern = np.array([[True, False], [True, True]]).reshape(1, 1, 2, 2).repeat(2, 1)
y, lse = bc.sdpa_block_sparse(q, k, v, pattern, return_lse=True)
dq, dk, dv = bc.sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy)""",
}  # fmt: skip
