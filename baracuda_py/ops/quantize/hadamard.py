"""hadamard: y = scale · H x along the last axis, or by blocks of it, H a Hadamard matrix (scipy.linalg.hadamard)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Scalar, Step, Variant, View, Vjp, derived, element, extents, flag, integer, operand, output,
    scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import truth, whole
from ...core.element import HALVES
from ...calls.entries import entry
from ...core.tensor import dense_strides
from ...core.views import permuted, shape_of
from ...schedules import hadamard as tiles
from ...schedules.geometry import grid
from ...schedules.rows import merge_rows, row_params
from .hadamard_matrix import BASES, base_matrix, order_of


@dataclass(frozen=True, kw_only=True)
class HadamardDescriptor(Descriptor):
    """x and y have shape `shape`, whose last axis is blocks of `block` columns, one of all by default.

    block: 2^k, 12·2^k, 20·2^k or 28·2^k. normalized: the result is over √block besides, so that H is orthogonal.
    """

    shape: tuple[int, ...] = extents()
    block: int = integer(derived(lambda desc: max(desc.shape[-1], 1) if desc.shape else 1))
    normalized: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        check_blocks(self.shape, self.block)

    @property
    def cols(self) -> tuple[int, ...]:
        """The shape of signs."""
        return self.shape[-1:]

    @cached_property
    def order(self) -> tuple[int, int]:
        """(base, k) of block = base · 2^k."""
        return order_of("block", self.block)

    @property
    def unit(self) -> float:
        """What every result is multiplied by, beside the scale."""
        return self.block**-0.5 if self.normalized else 1.0


def check_blocks(shape: tuple[int, ...], block: int) -> None:
    """Raise where the last axis is no blocks of an order that there is a matrix of."""
    if not shape:
        raise InvalidProblemError("a Hadamard transform needs an axis to go along, got shape ()")
    order_of("block", block)
    if shape[-1] % block:
        raise InvalidProblemError(f"the last extent must be blocks of {block}, got shape {shape}")


@dataclass(slots=True, kw_only=True)
class HadamardArgs(Args):
    """Any strides; y may be x itself. signs and after are numbers for each column, usually 1 and -1."""

    x: Array = operand("*shape")
    signs: Array | None = operand("*cols", optional=True)
    after: Array | None = operand("*cols", optional=True)
    y: Array = output("*shape", inplace=("x",))
    scale: Scalar = scalar(1.0)


def transformed(x: Any, block: int) -> Any:
    """H x by blocks of the last axis, level by level; then the matrix of 12, 20 or 28."""
    base, k = order_of("block", block)
    shape = x.shape
    for level in range(k):
        pairs = x.reshape(*shape[:-1], shape[-1] >> (level + 1), 2, 1 << level)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([low + high, low - high], axis=-2)
    if base == 1:
        return x.reshape(shape)
    x = x.reshape(*shape[:-1], shape[-1] // block, base, 1 << k)
    made = np.zeros_like(x)
    for column, signs in enumerate(base_matrix(base).astype(x.dtype)):
        made = made + signs[:, None] * x[..., column : column + 1, :]
    return made.reshape(shape)


def rotated(desc: Any, x: Any, signs: Any, after: Any, scale: Any) -> Any:
    """The op's formula in the dtype x comes in."""
    with np.errstate(all="ignore"):
        made = transformed(x if signs is None else x * signs, desc.block)
        made = made * x.dtype.type(float(scale) * desc.unit)
        return made if after is None else made * after


def reference(desc: HadamardDescriptor, *, x: Any, signs: Any, after: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    return {"y": rotated(desc, x, signs, after, scale)}


PARAMS = Params(
    "HadamardParams", y="ptr", x="ptr", signs="ptr", after="ptr", scale="scalar", unit="f64", **row_params(4),
    **tiles.PARAMS, raw="i32",
)  # fmt: skip
COLUMNS = Params(
    "HadamardColumnsParams", y="ptr", after="ptr", held="workspace", scale="scalar", unit="f64", **row_params(2),
    items="i64", shift="i32", low="i32", high="i32", raw="i32",
)  # fmt: skip

WIDE = (True, False)
MOST = {"tile": 512, "short": 512, "base": 224}  # threads of a block


def resident(blocks: int) -> Callable[[ElementKind, Any], int]:
    """Blocks of a multiprocessor of rows of 16 bits; one of others, whose registers are their elements' alone."""
    return lambda e, kind: blocks if e in HALVES else 1


_TILE = Kernel(
    "tile", "hadamard_tile<{T}, {E}, 1, {WIDE}>", PARAMS, lambda e: {"E": tiles.held_by(e)[-1:], "WIDE": WIDE},
    MOST["tile"], 1,
)  # fmt: skip
_SHORT = Kernel(  # of 128 threads: bounds of more leave registers for seven blocks
    "short", "hadamard_tile<{T}, {E}, 1, {WIDE}>", PARAMS, lambda e: {"E": tiles.held_by(e)[:-1], "WIDE": WIDE}, 896, 1,
)  # fmt: skip
_PART_TILE = replace(  # parts of 16 bits are short
    _TILE, axes=lambda e: {"E": () if e in HALVES else tiles.held_by(e), "WIDE": WIDE}
)
_BASE = Kernel(
    "base", "hadamard_tile<{T}, {E}, {BASE}, {WIDE}>", PARAMS,
    lambda e: {"E": tiles.held_by(e)[:1], "BASE": BASES, "WIDE": WIDE}, MOST["base"], resident(3),
)  # fmt: skip
_COLUMNS = Kernel(
    "columns", "hadamard_columns<{T}, {RADIX}, {WIDE}>", COLUMNS, {"RADIX": (16, *BASES), "WIDE": WIDE},
    min_blocks=1, source="quantize/hadamard_columns.cu",
)  # fmt: skip
_LEVELS = 4  # of a launch of columns
_PART = 12  # levels of a part of a row that is longer than a tile


class Names(NamedTuple):
    """The operands that are what the kernels call so: the backward op's have other names."""

    y: str = "y"
    x: str = "x"
    signs: str = "signs"
    after: str = "after"

    def views(self, p: Problem, *extents: int) -> list[View | None]:
        """The operands with their last axis as several, of these extents."""
        y, x, *around = (p.views[name] for name in self)
        spread = [None if v is None else v.broadcast_to(x.shape) for v in around]
        return [tiles.split_last(v, *extents) for v in (y, x, *spread)]


def _launch(
    views: Sequence[View | None], tiling: tiles.Tiling, values: Mapping[str, Any]
) -> tuple[Step, str] | str:  # fmt: skip
    """One launch of tiles for operands by rows, and the layout class."""
    first = next(v for v in views if v is not None)
    found = merge_rows(views, len(first.shape) - 1)
    if isinstance(found, str):
        return found
    wide = tiles.in_chunks(found, 16 // tiling.element.itemsize)
    kernel, axes = tiling.kernel, {} if tiling.base == 1 else {"BASE": tiling.base}
    step = Step(
        kernel, grid(-(-found.rows // tiling.rows)), {**found.params(), **tiling.params(), **values},
        {"E": tiling.held, **axes, "WIDE": wide}, tiling.threads(MOST[kernel]), tiling.smem,
    )  # fmt: skip
    return step, found.layout_class


def _tiled(names: Names) -> Callable[[Problem], Geometry | str]:
    """The geometry of rows that fit a tile."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        tiling = tiles.Tiling(desc.element, *desc.order)
        if tiling.smem > p.device.smem:
            return f"a row takes {tiling.smem} bytes of shared memory, the device has {p.device.smem}"
        views = names.views(p, desc.shape[-1] // desc.block, desc.block)
        found = _launch(views, tiling, {**names._asdict(), "unit": desc.unit, "raw": False})
        return found if isinstance(found, str) else Geometry((found[0],), layout=found[1])

    return geometry


def _combinations(base: int, part: int, k: int) -> list[tuple[int, int, int, int]]:
    """(radix, first bit, levels from, to) of the launches of columns that complete parts of 2^part."""
    made = [(16, min(low, k - _LEVELS), low, min(low + _LEVELS, k)) for low in range(part, k, _LEVELS)]
    return [*made, (base, k, 0, 0)] if base > 1 else made


def _whole(desc: Any) -> str | None:
    """Why a row is not transformed by parts."""
    base, k = desc.order
    short = not _combinations(base, min(k, _PART), k) or 1 << k < 16 // desc.acc.itemsize
    return "rows this short are one tile" if short else None


def _parted(names: Names) -> Callable[[Problem], Geometry | str]:
    """The geometry of longer rows: tiles of parts of them into the workspace, then launches of columns."""

    def geometry(p: Problem) -> Geometry | str:
        desc, (base, k) = p.desc, p.desc.order
        part, width = min(k, _PART), 16 // p.desc.acc.itemsize
        combined = _combinations(base, part, k)
        blocks = desc.shape[-1] // desc.block
        _, x, signs, _ = names.views(p, blocks, desc.block >> part, 1 << part)
        assert x is not None
        held = View(0, x.shape, dense_strides(x.shape), desc.acc)
        values = {"y": ("@workspace", 0), "x": names.x, "signs": names.signs, "after": "@null", "unit": 1.0}
        first = _launch((held, x, signs, None), tiles.Tiling(desc.element, 1, part), {**values, "raw": True})
        y, _, _, after = names.views(p, blocks, desc.block)
        ends = merge_rows((y, after), len(x.shape) - 2)
        if isinstance(first, str):
            return first
        if isinstance(ends, str):
            return ends
        steps, values = [first[0]], {**ends.params(), "y": names.y, "after": names.after, "held": 0, "unit": desc.unit}
        for radix, shift, low, high in combined:
            raw, items = (radix, shift, low, high) != combined[-1], desc.block // radix // width
            own = {"items": items, "shift": shift, "low": low, "high": high, "raw": raw}
            axes = {"RADIX": radix, "WIDE": raw or tiles.in_chunks(ends, width)}
            steps.append(Step("columns", grid(-(-ends.rows * items // 256)), {**values, **own}, axes))
        return Geometry(tuple(steps), held.nbytes, ends.layout_class)

    return geometry


_BOUND = Guarantee(Relative(2), batch_invariant=True)


def variants_of(names: Names) -> tuple[Variant, ...]:
    """The rows of the plan whose operands have these names."""
    source = "quantize/hadamard.cu"
    return (
        Variant("tile", _tiled(names), source=source, kernels=(_TILE, _SHORT, _BASE), guarantee=_BOUND),
        Variant("parts", _parted(names), source=source, kernels=(_PART_TILE, _SHORT, _COLUMNS),
                guarantee=replace(_BOUND, order="parts"), refuses=_whole),
    )  # fmt: skip


def _factors(block: int) -> list[Any]:
    """Matrices whose Kronecker product is H."""
    base, k = order_of("block", block)
    small: list[Any] = [np.ones((1, 1))]
    for level in range(k):
        small = [*small[:-1], np.kron(small[-1], [[1, 1], [1, -1]]), *([np.ones((1, 1))] if level % 5 == 4 else [])]
    return [base_matrix(base), *small]


def rotated_in_torch(torch: Any, desc: Any, x: Any, signs: Any, after: Any, scale: Any) -> Any:
    """Products with the matrices whose Kronecker product H is."""
    if 0 in desc.shape:
        return NotImplemented
    y = x if signs is None else x * signs
    factors = [torch.as_tensor(f, dtype=x.dtype, device=x.device) for f in _factors(desc.block)]
    y = y.reshape(-1, *(len(f) for f in factors))
    for axis, factor in enumerate(factors):
        y = torch.movedim(torch.movedim(y, axis + 1, -1) @ factor, -1, axis + 1)
    y = y.reshape(desc.shape) * (float(scale) * desc.unit)
    return y if after is None else y * after


def in_torch(torch: Any, desc: HadamardDescriptor, *, x: Any, signs: Any, after: Any, scale: Any) -> Any:
    """As `rotated_in_torch`."""
    return rotated_in_torch(torch, desc, x, signs, after, scale)


def benchmark(rows: int, block: int, cols: int | None = None) -> Benchmark:
    """bfloat16 rows."""
    shape = (rows, cols or block)
    name = f"{list(shape)} bf16" + (f", blocks of {block}" if cols else "")
    return Benchmark(name, shape=shape, block=block, element="bfloat16", target=0.9, peers=())


class HadamardPlan(Plan):
    """y = after · scale H (signs · x) for every block of columns, H a Hadamard matrix: 1 and -1, H Hᵀ = block · I.

    For block = 2^k, H is Sylvester's matrix (scipy.linalg.hadamard); for 12, 20 and 28 times 2^k, H[i 2^k + a,
    j 2^k + b] = P[i, j] S[a, b], S Sylvester's and P the symmetric matrix of Paley's second construction
    (`hadamard_matrix`). So H is its own transpose, the gradient has the same form, and the
    transform with `normalized` is its own inverse. signs before it make it random (QuIP#, Tseng et al. 2024). Sums are
    in float32, float64 of float64, and rounded once; one read of x and one write of y while a row in the accumulator
    fits shared memory. Any block; the gradient of signs is refused.
    """

    op = "quantize.hadamard"
    descriptor = HadamardDescriptor
    args = HadamardArgs
    reference = staticmethod(reference)
    vjp = Vjp("HadamardBackwardPlan", grads={"x": "dx"})
    variants = variants_of(Names())
    torch = staticmethod(in_torch)
    benchmarks = (
        benchmark(1 << 15, 4096), benchmark(1 << 14, 8192), benchmark(1 << 13, 14336), benchmark(1 << 20, 128),
        benchmark(1 << 15, 128, 4096),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> HadamardDescriptor:
        return draw_case(draw)


def draw_case(draw: Any) -> HadamardDescriptor:
    """Small rows of all bases; rarely those of each kernel of long rows."""
    block = draw.sizes(
        1, 2, 8, 12, 32, 40, 56, 96, 128, 192, 256, 448, 1024,
        rare=(4096, 3072, 5120, 7168, 8192, 16384, 1 << 16, 3 << 16, 5 << 16, 7 << 16),
    )  # fmt: skip
    most = 3 if block <= 1024 else 1
    shape = (*draw.shape(0, 2, 0, most), block * draw.integer(1, most))
    return HadamardDescriptor(shape=shape, block=block, normalized=draw.flag(), element=draw.element)


_transform = functional(HadamardPlan)


@entry(HadamardPlan)
def hadamard_transform(
    x: Array, signs: Array | None = None, after: Array | None = None, *, block: int | None = None, axis: int = -1,
    scale: Scalar = 1.0, normalized: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """after · scale H (signs · x) along `axis`, H the Hadamard matrix of as many columns; see `HadamardPlan`.

    block: blocks of so many columns are transformed each by itself (2^k, 12·2^k, 20·2^k, 28·2^k). normalized: over
    √block besides, which makes H orthogonal. signs, after: numbers for each column, before and after the transform.
    `out` may be x. scipy.linalg.hadamard has the matrix of 2^k.
    """
    rank = len(shape_of(x, "x"))
    at = whole("axis", axis, -rank, rank - 1) if rank else -1
    facts = {
        "normalized": truth("normalized", normalized), "scale": scale, "stream": stream, "preference": preference,
    } | ({} if block is None else {"block": whole("block", block, 1)})  # fmt: skip
    if at % max(rank, 1) == rank - 1 or not rank:
        return _transform(x, signs, after, out=out, **facts)
    order = [a for a in range(rank) if a != at % rank] + [at % rank]
    back = [order.index(a) for a in range(rank)]
    view = None if out is None else permuted(out, order, "out")
    made = _transform(permuted(x, order, "x"), signs, after, out=view, **facts)
    return permuted(made, back, "x") if out is None else out
