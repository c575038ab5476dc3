"""Functions of indices, in the forms that PyTorch has and the functions of this package have not."""

from __future__ import annotations

from typing import Any

from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.views import broadcast, shape_of, with_axis
from ..ops.elementwise.binary_numbers import NUMBERS
from ..ops.layout.creation import full
from .spelling import bc, own, spelled

_REDUCE = {"add": "sum", "multiply": "prod"}


def _rows(*arrays: Any) -> list[Any]:
    """Arrays without axes as vectors of one element, others as they are."""
    return [x if x is None or shape_of(x, "input") else with_axis(x, 0, "input") for x in arrays]


@own
def gather(input: Any, dim: Any = None, index: Any = None, **more: Any) -> Any:
    """The elements that an index names along an axis (torch.gather)."""
    call = spelled("gather")
    if shape_of(input, "input") or index is None:
        return call(input, *(() if dim is None else (dim,)), **({} if index is None else {"index": index}), **more)
    made = call(_rows(input)[0], dim, _rows(index)[0], **more)
    return bc("reshape")(made, shape_of(index, "index"))


def _scattered(name: str, input: Any, dim: Any, index: Any, src: Any, more: dict[str, Any]) -> Any:
    """Of the source the part that the index covers is put; what has no axes is a vector to our functions."""
    if type(src) in NUMBERS:
        one = full((), src, read(input, "input").element, like=input)
        src = broadcast(one, shape_of(index, "index"), "src")
    elif not shape_of(src, "src") and not shape_of(index, "index"):
        src = _rows(src)[0]
    whole = shape_of(input, "input")
    x, index = _rows(input, index)
    src = _part(_rows(src)[0], shape_of(index, "index"))
    made = spelled(name)(x, dim, index, src, **more)
    return made if whole else bc("reshape")(made, ())


def _part(src: Any, shape: tuple[int, ...]) -> Any:
    """The part of a source that an index of this shape covers."""
    own = shape_of(src, "src")
    longer = own != shape and len(own) == len(shape) and all(n >= m for n, m in zip(own, shape, strict=True))
    return src[tuple([slice(n) for n in shape])] if longer else src


@own
def scatter(
    input: Any, dim: Any = None, index: Any = None, src: Any = None, *, value: Any = None, reduce: Any = None,
    **more: Any,
) -> Any:  # fmt: skip
    """The input with elements of src, or a number, put where an index says along an axis (torch.scatter).

    reduce: "add" or "multiply" combines them with what is there.
    """
    src = value if src is None else src
    if src is None:
        return spelled("scatter")(input, dim, index, **more)
    if reduce is None:
        return _scattered("scatter", input, dim, index, src, more)
    if reduce not in _REDUCE:
        raise InvalidProblemError(f'reduce must be "add" or "multiply", got {shown(reduce)}')
    return _scattered("scatter_reduce", input, dim, index, src, {"reduce": _REDUCE[reduce], **more})


@own
def scatter_add(input: Any, dim: Any = None, index: Any = None, src: Any = None, **more: Any) -> Any:
    """The input with elements of src added where an index says along an axis (torch.scatter_add)."""
    return _scattered("scatter_add", input, dim, index, src, more)


@own
def scatter_reduce(
    input: Any, dim: Any = None, index: Any = None, src: Any = None, reduce: str = "sum", **more: Any
) -> Any:
    """The input combined with elements of src where an index says along an axis (torch.scatter_reduce)."""
    return _scattered("scatter_reduce", input, dim, index, src, {"reduce": reduce, **more})


@own
def take(input: Any, index: Any, **more: Any) -> Any:
    """The elements of the flattened input at `index` (torch.take)."""
    return bc("take")(bc("reshape")(input, -1), index, **more)
