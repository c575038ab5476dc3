"""Functions that arrange elements, in the forms that PyTorch has and the functions of this package have not."""

from __future__ import annotations

from typing import Any

from ..core.arrays import read
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.tensor import broadcast_shape
from ..core.views import broadcast, shape_of
from ..ops.elementwise.binary_numbers import NUMBERS
from .arguments import as_held
from .promotion import brought_together
from .spelling import bc, own


def _exchanged(name: str, input: Any, axes: tuple[Any, ...], dim0: Any, dim1: Any, more: dict[str, Any]) -> Any:
    axes = axes if dim0 is None and dim1 is None else (*axes, *(one for one in (dim0, dim1) if one is not None))
    flat = shape_of(input, "input") == () and set(axes) <= {0, -1}  # there is nothing to exchange
    return bc(name)(input, *(() if flat else axes), **more)


@own
def transpose(input: Any, *axes: Any, dim0: Any = None, dim1: Any = None) -> Any:
    """A view with two axes exchanged (torch.transpose), or as `baracuda_py.transpose` has it."""
    return _exchanged("transpose", input, axes, dim0, dim1, {})


@own
def transpose_copy(input: Any, *axes: Any, dim0: Any = None, dim1: Any = None, **more: Any) -> Any:
    """What `transpose` sees, in memory of its own (torch.transpose_copy)."""
    return _exchanged("transpose_copy", input, axes, dim0, dim1, more)


@own
def broadcast_to(input: Any, size: Any = None, *, shape: Any = None) -> Any:
    """A view as a shape that the input broadcasts to; -1 keeps an extent (torch.broadcast_to)."""
    return bc("expand")(input, size if shape is None else shape)


@own
def view_copy(input: Any, size: Any = None, *, dtype: Any = None, shape: Any = None, **more: Any) -> Any:
    """The elements in another shape, or their bits as another dtype, in memory of their own (torch.view_copy)."""
    if any(word not in ("out", "stream", "preference") for word in more):  # a plan's own problem
        return bc("view_copy")(input, **more, **({} if shape is None else {"shape": shape}))
    size = shape if size is None else size
    if dtype is None and not isinstance(size, (int, list, tuple)):
        dtype, size = size, None
    if dtype is None:
        return bc("clone")(bc("reshape")(input, size), **more)
    return bc("clone")(_bits(input, dtype), **more)


def _bits(input: Any, dtype: Any) -> Any:
    """The bits as another dtype; what is wider or narrower changes the last axis."""
    own, goal = read(input, "input").element.itemsize, ElementKind.of(dtype).itemsize
    shape = shape_of(input, "input")
    if own == goal or not shape:
        return bc("bitcast_convert_type")(input, dtype)
    if own < goal:
        if shape[-1] % (goal // own):
            raise InvalidProblemError(f"view_copy: the last axis of {shape} is no whole number of {dtype}")
        input = bc("reshape")(input, (*shape[:-1], shape[-1] * own // goal, goal // own))
        return bc("bitcast_convert_type")(input, dtype)
    made = bc("bitcast_convert_type")(input, dtype)
    return bc("reshape")(made, (*shape[:-1], shape[-1] * own // goal))


@own
def select(input: Any = None, dim: Any = None, index: Any = None, **more: Any) -> Any:
    """A slice along an axis, without it (torch.select); of lists, `baracuda_py.select`, which is numpy.select."""
    if index is None:
        return bc("select")(more.pop("conditions", input), more.pop("choices", dim), **more)
    at = int(index)
    extent = shape_of(input, "input")[dim]
    if not -extent <= at < extent:
        raise InvalidProblemError(f"index must lie in [{-extent}, {extent - 1}], got {at}")
    return bc("squeeze")(bc("narrow")(input, dim, at % extent, 1), dim)


@own
def block_diag(*tensors: Any, **more: Any) -> Any:
    """Matrices along the diagonal of one (torch.block_diag)."""
    return bc("block_diag")(*brought_together("block_diag", {"xs": tensors})["xs"], **more)


def _pair(name: str, a: Any, b: Any, more: dict[str, Any]) -> Any:
    """A function of two arrays of one shape, to which they are broadcast."""
    shape = broadcast_shape({"a": shape_of(a, "input"), "b": shape_of(b, "other")}, ("a", "b"))
    return bc(name)(broadcast(a, shape, "input"), broadcast(b, shape, "other"), **more)


@own
def complex(real: Any, imag: Any, **more: Any) -> Any:
    """The complex numbers of these parts (torch.complex)."""
    return _pair("complex", real, imag, more)


@own
def polar(abs: Any, angle: Any, **more: Any) -> Any:
    """The complex numbers of these absolute values and angles (torch.polar)."""
    return _pair("polar", abs, angle, more)


@own
def fill(input: Any, value: Any) -> Any:
    """An array like the input of one value (torch.fill); `baracuda_py.fill` writes to its operand."""
    found = read(input, "input")
    if type(value) in NUMBERS:
        return bc("full_like")(input, as_held(value, found.element))
    return bc("clone")(broadcast(bc("cast")(value, found.element), found.shape, "value"))


@own
def unravel_index(indices: Any, shape: Any = None, *, dims: Any = None, **more: Any) -> Any:
    """The positions along every axis that positions in a flattened array stand for (torch.unravel_index)."""
    if dims is None:
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
    elif shape is not None:
        more["shape"] = shape
    return tuple(bc("unbind")(bc("unravel_index")(indices, dims, **more), 0))


@own
def tensor_split(input: Any, indices_or_sections: Any = None, dim: int = 0, **more: Any) -> Any:
    """Views of parts (torch.tensor_split); parts that an array names are read from it."""
    held = [more.pop(word, None) for word in ("sections", "indices", "tensor_indices_or_sections")]
    parts = next((one for one in (indices_or_sections, *held) if one is not None), None)
    parts = parts if isinstance(parts, (int, list, tuple)) or parts is None else parts.tolist()
    return bc("tensor_split")(input, parts, dim, **more)
