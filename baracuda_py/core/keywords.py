"""Keywords that a function or class does not take: an error that names the one meant.

Other libraries' words are in one table. Nothing here runs while keywords are right: a generated function takes the
others as `**unknown` and looks whether there are any, and of a function written by hand `entry` looks once Python has
refused the call.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .errors import UnknownKeywordError

F = TypeVar("F", bound=Callable[..., Any])

# Another word → what it is called here: the first that the function takes. "a b" are two that take its place together.
SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("input", "tensor", "src", "arr", "array"), ("x", "a", "logits", "q", "scores")),
    **dict.fromkeys(("x", "lhs", "mat1", "mat"), ("a", "x", "logits")),
    **dict.fromkeys(("other", "y", "rhs", "mat2"), ("b", "out")),
    **dict.fromkeys(("query", "q_new"), ("q",)),
    **dict.fromkeys(("key", "keys"), ("k", "k_new")),
    **dict.fromkeys(("value", "values"), ("v", "v_new")),
    **dict.fromkeys(("grad", "grad_output", "dout", "do", "cotangent", "grad_out"), ("dy", "dloss", "grads")),
    **dict.fromkeys(("dim", "dims", "axes", "axis"), ("axis", "normalized_shape")),
    "keepdim": ("keepdims",),
    "ddof": ("correction",),
    **dict.fromkeys(("dtype", "astype", "otype", "to", "new_dtype"), ("to_element", "out_element", "element")),
    **dict.fromkeys(("size", "sizes", "newshape"), ("shape",)),
    # attention
    "causal": ("is_causal", "causal_alignment"),
    "is_causal_bottom_right": ("causal_alignment",),
    **dict.fromkeys(("softmax_scale", "sm_scale", "scaling", "scale_factor", "attn_scale", "qk_scale"), ("scale",)),
    **dict.fromkeys(("attn_mask", "attention_mask", "attn_bias", "bias", "key_padding_mask", "custom_mask"), ("mask",)),
    "score_mod": ("score",),
    **dict.fromkeys(("mask_mod", "block_mask"), ("mask",)),
    **dict.fromkeys(("alibi_slopes", "alibi", "slope"), ("slopes", "negative_slope", "alpha")),
    **dict.fromkeys(("logits_soft_cap", "soft_cap", "logit_cap", "logits_softcap"), ("softcap",)),
    **dict.fromkeys(("window_size", "window", "sliding_window"), ("window_left window_right", "window_left")),
    **dict.fromkeys(("sink", "s_aux", "attention_sinks", "learnable_sink"), ("sinks",)),
    **dict.fromkeys(("dropout", "p", "p_dropout", "attn_dropout"), ("dropout_p", "top_p")),
    **dict.fromkeys(("return_softmax_lse", "return_softmax", "save_lse", "return_logsumexp"), ("return_lse",)),
    **dict.fromkeys(("return_attn_probs", "need_weights", "output_attentions"), ("return_attn", "return_weights")),
    **dict.fromkeys(("softmax_lse", "logsumexp"), ("lse",)),
    **dict.fromkeys(("tensor_layout", "kv_layout", "qkv_format", "input_layout", "unsqueeze_dim"), ("layout",)),
    **dict.fromkeys(("num_heads_kv", "kv_heads", "num_key_value_heads", "nheads_k"), ("num_kv_heads",)),
    # packed sequences and pages
    **dict.fromkeys(("cu_seqlens_q", "qo_indptr", "cu_q_lens"), ("cu_seqlens_q", "qo_indptr", "token_indptr")),
    **dict.fromkeys(("cu_seqlens_k", "cu_seqlens_kv", "kv_indptr", "cu_kv_lens"), ("cu_seqlens_k", "kv_indptr")),
    **dict.fromkeys(("offs", "group_offsets", "group_ends"), ("offsets", "group_sizes")),
    "m_sizes": ("group_sizes", "offsets"),
    **dict.fromkeys(("lhs_scale", "lhs_scales", "a_scale", "a_scales"), ("scale_a",)),
    **dict.fromkeys(("rhs_scale", "rhs_scales", "b_scale", "b_scales"), ("scale_b",)),
    "cu_seqlens": ("cu_seqlens_q cu_seqlens_k", "qo_indptr kv_indptr", "offsets"),
    **dict.fromkeys(("max_seqlen_kv", "max_s", "max_kv_len"), ("max_seqlen_k", "max_cache_len")),
    **dict.fromkeys(("max_q_len", "max_seqlen"), ("max_seqlen_q",)),
    **dict.fromkeys(("block_table", "block_tables", "page_tables", "pages"), ("page_table",)),
    **dict.fromkeys(("key_cache", "paged_k_cache", "cache_k"), ("k_cache", "k")),
    **dict.fromkeys(("value_cache", "paged_v_cache", "cache_v"), ("v_cache", "v")),
    **dict.fromkeys(
        ("cache_seqlens", "seq_lens", "seqlens", "context_lens", "kv_lens", "seqused_k", "kv_seq_lens", "length"),
        ("lengths", "cache_offsets"),
    ),
    "cache_batch_idx": ("batch_index",),
    **dict.fromkeys(("cache_leftpad", "leftpad_k"), ("starts",)),
    **dict.fromkeys(("paged_kv_indices", "indices"), ("kv_indices",)),
    "paged_kv_indptr": ("kv_indptr",),
    **dict.fromkeys(("paged_kv_last_page_len", "last_page_len"), ("kv_last_page_len",)),
    **dict.fromkeys(("append_indptr", "batch_indices"), ("token_indptr",)),
    "nnz": ("num_tokens",),
    **dict.fromkeys(("slots", "slot_map", "slot_ids"), ("slot_mapping",)),
    **dict.fromkeys(("block_mapping", "block_mapping_tensor", "src_to_dst"), ("pairs",)),
    **dict.fromkeys(("kv_caches", "key_caches", "kv_cache"), ("caches",)),
    # rotary embedding
    **dict.fromkeys(("position_ids", "pos_ids", "pos", "position", "input_pos"), ("positions", "cache_offsets")),
    **dict.fromkeys(("start_pos", "seqlen_offset", "cache_position"), ("offset", "cache_offsets", "positions")),
    **dict.fromkeys(("seqlen_offsets", "start_positions"), ("offsets", "cache_offsets", "positions")),
    "quantize_dtype": ("to_element",),
    **dict.fromkeys(("theta", "rope_theta"), ("base",)),
    **dict.fromkeys(("freqs", "inv_freqs", "freqs_cis", "inverse_frequencies"), ("inv_freq",)),
    **dict.fromkeys(("interleaved", "interleave", "is_neox", "is_neox_style", "rotary_interleaved"), ("pairing",)),
    **dict.fromkeys(("cos_cache", "cosine"), ("cos",)),
    **dict.fromkeys(("sin_cache", "sine"), ("sin",)),
    "rope_scaling": ("scaling",),
    "dim_head": ("head_dim", "rotary_dim"),
    # norms, activations, losses, optimizers
    **dict.fromkeys(("epsilon", "norm_eps", "variance_epsilon", "rms_norm_eps"), ("eps",)),
    **dict.fromkeys(("gamma", "w"), ("weight",)),
    "beta": ("bias", "beta1"),
    **dict.fromkeys(("norm_shape", "hidden_size"), ("normalized_shape",)),
    **dict.fromkeys(("alpha", "threshold"), ("negative_slope", "lambd")),
    "negative_slope": ("alpha",),
    "lambda": ("lambd",),
    **dict.fromkeys(("min", "a_min"), ("min_val",)),
    **dict.fromkeys(("max", "a_max"), ("max_val",)),
    "prenorm": ("return_h",),
    **dict.fromkeys(("target", "labels", "label"), ("targets",)),
    **dict.fromkeys(("smoothing", "smooth"), ("label_smoothing",)),
    "reduce": ("reduction",),
    **dict.fromkeys(("subscripts", "eq"), ("equation",)),
    "optimize": ("path",),
    "order": ("first_fastest",),
    **dict.fromkeys(("preferred_element_type", "out_dtype"), ("out_element", "to_element")),
    **dict.fromkeys(("ignored_index", "ignore"), ("ignore_index",)),
    **dict.fromkeys(("class_weights", "weights"), ("weight",)),
    **dict.fromkeys(("padding_index", "pad_idx"), ("padding_idx",)),
    **dict.fromkeys(("learning_rate", "step_size"), ("lr",)),
    "betas": ("beta1 beta2",),
    **dict.fromkeys(("wd", "decay"), ("weight_decay",)),
    **dict.fromkeys(("generator", "rng", "random_state", "philox_seed"), ("seed",)),
    "philox_offset": ("offset",),
    **dict.fromkeys(("topk", "num_samples"), ("top_k",)),
    "temp": ("temperature",),
    # everywhere
    **dict.fromkeys(("output", "result", "dst", "o", "out"), ("out", "y")),
    **dict.fromkeys(("cuda_stream", "queue"), ("stream",)),
    **dict.fromkeys(("backend", "deterministic", "allow_tf32"), ("preference", "math_precision")),
}  # fmt: skip

# What to do instead, where no keyword takes a word's place.
ADVICE = {
    "approximate": "gelu is the exact one, gelu_tanh the approximation by tanh (geglu, geglu_tanh likewise)",
    "inplace": "out= may be the input where the op says so",
    "enable_gqa": "grouped heads need no keyword: give k and v with fewer heads",
    "device": "the result is where the operands are",
    "requires_grad": "the gradient is a function of its own, named <op>_backward",
    "normalized_shape": "the axes that weight has are those that are reduced",
    **dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k", "cu_seqlens", "max_seqlen_q", "max_seqlen_k"),
                    "packed sequences are for flash_sdpa_varlen, batch_ragged_prefill and rope_varlen"),
    **dict.fromkeys(("block_table", "page_table"), "pages are for batch_paged_decode and batch_paged_prefill"),
    **dict.fromkeys(("cache_seqlens", "lengths"), "lengths of a cache are for flash_decoding and batch_paged_decode"),
    **dict.fromkeys(("keepdim", "keepdims"), "nothing is reduced away"),
    **dict.fromkeys(("is_causal", "causal"), "a query that is the last token sees all that are there"),
    **dict.fromkeys(
        ("mask", "attn_mask", "attn_bias", "slopes", "alibi_slopes", "sinks", "s_aux", "softcap", "logits_soft_cap",
         "dropout_p", "window_size", "window_left"),
        "flash_sdpa takes masks, windows, slopes, sinks, soft caps and dropout",
    ),
}  # fmt: skip


def near(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known words that `word` may be a slip of."""
    return difflib.get_close_matches(word, list(known), 3, 0.6)


def meant(word: str, known: Iterable[str]) -> str:
    """What to say of a keyword that is not among the known ones: "; did you mean axis=?", or nothing."""
    names = [name for name in known if name != word]  # which is taken by position, or in another way
    if len(names) < len(list(known)):
        return "; give it by position"
    small = word.lower()
    for group in SYNONYMS.get(small, ()):
        if all(name in names and name != word for name in group.split()):
            return f"; did you mean {' and '.join(f'{name}=' for name in group.split())}?"
    found = [name for name in names if name == small]
    if not found and small in ADVICE:
        return f"; {ADVICE[small]}"
    found = found or near(small, names)
    return f"; did you mean {' or '.join(f'{name}=' for name in found)}?" if found else ""


def unknown_keywords(name: str, unknown: Iterable[str], known: Iterable[str]) -> UnknownKeywordError:
    """The error of a function or class `name` for keywords it does not take; Python's own words, and what was meant."""
    names = list(known)
    said = " ".join(f"{name}() got an unexpected keyword argument {word!r}{meant(word, names)}" for word in unknown)
    return UnknownKeywordError(f"{said} ({name} takes {', '.join(names)})")


def unexpected(function: Callable[..., Any], unknown: Iterable[str]) -> UnknownKeywordError:
    """The error of a function for words that it does not take."""
    return unknown_keywords(function.__name__, unknown, inspect.signature(function).parameters)


def known_only(function: F) -> F:
    """A function whose `**unknown` is no part of the signature it shows."""
    shown = inspect.signature(function)
    kept = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = shown.replace(parameters=kept)  # type: ignore[attr-defined]
    return function


def name_keywords(cls: type) -> None:
    """Give a keyword-only dataclass an `__init__` that names the field meant by an unknown keyword."""
    made = cls.__dict__.get("__init__")
    if made is None or hasattr(made, "__wrapped__"):
        return
    fields = [f for f in dataclasses.fields(cls) if f.init]
    names = [f.name for f in fields]
    # Fields of formulas have a user's names, none of which begins with two underscores: all that is not a field does.
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    head = ", ".join(f"{n}=__GIVE" if n in required else f"{n}=__DEFAULTS[{n!r}]" for n in names)
    plain = not hasattr(cls, "__post_init__")
    given = ", ".join(f"{n}={n}" for n in names)
    body = [f"__self.{n} = {n}" for n in names] if plain else [f"__MADE(__self, {given})"]
    lines = [
        f"def __init__(__self, *, {head}, **__unknown):",
        "    if __unknown: raise __REFUSE(__NAME, __unknown, __NAMES)",  # before Python sees what is missing for a slip
    ]
    if required:
        missing = " or ".join(f"{n} is __GIVE" for n in required)
        lines.append(f"    if {missing}: __MADE(__self, **__GIVEN(locals()))")
    give = object()
    space: dict[str, Any] = {
        "__DEFAULTS": {f.name: f.default for f in fields}, "__MADE": made, "__REFUSE": unknown_keywords,
        "__NAME": cls.__name__, "__NAMES": names, "__GIVE": give,
        "__GIVEN": lambda values: {n: values[n] for n in names if values[n] is not give},
    }  # fmt: skip
    exec(compile("\n".join([*lines, *(f"    {line}" for line in body)]), f"<{cls.__name__}>", "exec"), space)
    init = space["__init__"]
    init.__qualname__, init.__module__, init.__wrapped__ = f"{cls.__qualname__}.__init__", cls.__module__, made
    cls.__init__ = init  # type: ignore[misc]
