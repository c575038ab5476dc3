"""mla_sparse_fp8: mla_sparse over a cache of FlashMLA's fp8 records, `records.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ....core import Array, ElementKind, Variant, element, extent, operand
from ....calls.functional import functional
from ....core.element import unrounded
from ....schedules.attention.mla import LIST_SPLIT, Rows
from . import mla_sparse
from .mla_sparse import FIELDS, MlaSparseArgs, MlaSparseDescriptor, MlaSparsePlan, sizes, values
from .records import check_groups, decoded, decoded_in_torch, random_records, record


@dataclass(frozen=True, kw_only=True)
class MlaSparseFp8Descriptor(MlaSparseDescriptor):
    """As MlaSparseDescriptor, whose `width` is that of queries; d_latent is a multiple of 128."""

    num_queries: int = extent()
    element: ElementKind = element((ElementKind.BF16,))

    def validate(self) -> None:
        super().validate()
        check_groups(self.d_latent)

    @property
    def record(self) -> int:
        """Bytes of a cell."""
        return record(self.d_latent, self.d_rope)


@dataclass(slots=True, kw_only=True)
class MlaSparseFp8Args(MlaSparseArgs):
    """As MlaSparseArgs; a cell is d_latent codes, a float32 scale for each 128, and d_rope columns in bfloat16."""

    cache: Array = operand("num_pages page_size record", element=ElementKind.U8, layout="inner", values=random_records)


def reference(
    desc: Any, *, q: Any, cache: Any, wanted: set[str], store: Any = unrounded, **rest: Any
) -> Mapping[str, Any]:  # fmt: skip
    """That of mla_sparse on decoded cells."""
    columns = decoded(cache, desc.d_latent, q.dtype)
    return mla_sparse.reference(desc, q=q, cache=columns, wanted=wanted, store=store, **rest)


def in_torch(torch: Any, desc: Any, *, q: Any, cache: Any, **rest: Any) -> Any:
    """The same."""
    columns = decoded_in_torch(torch, cache, desc.d_latent).to(q.dtype)
    return mla_sparse.in_torch(torch, desc, q=q, cache=columns, **rest)


ROWS = Rows("MlaSparseFp8", "InList", FIELDS, values, sizes, LIST_SPLIT, records=True)


class MlaSparseFp8Plan(MlaSparsePlan):
    """y[t, h] = softmax(scale · q[t, h] cᵀ) c[:, : d_latent] as `MlaSparsePlan`, over cells of FlashMLA's fp8 records.

    A column of a latent is its code times the scale of its group, rounded to bfloat16, in both products.
    """

    op = "attention.mla_sparse_fp8"
    descriptor = MlaSparseFp8Descriptor
    args = MlaSparseFp8Args
    reference = staticmethod(reference)
    variants: ClassVar[tuple[Variant, ...]] = (ROWS.wgmma(), ROWS.mma())
    torch = staticmethod(in_torch)
    benchmarks = MlaSparsePlan.benchmarks[:2]

    @staticmethod
    def case(draw: Any) -> MlaSparseFp8Descriptor:
        drawn = MlaSparsePlan.case(draw)
        rope = draw.choice((0, 8, 64))
        facts = {name: getattr(drawn, name) for name in drawn.__dataclass_fields__}
        return MlaSparseFp8Descriptor(**facts | {"d_rope": rope, "width": rope + draw.sizes(128, 0, 256, rare=(512,))})


mla_sparse_fp8 = functional(MlaSparseFp8Plan)
