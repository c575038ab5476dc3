"""Peers that are libraries or forms of their own, not the op as its page has it in torch.

`LIBRARIES[op](desc, s)` gives, for one set of operands, calls by name.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from vision_peers import VISION

import baracuda_py as bc
from baracuda_py.ops.conv.conv import in_torch_sums

Peers = dict[str, Callable[[], Any]]


def flash(desc: Any, s: Any) -> Peers:
    """torch's FLASH backend."""

    def call() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(s["q"], s["k"], s["v"], is_causal=desc.is_causal)

    return {"torch FLASH": call}


def backward(s: Any, *backends: SDPBackend, is_causal: bool = False) -> Callable[[], Any]:
    """The backward pass of torch's scaled_dot_product_attention; its graph is built here."""
    leaves = [s[n].detach().requires_grad_() for n in "qkv"]
    with sdpa_kernel(list(backends)):
        y = F.scaled_dot_product_attention(*leaves, is_causal=is_causal)
    return lambda: torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)


def flash_backward(desc: Any, s: Any) -> Peers:
    return {"torch FLASH": backward(s, SDPBackend.FLASH_ATTENTION, is_causal=desc.is_causal)}


def math(desc: Any, s: Any) -> Peers:
    """torch's MATH backend, which has weights in memory, too."""

    def call() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(s["q"], s["k"], s["v"])

    return {"torch MATH": call}


def math_backward(desc: Any, s: Any) -> Peers:
    return {"torch MATH": backward(s, SDPBackend.MATH)}


def varlen(desc: Any, s: Any) -> Peers:
    """torch's FLASH kernel on the same bounds."""
    bounds = next(s[n] for n in ("cu_seqlens_q", "qo_indptr") if n in s)
    longest = desc.max_seqlen_q

    def call() -> Any:
        return torch.ops.aten._flash_attention_forward(
            s["q"], s["k"], s["v"], bounds, bounds, longest, longest, 0.0, True, False
        )

    return {"torch FLASH": call}


def varlen_backward(desc: Any, s: Any) -> Peers:
    made = varlen(desc, s)["torch FLASH"]()
    bounds, longest = s["cu_seqlens_q"], desc.max_seqlen_q

    def call() -> Any:
        return torch.ops.aten._flash_attention_backward(
            s["dy"], s["q"], s["k"], s["v"], made[0], made[1], bounds, bounds, longest, longest, 0.0, True, made[2],
            made[3],
        )  # fmt: skip

    return {"torch FLASH": call}


def full_cache(desc: Any, s: Any) -> Peers:
    """torch's attention, which knows no lengths, over caches that are full, or under the mask."""
    mask = s["mask"][:, :, None] if "mask" in s else None

    def call() -> Any:
        return F.scaled_dot_product_attention(s["q"][:, :, None], s["k"], s["v"], mask, enable_gqa=True)[:, :, 0]

    return {"torch": call}


def gathered(desc: Any, s: Any) -> Peers:
    """Pages of equal sequences gathered, then torch's attention."""
    table, raw = s["page_table"], torch.uint8 if s["k_cache"].itemsize == 1 else s["k_cache"].dtype

    def call() -> Any:
        k, v = (s[n].view(raw)[table].view(s[n].dtype) for n in ("k_cache", "v_cache"))
        k, v = (x.to(s["q"].dtype).transpose(1, 2).flatten(2, 3) for x in (k, v))
        return F.scaled_dot_product_attention(s["q"][:, :, None], k, v, enable_gqa=True)[:, :, 0]

    return {"torch, gathered": call}


def gathered_latents(desc: Any, s: Any) -> Peers:
    """Pages of equal sequences gathered, then torch's attention, for one query a sequence and few heads.

    It repeats the latents for each head: 144 GiB for 128 heads, 128 sequences and 4096 tokens.
    """
    if desc.num_queries != 1 or desc.num_heads > 16:
        return {}

    def call() -> Any:
        k = s["cache"][s["page_table"]].flatten(1, 2)[:, None]
        q, v = s["q"].transpose(1, 2), k[..., : desc.d_latent]
        return F.scaled_dot_product_attention(q, k, v, scale=desc.scale, enable_gqa=True)

    return {"torch, gathered": call}


def gathered_lists(desc: Any, s: Any) -> Peers:
    """Listed cells gathered, then torch's attention, for few queries and heads: it repeats the cells for each head."""
    if desc.num_queries > 128 or desc.num_heads > 16:
        return {}

    def call() -> Any:
        k = s["cache"].flatten(0, 1)[s["indices"]][:, None]
        q, v = s["q"][:, :, None], k[..., : desc.d_latent]
        return F.scaled_dot_product_attention(q, k, v, scale=desc.scale, enable_gqa=True)

    return {"torch, gathered": call}


def equal_offsets(desc: Any, s: Any) -> Peers:
    """One copy for all sequences, whose offsets are equal."""
    rows = slice(first := int(s["cache_offsets"][0]), first + desc.new_len)

    def call() -> None:
        s["k_cache"][:, :, rows] = s["k_new"]
        s["v_cache"][:, :, rows] = s["v_new"]

    return {"torch": call}


def scattered(desc: Any, s: Any) -> Peers:
    """One scatter for all tokens; where they go is known."""
    new, start = desc.num_tokens // desc.batch_size, int(s["cache_offsets"][0])
    place = torch.arange(start, start + new, device="cuda")
    table = s["page_table"] if "page_table" in s else s["kv_indices"].view(desc.batch_size, -1)
    pages, cells = table[:, place // desc.page_size].flatten().long(), (place % desc.page_size).repeat(desc.batch_size)

    def call() -> None:
        s["k_cache"][pages, :, cells] = s["k_new"]
        s["v_cache"][pages, :, cells] = s["v_new"]

    return {"torch": call}


def turning(desc: Any, x: Any, first: int, rows: int) -> Callable[[Any], Any]:
    """Rotation of `rows` rows from position `first` on, by tables that are made here."""
    place = torch.arange(first, first + rows, device="cuda")
    angles = torch.outer(place, desc.base ** (-torch.arange(0, desc.rotary, 2, device="cuda") / desc.rotary))
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def turn(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    return turn


def rotated(desc: Any, s: Any) -> Peers:
    """Rotation by tables that are there."""
    turn = turning(desc, s["x"], 0, desc.seq_len)
    return {"torch, tables": lambda: turn(s["x"])}


def rotated_append(desc: Any, s: Any) -> Peers:
    """Rotation by tables that are there, and one copy for all sequences."""
    rows = slice(first := int(s["cache_offsets"][0]), first + desc.new_len)
    turn = turning(desc, s["q"], first, desc.new_len)

    def call() -> Any:
        s["k_cache"][:, :, rows] = turn(s["k_new"])
        s["v_cache"][:, :, rows] = s["v_new"]
        return turn(s["q"])

    return {"torch": call}


def dense(desc: Any, s: Any) -> Peers:
    """This package's dense attention in the same design, every block of it."""
    plan = bc.FlashSdpaBackwardPlan if "dy" in s else bc.FlashSdpaPlan
    shared = {f.name: getattr(desc, f.name) for f in dataclasses.fields(plan.descriptor)}
    every = plan.select(plan.descriptor(**shared), bc.PlanPreference(max_arch=bc.ArchSku.SM80), device=0)
    args = plan.args(**{name: x for name, x in s.items() if name != "pattern"})
    return {"dense, same design": every.bind(args)}


def block_sparse(desc: Any, s: Any) -> Peers:
    """And torch's flex_attention, compiled for the pattern, where its blocks are as large as it takes."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    peers, pattern = dense(desc, s), s["pattern"]
    if desc.query_block < 128:
        return peers

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        return pattern[b, h, i // desc.query_block, j // desc.key_block]

    shape = (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len)
    mask = create_block_mask(sees, *shape, device="cuda", BLOCK_SIZE=desc.query_block)
    attend = torch.compile(flex_attention)
    return peers | {"flex_attention": lambda: attend(s["q"], s["k"], s["v"], block_mask=mask)}


def fused_adam(desc: Any, s: Any) -> Peers:
    """torch.optim.AdamW with fused=True."""
    leaves = [p.clone().requires_grad_() for p in s["params"]]
    for leaf, grad in zip(leaves, s["grads"], strict=True):
        leaf.grad = grad
    return {"torch fused": torch.optim.AdamW(leaves, lr=1e-3, fused=True).step}


def drawn(desc: Any, s: Any) -> Peers:
    """A draw from the largest logits, no top-p; without a top-k one from the sorted row's nucleus."""

    def among_largest() -> Any:
        top = torch.topk(s["logits"].float() / s["temperature"], s["top_k"]).values
        return torch.multinomial(torch.softmax(top, -1), 1)

    def in_nucleus() -> Any:
        share, ids = torch.softmax(s["logits"].float() / s["temperature"], -1).sort(-1, descending=True)
        share[share.cumsum(-1) - share >= s["top_p"]] = 0
        return ids.gather(-1, torch.multinomial(share, 1))

    if "top_k" in s:
        return {"torch topk": among_largest}
    return {"torch sort": in_nucleus} if "top_p" in s else {}


def filled(desc: Any, s: Any) -> Peers:
    """torch's own draws, of its own stream."""
    y = torch.empty(desc.shape, dtype=getattr(torch, str(desc.element)), device="cuda")
    number = s.get("a_number", 0.0)
    calls = {
        "uniform": y.uniform_, "normal": y.normal_, "bernoulli": lambda: y.bernoulli_(number),
        "exponential": y.exponential_, "randint": lambda: y.random_(s["low"], s["low"] + s["span"]),
        "gamma": lambda: torch._standard_gamma(y.fill_(number)), "poisson": lambda: torch.poisson(y.fill_(number)),
    }  # fmt: skip
    return {"torch": calls[desc.kind.value]} if desc.kind.value in calls else {}


def continued(desc: Any, s: Any) -> Peers:
    """topk of the sums."""
    return {"torch topk": lambda: torch.topk((s["scores"][:, :, None] + s["logprobs"]).flatten(1), desc.width)}


# kind: flash-linear-attention's module and function, and its keywords for our operands.
FLA = {
    "none": ("linear_attn", "chunk_linear_attn", {}),
    "scalar": ("simple_gla", "chunk_simple_gla", {"g": "g"}),
    "channel": ("gla", "chunk_gla", {"g": "g_channel"}),
    "channel_bonus": ("rwkv6", "chunk_rwkv6", {"w": "g_channel", "u": "bonus"}),
    "delta": ("delta_rule", "chunk_delta_rule", {"beta": "beta"}),
    "scalar_delta": ("gated_delta_rule", "chunk_gated_delta_rule", {"g": "g", "beta": "beta"}),
    "channel_delta": ("kda", "chunk_kda", {"g": "g_channel", "beta": "beta"}),
}


def fla(desc: Any, s: Any) -> Peers:
    """flash-linear-attention's chunks, where it is installed; of gradients the backward pass alone."""
    if desc.kind.value not in FLA:
        return {}
    module, name, gates = FLA[desc.kind.value]
    try:
        function = getattr(importlib.import_module(f"fla.ops.{module}"), name)
    except (ImportError, AttributeError):
        return {}
    given = [s[n] for n in "qkv"]
    named = {
        theirs: s[ours].to(given[0].dtype) if theirs in ("u", "beta") else s[ours] for theirs, ours in gates.items()
    }
    options: dict[str, Any] = {"scale": desc.scale}
    if desc.kind.value == "none":
        options["normalize"] = False
    if desc.use_qk_l2norm:
        options["use_qk_l2norm_in_kernel"] = True
    if "dy" not in s:
        return {"fla": lambda: function(*given, **named, **options)}
    given = [x.detach().requires_grad_() for x in given]
    named = {key: x.detach().requires_grad_() for key, x in named.items()}
    y = function(*given, **named, **options)[0]
    leaves = (*given, *named.values())
    return {"fla": lambda: torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)}


def flatten(network: Any) -> None:
    """Weights in one piece, as cuDNN wants them; torch leaves that out for bfloat16, which cuDNN takes."""
    dtypes = torch.backends.cudnn.CUDNN_TENSOR_DTYPES
    missing = {torch.bfloat16} - dtypes
    dtypes |= missing
    try:
        network.flatten_parameters()
    finally:
        dtypes -= missing


def cudnn_layer(desc: Any, s: Any) -> Peers:
    """cuDNN's layer on an input so narrow that its products take next to no time; back to the input alone."""
    kinds = {"lstm": "LSTM", "gru": "GRU"}
    if desc.kind.value not in kinds or len(set(desc.sizes)) != 1:
        return {}
    like = {"device": s["weight"].device, "dtype": s["weight"].dtype}
    layer = getattr(torch.nn, kinds[desc.kind.value])(64, desc.hidden, **like).requires_grad_(False)
    layer.weight_hh_l0.copy_(s["weight"])
    flatten(layer)
    back = "dh" in s
    x = torch.randn(len(desc.sizes), desc.batch, 64, **like).requires_grad_(back)
    if not back:
        return {"torch.nn (cuDNN)": lambda: layer(x)[0]}
    y = layer(x)[0]
    dy = s["dh"].reshape(y.shape)
    return {"torch.nn (cuDNN)": lambda: torch.autograd.grad(y, x, dy, retain_graph=True)}


def spectra(desc: Any, s: Any) -> Peers:
    """torch.stft with the same window, then magnitudes or their squares."""
    if desc.padding not in (0, desc.n_fft // 2) or desc.norm == "forward":
        return {}

    def call() -> Any:
        z = torch.stft(
            s["x"], desc.n_fft, desc.hop_length, desc.win_length, s.get("window"), center=desc.padding > 0,
            pad_mode=desc.pad_mode, normalized=desc.norm == "ortho", return_complex=True,
        )  # fmt: skip
        return z if desc.result == "complex" else z.abs() if desc.result == "magnitude" else z.abs().square()

    return {"torch": call}


def convolved_back(desc: Any, s: Any) -> Peers:
    """The gradients that are wanted of torch's convolution, without an activation; its graph is built here."""
    if desc.activation != "none":
        return {}
    own = {"x": s["x"].detach(), "w": s["w"].detach()}
    leaves = [own[name].requires_grad_() for name in own if f"d{name}" in s]
    y = in_torch_sums(torch, desc, **own)
    return {"torch": lambda: torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)}


LIBRARIES: dict[str, Callable[[Any, Any], Peers]] = {
    "attention.batch_paged_decode": gathered,
    "attention.batch_paged_decode_fp8": gathered,
    "attention.batch_ragged_prefill": varlen,
    "attention.flash_decoding": full_cache,
    "attention.flash_sdpa": flash,
    "attention.flash_sdpa_backward": flash_backward,
    "attention.flash_sdpa_varlen": varlen,
    "attention.flash_sdpa_varlen_backward": varlen_backward,
    "attention.kv_cache_append": equal_offsets,
    "attention.mla_decode": gathered_latents,
    "attention.mla_sparse": gathered_lists,
    "attention.paged_kv_append": scattered,
    "attention.rope": rotated,
    "attention.rope_kv_append": rotated_append,
    "attention.sdpa": math,
    "attention.sdpa_backward": math_backward,
    "attention.sdpa_block_sparse": block_sparse,
    "attention.sdpa_block_sparse_backward": dense,
    "conv.conv_backward": convolved_back,
    "fft.framed_rfft": spectra,
    "optimizer.adam_step": fused_adam,
    "random.beam_step": continued,
    "random.random": filled,
    "random.sample": drawn,
    "recurrence.linear_attention": fla,
    "recurrence.linear_attention_backward": fla,
    "recurrence.recurrent_packed": cudnn_layer,
    "recurrence.recurrent_packed_backward": cudnn_layer,
    **VISION,
}
