"""Attention as transformers asks for it: `attn_implementation="baracuda"`."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch

NAME = "baracuda"


def attention_forward(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, softcap: float | None = None, s_aux: Any = None,
    position_bias: Any = None, sliding_window: int | None = None, causal_alone: bool = False, **given: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """(y [batch, queries, heads, d_v], weights or None) of query, key and value [batch, heads, tokens, d].

    Keys and values may have fewer heads. attention_mask broadcasts to [batch, heads, queries, keys], bool or added to
    the scores; without one a module that is causal sees the keys up to a query. s_aux: sinks [heads]; position_bias
    is added to the scores. cu_seq_lens_q and cu_seq_lens_k, [sequences + 1], in place of a mask: the sequences of a
    batch of one, end to end. With dropout the seed comes from torch's generator of the device. The weights are
    those before dropout, and given where output_attentions asks for them. causal_alone: nothing hides keys but
    causality and the window, whatever array says so (see `causality_alone`).
    """
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    weighed, bounds = bool(given.get("output_attentions")), given.get("cu_seq_lens_q")
    if bounds is not None and query.shape[0] == 1:
        lengths = (bounds, bounds if given.get("cu_seq_lens_k") is None else given["cu_seq_lens_k"])
        if not weighed and position_bias is None:
            terms = {"softcap": softcap or 0.0, "dropout_p": dropout, "sinks": _sinks(s_aux, query)}
            return _packed(query, key, value, lengths, scaling, causal, sliding_window, given, terms), None
        attention_mask = _apart(lengths, query, key, causal, sliding_window)
    window = None
    if causal_alone and causal and not weighed and query.shape[2] == key.shape[2] > 1:
        attention_mask, window = None, sliding_window
    causal = causal and attention_mask is None and query.shape[2] > 1
    if causal and key.shape[2] > query.shape[2]:  # the first call with a cache of a fixed size: the rest is empty
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        position_bias = position_bias if position_bias is None else position_bias[..., : query.shape[2]]
    mask = _joined(attention_mask, position_bias, query)
    facts: dict[str, Any] = {"scale": scaling, "is_causal": causal, "softcap": softcap or 0.0, "dropout_p": dropout}
    if weighed and s_aux is None:
        y, weights = bct.sdpa(query, key, value, mask, return_attn=True, **facts)
        return y.transpose(1, 2), weights
    sinks = _sinks(s_aux, query)
    if query.shape[2] == 1 and not (dropout or torch.is_grad_enabled()):
        capped = {"scale": scaling, "softcap": facts["softcap"]}
        y = bct.flash_decoding(query[:, :, 0], key, value, mask=mask, sinks=sinks, **capped)[:, None]
    else:
        q, k, v = (one.transpose(1, 2) for one in (query, key, value))
        left = None if window is None else window - 1
        y = bct.flash_sdpa(q, k, v, mask, sinks=sinks, window_left=left, layout="bshd", **facts)
    return y, _beside(sinks, query, key, value, mask, facts) if weighed else None


_PLAIN = frozenset(
    ("input_ids", "inputs_embeds", "labels", "use_cache", "logits_to_keep", "num_items_in_batch", "shift_labels",
     "ignore_index", "return_dict")
)  # fmt: skip


def causality_alone(model: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """Whether a model that is being compiled hides keys by causality, and by windows that its layers name, alone.

    While it is traced, transformers cannot tell that positions do not start anew, and makes a mask of all queries and
    keys. Models that FlashAttention serves without such a mask say so.
    """
    return bool(
        torch.compiler.is_compiling()
        and getattr(model, "_supports_flash_attn", False)
        and len(args) <= 1
        and all(name in _PLAIN or value is None for name, value in given.items())
    )


def _beside(sinks: Any, query: Any, key: Any, value: Any, mask: Any, facts: dict[str, Any]) -> Any:
    """The weights that keys have beside the sinks, without a gradient."""
    with torch.no_grad():
        _, weights, lse = bct.sdpa(
            query, key, value, mask, return_attn=True, return_lse=True, **{**facts, "dropout_p": 0.0}
        )
        return weights * torch.sigmoid(lse - sinks[:, None])[..., None].to(weights.dtype)


def _joined(mask: Any, bias: Any, query: Any) -> Any:
    """One mask of a mask and a bias of the scores."""
    if mask is not None and mask.dtype not in (torch.bool, query.dtype):
        mask = mask.to(query.dtype)
    if bias is None:
        return mask
    bias = bias.to(query.dtype)
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    return bias + mask


def _sinks(s_aux: Any, query: Any) -> Any:
    """The sinks as attention of queries takes them, or None."""
    return None if s_aux is None else s_aux.to(torch.promote_types(query.dtype, torch.float32))


def _packed(
    q: Any, k: Any, v: Any, lengths: Any, scale: Any, causal: bool, window: Any, given: Any, terms: dict[str, Any]
) -> Any:
    """y [1, tokens, heads, d_v] of the sequences of a batch of one."""
    rows = [one[0].transpose(0, 1) for one in (q, k, v)]
    most = [None if given.get(name) is None else int(given[name]) for name in ("max_length_q", "max_length_k")]
    return bct.flash_sdpa_varlen(
        *rows, *(one.to(torch.int32) for one in lengths), max_seqlen_q=most[0], max_seqlen_k=most[1], scale=scale,
        is_causal=causal, window_left=None if window is None else window - 1,
        window_right=None if window is None or causal else window - 1, **terms,
    )[None]  # fmt: skip


def _apart(lengths: Any, query: Any, key: Any, causal: bool, window: Any) -> Any:
    """A bool mask [1, 1, queries, keys] that keeps packed sequences apart; the last query stands at the last key."""
    places = []
    for ends, rows in zip(lengths, (query, key), strict=True):
        row = torch.arange(rows.shape[2], device=query.device)
        sequence = torch.bucketize(row, ends[1:].to(row.dtype), right=True)
        places.append((sequence, row - ends.to(row.dtype)[1:].gather(0, sequence.clamp(max=len(ends) - 2))))
    (q_of, q_at), (k_of, k_at) = places
    mask = q_of[:, None] == k_of
    if causal:
        mask = mask & (k_at <= q_at[:, None])
    if window is not None:
        mask = mask & ((q_at[:, None] - k_at).abs() < window)
    return mask[None, None]


def attention_mask(**given: Any) -> Any:
    """A bool mask [batch, 1, queries, keys], or None where `is_causal` or nothing says the same: transformers' own."""
    from transformers.masking_utils import sdpa_mask

    return sdpa_mask(**given)


def takes(part: Any) -> str | None:
    """Why a PreTrainedModel keeps its attention, None where it asks for one by name."""
    if not (part._supports_sdpa or part._supports_attention_backend) or not part._can_set_attn_implementation():
        return "it asks for no attention by name"
    return None
