"""Benchmarked problems of attention beside the flash plans: paged caches, weights in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, empty, make, randn
from torch.nn.attention import SDPBackend, sdpa_kernel

import baracuda_py as bc


def _paged(batch: int, new: int, page: int, compiled: bool) -> Case:
    """Pages dealt out at random, as after a while of serving."""
    heads, dim, before = 8, 128, 100
    each = -(-(before + new) // page)
    desc = bc.PagedKvAppendDescriptor(
        batch_size=batch, num_tokens=batch * new, num_heads=heads, num_pages=batch * each, page_size=page, d_k=dim,
        d_v=dim, max_pages=each, element="bfloat16",
    )  # fmt: skip
    table = torch.randperm(batch * each, device="cuda").reshape(batch, each).int()
    place = before + torch.arange(new, device="cuda")
    pages, cells = table[:, place // page].flatten().long(), (place % page).repeat(batch)

    def arrays() -> Arrays:
        return {
            "k_new": randn(batch * new, heads, dim),
            "v_new": randn(batch * new, heads, dim),
            "page_table": table,
            "cache_offsets": torch.full((batch,), before, device="cuda", dtype=torch.int32),
            "k_cache": empty(batch * each, heads, page, dim),
            "v_cache": empty(batch * each, heads, page, dim),
        }

    def peer(s: Arrays) -> Any:
        s["k_cache"][pages, :, cells] = s["k_new"]
        s["v_cache"][pages, :, cells] = s["v_new"]

    return make(
        bc.PagedKvAppendPlan,
        desc,
        arrays,
        [],
        f"{batch} x {new} tokens, pages of {page}, bf16",
        {"torch": peer},
        nbytes=8 * batch * new * heads * dim,
        target="0.85",
    )


case("attention.paged_kv_append")(partial(_paged, 64, 512, 16))
case("attention.paged_kv_append")(partial(_paged, 64, 512, 1))
case("attention.paged_kv_append")(partial(_paged, 8, 4096, 256))


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
