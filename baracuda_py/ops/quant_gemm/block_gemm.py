"""block_gemm: y = x Wᵀ + bias by weights in a low-bit format, which are read as they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Array, Chained, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Step, Variant, View, Vjp, derived, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.checked import INT32
from ...core.benchmark import Benchmark
from ...core.element import HALVES, encode
from ...core.element import cast as cast_values
from ...schedules.gemm import Operand, wide_view
from ...schedules.products import Place
from ..gemm.gemm import rows_apart
from ..quantize.format import decode
from ..quantize.format import RUN
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import (
    StoredArgs, StoredFields, format_header, in_threes, infer_stored, stored_case, stored_params, stored_values,
    whole_codes,
)  # fmt: skip
from .block_gemm_mid import MID
from .block_gemm_wgmma import KERNELS as WGMMA_KERNELS
from .block_gemm_wgmma import WIDE
from .block_gemm_wgmma import geometry as wgmma_geometry
from .chunks import (
    BLOCK_STAGES, BLOCKS, CHUNK, SHORT_BLOCK, SHORT_BLOCK_STAGES, SHORT_STAGES, SIMT_ROWS, SIMT_WARPS, STAGES, WARPS,
    chunk_bytes,
)  # fmt: skip
from .unpacked import DENSE, dense_kernels, product_problem, refuses, unpacked, weights_view

E = ElementKind
ELEMENTS = (*HALVES, E.F32)
# What a block of a tensor-core kernel has: so many times 8 rows of x, and so many warps that share k, of 32 columns.
FEW, WIDE_FEW, MANY = ((1, 8), (2, 8)), ((2, 4),), ((8, 4),)
_ROWS = 64
_LINES = WARPS * 32 * 4  # runs of W that the lanes of a block take at once
_NUMBERS = WARPS * 4 * 36 * 8  # bytes of their scales and zero points
_BLOCK_ROWS = WARPS * 32  # rows of W, those of other warps counted again, whose chunks are copied at once
_COPIED = tuple(FormatKind[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "IQ4_NL"))  # as blocks
TILED = tuple(kind for kind in FormatKind if kind.row.group % RUN == 0)
"""Formats that tiles of stored weights take: runs have one scale."""
_LEAST_TILED = 33  # rows of x from which `wgmma` is ahead of `mid`
_SLOW = (FormatKind.Q3_K, FormatKind.Q6_K)


@dataclass(frozen=True, kw_only=True)
class BlockGemmDescriptor(StoredFields, Descriptor):
    """W is [*batch_shape, n, k], see `StoredFields`; x is [*batch_shape, m, k], y [*batch_shape, m, n].

    out_element: that of y: `element`, or float32.
    """

    m: int = extent()
    out_element: ElementKind = element_field(default=derived(lambda desc: desc.element))
    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        StoredFields.validate(self)
        if self.out_element not in (self.element, E.F32):
            raise InvalidProblemError(f"out_element must be {self.element} or float32, got {self.out_element}")


@dataclass(slots=True, kw_only=True)
class BlockGemmArgs(StoredArgs):
    """x, bias and y have any strides; the parts of W are as in `StoredArgs`."""

    x: Array = operand("*batch_shape m k")
    bias: Array | None = operand("n", optional=True)
    y: Array = output("*batch_shape m n", element="out_element")


def weights(desc: Any, dtype: Any, *, codes: Any, scales: Any, zeros: Any, index: Any, scale: Any) -> Any:
    """The values [*batch_shape, n, k] that products take: those of the format, rounded to the element."""

    def held(x: Any, kind: ElementKind) -> Any:
        return x if x is None or not kind.is_inexact else np.asarray(encode(cast_values(x, kind), kind))

    found = decode(desc, codes, held(scales, desc.scale_element), held(zeros, desc.zero_element), index, float(scale))
    return np.asarray(cast_values(found, desc.element)).astype(dtype)


def reference(desc: BlockGemmDescriptor, *, x: Any, bias: Any, apart: bool = False, **parts: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype x comes in, by weights rounded to the element."""
    with np.errstate(all="ignore"):
        w = np.swapaxes(weights(desc, x.dtype, **parts), -1, -2)
        y = rows_apart(x, w) if apart else np.matmul(x, w)
        return {"y": y if bias is None else y + bias}


PARAMS = Params(
    "BlockGemmParams", x="ptr", bias="ptr", y="ptr", m="i64", n="i64", k="i64", x_steps="i64[3]", y_steps="i64[3]",
    bias_step="i64", chunk_bytes="i64", wide_out="i32", **stored_params(), **BLOCKS,
)  # fmt: skip


def product_values(p: Problem) -> dict[str, Any] | str:
    """The values of `PARAMS`, or why no kernel takes operands that lie so."""
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    if not wide_view(p.x):
        return f"needs x with k along memory in rows that start 16-byte aligned, got strides {p.x.strides}"
    steps = {}
    for name, view in (("x", p.x), ("y", p.y)):
        found = in_threes(view)
        if found is None:
            return f"{name} must have a batch of one stride, got strides {view.strides} of shape {view.shape}"
        steps[f"{name}_steps"] = found.strides
    values |= steps | {
        "m": desc.m, "n": desc.n, "k": desc.k, "bias_step": 0 if p.bias is None else p.bias.strides[0],
        "chunk_bytes": chunk_bytes(desc),
        "wide_out": desc.out_element is not desc.element or desc.element is E.F32,
    }  # fmt: skip
    return values


@dataclass(frozen=True)
class Tile:
    """What a block of a kernel makes: rows and columns of y, which instance does, and its shared memory."""

    kernel: str
    rows: int
    columns: int
    axes: Mapping[str, Any]
    smem: int = 0

    def blocks(self, desc: Any) -> int:
        """How many a product takes."""
        return int(math.prod(desc.batch_shape) * -(-desc.m // self.rows) * -(-desc.n // self.columns))


def rows_tile(kind: FormatKind, kernel: str, tiles: int, splits: int) -> Tile:
    """The tile of a tensor-core kernel of so many times 8 rows of x: its sums and the codes under way are shared."""
    columns, smem = 32 * WARPS // splits, _LINES * 2 * tiles * 4
    if kind.row.scales:
        codes = int(kind.row.bytes(RUN))
        smem += _LINES * codes * (STAGES if tiles > 2 or codes > RUN // 2 else SHORT_STAGES) + _NUMBERS
    elif kind in _COPIED and tiles <= 2:
        block = int(kind.row.bytes(RUN))
        stages = SHORT_BLOCK_STAGES if block <= SHORT_BLOCK else BLOCK_STAGES
        smem += _BLOCK_ROWS * (CHUNK // RUN * block + 8) * stages
    return Tile(kernel, 8 * tiles, columns, {"NT": tiles}, smem)


def tile_of(p: Problem, columns: int) -> Tile | str:
    """The tile for rows [*batch, m, k] of x, or why there is none; columns: of all products together."""
    x, kind = p.x, p.desc.kind
    if x.element is E.F32:
        return Tile("simt", SIMT_ROWS, SIMT_WARPS, {})
    if not 0 <= x.strides[-2] * _ROWS <= INT32:
        return f"needs rows of x that lie forwards within 2**31 elements, got strides {x.strides}"
    few, narrow = (rows_tile(kind, "few", *one) for one in FEW)
    wide, most = rows_tile(kind, "wide", *WIDE_FEW[0]), rows_tile(kind, "rows", *MANY[0])
    # Wide tiles read x half as often, where they are enough for two on every multiprocessor.
    more = wide if columns >= 2 * p.device.sms * wide.columns else narrow
    tiles = [tile for tile in (few, more, most) if tile.smem <= p.device.smem or tile is few]
    return next((tile for tile in tiles if x.shape[-2] <= tile.rows), tiles[-1])


def rows_kernels(function: str, params: Params) -> tuple[Kernel, ...]:
    """The tensor-core kernels: two blocks for few rows of x on a multiprocessor, else one."""
    return tuple(
        Kernel(name, f"{function}<{{KIND}}, {{T}}, {{NT}}, {splits[0]}>", params, {"NT": tiles}, min_blocks=blocks)
        for name, made, blocks in (("few", FEW, 2), ("wide", WIDE_FEW, 2), ("rows", MANY, 1))
        for tiles, splits in (tuple(zip(*made, strict=True)),)
    )  # fmt: skip


def _stored(p: Problem) -> Geometry | str:
    """One launch over the weights as they are stored."""
    values, tile = product_values(p), tile_of(p, math.prod(p.desc.batch_shape) * p.desc.n)
    if isinstance(values, str) or isinstance(tile, str):
        return values if isinstance(values, str) else str(tile)
    blocks = tile.blocks(p.desc)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    step = Step(tile.kernel, (blocks, 1, 1), values, tile.axes, smem=tile.smem)
    return Geometry((step,), layout="contiguous" if all(view.dense for view in p.flat()) else "strided")


def dense_views(p: Problem) -> dict[str, View | None]:
    """The operands of the dense product."""
    w = Operand(Place("@workspace"), weights_view(p.desc)).t.view
    return {"a": p.x, "b": w, "y": p.y, "bias": p.bias}


def _unpacked(row: Variant) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        dense = product_problem(p, dense_views(p), desc.m, desc.n, desc.k, desc.out_element)
        named = {"a": "x", "y": "y", "bias": "bias"}
        given = {to: Operand(Place(name), p.views[name]) for to, name in named.items() if p.views[name] is not None}
        return unpacked(p, BlockGemmArgs, row, given, "t", dense.desc)

    return geometry


def many(p: Problem) -> bool:
    """Whether there are more rows of x than are multiplied by weights as they are stored."""
    return bool(p.desc.m > (2 * SIMT_ROWS if p.desc.element is E.F32 else _ROWS))


def tiled(p: Problem) -> bool:
    """Whether so many rows of x go by the tiles of `wgmma`.

    That are those for which weights are decoded once: to decode them again takes longer than to unpack them. So it does
    where runs are not whole, which tiles decode in parts, one after the other, and in formats that take long to decode
    from the second half of a tile's rows on.
    """
    runs = p.index is None and p.desc.group % RUN == 0 and whole_codes(p)
    return bool(runs and _LEAST_TILED <= p.desc.m <= (WIDE // 2 if p.desc.kind in _SLOW else WIDE))


def _error(element: ElementKind, _: Any) -> Chained:
    """Sums in float32 are one chain along k, or a few. Tensor cores, which float32 has not, truncate what they add."""
    return Chained(4 if element is E.F32 else 8, mean=3)


GUARANTEE = Guarantee(_error)
_UNPACKED = tuple(
    Variant(
        f"unpacked_{row.name}", _unpacked(row), source="quantize/block_dequantize.cu", kernels=dense_kernels(row),
        elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design, backend=row.backend,
        prelude=format_header, guarantee=replace(GUARANTEE, order=row.name), first=many, refuses=refuses(row),
        missing=row.missing,
    )
    for row in DENSE
)  # fmt: skip


class BlockGemmPlan(Plan):
    """y = x @ Wᵀ + bias, W a stored matrix in any format of `FormatKind`: weight-only quantised linear layers.

    x [*batch_shape, m, k] in f16, bf16 or f32, W [*batch_shape, n, k], bias [n], y [*batch_shape, m, n] in x's element
    or float32. A weight is what `block_dequantize` gives: the format's own float32 arithmetic, rounded once to x's
    element. Products are exact in float32 (f32: rounded), sums in float32, bias added there, y rounded once. W has no
    gradient, nor has bias; that of x is `BlockGemmBackwardPlan`'s. Up to 64 rows (16 of f32), each dense and 16-byte
    aligned, meet W as it is stored, in an order of sums that k alone fixes; up to 256 such rows of f16 and bf16 do in
    tiles where groups are of whole runs of 32, with few of them in parts of k whose sums lie in the workspace. Others
    go through W unpacked in the workspace, n · k elements. With `batch_invariant=True` all rows take the first way.
    """

    op = "quant_gemm.block_gemm"
    kinds = FormatKind
    descriptor = BlockGemmDescriptor
    args = BlockGemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "rows", _stored, source="quant_gemm/block_gemm_rows.cu", elements=HALVES, prelude=format_header,
            kernels=rows_kernels("block_gemm_rows", PARAMS),
            guarantee=replace(GUARANTEE, batch_invariant=True, order="mma"), may_spill=True,
        ),
        Variant(
            "simt", _stored, source="quant_gemm/block_gemm_simt.cu", elements=(E.F32,), prelude=format_header,
            kernels=(Kernel("simt", "block_gemm_simt<{KIND}, {T}>", PARAMS, min_blocks=2),),
            guarantee=replace(GUARANTEE, batch_invariant=True),
        ),
        Variant(
            "wgmma", wgmma_geometry, source="quant_gemm/block_gemm_wgmma.cu", elements=HALVES, prelude=format_header,
            kernels=WGMMA_KERNELS, design=ArchSku.SM90A, guarantee=replace(GUARANTEE, order="wgmma_stored"),
            first=tiled, kinds=TILED,
        ),
        Variant("mid", guarantee=replace(GUARANTEE, order="mid"), **MID),
        *_UNPACKED,
    )  # fmt: skip
    vjp = Vjp("BlockGemmBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        Benchmark(f"{kind} [{m}, 4096] x [14336, 4096] bf16", kind=kind, m=m, n=14336, k=4096, group=group,
                  element="bfloat16", peers=())
        for kind, group in (("uint4", 128), ("nf4", 64), ("q4_0", None))
        for m in (1, 16, 64, 4096)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BlockGemmDescriptor:
        sizes = stored_case(draw)
        sizes |= {
            "m": draw.sizes(1, 5, 9, 17, 0, rare=(8, 33, 64, 65)),
            "out_element": draw.choice((draw.element, E.F32)),
        }
        if draw.rarely():  # wide tiles: of the dense product, of stored weights
            sizes |= draw.choice(({"m": 130, "n": 264}, {"m": 250, "n": 250}, {"m": 11, "n": 390}))
        return BlockGemmDescriptor(**sizes, element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        arrays["scale"] = 0.40625 if desc.n % 2 else 1.0

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_stored(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * math.prod(desc.batch_shape) * desc.m * desc.n * desc.k)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        batch, size = math.prod(desc.batch_shape), int(desc.element.itemsize)
        values = desc.m * desc.k * size + desc.m * desc.n * int(desc.out_element.itemsize)
        return int(batch * (desc.n * desc.k * desc.kind.row.bits / 8 + values))


block_gemm = functional(BlockGemmPlan)
