"""Functions whose results have a shape that depends on values: as long as torch's, for which the host waits once.

The functions of `baracuda_py` wait for nothing: they return a result of the largest size and how much of it counts.
With `size=`, a keyword of theirs, so do these.
"""

from __future__ import annotations

from typing import Any

from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.views import broadcast, shape_of
from ..ops.layout.creation import full
from ..ops.layout.views import contiguous
from .arguments import host_array
from .promotion import kind_of
from .spelling import bc, own, spelled


def known(name: str, count: Any, instead: str = "size=, or baracuda_py's function of the name") -> int:
    """A number that was computed, read from the device."""
    try:
        return int(count)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "torch":
            raise  # torch.compile ends its graph here
        raise UnsupportedError(
            f"{name}: the shape of its result depends on values, which nobody knows here; give {instead}"
        ) from error


def _cut(name: str, made: Any, out: Any) -> Any:
    """Padded results, with their number as the last, cut to it."""
    *padded, count = made
    n = known(name, count)
    exact = [one[:n] for one in padded]
    if out is None:
        return exact
    if len(exact) != 1 or shape_of(out, "out") != shape_of(exact[0], name):
        raise InvalidProblemError(f"{name}: out must have the shape {shape_of(exact[0], name)} of the result, here")
    return [bc("cast")(exact[0], out.dtype, out=out)]


@own
def nonzero(input: Any, *, as_tuple: bool = False, out: Any = None, **more: Any) -> Any:
    """The positions of the elements that are not 0, a row each (torch.nonzero). The host waits for their number.

    as_tuple: a vector for every axis instead. With `size=` and the like it is `baracuda_py.nonzero`.
    """
    if more:
        return bc("nonzero")(input, out=out, **more)
    if as_tuple:
        rows = nonzero(input if shape_of(input, "input") else bc("reshape")(input, (1,)))
        return tuple([rows[:, axis] for axis in range(rows.shape[1])])
    return _cut("nonzero", bc("argwhere")(input), out)[0]


@own
def argwhere(input: Any, **more: Any) -> Any:
    """The positions of the elements that are not 0, a row each (torch.argwhere). The host waits for their number."""
    return bc("argwhere")(input, **more) if more else _cut("argwhere", bc("argwhere")(input), None)[0]


@own
def masked_select(input: Any, mask: Any, *, out: Any = None, **more: Any) -> Any:
    """The elements where the mask holds, in row-major order (torch.masked_select). The host waits for their number."""
    if more:
        return bc("masked_select")(input, mask, out=out, **more)
    return _cut("masked_select", bc("masked_select")(input, mask), out)[0]


def _different(name: str, input: Any, inverse: bool, counts: bool, dim: Any, more: dict[str, Any]) -> Any:
    """The different elements; the inverse, which is as long as the input, is not cut."""
    input = contiguous(input) if dim is None else input  # which is seen as a row
    made = bc(name)(input, return_inverse=inverse, return_counts=counts, axis=dim, **more)
    if more:
        return made
    values, *others, count = made
    n = known(name, count)
    kept = [values[(slice(None),) * ((dim or 0) % len(values.shape)) + (slice(n),)]]
    kept += [others.pop(0)] if inverse else []
    kept += [one[:n] for one in others]
    return kept[0] if len(kept) == 1 else tuple(kept)


@own
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None,
    **more: Any,
) -> Any:  # fmt: skip
    """The different elements in ascending order, or slices along `dim` (torch.unique). The host waits for their number.

    They are in order with sorted=False, too.
    """
    return _different("unique", input, return_inverse, return_counts, dim, more)


@own
def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None, **more: Any
) -> Any:
    """An element of every run of equal neighbours (torch.unique_consecutive). The host waits for their number."""
    return _different("unique_consecutive", input, return_inverse, return_counts, dim, more)


def _reach(name: str, index: Any) -> int:
    """One more than the largest of integers that are not negative, 0 of none."""
    if 0 in shape_of(index, "input"):
        return 0
    return known(name, bc("amax")(bc("cast")(index, "int64")), "how many there are") + 1


@own
def bincount(input: Any, weights: Any = None, minlength: int = 0, *, length: Any = None, **more: Any) -> Any:
    """How often each number is there, or the sum of its weights (torch.bincount). The host waits for the largest.

    length: how many numbers to count, for which nothing waits.
    """
    found = length if length is not None else max(_reach("bincount", input), minlength)
    return bc("bincount")(input, weights, length=found, **more)


@own
def one_hot(tensor: Any, num_classes: int = -1, *, classes: Any = None, **more: Any) -> Any:
    """1 at the index, 0 elsewhere, along a new last axis (torch.nn.functional.one_hot).

    Without num_classes the host waits for the largest index.
    """
    found = num_classes if classes is None else classes
    return bc("one_hot")(tensor, _reach("one_hot", tensor) if found == -1 else found, **more)


@own
def repeat_interleave(input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None, **more: Any) -> Any:
    """Every element, or slice along `dim`, several times (torch.repeat_interleave); of repeats alone their positions.

    Where repeats is an array and output_size is not given, the host waits for their sum.
    """
    if repeats is None:
        steps = bc("arange")(shape_of(input, "repeats")[0], element="int64", like=input)
        return repeat_interleave(steps, input, 0, output_size=output_size, **more)
    if isinstance(repeats, (list, tuple)):
        repeats = host_array(repeats, input)
    if not isinstance(repeats, int):
        own = shape_of(input, "input")
        wanted = own[dim] if dim is not None else bc("reshape")(input, -1).shape[0]
        if shape_of(repeats, "repeats") in ((), (1,)):
            repeats = broadcast(repeats, (wanted,), "repeats")
        if output_size is None:
            output_size = known("repeat_interleave", bc("sum")(repeats), "output_size=")
        more["total"] = output_size
    return bc("repeat_interleave")(input, repeats, dim, **more)


@own
def where(condition: Any, input: Any = None, other: Any = None, **more: Any) -> Any:
    """input where the condition holds, else other (torch.where); of the condition alone its positions.

    For these the host waits.
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    input, other = (
        full((), one, "complex64", like=condition) if isinstance(one, complex) else one for one in (input, other)
    )
    if kind_of(condition) is ElementKind.U8:
        condition = bc("cast")(condition, "bool")
    return spelled("where")(condition, input, other, **more)
