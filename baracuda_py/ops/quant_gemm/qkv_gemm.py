"""qkv_gemm: q, k and v of one x by three matrices in a low-bit format, in one launch where x has few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core.memo import cached_property
from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Geometry, Kernel, Params, Plan, Problem, Scalar, Step,
    UnsupportedError, Variant, Vjp, choice, derived, extent, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import INT32
from ...core.element import HALVES
from ...core.tensor import Shape
from ...schedules.gemm import Operand
from ...schedules.products import Place
from ..quantize.format import PART, RUNS, SCALES
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import (
    ZERO_ELEMENTS, format_header, infer_stored, random_bytes, random_index, random_scales, random_zeros, stored_case,
)  # fmt: skip
from . import block_gemm
from .block_gemm import (
    ELEMENTS,
    GUARANTEE,
    BlockGemmDescriptor,
    dense_views,
    many,
    product_values,
    rows_kernels,
    tile_of,
    tiled,
)
from .block_gemm_wgmma import KERNELS as WGMMA_KERNELS
from .block_gemm_wgmma import geometry as wgmma_geometry
from .chunks import BLOCKS
from .unpacked import DENSE, dense_kernels, product_problem, refuses, unpacked

E = ElementKind
K = FormatKind
KINDS = (K.INT8, K.UINT8, K.INT4, K.UINT4, K.NF4, K.FP8_E4M3, K.Q4_0, K.Q8_0, K.Q4_K, K.Q6_K)
"""Formats that the fused product takes, each of which is two dozen kernels."""
PARTS = ("q", "k", "v")
_SCALED = tuple(kind for kind in KINDS if kind.row.scales)
_ZEROED = tuple(kind for kind in KINDS if kind.row.zeros)


@dataclass(frozen=True, kw_only=True)
class QkvGemmDescriptor(Descriptor):
    """x is [m, k]; the three stored matrices, all of format `kind`, are [n_q, k], [n_k, k] and [n_v, k].

    group, row_group, scale_element, zero_element: as in `BlockGemmDescriptor`, the same for all three. out_element:
    that of the results: `element`, or float32.
    """

    kind: FormatKind = choice(FormatKind)
    m: int = extent()
    n_q: int = extent()
    n_k: int = extent()
    n_v: int = extent()
    k: int = extent()
    group: int = integer(derived(lambda desc: desc.kind.row.group or max(desc.k, PART)), minimum=1, maximum=INT32)
    row_group: int = integer(derived(lambda desc: 1), minimum=1, maximum=INT32)
    scale_element: ElementKind = element_field(SCALES, derived(lambda desc: (*desc.kind.row.scales, E.F32)[0]))
    zero_element: ElementKind = element_field(ZERO_ELEMENTS, derived(lambda desc: (*desc.kind.row.zeros, E.F32)[0]))
    out_element: ElementKind = element_field(default=derived(lambda desc: desc.element))
    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        if self.kind not in KINDS:
            raise UnsupportedError(
                f"kind must be one of {', '.join(kind.value for kind in KINDS)}, got {self.kind.value}; "
                "qkv_project takes every format"
            )
        _ = self.products  # raises what the products do

    @cached_property
    def products(self) -> tuple[BlockGemmDescriptor, ...]:
        """The three products."""
        shared = ("kind", "m", "k", "group", "row_group", "scale_element", "zero_element", "out_element", "element")
        given = {name: getattr(self, name) for name in shared}
        return tuple(BlockGemmDescriptor(n=n, **given) for n in (self.n_q, self.n_k, self.n_v))

    @cached_property
    def codes_q_shape(self) -> Shape:
        """Rows of bytes, as those of k and v."""
        return self.products[0].codes_shape

    @cached_property
    def codes_k_shape(self) -> Shape:
        return self.products[1].codes_shape

    @cached_property
    def codes_v_shape(self) -> Shape:
        return self.products[2].codes_shape

    @cached_property
    def scales_q_shape(self) -> Shape:
        """One for each group, and each group of rows, as those of k and v."""
        return self.products[0].scales_shape

    @cached_property
    def scales_k_shape(self) -> Shape:
        return self.products[1].scales_shape

    @cached_property
    def scales_v_shape(self) -> Shape:
        return self.products[2].scales_shape


def _codes(name: str) -> Any:
    return operand(f"*codes_{name}_shape", element=E.U8, layout="dense", values=random_bytes)


def _scales(name: str) -> Any:
    return operand(f"*scales_{name}_shape", element="scale_element", kinds=_SCALED, values=random_scales)


def _zeros(name: str) -> Any:
    shape = f"*scales_{name}_shape"
    return operand(shape, element="zero_element", kinds=_ZEROED, optional=True, values=random_zeros)


def _index() -> Any:
    return operand("k", element=E.I32, kinds=_SCALED, optional=True, layout="dense", values=random_index)


@dataclass(slots=True, kw_only=True)
class QkvStoredArgs(Args):
    """The parts of three stored matrices, each as in `StoredArgs`: a scale, a zero point and an index of its own."""

    codes_q: Array = _codes("q")
    codes_k: Array = _codes("k")
    codes_v: Array = _codes("v")
    scales_q: Array | None = _scales("q")
    scales_k: Array | None = _scales("k")
    scales_v: Array | None = _scales("v")
    zeros_q: Array | None = _zeros("q")
    zeros_k: Array | None = _zeros("k")
    zeros_v: Array | None = _zeros("v")
    index_q: Array | None = _index()
    index_k: Array | None = _index()
    index_v: Array | None = _index()
    scale_q: Scalar = scalar(1.0)
    scale_k: Scalar = scalar(1.0)
    scale_v: Scalar = scalar(1.0)


@dataclass(slots=True, kw_only=True)
class QkvGemmArgs(QkvStoredArgs):
    """x, the biases and the results have any strides."""

    x: Array = operand("m k")
    bias_q: Array | None = operand("n_q", optional=True)
    bias_k: Array | None = operand("n_k", optional=True)
    bias_v: Array | None = operand("n_v", optional=True)
    y_q: Array = output("m n_q", element="out_element")
    y_k: Array = output("m n_k", element="out_element")
    y_v: Array = output("m n_v", element="out_element")


_STORED = ("codes", "scales", "zeros", "index")


def parts_of(given: Mapping[str, Any], part: str, *more: str) -> dict[str, Any]:
    """What of q, k or v is given, by the names that the product by one matrix has."""
    return {name: given[f"{name}_{part}"] for name in (*_STORED, *more)}


def reference(desc: QkvGemmDescriptor, *, x: Any, apart: bool = False, **given: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype x comes in, by weights rounded to the element."""
    return {
        f"y_{part}": block_gemm.reference(product, x=x, apart=apart, **parts_of(given, part, "scale", "bias"))["y"]
        for part, product in zip(PARTS, desc.products, strict=True)
    }


_SHARED = (
    "x_steps", "m", "k", "chunk_bytes", "group", "groups", "row_group", "scale_code", "zero_code", "scaled", "wide_out",
)  # fmt: skip
_OWN = ("n", "y_steps", "code_steps", "scale_steps", "zero_steps", "bias_step", "whole")
PARAMS = Params(
    "QkvGemmParams", x="ptr", **{f"{name}_{part}": "ptr" for name in (*_STORED, "bias", "y") for part in PARTS},
    scale_q="scalar", scale_k="scalar", scale_v="scalar", first="i64[3]", m="i64", n="i64[3]", k="i64",
    x_steps="i64[3]", y_steps="i64[3][3]", code_steps="i64[3][2]", scale_steps="i64[3][3]", zero_steps="i64[3][3]",
    bias_step="i64[3]", chunk_bytes="i64", group="i32", groups="i32", row_group="i32", scale_code="i32",
    zero_code="i32", whole="i32[3]", scaled="i32", wide_out="i32", **RUNS, **BLOCKS,
)  # fmt: skip


def products_of(p: Problem, *shared: str) -> tuple[Problem, ...]:
    """The three products as problems of `BlockGemmPlan`; shared: operands that they all have."""
    return tuple(
        Problem(product, p.device, {name: p.views[name] for name in shared} | parts_of(p.views, part, "bias", "y"))
        for part, product in zip(PARTS, p.desc.products, strict=True)
    )


def _stored(p: Problem) -> Geometry | str:
    """One launch over the weights as they are stored: the blocks of three products, one after the other."""
    tile, blocks, first, own = tile_of(p, p.desc.n_q + p.desc.n_k + p.desc.n_v), 0, [], []
    if isinstance(tile, str):
        return tile
    for product in products_of(p, "x"):
        values = product_values(product)
        if isinstance(values, str):
            return values
        first.append(blocks)
        own.append(values)
        blocks += tile.blocks(product.desc)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {name: own[0][name] for name in _SHARED} | {name: [one[name] for one in own] for name in _OWN}
    step = Step(tile.kernel, (blocks, 1, 1), values | {"first": first}, tile.axes, smem=tile.smem)
    return Geometry((step,), layout=layout_of(p))


def layout_of(p: Problem) -> str:
    """The layout class of all operands together."""
    return "contiguous" if all(view.dense for view in p.flat()) else "strided"


_NAMES = (*_STORED, "bias", "y")


def of_part(kernels: Iterable[Kernel], part: str, steps: Iterable[Any]) -> list[Any]:
    """Steps of a product by one matrix, of the operands of q, k or v; calls of a library have their own."""
    known, made = {kernel.name: kernel.params.fields for kernel in kernels}, []
    for step in steps:
        if isinstance(step, Step):
            fields = known[step.kernel]
            named = {
                name: f"{name}_{part}" for name in _NAMES if name in fields and step.params.get(name, name) == name
            }
            named |= {"scale_ptr": f"scale_{part}"} if fields.get("scale") == "scalar" else {}
            step = replace(step, params={**step.params, **named})
        made.append(step)
    return made


def _unpacked(row: Variant) -> Callable[[str, Problem], Geometry | str]:
    """A product by a matrix that is unpacked into the workspace."""

    def geometry(part: str, p: Problem) -> Geometry | str:
        desc = p.desc
        dense = product_problem(p, dense_views(p), desc.m, desc.n, desc.k, desc.out_element)
        given = {"a": Operand(Place("x"), p.x), "y": Operand(Place(f"y_{part}"), p.y)}
        if p.bias is not None:
            given["bias"] = Operand(Place(f"bias_{part}"), p.bias)
        return unpacked(p, QkvGemmArgs, row, given, "t", dense.desc)

    return geometry


def _each(
    name: str, product: Callable[[str, Problem], Geometry | str], kernels: tuple[Kernel, ...], **facts: Any
) -> Variant:
    """The row of three products, one after the other, which share the workspace."""

    def geometry(p: Problem) -> Geometry | str:
        steps: list[Any] = []
        used = 0
        for part, one in zip(PARTS, products_of(p, "x"), strict=True):
            if not one.y.size:
                continue
            made = product(part, one)
            if isinstance(made, str):
                return f"{part}: {made}"
            steps += of_part(kernels, part, made.steps)
            used = max(used, made.workspace)
        return Geometry(tuple(steps), used, layout_of(p))

    return Variant(
        name, geometry, kernels=kernels, prelude=format_header, guarantee=replace(GUARANTEE, order=name), **facts
    )


def _tiled(p: Problem) -> bool:
    """Whether each product takes tiles of weights as they are stored."""
    return all(map(tiled, products_of(p, "x")))


_UNPACKED = tuple(
    _each(
        f"unpacked_{row.name}", _unpacked(row), dense_kernels(row), source="quantize/block_dequantize.cu",
        elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design, backend=row.backend,
        first=many, refuses=refuses(row), missing=row.missing,
    )
    for row in DENSE
)  # fmt: skip


class QkvGemmPlan(Plan):
    """q, k, v = x @ Wᵀ + bias by three stored matrices of any widths: the projections before attention, fused.

    x [m, k] in f16, bf16 or f32, the matrices [n_q, k], [n_k, k], [n_v, k] in one format, the results in x's element or
    float32. Every number has the bits that `BlockGemmPlan` gives for that matrix alone, in the same layout: weights
    rounded to x's element, sums in float32, bias added there, one rounding. Up to 64 rows (16 of f32), each dense and
    16-byte aligned, take one launch over the weights as they are stored; others take three products, which share the
    workspace: on sm_90 up to 256 rows of f16 and bf16 by tiles of stored weights, else by unpacked ones. x has a
    gradient, the weights and biases have none.
    """

    op = "quant_gemm.qkv_gemm"
    kinds = KINDS
    descriptor = QkvGemmDescriptor
    args = QkvGemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "rows", _stored, source="quant_gemm/qkv_gemm_rows.cu", elements=HALVES, prelude=format_header,
            kernels=rows_kernels("qkv_gemm_rows", PARAMS),
            guarantee=replace(GUARANTEE, batch_invariant=True, order="mma"), may_spill=True,
        ),
        Variant(
            "simt", _stored, source="quant_gemm/qkv_gemm_simt.cu", elements=(E.F32,), prelude=format_header,
            kernels=(Kernel("simt", "qkv_gemm_simt<{KIND}, {T}>", PARAMS, min_blocks=2),),
            guarantee=replace(GUARANTEE, batch_invariant=True), may_spill=True,
        ),
        _each(
            "wgmma", lambda part, p: wgmma_geometry(p), WGMMA_KERNELS, source="quant_gemm/block_gemm_wgmma.cu",
            elements=HALVES, design=ArchSku.SM90A, first=_tiled,
        ),
        *_UNPACKED,
    )  # fmt: skip
    vjp = Vjp("QkvGemmBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        Benchmark(f"{kind} [{m}, 4096] x [4096 + 1024 + 1024, 4096] bf16", kind=kind, m=m, n_q=4096, n_k=1024, n_v=1024,
                  k=4096, group=group, element="bfloat16", work=BYTES, peers=())
        for kind, group in (("int8", 4096), ("uint4", 128))
        for m in (1, 16, 512)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QkvGemmDescriptor:
        return QkvGemmDescriptor(**qkv_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        own_scales(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_products(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.m * desc.k * (desc.n_q + desc.n_k + desc.n_v))

    @classmethod
    def bytes(cls, desc: Any) -> int:
        n, size = desc.n_q + desc.n_k + desc.n_v, int(desc.element.itemsize)
        values = desc.m * desc.k * size + desc.m * n * int(desc.out_element.itemsize)
        return int(n * desc.k * desc.kind.row.bits / 8 + values)


def own_scales(desc: Any, arrays: dict[str, Any]) -> None:
    """For tests: some of the three matrices have a scale of their own."""
    arrays["scale_q"] = 0.40625 if desc.n_q % 2 else 1.0
    arrays["scale_v"] = 1.625 if desc.n_v % 2 else 1.0


def qkv_case(draw: Any) -> dict[str, Any]:
    """Small matrices for tests, of unequal widths."""
    sizes = stored_case(draw)
    del sizes["batch_shape"]
    n = sizes.pop("n")
    sizes |= {
        "n_q": n, "n_k": draw.choice((n, 3, 0, 17)), "n_v": draw.choice((2, n, 33)),
        "m": draw.sizes(1, 5, 9, 17, 0, rare=(8, 33, 65)), "out_element": draw.choice((draw.element, E.F32)),
    }  # fmt: skip
    if draw.rarely():  # wide tiles: of the dense product, of stored weights
        sizes |= draw.choice(({"m": 130, "n_q": 264}, {"m": 250, "n_q": 250}, {"m": 11, "n_q": 390}))
    return sizes


def infer_products(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """The extents and groups of three matrices whose codes are given, where they are not said."""
    rows: list[int] = []
    for part in PARTS:
        own: dict[str, Any] = {"kind": facts["kind"], "k": facts.get("k")} if "kind" in facts else {}
        infer_stored({name: shapes.get(f"{name}_{part}") for name in ("codes", "scales")}, own)
        rows += [own.pop("row_group")] if own.get("row_group") else []
        own.pop("kind", None)
        own.pop("batch_shape", None)
        if "n" in own:
            own[f"n_{part}"] = own.pop("n")
        facts |= {name: value for name, value in own.items() if facts.get(name) is None}
    if rows and facts.get("row_group") is None:  # of a matrix with fewer rows than that, one group
        facts["row_group"] = max(rows)


qkv_gemm = functional(QkvGemmPlan)
