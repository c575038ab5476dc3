"""Which classes of transformers have a piece: a table of families, each a folder of `transformers.models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .gated import dense, gated, packed
from .loss import fused_head
from .norms import LAYER_NORM, rms_norm
from .piece import Piece
from .rotary import Rotary

RMS = rms_norm()
GEMMA_NORM = rms_norm("eps", offset=1.0, result="input")
GATED, HEAD, HALVES = gated(), fused_head(), Rotary()


@dataclass(frozen=True)
class Family:
    """Classes of a modelling file → their pieces, and its functions → their conventions."""

    classes: Mapping[str, Piece]
    functions: Mapping[str, Rotary] = field(default_factory=dict)


def _family(classes: Mapping[str, Piece], rotary: Rotary | None = HALVES) -> Family:
    return Family(classes, {} if rotary is None else {"apply_rotary_pos_emb": rotary})


def _like_llama(prefix: str, norm: Piece = RMS, unit: Piece = GATED) -> dict[str, Piece]:
    """The classes of a family that names them as Llama does."""
    return {f"{prefix}RMSNorm": norm, f"{prefix}MLP": unit, f"{prefix}ForCausalLM": HEAD}


FAMILIES: dict[str, Family] = {
    "llama": _family(_like_llama("Llama")),
    "mistral": _family(_like_llama("Mistral")),
    "qwen2": _family(_like_llama("Qwen2")),
    "qwen3": _family(_like_llama("Qwen3")),
    "gemma": _family(_like_llama("Gemma", GEMMA_NORM)),
    "gemma2": _family(_like_llama("Gemma2", GEMMA_NORM)),
    "phi3": _family(_like_llama("Phi3", unit=packed())),
    "gpt_neox": _family(
        {"GPTNeoXMLP": dense("dense_h_to_4h", "dense_4h_to_h", "act"), "LayerNorm": LAYER_NORM,
         "GPTNeoXForCausalLM": fused_head("lm_head")},
    ),
}  # fmt: skip
