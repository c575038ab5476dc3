"""softmax and log_softmax along one axis (torch.softmax, torch.log_softmax).

    softmax      y = exp(x - max) / Σ exp(x - max)
    log_softmax  y = x - max - log Σ exp(x - max)

A row of only -inf, or with NaN or +inf in it, is NaN throughout, as in PyTorch. The sum is online for rows beyond
32 KB (Milakov and Gimelshein 2018). Any axis and any strides; y may be x itself.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Step, Variant, Vjp, choice, element, extents, integer, operand, output,
)  # fmt: skip
from ...core.errors import InvalidProblemError
from ...schedules.row_groups import (
    FLUSHED, LONG, SLAB, STRIDED, TILE, TILE_FIELDS, WIDE, group_kernels, group_of, group_params, group_rows, launch,
    row_axis_last, slabs, tile_kernels, tile_of,
)  # fmt: skip
from ...core.benchmark import Benchmark


class SoftmaxKind(enum.Enum):
    """Which of the two a SoftmaxPlan computes."""

    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log_softmax"

    @property
    def cpp(self) -> str:
        """The template argument LOG."""
        return "true" if self is SoftmaxKind.LOG_SOFTMAX else "false"


@dataclass(frozen=True, kw_only=True)
class SoftmaxDescriptor(Descriptor):
    """x has shape `shape`; the sum is along `axis`, negative counting from the end."""

    kind: SoftmaxKind = choice(SoftmaxKind, SoftmaxKind.SOFTMAX)
    shape: tuple[int, ...] = extents()
    axis: int = integer(-1)
    element: ElementKind = element()

    def validate(self) -> None:
        rank = max(len(self.shape), 1)
        if not -rank <= self.axis < rank:
            raise InvalidProblemError(f"axis must be in [{-rank}, {rank - 1}] for shape {self.shape}, got {self.axis}")

    @property
    def row_axis(self) -> int:
        """`axis` counted from the front."""
        return self.axis % max(len(self.shape), 1)


@dataclass(slots=True, kw_only=True)
class SoftmaxArgs(Args):
    """x and y of one shape and element."""

    x: Array = operand("*shape")
    y: Array = output("*shape", inplace=("x",))


def reference(desc: SoftmaxDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    rows = x.reshape(desc.shape or (1,))
    if x.size == 0:
        return {"y": x}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        z = rows - rows.max(axis=desc.row_axis, keepdims=True)
        e = np.exp(z)
        total = e.sum(axis=desc.row_axis, keepdims=True)
        y = z - np.log(total) if desc.kind is SoftmaxKind.LOG_SOFTMAX else e / total
    return {"y": y.reshape(desc.shape)}


PARAMS = Params("SoftmaxParams", x="ptr", y="ptr", stage="i32", **TILE_FIELDS, **group_params(2))


def row_variants(
    geometry: Callable[[Problem], Geometry | str], name: str, params: Params, inputs: int, most: int
) -> tuple[Variant, ...]:
    """The rows of a softmax plan: 16-bit and f32, and f64 with registers for half as many threads a multiprocessor."""
    rows, modes = f"{name}_rows<{{T}}, {{KIND}}, {{GROUP}}, {{MODE}}>", {"MODE": (WIDE, STRIDED)}

    def row(label: str, elements: tuple[ElementKind, ...], threads: int) -> Variant:
        return Variant(
            label, geometry, source=f"softmax/{name}.cu", elements=elements,
            kernels=(
                *group_kernels(rows, params, modes, most=most, threads=threads),
                *tile_kernels(rows, params, inputs, most=most, threads=512),
                Kernel("long", f"{name}_long<{{T}}, {{KIND}}, {{MODE}}>", params, modes, threads=LONG, min_blocks=2),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True, flushes=FLUSHED),
        )  # fmt: skip

    halves = (ElementKind.F16, ElementKind.BF16)
    return row("row", (ElementKind.F32, *halves), 1024), row("row_f64", (ElementKind.F64,), 512)


def row_steps(p: Problem, full: tuple[Any, ...], inputs: int, most: int) -> Geometry | str:
    """The one launch of a softmax kernel, `full` being its operands (`inputs` of them read) with the row axis last."""
    desc = p.desc
    rows = group_rows(full)
    if isinstance(rows, str):
        return rows
    constants: dict[str, Any] = {**rows.params(), **dict.fromkeys(TILE_FIELDS, 0), "stage": 0}
    group = group_of(rows.cols, desc.element, most)
    if group is None:
        held = slabs(rows.cols, desc.element, p.device.smem, inputs)
        mode = WIDE if rows.wide else STRIDED
        constants["stage"] = held
        step = Step("long", (rows.rows, 1, 1), constants, {"MODE": mode}, LONG, held * SLAB * inputs)
        return Geometry((step,), layout=rows.layout_class)
    name, block, blocks = launch(rows.rows, group)
    mode, smem = WIDE if rows.wide else STRIDED, 0
    tile = tile_of(rows, desc.element, p.device.smem, inputs) if mode == STRIDED else None
    if tile is not None:
        name, mode, smem, blocks = name.replace("rows", "tile"), TILE, tile.smem, tile.blocks
        constants |= tile.params()
    return Geometry((Step(name, (blocks, 1, 1), constants, {"MODE": mode}, block, smem),), layout=rows.layout_class)


def _geometry(p: Problem) -> Geometry | str:
    if not p.desc.shape:
        views = tuple(v.reshaped((1,)) for v in (p.x, p.y))
    else:
        views = tuple(row_axis_last(v, p.desc.row_axis) for v in (p.x, p.y))
    return row_steps(p, views, 1, 4)


def in_torch(torch: Any, desc: SoftmaxDescriptor, *, x: Any) -> Any:
    """torch's function of the kind."""
    return getattr(torch, desc.kind.value)(x, desc.axis)


class SoftmaxPlan(Plan):
    """softmax or log_softmax of x along `axis`: exp(x - max) / Σ exp(x - max), or its logarithm.

    A row that has NaN or inf, or nothing but -inf, is NaN, as in PyTorch.
    """

    op = "softmax.softmax"
    descriptor = SoftmaxDescriptor
    args = SoftmaxArgs
    kinds = SoftmaxKind
    reference = staticmethod(reference)
    vjp = Vjp("SoftmaxBackwardPlan", grads={"x": "dx"})
    variants = row_variants(_geometry, "softmax", PARAMS, 1, 4)
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} [{rows}, {cols}] bf16", shape=(rows, cols), kind=kind, element="bfloat16")
        for rows, cols, kind in ((32768, 4096, "softmax"), (4096, 65536, "softmax"), (32768, 4096, "log_softmax"))
    )

    @staticmethod
    def case(draw: Any) -> SoftmaxDescriptor:
        """Rows of every schedule, along any axis."""
        cols = draw.sizes(5, 1, 0, 17, 64, 257, 1000, 4099, 20011, rare=(200, 3000))
        most = draw.sizes(2 if cols > 4000 else 5, rare=(16,) if cols < 5000 else ())
        outer = draw.shape(0, 3 if cols <= 300 else 1, 0, most)
        axis = draw.integer(0, len(outer))
        shape = (*outer[:axis], cols, *outer[axis:])
        return SoftmaxDescriptor(kind=draw.kind, shape=shape, axis=axis, element=draw.element)
