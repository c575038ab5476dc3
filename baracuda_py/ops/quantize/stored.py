"""Matrices in low-bit formats as operands: their fields of a descriptor, their arrays, and where their parts lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import ElementKind, InvalidProblemError, Problem, Scalar, View, choice, derived, extent, extents, integer
from ...core import element as element_field
from ...core import operand, scalar
from ...core.args import Args, Array
from ...core.checked import INT32, shown
from ...core.params import Field
from ...core.tensor import Shape
from ..elementwise.cast import CODES
from .format import PART, RUNS, SCALES, E
from .format_kinds import FormatKind

SCALED = tuple(kind for kind in FormatKind if kind.row.scales)
ZEROED = tuple(kind for kind in FormatKind if kind.row.zeros)
LEARNED = tuple(kind for kind in SCALED if not kind.row.group)
"""Formats whose scales are floats of any value, which have a gradient."""
ZERO_ELEMENTS = tuple(dict.fromkeys(e for kind in ZEROED for e in kind.row.zeros))


@dataclass(frozen=True, kw_only=True)
class StoredMatrix:
    """A stored matrix [*batch_shape, n, k] in the format `kind`; subclasses have the batch_shape.

    group: how many neighbours of a row share a scale, a multiple of 8 that divides k, by default that of the format or
    whole rows. row_group: how many rows do, by default each has its own. scale_element, zero_element: what scales and
    zero points are held in.
    """

    if TYPE_CHECKING:

        @property
        def batch_shape(self) -> Shape: ...

    kind: FormatKind = choice(FormatKind)
    n: int = extent()
    k: int = extent()
    group: int = integer(derived(lambda desc: desc.kind.row.group or max(desc.k, PART)), minimum=1, maximum=INT32)
    row_group: int = integer(derived(lambda desc: 1), minimum=1, maximum=INT32)
    scale_element: ElementKind = element_field(SCALES, derived(lambda desc: (*desc.kind.row.scales, E.F32)[0]))
    zero_element: ElementKind = element_field(ZERO_ELEMENTS, derived(lambda desc: (*desc.kind.row.zeros, E.F32)[0]))

    def validate(self) -> None:
        """k is of whole blocks and groups; elements and groups are those of the format."""
        form, name = self.kind.row, self.kind.value
        if max(self.n, self.k) > INT32:
            raise InvalidProblemError(f"n and k must be below 2**31, got {self.n} and {self.k}")
        if self.k % form.multiple:
            raise InvalidProblemError(f"k of {name} must be a multiple of {form.multiple}, got {self.k}")
        if self.k and (self.group % PART or self.k % self.group):
            raise InvalidProblemError(f"group must be a multiple of {PART} that divides k = {self.k}, got {self.group}")
        if form.group and self.group != form.group:
            raise InvalidProblemError(f"group of {name} is {form.group}, got {self.group}")
        for what, given, known in (("scale", self.scale_element, form.scales), ("zero", self.zero_element, form.zeros)):
            if known and given not in known:
                raise InvalidProblemError(
                    f"{what}_element of {name} must be one of {', '.join(map(str, known))}, got {given}"
                )

    @property
    def codes_shape(self) -> Shape:
        """Rows of bytes."""
        return (*self.batch_shape, self.n, self.kind.row.bytes(self.k))

    @property
    def scales_shape(self) -> Shape:
        """One for each group, and each group of rows."""
        return (*self.batch_shape, -(-self.n // self.row_group), self.k // self.group)


@dataclass(frozen=True, kw_only=True)
class StoredFields(StoredMatrix):
    """`StoredMatrix` with any batch."""

    batch_shape: Shape = extents(())


def random_scales(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Test data: of both signs where the element has them, over some powers of two."""
    size = np.exp2(rng.uniform(-6, 2, shape))
    return size if desc.scale_element is E.E8M0 else size * rng.choice((-1, 1), shape)


def random_bytes(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Test data: any codes. Of the scales of Q8_K and MXFP4, which go as far as float32 where other blocks have
    float16, exponents near 0: sums of products of the largest floats are infinite in one order, finite in another."""
    codes = rng.integers(0, 256, shape)
    if getattr(desc, "kind", None) is FormatKind.Q8_K:
        highest = codes[..., 3::292]  # the byte of the sign and the upper seven bits of the exponent, little-endian
        highest[...] = highest & 0x80 | 0x30 + highest % 0x20
    elif getattr(desc, "kind", None) is FormatKind.GGUF_MXFP4:
        exponents = codes[..., ::17]
        exponents[...] = 0x70 + exponents % 0x20
    return codes


def random_zeros(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Test data: whole numbers among the codes."""
    return rng.integers(0, 16, shape)


def random_index(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Test data: groups in any order."""
    return rng.integers(0, max(1, desc.k // desc.group), shape)


@dataclass(slots=True, kw_only=True)
class StoredArgs(Args):
    """codes are dense bytes; scales and zeros have any strides, but one for the batch. scale: of the whole matrix.

    index: the group of each column, where groups are not neighbours (GPTQ's `g_idx`).
    """

    codes: Array = operand("*codes_shape", element=E.U8, layout="dense", values=random_bytes)
    scales: Array | None = operand("*scales_shape", element="scale_element", kinds=SCALED, values=random_scales)
    zeros: Array | None = operand(
        "*scales_shape", element="zero_element", kinds=ZEROED, optional=True, values=random_zeros
    )
    index: Array | None = operand("k", element=E.I32, kinds=SCALED, optional=True, layout="dense", values=random_index)
    scale: Scalar = scalar(1.0)


def stored_params() -> dict[str, Field]:
    """The fields of a Params struct from which `Stored` of kernels/quantize/format.cuh is made."""
    return {
        "codes": "ptr", "scales": "ptr", "zeros": "ptr", "index": "ptr", "code_steps": "i64[2]",
        "scale_steps": "i64[3]", "zero_steps": "i64[3]", "group": "i32", "groups": "i32", "row_group": "i32",
        "scale_code": "i32", "zero_code": "i32", "whole": "i32", "scaled": "i32", "scale": "scalar", **RUNS,
    }  # fmt: skip


def stored_values(p: Problem) -> dict[str, Any] | str:
    """Their values, or why no kernel takes the parts as they lie."""
    desc, form = p.desc, p.desc.kind.row
    pitch = form.bytes(desc.k)
    steps = {"scales": (0, 0, 0), "zeros": (0, 0, 0)}
    for name in steps:
        view = p.views[name]
        if view is None:
            continue
        found = in_threes(view)
        if found is None:
            return f"{name} must have a batch of one stride, got strides {view.strides} of shape {view.shape}"
        steps[name] = found.strides  # type: ignore[assignment]
    return {
        "code_steps": (pitch * desc.n, pitch), "scale_steps": steps["scales"], "zero_steps": steps["zeros"],
        "group": desc.group, "groups": desc.k // desc.group, "row_group": desc.row_group,
        "scale_code": CODES.index(desc.scale_element), "zero_code": CODES.index(desc.zero_element),
        "whole": whole_codes(p), "scaled": bool(form.scales),
    }  # fmt: skip


def whole_codes(p: Problem) -> bool:
    """Whether rows of codes lie so that kernels read them in accesses of the format's unit.

    Blocks at even addresses are read by the words that have them: all codes together are whole words, rows need not be.
    """
    form, ptr, (*_, pitch) = p.desc.kind.row, p.codes.ptr, p.codes.shape
    words = form.unit != 2 or ptr % 4 == 0 == math.prod(p.codes.shape) % 4
    return bool(ptr % form.unit == 0 == pitch % form.unit and words)


def in_threes(view: View) -> View | None:
    """[*batch, rows, columns] as [batch, rows, columns], where that needs no copy."""
    return view.reshaped((math.prod(view.shape[:-2]), *view.shape[-2:]))


def rows_of(view: View, name: str) -> View | str:
    """[*batch, rows, columns] as [rows, columns], or why that needs a copy."""
    found = in_threes(view)
    rows = None if found is None else found.reshaped((found.shape[0] * found.shape[1], found.shape[2]))
    if rows is None:
        return f"{name} must have rows of one stride, got strides {view.strides} of shape {view.shape}"
    return rows


def format_header(element: Any, kind: FormatKind) -> str:
    """The prelude of a unit: the struct of its format, and the points of its lattice."""
    lattice = kind.row.lattice
    points = "" if lattice is None else f"namespace baracuda {{ {lattice.cpp} }}\n"
    return f'{points}#include "quantize/formats/{kind.row.header}.cuh"'


def kind_of(value: Any) -> FormatKind:
    """A format by itself or its name."""
    if isinstance(value, FormatKind):
        return value
    found = next((kind for kind in FormatKind if isinstance(value, str) and value == kind.value), None)
    if found is None:
        names = ", ".join(kind.value for kind in FormatKind)
        raise InvalidProblemError(f"kind must be one of {names}, got {shown(value)}")
    return found


def infer_stored(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """n, batch_shape and k of a matrix whose codes are given, where they are not said."""
    codes = tuple(shapes["codes"])
    if len(codes) < 2 or "kind" not in facts:
        return
    form = kind_of(facts["kind"]).row
    found: dict[str, Any] = {
        "batch_shape": codes[:-2], "n": codes[-2], "k": codes[-1] * form.multiple // form.bytes(form.multiple),
    }  # fmt: skip
    if len(form.scales) == 1:  # which may travel as bytes
        found["scale_element"] = form.scales[0]
    k, scales = facts.get("k") or found["k"], shapes.get("scales")
    if scales is not None and len(scales) >= 2 and 0 not in scales[-2:]:
        if k % scales[-1] == 0 and not form.group:
            found["group"] = k // scales[-1]
        found["row_group"] = -(-found["n"] // scales[-2])
    facts |= {name: value for name, value in found.items() if facts.get(name) is None}


def stored_case(draw: Any) -> dict[str, Any]:
    """A small matrix for tests: groups of a part, of runs and of the row; rows that share scales."""
    form = draw.kind.row
    group = form.group or draw.choice((8, 32, 64, 24))
    unit = math.lcm(form.multiple, group)
    k = unit * draw.sizes(1, 2, 3, 5, 0, rare=(17,))
    return {
        "kind": draw.kind, "batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(1, 2, 5, 16, 0, rare=(33,)), "k": k,
        "group": form.group or draw.choice((group, max(k, PART))), "row_group": draw.choice((1, 1, 2)),
        "scale_element": draw.choice(form.scales or (E.F32,)), "zero_element": draw.choice(form.zeros or (E.F32,)),
    }  # fmt: skip
