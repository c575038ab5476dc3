"""The losses of rows: a kind is a row of this table and a functor, `kernels/loss/rows/<kind>.cuh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.kinds import TableKind
from . import row_formulas as of


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class RowLoss:
    """A row of the table.

    cpp: the functor. losses, slopes: see `row_formulas`. torch(F, desc, operands, reduction): PyTorch's function of the
    operands by name, [rows, features] and [rows]. operands: the names of the arrays besides x that have features, in
    the functor's order. takes: fields of the descriptor and their defaults. by_weight: whether the mean is divided by
    the sum of the rows' weights. alone: whether a row needs no sum over its columns.
    """

    cpp: str
    losses: Callable[..., Any]
    slopes: Callable[..., Any]
    torch: Callable[..., Any]
    operands: tuple[str, ...] = ()
    takes: Mapping[str, Any] = field(default_factory=dict)
    by_weight: bool = False
    alone: bool = False


def _nll(F: Any, d: Any, o: Any, reduction: str) -> Any:
    return F.nll_loss(o["x"], o["target"].long(), o["weight"], ignore_index=d.ignore_index, reduction=reduction)


def _multi_margin(F: Any, d: Any, o: Any, reduction: str) -> Any:
    p = int(d.p)
    return F.multi_margin_loss(o["x"], o["target"].long(), p, d.margin, o["weight"], reduction=reduction)


def _multilabel_margin(F: Any, d: Any, o: Any, reduction: str) -> Any:
    return F.multilabel_margin_loss(o["x"], o["labels"].long(), reduction=reduction)


def _soft_margin(F: Any, d: Any, o: Any, reduction: str) -> Any:
    return F.multilabel_soft_margin_loss(o["x"], o["hits"], o["weight"], reduction=reduction)


def _cosine(F: Any, d: Any, o: Any, reduction: str) -> Any:
    return F.cosine_embedding_loss(o["x"], o["other"], o["target"], margin=d.margin, reduction=reduction)


def _triplet(F: Any, d: Any, o: Any, reduction: str) -> Any:
    return F.triplet_margin_loss(
        o["x"], o["positive"], o["negative"], margin=d.margin, p=d.p, eps=d.eps, swap=d.swap, reduction=reduction
    )


class RowLossKind(TableKind):
    """What the loss of a row is, by PyTorch's names."""

    NLL = (
        "nll_loss",
        RowLoss("NllRow", of.nll, of.nll_slopes, _nll, takes={"ignore_index": -100}, by_weight=True, alone=True),
    )
    MULTI_MARGIN = (
        "multi_margin_loss",
        RowLoss("MultiMarginRow", of.multi_margin, of.multi_margin_slopes, _multi_margin,
                takes={"p": 1.0, "margin": 1.0}),
    )  # fmt: skip
    MULTILABEL_MARGIN = (
        "multilabel_margin_loss",
        RowLoss("MultilabelMarginRow", of.multilabel_margin, of.multilabel_margin_slopes, _multilabel_margin),
    )
    MULTILABEL_SOFT_MARGIN = (
        "multilabel_soft_margin_loss",
        RowLoss("MultilabelSoftMarginRow", of.multilabel_soft_margin, of.multilabel_soft_margin_slopes, _soft_margin,
                operands=("hits",)),
    )  # fmt: skip
    COSINE_EMBEDDING = (
        "cosine_embedding_loss",
        RowLoss("CosineEmbeddingRow", of.cosine_embedding, of.cosine_embedding_slopes, _cosine, operands=("other",),
                takes={"margin": 0.0}),
    )  # fmt: skip
    TRIPLET_MARGIN = (
        "triplet_margin_loss",
        RowLoss("TripletMarginRow", of.triplet_margin, of.triplet_margin_slopes, _triplet,
                operands=("positive", "negative"), takes={"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False}),
    )  # fmt: skip

    row: RowLoss

    @property
    def header(self) -> str:
        """The file of the functor."""
        return f"loss/rows/{self.value}.cuh"


OPTIONS: dict[str, Any] = {"ignore_index": -100, "p": 2.0, "margin": 0.0, "eps": 1e-6, "swap": False}
"""What only some kinds take, and the value that the others have."""
