"""grouped_int_gemm: y[r] = x_scales[r] scales[e] Σ x[r] W[e] + bias[e] of int8, for the rows r of each expert e (W8A8).

The products of a mixture of experts in integers: rows sorted by expert, their bounds on the device.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Plan,
    Problem, Step, Ulp, Variant, View, choice, derived, element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import Everywhere
from ...core.benchmark import FLOPS, Benchmark
from ...schedules import int_gemm as schedule
from ...schedules import grouped_wgmma as wgmma
from ...schedules.gemm import dense, transposed
from ...schedules.gemm_wgmma import THREADS, operand_map, shared_memory
from ...schedules.grouped import most_tiles
from ..gemm.grouped_gemm import even_offsets
from ..gemm.groups import INDEX, Grouped, random_offsets, slices, torch_slices
from .experts import PARAMS as EXPERTS
from .experts import ExpertFields, expert_blocks, expert_values
from .int_gemm import IntGemmDescriptor, IntGemmKind

E = ElementKind
_FLOATS = schedule.OUTPUTS[:3]
_TABLE = 4352  # bytes of shared memory, at most, that the table of kernels/gemm/groups.cuh takes beside a tile's
_NAMES = {"a": "x", "b": "weight", "y": "y", "scale_a": "x_scales", "scale_b": "scales", "bias": "bias"}


class GroupedIntGemmKind(enum.Enum):
    """What y is of the sums."""

    SUMS = "sums"
    SCALED = "scaled"

    @property
    def cpp(self) -> str:
        """Its name in kernels/quant_gemm/epilogue.cuh."""
        return IntGemmKind(self.value).cpp

    @property
    def outputs(self) -> tuple[ElementKind, ...]:
        """The elements that y may have."""
        return (E.I32,) if self is GroupedIntGemmKind.SUMS else _FLOATS


K = GroupedIntGemmKind
_SCALED = (K.SCALED,)


@dataclass(frozen=True, kw_only=True)
class GroupedIntGemmDescriptor(ExpertFields, Descriptor):
    """x is [total, k], the weights [experts, n, k], both int8; y [total, n] in `out_element`.

    y is int32 of sums, float32, float16 or bfloat16 of scaled products. num_offsets: `experts`, where the rows of each
    end, or one more, from where to where.
    """

    kind: GroupedIntGemmKind = choice(GroupedIntGemmKind)
    n: int = extent()
    k: int = extent()
    out_element: ElementKind = element(schedule.OUTPUTS, derived(lambda desc: desc.kind.outputs[0]))
    element: ElementKind = element((E.I8,))

    def validate(self) -> None:
        super().validate()
        if self.out_element not in self.kind.outputs:
            known = " or ".join(map(str, self.kind.outputs))
            raise InvalidProblemError(
                f"out_element must be {known} for {self.kind.value} products, got {self.out_element}"
            )

    @property
    def bias_element(self) -> ElementKind:
        """That of y; of sums, which take none, float32."""
        return self.out_element if self.out_element in _FLOATS else E.F32


@dataclass(slots=True, kw_only=True)
class GroupedIntGemmArgs(Args):
    """Any strides. x_scales, of rows of x, and scales, of rows of weights, are float32 and broadcast; 1 where absent.

    offsets: int32 or int64, on the device, never read by the host; where the rows of each expert end, the first
    beginning at row 0 (torch's offs), or with one item more also where the first begins (cu_seqlens). bias is in y's
    element and is added to the scaled sums.
    """

    x: Array = operand("total k", values=Everywhere())
    weight: Array = operand("experts n k", values=Everywhere())
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    x_scales: Array | None = operand(
        "total", element=E.F32, optional=True, broadcast=True, kinds=_SCALED, values=(0.25, 2.0)
    )
    scales: Array | None = operand(
        "experts n", element=E.F32, optional=True, broadcast=True, kinds=_SCALED, values=(0.25, 2.0)
    )
    bias: Array | None = operand("experts n", element="bias_element", optional=True, kinds=_SCALED)
    y: Array = output("total n", element="out_element")


def reference(
    desc: GroupedIntGemmDescriptor, *, x: Any, weight: Any, offsets: Any, x_scales: Any, scales: Any, bias: Any
) -> Mapping[str, Any]:
    """NumPy, expert by expert: sums exact, scaled in the dtype of the scales, or wider."""
    single = any(v is not None and v.dtype == np.float32 for v in (x_scales, scales, bias))
    like = np.int64 if desc.kind is K.SUMS else np.float32 if single else np.longdouble
    y = np.zeros((desc.total, desc.n), like)
    of_rows = None if x_scales is None else np.broadcast_to(x_scales, (desc.total,))[:, None]
    of_columns = None if scales is None else np.broadcast_to(scales, (desc.experts, desc.n))
    with np.errstate(all="ignore"):
        for expert, rows in enumerate(slices(desc, offsets)):
            sums = (x[rows].astype(np.float64) @ weight[expert].T.astype(np.float64)).astype(like)
            sums = sums if of_rows is None else sums * of_rows[rows]
            sums = sums if of_columns is None else sums * of_columns[expert]
            y[rows] = sums if bias is None else sums + bias[expert]
    return {"y": y}


def in_torch(
    torch: Any, desc: GroupedIntGemmDescriptor, *, x: Any, weight: Any, offsets: Any, x_scales: Any, scales: Any,
    bias: Any,
) -> Any:  # fmt: skip
    """The definition in float64, by slices of the rows."""
    y = torch.zeros(desc.total, desc.n, dtype=torch.float64)
    for expert, rows in enumerate(torch_slices(torch, desc, offsets)):
        sums = x[rows].double() @ weight[expert].double().T
        if x_scales is not None:
            sums = sums * x_scales.double().expand(desc.total)[rows, None]
        if scales is not None:
            sums = sums * scales.double().expand(desc.experts, desc.n)[expert]
        y[rows] = sums if bias is None else sums + bias[expert].double()
    return y.long().int() if desc.kind is K.SUMS else y


_PARAMS = schedule.int_params("GroupedIntGemmParams", **EXPERTS)
_WGMMA_PARAMS = schedule.int_params(
    "GroupedIntWgmmaParams", **EXPERTS, **dict.fromkeys(("a_map", "b_map", "up_map"), "map"),
    **dict.fromkeys(("a_step", "b_step", "up_step"), "i32"),
)  # fmt: skip
_WGMMA_KERNEL = Kernel(
    "grouped_int_gemm_wgmma", "grouped_int_gemm_wgmma<{KIND}, {COLUMNS}>", _WGMMA_PARAMS, {"COLUMNS": wgmma.COLUMNS},
    THREADS, 1,
)  # fmt: skip
_FEW_KERNEL = Kernel("grouped_int_gemm_few", "grouped_int_gemm_few<{KIND}>", _PARAMS, min_blocks=2)


def _kernels(long: bool) -> tuple[Kernel, ...]:
    """Of tiles of each size; long: whose sums pass 32 bits."""
    return tuple(
        Kernel(
            _name(long, size), f"grouped_int_gemm_mma<{{KIND}}, {str(long).lower()}, {size}>", _PARAMS,
            min_blocks=1 if long else 128 // size,
        )
        for size in (schedule.SIZES[1:] if long else schedule.SIZES)
    )  # fmt: skip


def _name(long: bool, size: int) -> str:
    return f"grouped_int_gemm_mma{'_long' if long else ''}_{size}"


def _as_column(view: View, rows: int) -> View:
    """A number for each row, which may be one for all, as a matrix of one column."""
    spread = view.broadcast_to((rows,))
    return View(spread.ptr, (rows, 1), (spread.strides[0], 0), spread.element)


def _as_rows(view: View, experts: int, columns: int) -> View:
    """A number for each column of each expert as matrices of one row."""
    spread = view.broadcast_to((experts, columns))
    return View(spread.ptr, (experts, 1, columns), (spread.strides[0], 0, spread.strides[1]), spread.element)


def _values(p: Problem) -> dict[str, Any] | str:
    """What the kernels read: a batch of products whose items are the experts, each of which sees all rows."""
    desc = p.desc
    product = IntGemmDescriptor(
        kind=desc.kind.value, batch_shape=(desc.experts,), m=desc.total, n=desc.n, k=desc.k,
        out_element=desc.out_element, element=desc.element,
    )  # fmt: skip
    views: dict[str, View | None] = dict.fromkeys(schedule.MATRICES)
    views |= {"a": p.x, "b": transposed(p.weight), "y": p.y}
    if p.x_scales is not None:
        views["scale_a"] = _as_column(p.x_scales, desc.total)
    for to, view in (("scale_b", p.scales), ("bias", p.bias)):
        if view is not None:
            views[to] = _as_rows(view, desc.experts, desc.n)
    found = schedule.int_values(Problem(product, p.device, views))
    if isinstance(found, str):
        return found
    places = {name: _NAMES[name] if views[name] is not None else "@null" for name in schedule.MATRICES}
    return found[0] | places | expert_values(p) | {"alpha_value": 1.0}


def _launch(p: Problem, kernel: str, rows: int, columns: int, values: Mapping[str, Any], smem: int = 0) -> Geometry:
    blocks = expert_blocks(p, rows, columns)
    steps = (Step(kernel, (blocks, 1, 1), values, smem=smem),) if blocks else ()
    return Geometry(steps, layout="contiguous" if dense(p) else "strided")


def _few(p: Problem) -> Geometry | str:
    desc = p.desc
    if desc.total > schedule.FEW * max(desc.experts, 1):
        return f"{desc.total} rows are not few for {desc.experts} experts, at most {schedule.FEW} for each on average"
    values = _values(p)
    if isinstance(values, str):
        return values
    for bit, name in enumerate(("x", "weight")):
        if not values["wide"] >> bit & 1:
            return f"{name} with strides {p.views[name].strides} must have k along memory in rows of whole 16 bytes"
    return _launch(p, _FEW_KERNEL.name, schedule.FEW, schedule.FEW_COLUMNS, values)


def _warpgroups(p: Problem) -> Geometry | str:
    """A block a multiprocessor, which takes tiles of one expert's rows in turn."""
    desc, values = p.desc, _values(p)
    if isinstance(values, str):
        return values
    if not desc.experts:
        return "there are no experts"
    columns = wgmma.rows_columns(p, desc.total, desc.n)
    maps: dict[str, Any] = {"up_map": None, "up_step": 0}
    for field, name, view, rows in (("a", "x", p.x, wgmma.TILE), ("b", "weight", p.weight, columns)):
        made = operand_map(name, view, rows) if desc.k else (None, False, 0)
        if isinstance(made, str):
            return f"{made}; it must have k along memory, in rows of whole 16 bytes"
        maps[f"{field}_map"], _, maps[f"{field}_step"] = made
    tiles = most_tiles(desc.total, desc.experts, wgmma.TILE) * -(-desc.n // columns)
    if not max(desc.total, desc.n, desc.experts, desc.k, tiles) < 2**31:
        return "an extent, or the number of tiles, passes 32 bits"
    grid = (min(tiles, max(1, p.device.sms)), 1, 1)
    step = Step(_WGMMA_KERNEL.name, grid, values | maps, {"COLUMNS": columns}, THREADS, shared_memory(columns))
    return Geometry((step,) if tiles else (), layout="contiguous" if dense(p) else "strided")


def _mma(long: bool) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        desc, values = p.desc, _values(p)
        if isinstance(values, str):
            return values
        # Groups of some 100 rows at least fill tiles of 128; smaller ones, and few tiles, take those of 64.
        fills = desc.total >= 96 * desc.experts and desc.total * desc.n >= 128 * 128 * p.device.sms
        fits = schedule.ring_bytes(schedule.SIZES[0]) + _TABLE <= p.device.smem
        size = schedule.SIZES[0] if fills and fits and not long else schedule.SIZES[1]
        return _launch(p, _name(long, size), size, size, values, schedule.ring_bytes(size))

    return geometry


def _too_long(desc: GroupedIntGemmDescriptor) -> str | None:
    """Why sums of 32 bits do not serve a descriptor."""
    if desc.kind is K.SUMS or desc.k <= (most := schedule.longest(E.I8, E.I8)):
        return None
    return f"sums of k = {desc.k} products may pass 32 bits, which hold those of {most}"


def _bound(_: Any, kind: Any) -> Any:
    return Ulp(0.51) if kind is K.SCALED else Exact()


def _row(name: str, geometry: Any, source: str, kernels: tuple[Kernel, ...], **more: Any) -> Variant:
    return Variant(
        name, geometry, source=f"quant_gemm/{source}.cu", kernels=kernels, elements=(E.I8,),
        guarantee=Guarantee(_bound, math="int8", batch_invariant=True), **more,
    )  # fmt: skip


def _bench_operands(torch: Any, desc: Any) -> dict[str, Any]:
    weight = torch.randint(-128, 128, (desc.experts, desc.n, desc.k), dtype=torch.int8)
    return {**even_offsets(torch, desc), "weight": weight, "x_scales": torch.ones(desc.total)}


class GroupedIntGemmPlan(Grouped, Plan):
    """y[r] = x_scales[r] · scales[e] · (x[r] @ W[e]ᵀ) + bias[e] of int8, for the rows r of each expert e.

    x [total, k] holds the rows of all experts, one expert after the other; weight W [experts, n, k], x_scales [total],
    scales and bias [experts, n], y [total, n]. `sums` are x[r] @ W[e]ᵀ in int32, modulo 2³² where k is large; `scaled`
    results, in float32, float16 or bfloat16, are the exact number rounded to double and then to y, at any k. Integers
    have no order of sums: a row has the same bits in a group of any size, and those of `int_gemm`. Rows of no expert
    give zeros. There is no gradient.
    """

    op = "quant_gemm.grouped_int_gemm"
    kinds = GroupedIntGemmKind
    descriptor = GroupedIntGemmDescriptor
    args = GroupedIntGemmArgs
    reference = staticmethod(reference)
    variants = (
        _row("few", _few, "grouped_int_gemm_few", (_FEW_KERNEL,), refuses=_too_long),
        _row("wgmma", _warpgroups, "grouped_int_gemm_wgmma", (_WGMMA_KERNEL,), refuses=_too_long, design=ArchSku.SM90A),
        _row("mma", _mma(False), "grouped_int_gemm_mma", _kernels(False), refuses=_too_long),
        _row("mma_long", _mma(True), "grouped_int_gemm_mma", _kernels(True), kinds=_SCALED),
    )
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"[{total}, {k}] by {experts} of [{n}, {k}] int8 to bf16", kind="scaled", total=total, experts=experts, n=n,
            k=k, element="int8", out_element="bfloat16", also=("scales",), make=_bench_operands, work=FLOPS,
            target=None, peers=(),
        )
        for experts, n, k, total in ((8, 14336, 4096, 16), (8, 14336, 4096, 8192), (128, 1536, 2048, 128))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedIntGemmDescriptor:
        if draw.rarely() and draw.kind is K.SCALED:  # past sums of 32 bits
            k = 1 + schedule.longest(E.I8, E.I8)
            return GroupedIntGemmDescriptor(kind=draw.kind, total=2, experts=1, n=9, k=k, element=draw.element)
        experts = draw.integer(0, 4)
        return GroupedIntGemmDescriptor(
            kind=draw.kind, total=draw.sizes(1, 7, 33, 130, 0, rare=(300,)), experts=experts,
            num_offsets=experts + draw.integer(0, 1), n=draw.sizes(1, 5, 64, 129, rare=(264,)),
            k=draw.sizes(0, 1, 67, 128, 272), out_element=draw.choice(draw.kind.outputs),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.kind is K.SCALED and arrays["x_scales"] is None:  # whose dtype says what the reference computes in
            arrays["x_scales"] = np.ones((), np.float32)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Scales and a bias say that sums are scaled."""
        if facts.get("kind") is None:
            scaled = any(shapes.get(name) is not None for name in ("x_scales", "scales", "bias"))
            facts["kind"] = K.SCALED if scaled else K.SUMS

    @classmethod
    def flops(cls, desc: GroupedIntGemmDescriptor) -> int:
        return 2 * desc.total * desc.n * desc.k


grouped_int_gemm = functional(GroupedIntGemmPlan)
