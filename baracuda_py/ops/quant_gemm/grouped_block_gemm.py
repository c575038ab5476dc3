"""grouped_block_gemm: y[r] = x[r] W[e]ᵀ + bias[e] for the rows r of each expert e, by weights in a low-bit format.

The products of a mixture of experts whose weights are quantised: rows sorted by expert, their bounds on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Array, Descriptor, ElementKind, Geometry, InvalidProblemError, Kernel, Params, Plan, Problem, Step, Variant, Vjp,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.checked import INT32
from ...core.element import HALVES
from ...schedules.gemm import Operand, wide_view
from ...schedules.products import Place
from ..gemm.gemm import rows_apart
from ..gemm.grouped_gemm import GroupedGemmArgs, GroupedGemmDescriptor, GroupedGemmPlan, even_offsets
from ..gemm.groups import INDEX, POLICY, Grouped, random_offsets, slices
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import StoredArgs, StoredMatrix, format_header, infer_stored, stored_case, stored_params
from ..quantize.stored import stored_values
from .block_gemm import ELEMENTS, GUARANTEE, rows_tile, weights
from .chunks import BLOCKS, SIMT_ROWS, SIMT_WARPS, chunk_bytes
from .experts import PARAMS as EXPERTS
from .experts import ExpertFields, expert_blocks, expert_values, many
from .unpacked import dense_kernels, unpacked

E = ElementKind
TILES = (1, 4)  # of 8 rows of x, that a block of the tensor-core kernels may have
SPLITS = (8, 4)  # how many of its warps share k
_ROWS = 64
_FEW = 16  # rows of an expert, on average, that meet weights as they are stored: most experts have one tile then


@dataclass(frozen=True, kw_only=True)
class GroupedBlockGemmDescriptor(StoredMatrix, ExpertFields, Descriptor):
    """W is [experts, n, k], see `StoredMatrix`; x is [total, k], y [total, n].

    num_offsets: `experts`, where the rows of each end, or one more, from where to where.
    """

    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        StoredMatrix.validate(self)
        ExpertFields.validate(self)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """That of the stored weights."""
        return (self.experts,)


@dataclass(slots=True, kw_only=True)
class GroupedBlockGemmArgs(StoredArgs):
    """x, bias and y have any strides; the parts of W are as in `StoredArgs`, `index` the same for all experts.

    offsets: int32 or int64, on the device, never read by the host; where the rows of each expert end, the first
    beginning at row 0 (torch's offs), or with one item more also where the first begins (cu_seqlens).
    """

    x: Array = operand("total k")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    bias: Array | None = operand("experts n", optional=True)
    y: Array = output("total n")


def reference(
    desc: GroupedBlockGemmDescriptor, *, x: Any, offsets: Any, bias: Any, apart: bool = False, **parts: Any
) -> Mapping[str, Any]:
    """NumPy matmul in the dtype x comes in, expert by expert, by weights rounded to the element."""
    y = np.zeros((desc.total, desc.n), x.dtype)
    with np.errstate(all="ignore"):
        w = np.swapaxes(weights(desc, x.dtype, **parts), -1, -2)
        for expert, rows in enumerate(slices(desc, offsets)):
            y[rows] = rows_apart(x[rows], w[expert]) if apart else x[rows] @ w[expert]
            if bias is not None:
                y[rows] += bias[expert]
    return {"y": y}


_PARAMS = Params(
    "GroupedBlockGemmParams", x="ptr", bias="ptr", y="ptr", n="i64", k="i64", x_steps="i64[3]", y_steps="i64[3]",
    bias_steps="i64[2]", chunk_bytes="i64", wide_out="i32", **EXPERTS, **stored_params(), **BLOCKS,
)  # fmt: skip


def _launch(p: Problem, kernel: str, rows: int, columns: int, axes: Mapping[str, Any], smem: int) -> Geometry | str:
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    if not wide_view(p.x):
        return f"needs x with k along memory in rows that start 16-byte aligned, got strides {p.x.strides}"
    values |= expert_values(p) | {
        "n": desc.n, "k": desc.k, "x_steps": (0, *p.x.strides), "y_steps": (0, *p.y.strides),
        "bias_steps": (0, 0) if p.bias is None else p.bias.strides, "wide_out": desc.element is E.F32,
        "chunk_bytes": chunk_bytes(desc),
    }  # fmt: skip
    blocks = expert_blocks(p, rows, columns)
    steps = (Step(kernel, (blocks, 1, 1), values, axes, smem=smem),) if blocks else ()
    return Geometry(steps, layout="contiguous" if all(view.dense for view in p.flat()) else "strided")


def _rows(p: Problem) -> Geometry | str:
    if not 0 <= p.x.strides[0] * _ROWS <= INT32:
        return f"needs rows of x that lie forwards within 2**31 elements, got strides {p.x.strides}"
    # Tiles that hold twice the mean: where they hold all rows of an expert, its weights are decoded once.
    large = min(p.desc.total, 2 * -(-p.desc.total // max(p.desc.experts, 1))) > 8 * TILES[0]
    tile = rows_tile(p.desc.kind, "rows" if large else "few", TILES[large], SPLITS[large])
    return _launch(p, tile.kernel, tile.rows, tile.columns, tile.axes, tile.smem)


def _simt(p: Problem) -> Geometry | str:
    return _launch(p, "simt", SIMT_ROWS, SIMT_WARPS, {}, 0)


def product_of(desc: Any, n: int, k: int) -> GroupedGemmDescriptor:
    """The dense product of groups, [total, k] by [experts, k, n]."""
    return GroupedGemmDescriptor(
        total=desc.total, groups=desc.experts, num_offsets=desc.num_offsets, n=n, k=k, element=desc.element
    )


def given_operands(p: Problem, names: Mapping[str, str]) -> dict[str, Operand]:
    """The operands of the dense product that are the plan's own and given, by their names there."""
    return {to: Operand(Place(name), p.views[name]) for to, name in names.items() if p.views[name] is not None}


def _unpacked(row: Variant) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        given = given_operands(p, {"a": "x", "offsets": "offsets", "bias": "bias", "y": "y"})
        product = product_of(p.desc, p.desc.n, p.desc.k)
        return unpacked(p, GroupedBlockGemmArgs, row, given, "t", product, gemm=GroupedGemmArgs)

    return geometry


class GroupedBlockGemmPlan(Grouped, Plan):
    """y[r] = x[r] @ W[e]ᵀ + bias[e] for the rows r of each expert e, W stored in any format of `FormatKind`.

    x [total, k], in f16, bf16 or f32, holds the rows of all experts, one expert after the other; W [experts, n, k],
    bias [experts, n], y [total, n] in x's element. A weight is what `block_dequantize` gives, rounded once to x's
    element; sums are in float32, bias added there, y rounded once. Up to 16 rows an expert on average, each dense
    and 16-byte aligned, meet W as it is stored, in the order of sums of `BlockGemmPlan`, whose bits a row so has; more
    go through all of W unpacked in the workspace, experts · n · k elements, and the kernels of `GroupedGemmPlan`.
    The host, which knows extents alone, decides by total / experts. With `batch_invariant=True` all rows take the first
    way. Rows of no expert give zeros. W has no gradient, nor has bias; that of x is `GroupedBlockGemmBackwardPlan`'s.
    """

    op = "quant_gemm.grouped_block_gemm"
    kinds = FormatKind
    descriptor = GroupedBlockGemmDescriptor
    args = GroupedBlockGemmArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = f"{POLICY}; an entry of index outside the groups of a row counts as the nearest of them"
    variants = (
        Variant(
            "rows", _rows, source="quant_gemm/grouped_block_gemm_rows.cu", elements=HALVES, prelude=format_header,
            kernels=tuple(
                Kernel(name, f"grouped_block_gemm_rows<{{KIND}}, {{T}}, {{NT}}, {splits}>", _PARAMS, {"NT": (tiles,)},
                       min_blocks=1)
                for name, tiles, splits in zip(("few", "rows"), TILES, SPLITS, strict=True)
            ),
            guarantee=replace(GUARANTEE, batch_invariant=True, order="mma"), may_spill=True,
        ),
        Variant(
            "simt", _simt, source="quant_gemm/grouped_block_gemm_simt.cu", elements=(E.F32,), prelude=format_header,
            kernels=(Kernel("simt", "grouped_block_gemm_simt<{KIND}, {T}>", _PARAMS, min_blocks=2),),
            guarantee=replace(GUARANTEE, batch_invariant=True),
        ),
        *(
            Variant(
                f"unpacked_{row.name}", _unpacked(row), source="quantize/block_dequantize.cu",
                kernels=dense_kernels(row), elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)),
                design=row.design, prelude=format_header, guarantee=replace(GUARANTEE, order=row.name),
                first=many(lambda _: _FEW),
            )
            for row in GroupedGemmPlan.variants
        ),
    )  # fmt: skip
    vjp = Vjp("GroupedBlockGemmBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        Benchmark(f"uint4 [{total}, {k}] by {experts} of [{n}, {k}] bf16", kind="uint4", total=total, experts=experts,
                  n=n, k=k, group=128, element="bfloat16", make=even_offsets, peers=())
        for experts, n, k, total in ((8, 14336, 4096, 16), (8, 14336, 4096, 8192), (128, 1536, 2048, 128))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedBlockGemmDescriptor:
        sizes, experts = stored_case(draw), draw.integer(0, 4)
        del sizes["batch_shape"]
        sizes |= {"total": draw.sizes(1, 5, 9, 40, 0, rare=(130, 200)), "experts": experts}
        return GroupedBlockGemmDescriptor(**sizes, num_offsets=experts + draw.integer(0, 1), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        arrays["scale"] = 0.40625 if desc.n % 2 else 1.0

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_experts(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.total * desc.n * desc.k)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """Those of experts that have rows, if as many as can have."""
        stored = math.prod((min(desc.experts, desc.total), desc.n, desc.k)) * desc.kind.row.bits / 8
        return int(stored + desc.total * (desc.k + desc.n) * desc.element.itemsize)


def infer_experts(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """n, k and how many experts there are, of weights whose codes are given."""
    codes, x = tuple(shapes["codes"]), tuple(shapes.get("x") or ())
    if len(codes) != 3:
        raise InvalidProblemError(f"codes must be rows of bytes of each expert, [experts, n, bytes], got shape {codes}")
    if len(x) == 2 and facts.get("k") is None:
        facts["k"] = x[1]
    if facts.get("experts") is None:
        facts["experts"] = codes[0]
    infer_stored(shapes, facts)
    facts.pop("batch_shape", None)


grouped_block_gemm = functional(GroupedBlockGemmPlan)
