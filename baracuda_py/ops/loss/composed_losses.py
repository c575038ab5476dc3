"""Losses that are a few calls: dice, Jaccard, total variation, contrastive, distillation, triplets of any distance.

Autograd and JAX differentiate them call by call. 16-bit floats are cast to float32 first where a sum or a logarithm of
them would not keep its digits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.checked import real, shown
from ...core.element import HALVES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import beside
from ...core.views import shape_of, transposed
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction_of
from ...interop.packages import package_name
from ...core.arrays import read
from ...interop.jax_arrays import placed
from ..elementwise.cast import cast
from ..gemm.matmul import matmul
from ..reduce.distances import normalize, pairwise_distance
from ..reduce.reduce import ReducePlan
from ..softmax.softmax_functions import log_softmax
from .cross_entropy import CrossEntropyLossPlan, cross_entropy
from .pointwise_loss import PointwiseLossPlan, kl_div_loss
from .preference_losses import reduced_formula


def wide(x: Any, name: str) -> Any:
    """x in float32 at least."""
    return cast(x, ElementKind.F32) if read(x, name).element in HALVES else x


_OVERLAPS = {
    "dice": "1 - (2 * both + smooth) / (both_sizes + smooth)",
    "jaccard": "1 - (both + smooth) / (both_sizes - both + smooth)",
}


def _overlap(which: str, x: Any, target: Any, axis: Any, smooth: float, reduction: str, out: Any, options: Any) -> Any:
    x, target = wide(x, "x"), wide(target, "target")
    both = reduction_of("x * t", "sum", axis=axis)(x, target, **options)
    sizes = reduction_of("x + t", "sum", axis=axis)(x, target, **options)
    found, options = {"both": both, "both_sizes": sizes}, {"out": out, **options}
    return reduced_formula(_OVERLAPS[which], reduction, found, options, smooth=smooth)


@entry(ReducePlan)
def dice_loss(
    x: Array, target: Array, *, axis: Any = None, smooth: float = 1.0, reduction: str = "mean", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """1 - (2 Σ x target + smooth) / (Σ x + Σ target + smooth) of probabilities x, along `axis` (all by default).

    reduction is over the other axes: "mean", "sum" or "none". Three launches (Milletari et al. 2016).
    """
    return _overlap("dice", x, target, axis, smooth, reduction, out, {"stream": stream, "preference": preference})


@entry(ReducePlan)
def jaccard_loss(
    x: Array, target: Array, *, axis: Any = None, smooth: float = 1.0, reduction: str = "mean", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """1 - (Σ x target + smooth) / (Σ x + Σ target - Σ x target + smooth), the intersection over the union; see
    `dice_loss`."""
    return _overlap("jaccard", x, target, axis, smooth, reduction, out, {"stream": stream, "preference": preference})


@entry(ReducePlan)
def tvd_loss(
    x: Array, target: Array, *, axis: int = -1, reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """½ Σ |x - target| of probabilities along `axis`: the total variation distance (Wen et al. 2023, for distillation).

    x and target, of one float element, broadcast. reduction is over the other axes: "mean", "sum" or "none". In float32
    at least; two launches, one with "none".
    """
    options = {"stream": stream, "preference": preference}
    distance = reduction_of("0.5 * abs(x - t)", "sum", axis=axis)
    each = distance(wide(x, "x"), wide(target, "target"), out=out if reduction == "none" else None, **options)
    if reduction == "none":
        return each
    return reduced_formula("each", reduction, {"each": each}, {"out": out, **options})


def places(x: Any, count: int, stream: Any = None) -> Any:
    """0, 1, … as int64 where x is, made on a stream."""
    package = package_name(type(x))
    with beside(x, stream):
        if package == "torch":
            return sys.modules["torch"].arange(count, device=x.device)
        if package == "jax":
            return placed(np.arange(count, dtype=np.int32), x)
        if package == "cupy":
            return sys.modules["cupy"].arange(count, dtype=np.int64)
        if package == "numpy":
            return np.arange(count)
    raise InvalidProblemError(f"places are made for arrays of CuPy, torch, JAX and NumPy, got {type(x).__name__}")


@entry(CrossEntropyLossPlan)
def info_nce_loss(
    query: Array, key: Array, *, temperature: float = 0.1, reduction: str = "mean", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Cross entropy of cosine similarities: query i belongs to key i, all other keys are its negatives (InfoNCE).

    query [n, features], key [m, features], m >= n: rows of key from n on are negatives of all. Similarities are divided
    by `temperature` (van den Oord et al. 2018). Four launches, and the similarities [n, m] in memory.
    """
    shapes = shape_of(query, "query"), shape_of(key, "key")
    if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][1] or shapes[1][0] < shapes[0][0]:
        raise InvalidProblemError(
            f"query and key must have shapes [n, features] and [m, features], m >= n, got {shapes[0]} and {shapes[1]}"
        )
    if real("temperature", temperature) <= 0:
        raise InvalidProblemError(f"temperature must be above 0, got {shown(temperature)}")
    options = {"stream": stream, "preference": preference}
    first, second = normalize(query, axis=-1, **options), normalize(key, axis=-1, **options)
    similar = matmul(first, transposed(second, "key"), **options)
    facts = {"logit_scale": 1 / temperature, "reduction": reduction, "out": out}
    return cross_entropy(similar, places(query, shapes[0][0], stream), axis=-1, **facts, **options)


@entry(PointwiseLossPlan)
def distillation_loss(
    student: Array, teacher: Array, *, temperature: float = 1.0, axis: int = -1, reduction: str = "batchmean",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """temperature² KL(softmax(teacher / temperature) ‖ softmax(student / temperature)) of logits (Hinton et al. 2015).

    Both have their classes along `axis`. reduction is that of `kl_div_loss`. Six launches.
    """
    if real("temperature", temperature) <= 0:
        raise InvalidProblemError(f"temperature must be above 0, got {shown(temperature)}")
    options = {"stream": stream, "preference": preference}
    scaled = elementwise("x / temperature", temperature=1.0)
    given = ((student, "student"), (teacher, "teacher"))
    p, q = (log_softmax(scaled(wide(x, n), temperature=temperature, **options), axis=axis, **options) for x, n in given)
    loss = kl_div_loss(p, q, log_target=True, reduction=reduction, **options)
    return elementwise("x * square(temperature)", temperature=1.0)(loss, temperature=temperature, out=out, **options)


@entry(PointwiseLossPlan)
def triplet_margin_with_distance_loss(
    x: Array, positive: Array, negative: Array, *, distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0, swap: bool = False, reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """max(0, margin + d(x, positive) - d(x, negative)) (torch.nn.functional.triplet_margin_with_distance_loss).

    distance_function: d, `pairwise_distance` by default. swap: the negative's distance from the positive, where less.
    """
    options = {"stream": stream, "preference": preference}
    d = distance_function or (lambda a, b: pairwise_distance(a, b, **options))
    near, far = d(x, positive), d(x, negative)
    found, options = {"near": near, "far": far}, {"out": out, **options}
    if not swap:
        return reduced_formula("maximum(margin + near - far, 0)", reduction, found, options, margin=margin)
    found["swapped"] = d(positive, negative)
    return reduced_formula(
        "maximum(margin + near - minimum(far, swapped), 0)", reduction, found, options, margin=margin
    )


@entry(CrossEntropyLossPlan)
def selective_log_softmax(
    logits: Array, index: Array, *, logit_scale: float = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """log_softmax(logit_scale logits)[…, index]: the log-probability of one class a row, in float32 at least.

    logits […, classes], index […] of int32 or int64; one of -1, as of padding, gives 0. Two launches, and no array of
    all log-probabilities.
    """
    options = {"stream": stream, "preference": preference}
    place, rows = read(index, "index"), shape_of(logits, "logits")[:-1]
    if place.element not in (ElementKind.I32, ElementKind.I64) or tuple(place.shape) != rows:
        raise InvalidProblemError(
            f"index must be int32 or int64 of the shape of logits without its last axis, {rows}, got {place.element} "
            f"of shape {tuple(place.shape)}"
        )
    nll = cross_entropy(
        logits, index, axis=-1, ignore_index=-1, logit_scale=logit_scale, reduction="none", **options
    )  # fmt: skip
    return elementwise("-x")(nll, out=out, **options)
