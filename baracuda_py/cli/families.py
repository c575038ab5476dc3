"""Families of models, a row each, for `warm --for`; what their models call stands in `family_calls.py`.

Which kernels a call launches follows from sizes, so a row has those of the models that are published. `family` takes
them from a model's own `config.json` (Hugging Face's), too.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.checked import whole
from ..core.errors import BaracudaError
from ..core.keywords import near


@dataclass(frozen=True)
class Sizes:
    """Of one model; `hidden`: the columns of its MLP."""

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int


@dataclass(frozen=True)
class Family:
    """What its models are made of. act: a kind of `gated_activation` where the MLP is gated, else one of `unary`.

    attention: fields of `flash_sdpa` beyond shapes, for each sort of its layers. offset: what is added to the weight of
    a norm. decodes: whether it generates, with a cache.
    """

    norm: str
    act: str
    sizes: tuple[Sizes, ...]
    rotary: bool = True
    decodes: bool = True
    offset: float = 0.0
    attention: tuple[dict[str, Any], ...] = ({"is_causal": True},)

    @property
    def gated(self) -> bool:
        return self.act in ("swiglu", "geglu", "geglu_tanh")


CAUSAL = {"is_causal": True}
FAMILIES = {
    "llama": Family("rms_norm", "swiglu", (
        Sizes(2048, 32, 8, 64, 8192, 128256), Sizes(3072, 24, 8, 128, 8192, 128256),
        Sizes(4096, 32, 8, 128, 14336, 128256), Sizes(8192, 64, 8, 128, 28672, 128256),
    )),
    "mistral": Family("rms_norm", "swiglu", (
        Sizes(4096, 32, 8, 128, 14336, 32768), Sizes(5120, 32, 8, 128, 14336, 131072),
    ), attention=(CAUSAL, CAUSAL | {"window_left": 4095})),
    "qwen": Family("rms_norm", "swiglu", (
        Sizes(896, 14, 2, 64, 4864, 151936), Sizes(1024, 16, 8, 128, 3072, 151936),
        Sizes(1536, 12, 2, 128, 8960, 151936), Sizes(2048, 16, 8, 128, 6144, 151936),
        Sizes(2560, 32, 8, 128, 9728, 151936), Sizes(3584, 28, 4, 128, 18944, 152064),
        Sizes(4096, 32, 8, 128, 12288, 151936), Sizes(5120, 40, 8, 128, 27648, 152064),
    )),
    "gemma": Family("rms_norm", "geglu_tanh", (
        Sizes(1152, 4, 1, 256, 6912, 262144), Sizes(2304, 8, 4, 256, 9216, 256000),
        Sizes(2560, 8, 4, 256, 10240, 262144), Sizes(3584, 16, 8, 256, 14336, 256000),
    ), offset=1.0, attention=(CAUSAL, CAUSAL | {"window_left": 511}, CAUSAL | {"softcap": 50.0},
                              CAUSAL | {"window_left": 4095, "softcap": 50.0})),
    "phi": Family("rms_norm", "swiglu", (
        Sizes(3072, 32, 32, 96, 8192, 32064), Sizes(3072, 24, 8, 128, 8192, 200064),
        Sizes(5120, 40, 10, 128, 17920, 100352),
    )),
    "gpt2": Family("layer_norm", "gelu_tanh", (
        Sizes(768, 12, 12, 64, 3072, 50257), Sizes(1024, 16, 16, 64, 4096, 50257),
        Sizes(1280, 20, 20, 64, 5120, 50257), Sizes(1600, 25, 25, 64, 6400, 50257),
    ), rotary=False),
    "bert": Family("layer_norm", "gelu", (
        Sizes(768, 12, 12, 64, 3072, 30522), Sizes(1024, 16, 16, 64, 4096, 30522),
    ), rotary=False, decodes=False, attention=({},)),
}  # fmt: skip


def read(path: Path) -> Family:
    """The family of a model's `config.json`, with that model's sizes alone."""
    try:
        found = json.loads(path.read_text())
        found = found.get("text_config") or found
        kind = str(found["model_type"])
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise BaracudaError(f"{path} is no config.json of a model ({type(error).__name__}: {error})") from None
    name = next((name for name in FAMILIES if kind.startswith(name)), None)
    if name is None:
        raise BaracudaError(f"{path}: no table for models of type {kind!r}; there are {', '.join(FAMILIES)}")

    def number(*words: str, default: Any = None) -> int:
        value = next((found[word] for word in words if found.get(word) is not None), default)
        if value is None:
            raise BaracudaError(f"{path} has no {words[0]}")
        return whole(f"{path}: {words[0]}", value, 1)

    width, heads = number("hidden_size", "n_embd"), number("num_attention_heads", "n_head")
    sizes = Sizes(
        width, heads, number("num_key_value_heads", default=heads), number("head_dim", default=max(width // heads, 1)),
        number("intermediate_size", "n_inner", default=4 * width), number("vocab_size"),
    )  # fmt: skip
    return dataclasses.replace(FAMILIES[name], sizes=(sizes,))


def family(name: str) -> Family:
    """A family by its name, or that of a `config.json`."""
    if name in FAMILIES:
        return FAMILIES[name]
    if name.endswith(".json"):
        return read(Path(name))
    found = near(name.lower(), FAMILIES)
    hint = f"did you mean {' or '.join(found)}?" if found else f"there are {', '.join(FAMILIES)}"
    raise BaracudaError(f"no family of models {name!r}; {hint} (or the path of a model's config.json)")
