"""sparse24: matrices of which two of every four neighbours are kept: prune, compress, decompress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Plan, Problem, Variant, Vjp,
    element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape
from ...schedules.sparse24 import kernel, pairs_of

E = ElementKind
FLOATS = (E.F16, E.BF16, E.F32, E.F64)
ELEMENTS = (*FLOATS, E.I8)
_SOURCE = "quant_gemm/sparse24.cu"


@dataclass(frozen=True, kw_only=True)
class Sparse24Descriptor(Descriptor):
    """The dense array has shape `shape`, whose last axis falls into groups of four."""

    shape: Shape = extents()
    element: ElementKind = element(ELEMENTS)

    def validate(self) -> None:
        if not self.shape or self.shape[-1] % 4:
            raise InvalidProblemError(
                f"the last axis must be a multiple of 4, groups of which two are kept, got {self.shape}"
            )

    @cached_property
    def kept_shape(self) -> Shape:
        """Of the values."""
        return (*self.shape[:-1], self.shape[-1] // 2)

    @cached_property
    def metadata_shape(self) -> Shape:
        """Of the metadata, a byte for two groups."""
        return (*self.shape[:-1], -(-self.shape[-1] // 8))


def metadata_in_order(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Bytes of two nibbles, each of two places in ascending order."""
    nibbles = rng.choice(np.array([4, 8, 12, 9, 13, 14], np.uint8), (2, *shape))
    return nibbles[0] | nibbles[1] << 4


def places_of(metadata: Any, groups: int) -> Any:
    """The places [..., groups, 2] within groups that bytes of metadata say."""
    nibbles = np.stack([metadata & 15, metadata >> 4], -1).reshape(*metadata.shape[:-1], 2 * metadata.shape[-1])
    nibbles = nibbles[..., :groups].astype(np.int64)
    return np.stack([nibbles & 3, nibbles >> 2], -1)


def kept_places(x: Any) -> Any:
    """The places [..., groups, 2] of the two largest of every four by magnitude, ascending."""
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // 4, 4)
    bad = np.isnan(groups)
    order = np.lexsort((-np.where(bad, 0, np.abs(groups.astype(np.result_type(groups, np.float32)))), ~bad), axis=-1)
    return np.sort(order[..., :2], axis=-1)


def spread(values: Any, metadata: Any, shape: Shape) -> Any:
    """Values at their places, zeros elsewhere; the second of two at one place wins."""
    groups = shape[-1] // 4
    places = places_of(metadata, groups)
    pairs = values.reshape(*shape[:-1], groups, 2)
    y = np.zeros((*shape[:-1], groups, 4), values.dtype)
    for e in range(2):
        np.put_along_axis(y, places[..., e : e + 1], pairs[..., e : e + 1], -1)
    return y.reshape(shape)


def _grouped(x: Any) -> Any:
    return x.reshape(*x.shape[:-1], x.shape[-1] // 4, 4)


# ---- prune ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Sparse24PruneArgs(Args):
    """Any strides; y may be x itself."""

    x: Array = operand("*shape")
    y: Array | None = output("*shape", optional=True, inplace=("x",))
    mask: Array | None = output("*shape", element=E.BOOL, optional=True)


def prune_reference(desc: Sparse24Descriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy."""
    del wanted
    mask = np.zeros((*desc.shape[:-1], desc.shape[-1] // 4, 4), np.bool_)
    np.put_along_axis(mask, kept_places(x), True, -1)
    mask = mask.reshape(desc.shape)
    return {"y": np.where(mask, x, np.zeros((), x.dtype)), "mask": mask}


def _prune(p: Problem) -> Geometry | str:
    return pairs_of(p, "prune", (p.y, p.mask, None, p.x), {"source": "x", "dense": "y", "mask": "mask"}, (8, 8, 1, 8))


def _row(geometry: Any, name: str, elements: tuple[ElementKind, ...] = ELEMENTS) -> tuple[Variant, ...]:
    guarantee = Guarantee(Exact(), native=True, batch_invariant=True)
    return (
        Variant("pairs", geometry, source=_SOURCE, kernels=(kernel(name),), elements=elements, guarantee=guarantee),
    )


def _case(draw: Any) -> Sparse24Descriptor:
    lead = draw.choice(((), (3,), (2, 5), (0,)))
    return Sparse24Descriptor(shape=(*lead, 4 * draw.sizes(0, 1, 2, 7, 16, 300)), element=draw.element)


def _prune_in_torch(torch: Any, desc: Sparse24Descriptor, *, x: Any, wanted: set[str]) -> Any:
    if 0 in desc.shape:
        return NotImplemented
    groups = x.reshape(*desc.shape[:-1], desc.shape[-1] // 4, 4)
    order = groups.abs().nan_to_num(nan=float("inf")).argsort(dim=-1, descending=True, stable=True)
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter(-1, order[..., :2], True).reshape(desc.shape)
    return {"y": torch.where(mask, x, torch.zeros_like(x)), "mask": mask}


class Sparse24PrunePlan(Plan):
    """y = x with all but the two largest of every four neighbours along the last axis made 0.

    The largest are those of the largest magnitude, of equal ones the first; NaN is the largest of all. mask: which are
    kept. 2:4 sparsity is what sparse tensor cores multiply at twice the rate (Mishra et al., Accelerating sparse deep
    neural networks, 2021).
    """

    op = "quant_gemm.sparse24_prune"
    descriptor = Sparse24Descriptor
    args = Sparse24PruneArgs
    reference = staticmethod(prune_reference)
    variants = _row(_prune, "prune")
    torch = staticmethod(_prune_in_torch)
    benchmarks = (
        Benchmark("[16384, 8192] bf16", shape=(16384, 8192), element="bfloat16", also=("y",), peers=()),
    )  # fmt: skip
    case = staticmethod(_case)


# ---- compress -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Sparse24CompressArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    values: Array = output("*kept_shape")
    metadata: Array = output("*metadata_shape", element=E.U8)


def compress_reference(desc: Sparse24Descriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy."""
    places = kept_places(x)
    values = np.take_along_axis(_grouped(x), places, -1).reshape(desc.kept_shape)
    nibbles = np.full((*desc.shape[:-1], 2 * desc.metadata_shape[-1]), 4, np.uint8)
    nibbles[..., : desc.shape[-1] // 4] = places[..., 0] | places[..., 1] << 2
    return {"values": values, "metadata": nibbles[..., ::2] | nibbles[..., 1::2] << 4}


def _compress(p: Problem) -> Geometry | str:
    slots = {"dense": "x", "values": "values", "metadata": "metadata"}
    return pairs_of(p, "compress", (p.x, p.values, p.metadata, None), slots)


class Sparse24CompressPlan(Plan):
    """values, the two elements of every four that `Sparse24PrunePlan` keeps, and metadata, their places.

    values [*, k / 2] are in the order of x. metadata [*, k / 8 rounded up], uint8: a nibble for each group, the first
    of two in the low half of a byte; its low two bits are the place, 0 to 3, of the first element, its high two bits
    that of the second, and they ascend. That is what `mma.sp` of the PTX ISA reads, row after row; the order in which
    lanes of a warp have it is the kernels' own matter. Rows that are not 2:4 lose what pruning makes 0; a group with
    fewer than two elements other than 0 keeps zeros. What a last byte has of no group is 4, places 0 and 1.
    """

    op = "quant_gemm.sparse24_compress"
    descriptor = Sparse24Descriptor
    args = Sparse24CompressArgs
    reference = staticmethod(compress_reference)
    value_policy = "of a group with more than two elements other than 0 the two largest stay"
    variants = _row(_compress, "compress")
    benchmarks = (Benchmark("[16384, 8192] bf16", shape=(16384, 8192), element="bfloat16", peers=()),)
    case = staticmethod(_case)


# ---- decompress -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Sparse24DecompressArgs(Args):
    """Any strides."""

    values: Array = operand("*kept_shape")
    metadata: Array = operand("*metadata_shape", element=E.U8)
    y: Array = output("*shape")


def decompress_reference(desc: Sparse24Descriptor, *, values: Any, metadata: Any) -> Mapping[str, Any]:
    """NumPy."""
    return {"y": spread(values, metadata, desc.shape)}


def _decompress(p: Problem) -> Geometry | str:
    slots = {"dense": "y", "values": "values", "metadata": "metadata"}
    return pairs_of(p, "decompress", (p.y, p.values, p.metadata, None), slots)


def _dense_of(shapes: Mapping[str, Any], facts: dict[str, Any], name: str, times: int) -> None:
    """The dense shape from that of an operand whose last axis is shorter."""
    found = shapes.get(name)
    if facts.get("shape") is None and found:
        facts["shape"] = (*found[:-1], times * found[-1])


class Sparse24DecompressPlan(Plan):
    """y, zeros but for the values at the places that metadata says: the inverse of `Sparse24CompressPlan`.

    Exact; y of compressed x is pruned x. Where both places of a group are the same, the second value is there.
    """

    op = "quant_gemm.sparse24_decompress"
    descriptor = Sparse24Descriptor
    args = Sparse24DecompressArgs
    reference = staticmethod(decompress_reference)
    value_policy = "where both places of a group are the same, the second value is there"
    variants = _row(_decompress, "decompress")
    vjp = Vjp("Sparse24DecompressBackwardPlan", grads={"values": "dvalues"})
    benchmarks = (Benchmark("[16384, 8192] bf16", shape=(16384, 8192), element="bfloat16", peers=()),)
    case = staticmethod(_case)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        _dense_of(shapes, facts, "values", 2)


@dataclass(slots=True, kw_only=True)
class Sparse24DecompressBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("*shape")
    metadata: Array = operand("*metadata_shape", element=E.U8)
    dvalues: Array = output("*kept_shape")


def backward_reference(desc: Sparse24Descriptor, *, dy: Any, metadata: Any) -> Mapping[str, Any]:
    """NumPy."""
    places = places_of(metadata, desc.shape[-1] // 4)
    pairs = np.take_along_axis(_grouped(dy), places, -1)
    pairs[..., 0] = np.where(places[..., 0] == places[..., 1], 0, pairs[..., 0])
    return {"dvalues": pairs.reshape(desc.kept_shape)}


def _select(p: Problem) -> Geometry | str:
    slots = {"dense": "dy", "values": "dvalues", "metadata": "metadata"}
    return pairs_of(p, "select", (p.dy, p.dvalues, p.metadata, None), slots)


class Sparse24DecompressBackwardPlan(Plan):
    """dvalues, the elements of dy at the places that metadata says; a value that another one stands over has 0."""

    op = "quant_gemm.sparse24_decompress_backward"
    direction = "backward"
    descriptor = Sparse24Descriptor
    args = Sparse24DecompressBackwardArgs
    reference = staticmethod(backward_reference)
    variants = _row(_select, "select", FLOATS)
    benchmarks = (Benchmark("[16384, 8192] bf16", shape=(16384, 8192), element="bfloat16", peers=()),)
    case = staticmethod(_case)


sparse24_compress = functional(Sparse24CompressPlan)
sparse24_decompress = functional(Sparse24DecompressPlan)
sparse24_decompress_backward = functional(Sparse24DecompressBackwardPlan)
