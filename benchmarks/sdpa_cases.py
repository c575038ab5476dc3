"""Benchmarked problems of attention with its weights in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, empty, make, randn
from torch.nn.attention import SDPBackend, sdpa_kernel

import baracuda_py as bc


def _eager(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """The composition that returns the weights, the scale where it costs least."""
    attn = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), dim=-1)
    return attn @ v, attn


def _math(q: Any, k: Any, v: Any) -> tuple[Any]:
    with sdpa_kernel(SDPBackend.MATH):
        return (F.scaled_dot_product_attention(q, k, v),)


_SDPA = (4, 16, 1024)  # batch, heads, length


def _sdpa_facts(dim: int) -> dict[str, Any]:
    batch, heads, length = _SDPA
    return {
        "batch_size": batch, "num_heads": heads, "query_len": length, "key_len": length, "d_k": dim, "d_v": dim,
        "element": "bfloat16",
    }  # fmt: skip


def _sdpa(dim: int, compiled: bool) -> Case:
    desc, (batch, heads, length) = bc.SdpaDescriptor(**_sdpa_facts(dim)), _SDPA
    shape = (batch, heads, length, dim)

    def arrays() -> Arrays:
        return {
            **{name: randn(*shape) for name in "qkv"}, "y": empty(*shape), "attn": empty(batch, heads, length, length)
        }  # fmt: skip

    return make(
        bc.SdpaPlan,
        desc,
        arrays,
        ["y", "attn"],
        f"with weights [4, 16, 1024, {dim}] bf16",
        {"torch": lambda s: _eager(s["q"], s["k"], s["v"]), "torch MATH": lambda s: _math(s["q"], s["k"], s["v"])},
        nbytes=bc.SdpaPlan.bytes(desc),
        target="",
    )


def _sdpa_backward(dim: int, compiled: bool) -> Case:
    desc, (batch, heads, length) = bc.SdpaBackwardDescriptor(**_sdpa_facts(dim)), _SDPA
    shape = (batch, heads, length, dim)

    def arrays() -> Arrays:
        made = {name: randn(*shape) for name in ("q", "k", "v", "dy")}
        made |= {name: empty(*shape) for name in ("dq", "dk", "dv")}
        return made | {"attn": _eager(made["q"], made["k"], made["v"])[1].contiguous()}

    graphs: dict[Any, Any] = {}

    def peer(function: Any, s: Arrays) -> Any:
        if (function, id(s["q"])) not in graphs:
            leaves = [s[n].detach().clone().requires_grad_() for n in "qkv"]
            graphs[function, id(s["q"])] = function(*leaves)[0], leaves
        y, leaves = graphs[function, id(s["q"])]
        return torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)

    return make(
        bc.SdpaBackwardPlan,
        desc,
        arrays,
        ["dq", "dk", "dv"],
        f"from weights [4, 16, 1024, {dim}] bf16",
        {"torch": partial(peer, _eager), "torch MATH": partial(peer, _math)},
        nbytes=bc.SdpaBackwardPlan.bytes(desc) + 6 * batch * heads * length * dim,
        target="",
    )


for _dim in (64, 128):
    case("attention.sdpa")(partial(_sdpa, _dim))
    case("attention.sdpa_backward")(partial(_sdpa_backward, _dim))
