"""Streams of random numbers that a call does not name: from torch's generator, from a key of JAX, or none.

A call that draws takes `seed=`, the stream, and `offset=`. Without them a call of torch tensors has a seed from the
generator of their device, drawn there: `torch.manual_seed`, checkpointing, torch.compile and replays of a captured
graph mean what they mean for torch's own ops. Elsewhere a stream must be named.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.args import is_drawn
from ..core.errors import InvalidProblemError
from ..core.intake import stream_pointer
from ..core.ordinals import ordinal
from ..interop.packages import package_name
from ..interop.torch_rules import on_stream

_NUMBERS = 2**63 - 1


def stream_of(name: str, needed: Any, arrays: Iterable[Any], stream: Any = None) -> Any:
    """The seed of a call of `name` that names none, of which `arrays` are the operands; raises where there is none.

    stream: CUDA's, on which the call is to run: a seed is drawn there. needed: whether it draws at all, or the
    probability of what it drops: of all or nothing it draws nothing.
    """
    if needed is not True and not is_drawn(needed):
        return 0
    packages = set()
    for value in arrays:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            packages.add(package := package_name(type(one)))
            if package == "torch":
                return _torch_seed(name, one, stream)
    jax = "a key of jax.random by key=, or " if "jax" in packages else ""
    raise InvalidProblemError(
        f"{name}: seed is None; give {jax}the stream to draw from (an integer or a 0-d array), and an offset"
    )


def _torch_seed(name: str, tensor: Any, stream: Any) -> Any:
    """A 0-d tensor beside `tensor`, from the generator of its device."""
    torch, device = sys.modules["torch"], ordinal(tensor)
    current = stream is None or device < 0
    try:
        with contextlib.nullcontext() if current else on_stream(stream_pointer(stream), device):
            return torch.randint(_NUMBERS, (), dtype=torch.int64, device=tensor.device)
    except RuntimeError as error:  # in a vmap that wants no random numbers, and while a graph is captured
        raise InvalidProblemError(
            f"{name}: seed is None, and torch's generator gives none here ({error}); give the stream to draw from (an "
            "integer or a 0-d array), and an offset"
        ) from error


def is_key(seed: Any) -> bool:
    """Whether a seed is a key of JAX, new or old, which stands for a stream and an offset in it."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(seed, jax.Array):
        return False
    return bool(jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key) or (seed.dtype == "uint32" and seed.ndim == 1))


def keyed(
    function: Any, refuse: Callable[[Any, Mapping[str, Any]], Exception], unknown: Mapping[str, Any], seed: Any,
    offset: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """(seed, offset) that `key=`, a key of JAX among keywords that a function does not take, stands for.

    refuse: makes the error of keywords that are none of the function's.
    """
    name, rest = function.__name__, {word: value for word, value in unknown.items() if word != "key"}
    key, jax = unknown.get("key"), sys.modules.get("jax")
    if rest or jax is None or not isinstance(key, jax.Array) or not _may_be_key(jax, key.dtype):
        raise refuse(function, rest or unknown)
    if seed is not None or not isinstance(offset, int) or offset:
        raise InvalidProblemError(f"{name}: key= stands for seed and offset; give one or the other")
    if key.ndim != (key.dtype == "uint32"):
        raise InvalidProblemError(f"{name}: key must be one key of jax.random, got {key.dtype} of shape {key.shape}")
    words = jax.lax.bitcast_convert_type(jax.random.bits(key, (2,), "uint32"), "int32")
    return words[0], words[1]


def _may_be_key(jax: Any, dtype: Any) -> bool:
    """Whether keys have this dtype: one of their own, or that of the words of older ones."""
    return bool(dtype == "uint32" or jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))
