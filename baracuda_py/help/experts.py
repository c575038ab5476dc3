"""Examples of a mixture's experts, and of products of fp8 in training."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_LOGITS = f"{_RNG}logits = rng.standard_normal((6, 4), dtype=np.float32)\n"

EXPERTS: dict[str, str] = {
    "moe": f"""{_LOGITS}x = rng.standard_normal((6, 8), dtype=np.float32)
gate_up, down = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 10, 8), (4, 8, 5)))
weights, indices = bc.moe_router(logits, k=2, normalize=True)
y = bc.moe(x, indices, weights, gate_up, down)""",
    "moe_quantized": f"""{_LOGITS}x = rng.standard_normal((6, 64), dtype=np.float32)
gate_up, down = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 64, 64), (4, 64, 32)))
(first, first_scales), (second, second_scales) = (bc.block_quantize(w, kind="mxfp4") for w in (gate_up, down))
weights, indices = bc.moe_router(logits, k=2, normalize=True)
y = bc.moe_quantized(x, indices, weights, first, second, first_scales, second_scales, kind="mxfp4")""",
    "moe_decode_quantized": f"""{_LOGITS}x = rng.standard_normal((6, 64), dtype=np.float32)
gate_up, down = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 64, 64), (4, 64, 32)))
(first, first_scales), (second, second_scales) = (bc.block_quantize(w, kind="mxfp4") for w in (gate_up, down))
weights, indices = bc.moe_router(logits, k=2, normalize=True)
y = bc.moe_decode_quantized(x, indices, weights, first, second, first_scales, second_scales, kind="mxfp4")""",
    "fp8_linear": f"""{_RNG}x = rng.standard_normal((6, 32), dtype=np.float32).astype(np.float16)
weight = rng.standard_normal((16, 32), dtype=np.float32).astype(np.float16)
y = bc.fp8_linear(x, weight, recipe="rows")""",
    "moe_router_backward": f"{_LOGITS}weights, indices = bc.moe_router(logits, k=2)\n"
    "dlogits = bc.moe_router_backward(np.ones_like(weights), logits, indices)",
    "moe_align_block_size": "ids, whose, count = bc.moe_align_block_size(np.array([[1, 0], [0, 2]]), 4, 3)",
    "moe_permute_pad_with_probs": f"""{_LOGITS}weights, indices = bc.moe_router(logits, k=2)
y, offsets, places, probs = bc.moe_permute_pad_with_probs(logits, indices, weights, num_experts=4)""",
    "moe_sort_chunks_by_index": f"{_LOGITS}sizes, order = np.array([1, 3, 2]), np.array([2, 0, 1])\n"
    "y = bc.moe_sort_chunks_by_index(logits, sizes, order)",
    "moe_sort_chunks_by_index_with_probs": f"{_LOGITS}sizes, order = np.array([1, 3, 2]), np.array([2, 0, 1])\n"
    "y, probs = bc.moe_sort_chunks_by_index_with_probs(logits, logits[:, 0].copy(), sizes, order)",
    "sequence_balancing_loss": f"{_LOGITS}weights, indices = bc.moe_router(logits, k=2, scoring='sigmoid')\n"
    "loss = bc.sequence_balancing_loss(logits, indices)",
    "expert_choice": f"{_LOGITS}weights, indices = bc.expert_choice(logits, 3)",
    "sinkhorn_normalize": f"{_LOGITS}y = bc.sinkhorn_normalize(logits, iterations=8)",
}  # fmt: skip
