"""The schedules of norms over trailing axes: forward a ladder of row kernels, backward a persistent pipeline.

A row is cut into chunks of 16 bytes of x; chunk c of a row belongs to thread c % lanes. Which kernel runs, and with it
the order of every sum along a row, follows from the number of columns alone (docs/design/norms.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import ElementKind, Geometry, InvalidProblemError, Kernel, Params, Problem, Step, derived, element
from ..core.benchmark import Benchmark
from ..core.tensor import View
from ..core.variant import aligned
from .geometry import MOST_BLOCKS, grid
from .rows import Rows, merge_rows, row_params

HALVES = (ElementKind.F16, ElementKind.BF16)


def affine_elements(kind: ElementKind) -> tuple[ElementKind, ...]:
    """Elements of weight and bias: that of x, or float32 beside 16-bit activations."""
    return (kind, ElementKind.F32) if kind in HALVES else (kind,)


def _affine_pair(desc: Any, given: ElementKind) -> ElementKind:
    allowed = affine_elements(desc.element)
    if given not in allowed:
        names = " or ".join(map(str, allowed))
        raise InvalidProblemError(
            f"weight_element must be {names} with element {desc.element}, got {given}; "
            f"write cast(weight, '{desc.element}')"
        )
    return given


def affine_element() -> Any:
    """The field `weight_element`, of weight and bias: by default the element."""
    return element(default=derived(lambda desc: desc.element, _affine_pair))


class Affine:
    """Of descriptors with a field `affine_element`."""

    weight_element: ElementKind
    element: ElementKind

    @property
    def aux_element(self) -> ElementKind | None:
        """The element of weight and bias where it is another one."""
        return None if self.weight_element is self.element else self.weight_element


def infer_normalized_shape(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """Functional layer: an int is one axis; the default is the shape of the weight (or bias), else the last axis."""
    given = facts.get("normalized_shape")
    if given is None:
        given = next((shapes[n] for n in ("weight", "bias") if n in shapes), shapes["x"][-1:])
    facts["normalized_shape"] = (given,) if isinstance(given, int) else tuple(given)


def norm_case(draw: Any) -> tuple[Any, Any]:
    """Tests: (batch_shape, normalized_shape) over every rung, the loop, tails, several axes and empty extents."""
    if draw.flag():
        return draw.shape(0, 3, 0, 6), draw.shape(0, 3, 0, 12)
    cols = draw.sizes(
        1, 2, 7, 8, 31, 64, 100, 128, 255, 256, 500, 512, 1000, 1024, 2048, 4099, 5120, 9000, 20011, 40000,
        rare=(3000, 4096, 6144, 12288, 24576),
    )  # fmt: skip
    if cols >= 4000:
        return (draw.sizes(1, 0, 2, 3, rare=(9,)),), cols
    return draw.shape(0, 2, 0, 5 if cols > 300 else 14), cols


def range_scale(h: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Reference: a power of two for each row that brings its largest element, or the root of eps, near 1."""
    top = np.max(np.abs(h), axis=axes, keepdims=True, initial=h.dtype.type(math.sqrt(eps)))
    limits = np.finfo(h.dtype)
    exponent = np.clip(-np.frexp(np.where(np.isfinite(top), top, 1))[1], limits.minexp, limits.maxexp - 1)
    return np.ldexp(h.dtype.type(1), exponent)


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"W": affine_elements(kind)}


def _named(kernel: str, wide: bool) -> str:
    return kernel if wide else f"{kernel}_any"


def _chunks(desc: Any, cols: int) -> int:
    width: int = 16 // desc.element.itemsize
    return -(-cols // width)


def _row_view(view: View | None, shape: tuple[int, ...]) -> View | None:
    """A view of the normalised axes alone, broadcast over the rows."""
    return None if view is None else view.broadcast_to(shape)


def _offset(desc: Any) -> Mapping[str, float]:
    """The constant parameter of a norm that adds a number to its weights."""
    return {"weight_offset": desc.weight_offset} if hasattr(desc, "weight_offset") else {}


def _wide(rows: Rows, desc: Any) -> bool:
    """Whole aligned 16-byte chunks everywhere, and rows along at most two axes (`rows.cuh`)."""
    width = 16 // desc.element.itemsize
    simple = len(rows.outer_shape) <= 2 and rows.rows < 2**32
    return rows.run and simple and rows.cols % width == 0 and rows.vector() == width


# ---- forward --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """Forward kernels for rows of at most `lanes * chunks` chunks; each group of lanes holds `rows` rows at a time.

    Where `stages` is not 0, many dense rows of layer_norm stream through a ring of so many stages in shared memory,
    with the same sums: so few blocks of `row` fit a multiprocessor that its loads would stop while they compute.
    """

    lanes: int
    chunks: int
    rows: int = 1
    stages: int = 0

    @property
    def threads(self) -> int:
        return max(self.lanes, 128) if self.lanes <= 32 else self.lanes

    @property
    def name(self) -> str:
        return f"row_{self.lanes * self.chunks}"

    @property
    def stream(self) -> str:
        return f"stream_{self.lanes * self.chunks}"

    @property
    def tile(self) -> int:
        return self.threads // self.lanes * self.rows

    @property
    def smem(self) -> int:
        """Bytes of the stream's ring."""
        return self.stages * self.rows * self.chunks * self.threads * 16


# 64 bytes of x in flight a thread: with `_resident` threads 40 to 64 KB a multiprocessor; the stream has 96 KB.
LADDER = (
    Rung(8, 1, 4),
    Rung(16, 1, 4),
    Rung(32, 1, 4),
    Rung(32, 2, 2),
    Rung(32, 4),
    Rung(64, 4),
    Rung(128, 4),
    Rung(256, 4),
    Rung(512, 4, stages=4),
    Rung(512, 8),
)
LOOP_THREADS = 512

# Suffix and template arguments ADD and WIDE: no residual, a residual, any strides.
_FORWARD_KINDS = (("", "norm::add_never, true"), ("_add", "norm::add_always, true"), ("_any", "norm::add_maybe, false"))


def _resident(rung: Rung, suffix: str) -> int:
    """Threads of a multiprocessor that registers must leave room for: as many as no element spills at.

    An addition has twice the loads in flight; several rows have several statistics.
    """
    if suffix or rung.chunks > 4:
        return 512
    return 640 if rung.rows == 4 else 768 if rung.lanes <= 32 else 1024


FORWARD_OPERANDS = ("x", "residual", "weight", "bias", "y", "h")


def forward_params(name: str, **fields: str) -> Params:
    """The parameter struct of a forward norm; operands absent from its Args are left out by the page."""
    return Params(name, eps="f64", **fields, **row_params(len(FORWARD_OPERANDS)))


def forward_kernels(op: str, params: Params, streams: bool = False) -> tuple[Kernel, ...]:
    """The ladder and the loop of `kernels/norm/<op>.cu`, each in the kinds of `_FORWARD_KINDS`, and its streams."""
    made = []
    for suffix, tail in _FORWARD_KINDS:
        for r in LADDER:
            call = f"{op}_row<{{T}}, {{W}}, {r.threads}, {r.lanes}, {r.chunks}, {r.rows}, {tail}>"
            blocks = max(1, _resident(r, suffix) // r.threads)
            name = r.name + suffix
            made.append(Kernel(name, call, params, _axes, r.threads, blocks))
        call = f"{op}_loop<{{T}}, {{W}}, {LOOP_THREADS}, {tail}>"
        made.append(Kernel("loop" + suffix, call, params, _axes, LOOP_THREADS, min_blocks=1))
    for r in LADDER:
        if streams and r.stages:
            call = f"{op}_stream<{{T}}, {{W}}, {r.threads}, {r.lanes}, {r.chunks}, {r.rows}, {r.stages}>"
            made.append(Kernel(r.stream, call, params, _axes, threads=r.threads))
    return tuple(made)


def streaming_geometry(p: Problem) -> Geometry | str:
    """`forward_geometry` of an op with streams."""
    return forward_geometry(p, streams=True)


def forward_geometry(p: Problem, streams: bool = False) -> Geometry | str:
    """The rung that holds a row, or the loop."""
    desc, shape = p.desc, p.x.shape
    inner = {n: _row_view(p.views.get(n), shape) for n in ("weight", "bias")}
    views = tuple(inner[n] if n in inner else p.views.get(n) for n in FORWARD_OPERANDS)
    rows = merge_rows(views, len(desc.batch_shape))
    if isinstance(rows, str):
        return rows
    axes = {"W": desc.weight_element}
    suffix = "_any" if not _wide(rows, desc) else "" if p.residual is None else "_add"
    params = {**rows.params(), "eps": desc.eps, **_offset(desc)}
    chunks = _chunks(desc, rows.cols)
    rung = next((r for r in LADDER if chunks <= r.lanes * r.chunks), None)
    if rung is None:
        step = Step("loop" + suffix, grid(rows.rows), params, axes, LOOP_THREADS)
    else:
        blocks = -(-rows.rows // rung.tile)
        sms = p.device.sms
        if streams and not suffix and rung.stages and blocks > 2 * sms and rung.smem <= p.device.smem:
            step = Step(rung.stream, (sms, 1, 1), params, axes, rung.threads, rung.smem)
        else:
            step = Step(rung.name + suffix, grid(blocks), params, axes, rung.threads)
    return Geometry((step,), layout=rows.layout_class)


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pipe:
    """A fused backward kernel: persistent blocks, rows that stream through a ring of `stages` in shared memory."""

    lanes: int
    chunks: int
    rows: int
    stages: int
    blocks: int  # per multiprocessor

    @property
    def threads(self) -> int:
        return max(self.lanes, 256) if self.lanes <= 32 else self.lanes

    @property
    def name(self) -> str:
        return f"pipe_{self.lanes * self.chunks}_{self.stages}"

    def smem(self, operands: int) -> int:
        return self.stages * operands * self.rows * self.chunks * self.threads * 16

    @property
    def tile(self) -> int:
        return self.threads // self.lanes * self.rows


# The first pipe that holds a row and whose ring fits the device is taken. The shorter ring of 1024 chunks is for a
# third streamed operand on devices with 99 KB.
PIPES = (
    Pipe(8, 1, 2, 3, 2),
    Pipe(16, 1, 2, 3, 2),
    Pipe(32, 1, 2, 3, 2),
    Pipe(32, 2, 1, 3, 2),
    Pipe(64, 2, 1, 3, 8),
    Pipe(128, 2, 1, 3, 4),
    Pipe(256, 2, 1, 3, 2),
    Pipe(512, 2, 1, 3, 1),
    Pipe(512, 2, 1, 2, 1),
    Pipe(512, 4, 1, 2, 1),
)
COLUMN_THREADS = 256
COMBINE_THREADS = 1024
_COLUMN_BLOCKS = 4  # per multiprocessor

BACKWARD_OPERANDS = ("dy", "x", "weight", "dh", "dx")


def backward_params(name: str, **fields: str) -> Params:
    """The parameter struct of a backward norm's main kernels."""
    return Params(
        name, dy="ptr", x="ptr", rstd="ptr", weight="ptr", dh="ptr", dx="ptr", **fields, dweight_sums="workspace",
        dbias_sums="workspace", pitch="i64", want="i32", **row_params(len(BACKWARD_OPERANDS)),
    )  # fmt: skip


def combine_params(name: str, **fields: str) -> Params:
    """The parameter struct of the kernel that adds the blocks' sums."""
    return Params(
        name, **fields, dweight_sums="workspace", dbias_sums="workspace", pitch="i64", splits="i64", **row_params(2)
    )


def backward_kernels(op: str, params: Params, combine: Params) -> tuple[Kernel, ...]:
    """The kernels of `kernels/norm/<op>_backward.cu`."""
    made = []
    for wide in (True, False):
        tail = f"{str(wide).lower()}>"
        for r in PIPES:
            call = f"{op}_backward_pipe<{{T}}, {{W}}, {r.threads}, {r.lanes}, {r.chunks}, {r.rows}, {r.stages}, {tail}"
            blocks = r.blocks if wide else 1
            name = _named(r.name, wide)
            made.append(Kernel(name, call, params, _axes, threads=r.threads, min_blocks=blocks))
        call = f"{op}_backward_loop<{{T}}, {{W}}, {LOOP_THREADS}, {tail}"
        name = _named("loop", wide)
        made.append(Kernel(name, call, params, _axes, threads=LOOP_THREADS))
        call = f"{op}_backward_columns<{{T}}, {COLUMN_THREADS}, {tail}"
        name = _named("columns", wide)
        made.append(Kernel(name, call, params, threads=COLUMN_THREADS))
    call = f"{op}_backward_combine<{{T}}, {{W}}, {COMBINE_THREADS}>"
    return (*made, Kernel("combine", call, combine, _axes, threads=COMBINE_THREADS))


def backward_geometry(p: Problem) -> Geometry | str:
    """The pipe that holds a row and fits the device, else sums by columns and dx row by row; then `combine`."""
    desc = p.desc
    weight = _row_view(p.weight, p.x.shape)
    rows = merge_rows((p.dy, p.x, weight, p.dh, p.dx), len(desc.batch_shape))
    if isinstance(rows, str):
        return rows
    dweight, dbias = p.dweight, p.views.get("dbias")
    want = (dweight is not None) + 2 * (dbias is not None)
    if not want and p.dx is None:
        return Geometry((), layout=rows.layout_class)
    chunks = _chunks(desc, rows.cols)
    width = 16 // desc.element.itemsize
    operands = 2 if p.dh is None else 3
    axes, wide = {"W": desc.weight_element}, _wide(rows, desc)
    pipe = next((r for r in PIPES if chunks <= r.lanes * r.chunks and r.smem(operands) <= p.device.smem), None)
    pitch = chunks * width
    if pipe is not None:
        splits = max(1, min(-(-rows.rows // pipe.tile), p.device.sms * pipe.blocks))
    else:
        tiles = -(-chunks // COLUMN_THREADS)
        splits = max(1, min(rows.rows, p.device.sms * _COLUMN_BLOCKS // tiles, 65535))
    nbytes = aligned(splits * pitch * desc.acc.itemsize)
    sums = {"dweight_sums": 0, "dbias_sums": nbytes if want == 3 else 0, "pitch": pitch}
    params = {**rows.params(), **sums, "want": want, **_offset(desc)}
    steps: list[Step] = []
    if pipe is not None:
        steps.append(Step(_named(pipe.name, wide), (splits, 1, 1), params, axes, pipe.threads, pipe.smem(operands)))
    else:
        if want:  # before dx, which may replace dy or x
            steps.append(Step(_named("columns", wide), (tiles, splits, 1), params, {}, COLUMN_THREADS))
        if p.dx is not None and p.dx.size:
            steps.append(Step(_named("loop", wide), (min(rows.rows, MOST_BLOCKS), 1, 1), params, axes, LOOP_THREADS))
    if want and rows.cols:
        outs = merge_rows((dweight, dbias), 0)
        if isinstance(outs, str):
            return outs
        last = {**outs.params(), **sums, "splits": splits}
        grid = (-(-rows.cols // 32), 2 if want & 2 else 1, 1)
        steps.append(Step("combine", grid, last, {"W": desc.weight_element}, COMBINE_THREADS))
    return Geometry(tuple(steps), nbytes * ((want & 1) + (want >> 1)), layout=rows.layout_class)


def backward_bytes(desc: Any, sums: int) -> int:
    """dy and x read, dx written; a row of weights read and `sums` written; `sums` statistics a row."""
    rows, cols = math.prod(desc.batch_shape), math.prod(desc.normalized_shape)
    affine = cols * (1 + sums) * desc.weight_element.itemsize
    return int(3 * rows * cols * desc.element.itemsize + affine + rows * sums * desc.acc.itemsize)


def norm_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """Rows of a model's width, short and long ones; `also` as in `Benchmark`."""
    return tuple(
        Benchmark(f"[{rows}, {cols}] bf16", also=also, batch_shape=rows, normalized_shape=cols, element="bfloat16")
        for rows, cols in ((32768, 4096), (131072, 512), (8192, 16384))
    )
