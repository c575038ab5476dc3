"""KAIO's attention by its names: attention_tc on tensor cores, attention_flash in full precision, over FlashSdpaPlan.

softmax(q kᵀ / √d_k) v; a `_causal` one has query i see the keys j ≤ i whatever the lengths (top-left, as in KAIO).
Arrays are [sequence, d], as KAIO takes them, or [batch, heads, sequence, d], key heads shared by groups of query heads;
any lengths, d_k ≠ d_v, any strides with d dense. y is of the operands' element, or float32, in which KAIO's always is:
by `out_element=` or where `out=` is; 16-bit operands are then cast, and their products are in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....core import ElementKind, TensorRef, registry
from ....core.errors import InvalidProblemError, UnsupportedError
from ....calls.entries import entry
from ....core.arrays import read
from ....schedules.attention.dense.forward import HALVES
from .flash_sdpa import FlashSdpaPlan, flash_sdpa


def _given(out: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """What `out=` gives, by name; `names` are the outputs asked for, in order."""
    if out is None or isinstance(out, Mapping):
        return dict(out or {})
    values = out if isinstance(out, (list, tuple)) else (out,)
    if len(values) != len(names):
        raise InvalidProblemError(f"out= must give {len(names)} arrays, got {len(values)}")
    return dict(zip(names, values, strict=True))


def _lifted(array: Any, rank: int, name: str) -> Any:
    """An array of `rank` axes as one of a batch of one, over the same memory."""
    if array is None:
        return None
    shape = read(array, name).shape
    if len(shape) != rank:
        raise InvalidProblemError(f"{name} must have {rank} axes, as q has, got shape {shape}")
    if isinstance(array, TensorRef):
        strides = (0, 0, *(array.strides or ()))
        return TensorRef(array.ptr, (1, 1, *array.shape), strides, array.element, array.nbytes, array.device)
    return array[None, None]


def _wide(name: str, kind: ElementKind, out_element: Any, y: Any) -> bool:
    """Whether the result of 16-bit operands is float32."""
    wanted = kind if y is None else read(y, "out").element
    wanted = wanted if out_element is None else ElementKind.of(out_element)
    if wanted not in (kind, ElementKind.F32) or (kind not in HALVES and wanted is not kind):
        held = f"{kind} or float32" if kind in HALVES else str(kind)
        raise UnsupportedError(f"{name} of {kind} gives {held}, not {wanted}")
    return wanted is not kind


def _entry(name: str, doc: str, *, elements: tuple[ElementKind, ...], causal: bool = False,
           stats: bool = False) -> Callable[..., Any]:  # fmt: skip
    def function(
        q: Any, k: Any, v: Any, *, out_element: Any = None, out: Any = None, stream: Any = None,
        preference: Any = None,
    ) -> Any:  # fmt: skip
        kind, shape = (lead := read(q, "q")).element, lead.shape
        if kind not in elements:
            raise UnsupportedError(f"{name} takes {' or '.join(map(str, elements))}, got {kind}")
        names = ("y", "lse") if stats else ("y",)
        given = _given(out, names)
        facts = {"is_causal": causal, "return_lse": stats, "stream": stream, "preference": preference}
        if _wide(name, kind, out_element, given.get("y")):
            cast = registry.public("cast")
            q, k, v = (cast(a, ElementKind.F32, stream=stream, preference=preference) for a in (q, k, v))
        if len(shape) != 2:
            return flash_sdpa(q, k, v, out=out, **facts)
        views = {n: _lifted(a, 2 if n == "y" else 1, n) for n, a in given.items()}
        operands = [_lifted(a, 2, n) for n, a in (("q", q), ("k", k), ("v", v))]
        made = flash_sdpa(*operands, out=views or None, **facts)
        results = [given[n] if n in given else a[0, 0] for n, a in zip(names, made if stats else (made,), strict=True)]
        return tuple(results) if stats else results[0]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return entry(FlashSdpaPlan, is_causal=causal)(function)


_SEEN = ", query i seeing the keys j ≤ i"
_TC = """softmax(q kᵀ / √d_k) v on tensor cores{}: float16 or bfloat16, sums in float32.

    out_element: that of the operands, or float32, whose products are in float32 and not on tensor cores.
    """
_FLASH = "softmax(q kᵀ / √d_k) v{}, scores and sums in the operands' accumulator: float32, or float64."
_STATS = " Also lse = log Σ exp(q kᵀ / √d_k), float32 [sequence] or [batch, heads, sequence]: (y, lse)."
_FULL = (ElementKind.F32, ElementKind.F64)

attention_tc = _entry("attention_tc", _TC.format(""), elements=HALVES)
attention_tc_causal = _entry("attention_tc_causal", _TC.format(_SEEN), elements=HALVES, causal=True)
attention_flash = _entry("attention_flash", _FLASH.format(""), elements=_FULL)
attention_flash_causal = _entry("attention_flash_causal", _FLASH.format(_SEEN), elements=_FULL, causal=True)
attention_flash_with_stats = _entry(
    "attention_flash_with_stats", _FLASH.format("") + _STATS, elements=_FULL, stats=True
)
attention_flash_causal_with_stats = _entry(
    "attention_flash_causal_with_stats", _FLASH.format(_SEEN) + _STATS, elements=_FULL, causal=True, stats=True
)
