"""What PyTorch takes in the place of an argument and our functions do not: it is made an argument of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..core.arrays import read
from ..core.checked import shown
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.views import shape_of, with_axis
from ..ops.elementwise.binary_numbers import NUMBERS
from ..ops.elementwise.cast import cast
from ..ops.layout.creation import full
from ..ops.layout.made import from_host
from ..ops.layout.views import contiguous
from .promotion import common_kind, wrapped

Passed = dict[str, Any]


def _right(side: Any) -> bool:
    """Whether a side is the right one."""
    if side not in ("left", "right", None):
        raise InvalidProblemError(f'side must be "left" or "right", got {shown(side)}')
    return bool(side == "right")


VALUES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "unbiased": ("correction", int),
    "out_int32": ("index_element", lambda narrow: "int32" if narrow else "int64"),
    "side": ("right", _right),
}
"""PyTorch's word → ours, and what its value is there."""


def reduction_of(named: Passed) -> None:
    """What the two older words for the reduction of a loss come to."""
    size_average, reduce = named.pop("size_average", None), named.pop("reduce", None)
    if size_average is not None or reduce is not None:
        named["reduction"] = "none" if reduce is False else "sum" if size_average is False else "mean"


def host_array(values: Iterable[int], like: Any) -> Any:
    """Integers of the host as an int64 array where another one is."""
    return from_host(np.asarray(values, np.int64), like)


# ---- by function ---------------------------------------------------------------------------------------------------


def _extents(passed: Passed) -> None:
    """None is the input's own extent of that axis."""
    size = passed.get("output_size")
    if isinstance(size, (list, tuple)) and None in size:
        own = shape_of(passed["x"], "input")[-len(size) :]
        passed["output_size"] = tuple([n if one is None else one for one, n in zip(size, own, strict=True)])


def _stride(passed: Passed) -> None:
    """No stride is the window."""
    if passed.get("stride") in ((), []):
        passed["stride"] = None


def _axes(passed: Passed) -> None:
    """No axes are all; a correction that is None is that of an unbiased variance."""
    if passed.get("axis") in ((), []):
        passed["axis"] = None
    if passed.get("correction", 0) is None:
        passed["correction"] = 1


def _softmax(passed: Passed) -> None:
    """Without an axis it is the first of no, one or three axes, else the second."""
    if passed.get("axis") is None:
        passed["axis"] = 0 if len(shape_of(passed["x"], "input")) in (0, 1, 3) else 1


def _no_axes(passed: Passed) -> None:
    """An array without axes has one by torch's count, which changes nothing."""
    axis = passed.get("axis")
    if isinstance(axis, (list, tuple)) and axis and not shape_of(passed["x"], "input") and set(axis) <= {0, -1}:
        passed["axis"] = ()


def _rows(name: str) -> Callable[[Passed], None]:
    """All elements are seen as one row, which elements that lie otherwise are copied to."""

    def mend(passed: Passed) -> None:
        if passed.get("axis") is None and name in passed and type(passed[name]) not in NUMBERS:
            passed[name] = contiguous(passed[name])

    return mend


def _except(passed: Passed) -> None:
    """The norm of all elements is that but for the axis -1."""
    if passed.get("axis") == -1:
        passed["axis"] = None


def _observations(passed: Passed) -> None:
    """A number is one observation of a variable."""
    if not shape_of(passed["x"], "input"):
        passed["x"] = with_axis(passed["x"], 0, "input")


def as_held(value: Any, kind: ElementKind) -> Any:
    """A number as elements of a kind hold it: cut to a whole one, or to its truth."""
    if type(value) not in NUMBERS or kind.is_inexact:
        return value
    return bool(value) if kind is ElementKind.BOOL else wrapped(int(value), kind)


def _filled(passed: Passed) -> None:
    """The dtype that is asked for, or the input's, decides, not the number."""
    kind = passed.get("element")
    kind = read(passed["x"], "input").element if kind is None and "x" in passed else kind
    if kind is not None:
        passed["value"] = as_held(passed["value"], ElementKind.of(kind))


def _norm(passed: Passed) -> None:
    """The norm of Frobenius is that of order 2 of all elements."""
    _axes(passed)
    p = passed.get("p", "fro")
    if p == "nuc":
        raise InvalidProblemError('p must be a number or "fro", got "nuc": there is no singular value decomposition')
    passed["p"] = 2 if p is None or p == "fro" else p


def _index(passed: Passed) -> None:
    """An index without axes is one of a single element."""
    if shape_of(passed["indices"], "index") == ():
        passed["indices"] = with_axis(passed["indices"], 0, "index")


def _parts(passed: Passed) -> None:
    """An empty vector joins arrays of any shape, and only its dtype counts."""
    xs = list(passed["xs"])
    kept = [one for one in xs if shape_of(one, "tensors") != (0,)]
    if kept and len(kept) < len(xs) and len(shape_of(kept[0], "tensors")) != 1:
        kind = common_kind(xs)
        passed["xs"] = [kept[0] if kind is None else cast(kept[0], kind), *kept[1:]]


def _steps(passed: Passed) -> None:
    """An end alone is counted up to from 0."""
    if "start" not in passed and "stop" in passed:
        passed["start"] = passed.pop("stop")


def _lengths(passed: Passed) -> None:
    """Lengths may be numbers of the host."""
    for name in ("input_lengths", "target_lengths"):
        if isinstance(passed.get(name), (list, tuple)):
            passed[name] = host_array(passed[name], passed["log_probs"])


def _as_arrays(*names: str) -> Callable[[Passed], None]:
    """A number beside an array is an array without axes."""

    def mend(passed: Passed) -> None:
        held = [passed.get(name) for name in names]
        like = next((one for one in held if type(one) not in NUMBERS), None)
        for name, one in zip(names, held, strict=True):
            if type(one) in NUMBERS and like is not None:
                kind = common_kind((one, like)) or ElementKind.F32
                passed[name] = full((), one, kind, like=like)

    return mend


def _members(passed: Passed) -> None:
    _as_arrays("x", "test_elements")(passed)
    _rows("test_elements")(passed)


_POOLS = [f"{kind}{n}d" for kind in ("max_pool", "avg_pool", "lp_pool", "max_unpool") for n in (1, 2, 3)]
_POOLS += [f"max_pool{n}d_with_indices" for n in (1, 2, 3)]
_ADAPTIVE = [f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)]
_ADAPTIVE += [f"adaptive_max_pool{n}d_with_indices" for n in (1, 2, 3)]
_REDUCTIONS = (
    "sum", "nansum", "mean", "nanmean", "amax", "amin", "var", "std", "var_mean", "std_mean", "count_nonzero",
    "frobenius_norm", "logsumexp", "hash_tensor",
)  # fmt: skip
MENDED: dict[str, Callable[[Passed], None]] = {
    **dict.fromkeys(_POOLS, _stride),
    **dict.fromkeys(_ADAPTIVE, _extents),
    **dict.fromkeys(_REDUCTIONS, _axes),
    **dict.fromkeys(("cat", "concat", "concatenate"), _parts),
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), _softmax),
    **dict.fromkeys(("flip", "squeeze"), _no_axes),
    **dict.fromkeys(("median", "nanmedian", "quantile", "nanquantile"), _rows("x")),
    **dict.fromkeys(("cov", "corrcoef"), _observations),
    **dict.fromkeys(("full", "full_like"), _filled),
    "arange": _steps,
    "norm": _norm,
    "norm_except_dim": _except,
    "index_select": _index,
    "ctc_loss": _lengths,
    "searchsorted": _as_arrays("sorted_sequence", "values"),
    "bucketize": _as_arrays("x", "boundaries"),
    "isin": _members,
}
"""Function → what is done with its arguments, by our names."""
