"""Matrix products with an epilogue: what every design of `GemmPlan` reads of its operands (kernels/gemm/epilogue.cuh).

Operands are matrices [*batch_shape, rows, columns] in any strides, and vectors. Batch axes are merged where all
matrices step through them evenly; a block finds its batch index by dividing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..core.args import Args, arrays_of, scalars_of
from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, LibraryStep, Problem, Step, Variant
from .products import Place

Factors: TypeAlias = "tuple[float | str, float]"

MATRICES = ("a", "b", "up", "c", "residual", "y", "pre", "up_pre")
VECTORS = ("bias", "up_bias", "row_bias", "scale_a", "scale_b")
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
EPILOGUE = {"Activation": ACTIVATIONS, "GemmMatrix": MATRICES, "GemmVector": VECTORS}
"""The enumerations of kernels that include `kernels/gemm/epilogue.cuh`."""
# A tile on tensor cores: threads of a block, rows that go out together, bytes of k in a slice, stages by its size.
MMA_THREADS, MMA_SLAB, MMA_SLICE, MMA_STAGES = 128, 32, 64, {128: 3, 64: 4}
MMA_TILE = {
    "mma_threads": MMA_THREADS, "mma_slab": MMA_SLAB, "mma_slice_bytes": MMA_SLICE, "mma_stages_128": MMA_STAGES[128],
    "mma_stages_64": MMA_STAGES[64],
}  # fmt: skip
"""Params fields of kernels that include `kernels/gemm/mma.cuh`."""
# A tile of elements of a byte on tensor cores: threads of a block, bytes of k in a stage, stages.
BYTE_THREADS, BYTE_DEPTH, BYTE_STAGES = 256, 128, 3
BYTE_TILE = {"byte_tile_threads": BYTE_THREADS, "byte_tile_depth": BYTE_DEPTH, "byte_tile_stages": BYTE_STAGES}
"""Params fields of kernels that include such a tile, `kernels/gemm/byte_tile.cuh`."""


def gemm_params(name: str, **more: str | int) -> Params:
    """The struct that kernels with an epilogue read, and fields of a design's own."""
    fields = dict.fromkeys((*MATRICES, *VECTORS), "ptr")
    return Params(
        name, **fields, alpha="scalar", beta="scalar", m="i64", n="i64", k="i64", batch_shape=f"i64[{AXES}]",
        batch=f"i64[{len(MATRICES)}][{AXES}]", strides=f"i64[{len(MATRICES)}][2]", vectors=f"i64[{len(VECTORS)}]",
        batch_rank="i32", activation="i32", wide="i32", **EPILOGUE, **more,
    )  # fmt: skip


def matrices(p: Problem) -> list[View | None]:
    """The views of `MATRICES`, None where an operand is absent."""
    return [p.views[name] for name in MATRICES]


def batch_count(p: Problem) -> int:
    """How many products the batch has."""
    return math.prod(p.desc.batch_shape)


def gemm_values(p: Problem) -> dict[str, Any] | str:
    """The values of `gemm_params`, or why the kernels do not take these strides."""
    desc, views = p.desc, matrices(p)
    rank = len(desc.batch_shape)
    shape, batch = merge_axes(desc.batch_shape, [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    return {
        "m": desc.m, "n": desc.n, "k": desc.k, "batch_shape": pad(shape), "batch": [pad(s) for s in batch],
        "strides": [steps_of(v) if v else (0, 0) for v in views],
        "vectors": [v.strides[0] if v else 0 for v in (p.views[name] for name in VECTORS)], "batch_rank": len(shape),
        "activation": ACTIVATIONS.index(desc.activation),
        "wide": wide_rows(views),
    }  # fmt: skip


def steps_of(view: View) -> tuple[int, ...]:
    """The strides of a matrix, 0 along an extent of 1: threads past its end must have aligned addresses as well."""
    return tuple(0 if n == 1 else stride for n, stride in zip(view.shape[-2:], view.strides[-2:], strict=True))


def wide_rows(views: Sequence[View | None]) -> int:
    """A bit for each matrix of `MATRICES` whose rows can be read in accesses of 16 bytes."""
    return sum(1 << n for n, v in enumerate(views) if v is not None and wide_view(v))


def wide_view(view: View) -> bool:
    """Whether columns are dense and every row starts 16-byte aligned."""
    return view.strides[-1] == 1 and view.aligned(16)


def transposed(view: View) -> View:
    """The matrices of a batch transposed."""
    swapped = [(*x[:-2], x[-1], x[-2]) for x in (view.shape, view.strides)]
    return View(view.ptr, swapped[0], swapped[1], view.element)


def for_precision(precision: str) -> Callable[[Any], str | None]:
    """Why a row of one `math_precision` does not serve a descriptor, or None."""

    def reason(desc: Any) -> str | None:
        asked = desc.math_precision
        return None if asked == precision else f"math_precision {asked!r} was asked for"

    return reason


def dense(p: Problem) -> bool:
    """Whether every operand is contiguous."""
    return all(view.dense for view in p.flat())


# ---- a product as a step of another plan ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """Matrices [*batch_shape, rows, columns] of a product inside a plan: where they are, and their view."""

    place: Place
    view: View

    @property
    def t(self) -> Operand:
        """The transposed matrices, over the same memory."""
        return Operand(self.place, transposed(self.view))


def product_kernels(row: Variant) -> tuple[Kernel, ...]:
    """The kernels of a row of `GemmPlan` as another plan's, by names of their own: those without a gate.

    All plans that have them share what is compiled.
    """
    return tuple(
        replace(ungated(k), name=_own(row, k.name), source=k.source or row.source or "", shared="product")
        for k in row.kernels
    )


def mixed_order(served: Sequence[str]) -> str:
    """What the order of sums is called, by the rows that the products of a launch went to; nothing where all are one.

    Which of them go to a second row is a matter of their strides, and so are the bits.
    """
    return " ".join(served) if len(set(served)) > 1 else ""


def ungated(kernel: Kernel) -> Kernel:
    """A kernel of which there are no instances with a second product."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        own = dict(kernel.axes_for(kind))
        return own | ({"GATED": (False,)} if "GATED" in own else {})

    return replace(kernel, axes=axes)


def _own(row: Variant, kernel: str) -> str:
    return f"{row.name}_{kernel}"


def product_steps(
    p: Problem, args: type[Args], rows: Iterable[Variant], gemm: type[Args], desc: Any, operands: Mapping[str, Operand],
    base: int, factors: Factors | None = None,
) -> tuple[tuple[Step | LibraryStep, ...], int, str] | str:  # fmt: skip
    """The launches of alpha · a b + beta · c by the first row of `GemmPlan` that takes it, their workspace, its name.

    p, args: the plan's own problem and operands. rows: those to ask, whose `product_kernels` the plan's row has. gemm,
    desc: the operands and the descriptor of the product. operands: its a, b and y, and c, which may be y. base: the
    first byte of workspace that is free. factors: alpha and beta, alpha may be the name of a scalar of the plan; by
    default the plan's scalar `alpha`, and no c.
    """
    names = [spec.name for spec in arrays_of(gemm)]
    views = {name: operands[name].view if name in operands else None for name in names}
    why = "no row"
    for row in rows:
        found = row.geometry(Problem(desc, p.device, views)) if row.serves(None, desc.element) else "another element"
        if isinstance(found, str):
            why = f"{row.name}: {found}"
            continue
        places = {name: operands[name].place for name in operands}
        steps = [
            _moved_call(step, names, args, places, base, found, factors)
            if isinstance(step, LibraryStep)
            else replace(
                moved_step(step, row.kernel(step.kernel), places, base, factors), kernel=_own(row, step.kernel)
            )
            for step in found.steps
        ]
        return tuple(steps), found.workspace, row.name
    return f"no product of {', '.join(f'{n} {o.view.shape} {o.view.strides}' for n, o in operands.items())}: {why}"


def moved_step(step: Step, kernel: Kernel, places: Mapping[str, Place], base: int, factors: Factors | None) -> Step:
    """A step of a product whose operands are at `places`, its workspace at byte `base`."""
    params = dict(step.params)
    if factors is not None:
        known = zip(("alpha", "beta"), factors, strict=True)
        params |= {
            f"{name}_{'ptr' if isinstance(value, str) else 'value'}": value
            for name, value in known
            if name in kernel.params.scalars
        }
    for slot in kernel.params.pointers:
        if slot.kind == "workspace":
            params[slot.name] = int(params.get(slot.name) or 0) + base
        elif slot.kind == "ptr" and not (slot.name.endswith("_ptr") and slot.name[:-4] in kernel.params.scalars):
            given = params.get(slot.name, slot.name)
            name, shift = given if isinstance(given, tuple) else (given, 0)
            if name == "@workspace":
                params[slot.name] = (name, shift + base)
            elif name in places:
                params[slot.name] = replace(places[name], offset=places[name].offset + shift).slot
            else:
                params[slot.name] = "@null"
    for slot in kernel.params.maps:
        if (made := params[slot.name]) is not None:
            place = places[made.operand]
            params[slot.name] = replace(made, operand=place.name, offset=made.offset + place.offset)
    return replace(step, params=params)


def _moved_call(
    step: LibraryStep, names: Sequence[str], args: type[Args], places: Mapping[str, Place], base: int, found: Geometry,
    factors: Factors | None,
) -> LibraryStep:  # fmt: skip
    """A library's call likewise."""
    own = [s.name for s in arrays_of(args)]
    alpha, beta = factors or ("alpha", 0.0)
    scalar = [s.name for s in scalars_of(args)].index(alpha) if isinstance(alpha, str) else None
    index = {name: own.index(place.name) if place.name in own else None for name, place in places.items()}

    def prepare(device: Device) -> Callable[..., None]:
        run = step.prepare(device)

        def call(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            def at(name: str) -> int:
                if name not in places:
                    return 0
                i = index[name]
                return (workspace if i is None else pointers[i]) + places[name].offset

            moved = tuple([at(name) for name in names])
            known = (0, alpha) if scalar is None else scalars[scalar]
            run(moved, (known, (0, beta)), workspace + base, found.workspace, stream)

        return call

    return LibraryStep(prepare)
