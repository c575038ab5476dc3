"""What each fusion of the training step is worth: one call against the calls it stands for, interleaved.

    python benchmarks/fusions.py [--rounds 20] [--csv [FILE]]

Shapes are those of `examples/train_gpt.py --preset gpu`, bf16; both sides are our own ops with outputs given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import gpt_model
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

P = gpt_model.PRESETS["gpu"]
TOKENS = P.batch * P.context
Sides = tuple[str, int, Callable[[], Any], Callable[[], Any]]


def randn(*shape: int, element: str = "bfloat16") -> cp.ndarray:
    return bc.cast(cp.random.standard_normal(shape, dtype=cp.float32), element)


def add_norm() -> Sides:
    branch, stream, weight = randn(TOKENS, P.d), randn(TOKENS, P.d), cp.ones(P.d, cp.float32)
    y, h = cp.empty_like(branch), cp.empty_like(branch)

    def separate() -> None:
        bc.add(branch, stream, out=h)
        bc.rms_norm(h, weight, out=y)

    def fused() -> None:
        bc.rms_norm(branch, weight, stream, return_h=True, out={"y": y, "h": h})

    return "residual add + RMSNorm", 2 * P.layers, fused, separate


def rope() -> Sides:
    qkv = randn(P.batch, P.context, P.heads + 2 * P.kv_heads, P.head_dim).transpose(0, 2, 1, 3)
    q, k = qkv[:, : P.heads], qkv[:, P.heads : P.heads + P.kv_heads]

    def separate() -> None:
        bc.rope(q, out=q)
        bc.rope(k, out=k)

    return "RoPE of packed q and k", 2 * P.layers, lambda: bc.rope(q, x2=k, out=(q, k)), separate


def swiglu() -> Sides:
    packed, y, activated = randn(TOKENS, 2 * P.ffn), randn(TOKENS, P.ffn), randn(TOKENS, P.ffn)
    gate, up = packed[:, : P.ffn], packed[:, P.ffn :]

    def separate() -> None:
        bc.silu(gate, out=activated)
        bc.mul(activated, up, out=y)

    return "SwiGLU", P.layers, lambda: bc.swiglu(gate, up, out=y), separate


def swiglu_backward() -> Sides:
    packed, dpacked = randn(TOKENS, 2 * P.ffn), randn(TOKENS, 2 * P.ffn)
    dy, activated, product = randn(TOKENS, P.ffn), randn(TOKENS, P.ffn), randn(TOKENS, P.ffn)
    gate, up, dgate, dup = packed[:, : P.ffn], packed[:, P.ffn :], dpacked[:, : P.ffn], dpacked[:, P.ffn :]

    def separate() -> None:
        bc.silu(gate, out=activated)
        bc.mul(dy, activated, out=dup)
        bc.mul(dy, up, out=product)
        bc.silu_backward(product, gate, out=dgate)

    def fused() -> None:
        bc.swiglu_backward(dy, gate, up, out={"dgate": dgate, "dup": dup})

    return "SwiGLU backward", P.layers, fused, separate


def cross_entropy() -> Sides:
    logits, targets = randn(TOKENS, P.vocab), cp.random.randint(0, P.vocab, TOKENS, dtype=cp.int32)
    dlogits, loss, one = cp.empty_like(logits), cp.zeros((), cp.float32), cp.ones((), cp.float32)
    stats, total = cp.empty((TOKENS, 2), cp.float32), cp.empty((), cp.float32)
    once = {"loss": loss, "dlogits": dlogits}
    first = {"loss": loss, "stats": stats, "total_weight": total}

    def separate() -> None:
        bc.cross_entropy(logits, targets, return_stats=True, return_total_weight=True, out=first)
        bc.cross_entropy_backward(one, logits, targets, stats, None, total, out=dlogits)

    return (
        "cross-entropy and its gradient in one read",
        1,
        lambda: bc.cross_entropy(logits, targets, return_dlogits=True, out=once),
        separate,
    )


def adamw() -> Sides:
    model = gpt_model.Decoder(P, cp)
    names = list(model.matrices)
    params, copies = [model.matrices[n] for n in names], [model.copies[n] for n in names]
    first, second = ([model.moments[n][i] for n in names] for i in range(2))
    grads = [cp.random.standard_normal(p.shape, dtype=cp.float32) * 1e-3 for p in params]
    clip = cp.full((), 0.5, cp.float32)
    facts = {"lr": 1e-4, "step": 3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}

    def separate() -> None:
        for i, param in enumerate(params):
            bc.affine(grads[i], clip, out=grads[i])
            bc.adam_step([param], [grads[i]], [first[i]], [second[i]], **facts)
            bc.cast(param, "bfloat16", out=copies[i])

    def fused() -> None:
        bc.adam_step(params, grads, first, second, copies, grad_scale=clip, **facts)

    return "AdamW of all matrices with clip and bf16 copy", 1, fused, separate


def rows(rounds: int) -> Iterator[dict[str, Any]]:
    for make in (add_norm, rope, swiglu, swiglu_backward, cross_entropy, adamw):
        name, calls, fused, separate = make()
        captured = {"fused": [bc.graph(fused, device=0)], "separate": [bc.graph(separate, device=0)]}
        times = interleaved(captured, rounds)
        one, many = times["fused"].median, times["separate"].median
        yield {
            "fusion": name, "calls_a_step": calls, "fused_us": f"{one:.1f}", "separate_us": f"{many:.1f}",
            "saved_us_a_step": f"{calls * (many - one):.0f}",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    add_options(parser)
    options = parser.parse_args()
    done = []
    for row in rows(options.rounds):
        done.append(row)
        print("  ".join(f"{value!s:>12}" for value in row.values()), flush=True)
    Results(options, "fusions", ("fusion",)).write(done)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
