"""Benchmarked problems of softmax, loss, embedding, attention, GEMM, optimizer and sampling."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import BF16, Arrays, Case, case, empty, make, optional, randn
from torch.nn.attention import SDPBackend, sdpa_kernel

import baracuda_py as bc


def _softmax(rows: int, cols: int, kind: str, compiled: bool) -> Case:
    desc = bc.SoftmaxDescriptor(shape=(rows, cols), axis=-1, kind=kind, element="bfloat16")
    function = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}[kind]
    return make(
        bc.SoftmaxPlan,
        desc,
        lambda: {"x": randn(rows, cols), "y": empty(rows, cols)},
        ["y"],
        f"{kind} [{rows}, {cols}] bf16",
        {"torch": lambda s: function(s["x"], -1)},
        compiled=optional(compiled, lambda s: function(s["x"], -1)),
    )


case("softmax.softmax")(partial(_softmax, 32768, 4096, "softmax"))
case("softmax.softmax")(partial(_softmax, 4096, 65536, "softmax"))
case("softmax.softmax")(partial(_softmax, 32768, 4096, "log_softmax"))


@case("softmax.softmax_backward")
def softmax_backward(compiled: bool) -> Case:
    rows, cols = 32768, 4096
    desc = bc.SoftmaxDescriptor(shape=(rows, cols), axis=-1, kind="softmax", element="bfloat16")

    def arrays() -> Arrays:
        return {"dy": randn(rows, cols), "y": torch.softmax(randn(rows, cols), -1), "dx": empty(rows, cols)}

    def peer(s: Arrays) -> Any:
        return torch.ops.aten._softmax_backward_data(s["dy"], s["y"], -1, BF16)

    return make(
        bc.SoftmaxBackwardPlan,
        desc,
        arrays,
        ["dx"],
        "[32768, 4096] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


def _targets(rows: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, (rows,), device="cuda")


def _cross_entropy(rows: int, classes: int, fused: bool, compiled: bool) -> Case:
    desc = bc.CrossEntropyLossDescriptor(batch_shape=rows, num_classes=classes, element="bfloat16")

    def arrays() -> Arrays:
        made = {"logits": randn(rows, classes), "targets": _targets(rows, classes), "loss": empty(dtype=torch.float32)}
        return made | ({"dlogits": empty(rows, classes)} if fused else {})

    def peer(s: Arrays) -> Any:
        if not fused:
            return F.cross_entropy(s["logits"].float(), s["targets"])
        logits = s["logits"].detach().requires_grad_()
        loss = F.cross_entropy(logits.float(), s["targets"])
        return loss.detach(), torch.autograd.grad(loss, logits)[0]

    return make(
        bc.CrossEntropyLossPlan,
        desc,
        arrays,
        ["loss"],
        f"{'loss + dlogits' if fused else 'loss'} [{rows}, {classes}] bf16",
        {"torch": peer},
        compiled=optional(compiled and not fused, peer),
    )


for _rows, _classes in ((8192, 128256), (524288, 256)):
    case("loss.cross_entropy")(partial(_cross_entropy, _rows, _classes, False))
    case("loss.cross_entropy")(partial(_cross_entropy, _rows, _classes, True))


@case("loss.cross_entropy_backward")
def cross_entropy_backward(compiled: bool) -> Case:
    rows, classes = 8192, 128256
    desc = bc.CrossEntropyLossDescriptor(batch_shape=rows, num_classes=classes, element="bfloat16")

    def arrays() -> Arrays:
        logits = randn(rows, classes)
        top = logits.amax(-1, keepdim=True).float()
        return {
            "dloss": torch.ones((), device="cuda"),
            "logits": logits,
            "targets": _targets(rows, classes),
            "stats": torch.cat([top, (torch.logsumexp(logits, -1, keepdim=True).float() - top).exp()], -1),
            "total_weight": torch.tensor(float(rows), device="cuda"),
            "dlogits": empty(rows, classes),
        }

    return make(bc.CrossEntropyLossBackwardPlan, desc, arrays, [], "[8192, 128256] bf16", {})


def _embedding(vocab: int, dim: int, tokens: int, compiled: bool) -> Case:
    desc = bc.EmbeddingDescriptor(num_embeddings=vocab, embedding_dim=dim, index_shape=tokens, element="bfloat16")

    def arrays() -> Arrays:
        return {"indices": _targets(tokens, vocab), "weight": randn(vocab, dim), "y": empty(tokens, dim)}

    return make(
        bc.EmbeddingPlan,
        desc,
        arrays,
        ["y"],
        f"{tokens} of [{vocab}, {dim}] bf16",
        {"torch": lambda s: F.embedding(s["indices"], s["weight"])},
        nbytes=4 * tokens * dim + 8 * tokens,
    )


case("embedding.embedding")(partial(_embedding, 128256, 4096, 32768))


def _embedding_backward(vocab: int, dim: int, tokens: int, compiled: bool) -> Case:
    desc = bc.EmbeddingBackwardDescriptor(
        num_embeddings=vocab, embedding_dim=dim, index_shape=tokens, element="bfloat16"
    )

    def arrays() -> Arrays:
        return {"dy": randn(tokens, dim), "indices": _targets(tokens, vocab), "dweight": empty(vocab, dim)}

    def peer(s: Arrays) -> Any:
        return torch.ops.aten.embedding_dense_backward(s["dy"], s["indices"], vocab, -1, False)

    return make(
        bc.EmbeddingBackwardPlan, desc, arrays, ["dweight"], f"{tokens} to [{vocab}, {dim}] bf16", {"torch": peer}
    )


case("embedding.embedding_backward")(partial(_embedding_backward, 128256, 2048, 65536))
case("embedding.embedding_backward")(partial(_embedding_backward, 256, 4096, 32768))


def _rotate_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@case("attention.rope")
def rope(compiled: bool) -> Case:
    shape = (8, 32, 4096, 128)
    desc = bc.RopeDescriptor(batch_size=8, num_heads=32, seq_len=4096, head_dim=128, element="bfloat16")
    angles = torch.outer(torch.arange(4096, device="cuda"), 10000.0 ** (-torch.arange(0, 128, 2, device="cuda") / 128))
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)

    def peer(s: Arrays) -> Any:
        return _rotate_half(s["x"], cos, sin)

    return make(
        bc.RopePlan,
        desc,
        lambda: {"x": randn(*shape), "y": empty(*shape)},
        ["y"],
        "[8, 32, 4096, 128] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


@case("attention.rope_backward")
def rope_backward(compiled: bool) -> Case:
    shape = (8, 32, 4096, 128)
    desc = bc.RopeBackwardDescriptor(batch_size=8, num_heads=32, seq_len=4096, head_dim=128, element="bfloat16")
    return make(
        bc.RopeBackwardPlan, desc, lambda: {"dy": randn(*shape), "dx": empty(*shape)}, [], "[8, 32, 4096, 128] bf16", {}
    )


def _kv_append(new: int, compiled: bool) -> Case:
    batch, heads, length, dim = 64, 8, 4096, 128
    desc = bc.KvCacheAppendDescriptor(
        batch_size=batch, num_heads=heads, new_len=new, max_cache_len=length, d_k=dim, d_v=dim, element="bfloat16"
    )

    def arrays() -> Arrays:
        return {
            "k_new": randn(batch, heads, new, dim),
            "v_new": randn(batch, heads, new, dim),
            "cache_offsets": torch.full((batch,), 128, device="cuda"),
            "k_cache": empty(batch, heads, length, dim),
            "v_cache": empty(batch, heads, length, dim),
        }

    def peer(s: Arrays) -> Any:
        s["k_cache"][:, :, 128 : 128 + new] = s["k_new"]
        s["v_cache"][:, :, 128 : 128 + new] = s["v_new"]

    return make(
        bc.KvCacheAppendPlan,
        desc,
        arrays,
        [],
        f"[64, 8, {new}, 128] x2 bf16",
        {"torch": peer},
        nbytes=8 * batch * heads * new * dim,
        target="0.90",
    )


case("attention.kv_cache_append")(partial(_kv_append, 512))
case("attention.kv_cache_append")(partial(_kv_append, 2048))


def _attention(batch: int, heads: int, kv_heads: int, length: int, dim: int, causal: bool) -> dict[str, Any]:
    return {
        "batch_size": batch,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "query_len": length,
        "key_len": length,
        "d_k": dim,
        "d_v": dim,
        "is_causal": causal,
        "element": "bfloat16",
    }


@case("attention.flash_sdpa")
def flash_sdpa(compiled: bool) -> Case:
    batch, heads, length, dim = 4, 16, 2048, 128
    desc = bc.FlashSdpaDescriptor(**_attention(batch, heads, heads, length, dim, True))
    shape = (batch, heads, length, dim)

    def peer(s: Arrays) -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(s["q"], s["k"], s["v"], is_causal=True)

    return make(
        bc.FlashSdpaPlan,
        desc,
        lambda: {"q": randn(*shape), "k": randn(*shape), "v": randn(*shape), "y": empty(*shape)},
        ["y"],
        "causal [4, 16, 2048, 128] bf16",
        {"torch FLASH": peer},
        flops=2 * batch * heads * length * length * dim,
        target="",
    )


@case("attention.flash_sdpa_backward")
def flash_sdpa_backward(compiled: bool) -> Case:
    batch, heads, length, dim = 4, 16, 2048, 128
    desc = bc.FlashSdpaBackwardDescriptor(**_attention(batch, heads, heads, length, dim, True))
    shape = (batch, heads, length, dim)

    def arrays() -> Arrays:
        q, k, v, y = (randn(*shape) for _ in range(4))
        lse = torch.empty(shape[:3], device="cuda")
        bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True, out=(y, lse))
        return {
            "q": q,
            "k": k,
            "v": v,
            "y": y,
            "lse": lse,
            "dy": randn(*shape),
            "dq": empty(*shape),
            "dk": empty(*shape),
            "dv": empty(*shape),
        }

    graphs: dict[int, Any] = {}

    def peer(s: Arrays) -> Any:
        if id(s["q"]) not in graphs:
            leaves = [s[n].detach().clone().requires_grad_() for n in "qkv"]
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                graphs[id(s["q"])] = F.scaled_dot_product_attention(*leaves, is_causal=True), leaves
        y, leaves = graphs[id(s["q"])]
        return torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)

    return make(
        bc.FlashSdpaBackwardPlan,
        desc,
        arrays,
        ["dq", "dk", "dv"],
        "causal [4, 16, 2048, 128] bf16",
        {"torch FLASH": peer},
        flops=5 * batch * heads * length * length * dim,
        target="",
    )


def _flash_decoding(
    heads: int, kv_heads: int, batch: int, length: int, dim: int, compiled: bool, mean: bool = False
) -> Case:
    desc = bc.FlashDecodingDescriptor(
        batch_size=batch,
        num_heads=heads,
        num_kv_heads=kv_heads,
        max_cache_len=length,
        d_k=dim,
        d_v=dim,
        element="bfloat16",
    )

    def arrays() -> Arrays:
        return {
            "q": randn(batch, heads, dim),
            "k": randn(batch, kv_heads, length, dim),
            "v": randn(batch, kv_heads, length, dim),
            "lengths": torch.full((batch,), length, device="cuda"),
            "y": empty(batch, heads, dim),
            **({"mean_weights": empty(batch, length, dtype=torch.float32)} if mean else {}),
        }

    def peer(s: Arrays) -> Any:
        return F.scaled_dot_product_attention(s["q"][:, :, None], s["k"], s["v"], enable_gqa=True)[:, :, 0]

    return make(
        bc.FlashDecodingPlan,
        desc,
        arrays,
        ["y"],
        f"{heads}/{kv_heads} heads, batch {batch}, context {length}{'' if dim == 128 else f', d {dim}'}"
        f"{', mean weights' if mean else ''} bf16",
        {"torch": peer},
        nbytes=4 * batch * kv_heads * length * dim,
        target="" if mean else "0.85",
    )


for _sizes in ((32, 8, 64, 8192, 128), (32, 8, 1, 32768, 128), (8, 4, 8, 4096, 64), (64, 8, 16, 32768, 128)):
    case("attention.flash_decoding")(partial(_flash_decoding, *_sizes))
case("attention.flash_decoding")(partial(_flash_decoding, 64, 8, 64, 8192, 128, mean=True))


def _gemm(size: int, compiled: bool) -> Case:
    desc = bc.DenseGemmDescriptor(m=size, n=size, k=size, element="bfloat16")
    return make(
        bc.DenseGemmPlan,
        desc,
        lambda: {"a": randn(size, size), "b": randn(size, size), "y": empty(size, size)},
        ["y"],
        f"{size}^3 bf16",
        {"torch": lambda s: torch.mm(s["a"], s["b"])},
        flops=2 * size**3,
        target="",
    )


case("gemm.dense_gemm")(partial(_gemm, 4096))
case("gemm.dense_gemm")(partial(_gemm, 8192))


def _many(count: int, size: int) -> list[torch.Tensor]:
    return [randn(size, dtype=torch.float32) for _ in range(count)]


@case("optimizer.global_norm")
def global_norm(compiled: bool) -> Case:
    count, size = 64, 1 << 22
    desc = bc.GlobalNormDescriptor(shapes=((size,),) * count, element="float32")
    return make(
        bc.GlobalNormPlan,
        desc,
        lambda: {"tensors": _many(count, size), "norm": empty(dtype=torch.float32)},
        ["norm"],
        "64 x 4M f32",
        {"torch": lambda s: torch.nn.utils.get_total_norm(s["tensors"])},
    )


@case("optimizer.adam_step")
def adam_step(compiled: bool) -> Case:
    count, size = 64, 1 << 22
    desc = bc.AdamStepDescriptor(shapes=((size,),) * count, element="float32")

    def arrays() -> Arrays:
        squares = [t.square_() for t in _many(count, size)]
        return {
            "params": _many(count, size),
            "grads": _many(count, size),
            "exp_avg": _many(count, size),
            "exp_avg_sq": squares,
            "step": 10,
        }

    made: dict[int, Any] = {}

    def peer(s: Arrays) -> Any:
        key = id(s["params"])
        if key not in made:
            leaves = [p.clone().requires_grad_() for p in s["params"]]
            for leaf, grad in zip(leaves, s["grads"], strict=True):
                leaf.grad = grad
            made[key] = torch.optim.AdamW(leaves, lr=1e-3, fused=True)
        made[key].step()

    return make(
        bc.AdamStepPlan, desc, arrays, [], "AdamW, 64 x 4M f32", {"torch fused": peer}, nbytes=28 * count * size
    )


@case("random.sampling")
def sampling(compiled: bool) -> Case:
    batch, vocab = 256, 128256
    desc = bc.SamplingDescriptor(batch_size=batch, vocab_size=vocab, element="bfloat16")

    def arrays() -> Arrays:
        return {
            "logits": randn(batch, vocab),
            "ids": empty(batch, dtype=torch.int64),
            "temperature": 0.8,
            "top_k": 50,
            "top_p": 0.9,
            "seed": 1,
            "offset": 0,
        }

    def peer(s: Arrays) -> Any:
        top = torch.topk(s["logits"].float() / 0.8, 50).values
        torch.multinomial(torch.softmax(top, -1), 1)

    return make(
        bc.SamplingPlan, desc, arrays, [], "top-k 50, top-p 0.9 of [256, 128256] bf16", {"torch topk": peer}, target=""
    )
