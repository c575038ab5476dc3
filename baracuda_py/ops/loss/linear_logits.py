"""What linear_cross_entropy and its gradient share: a descriptor, the logits in NumPy, and the pass over a chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Chained, Descriptor, ElementKind, Guarantee, InvalidProblemError, Kernel, Params, Problem, Relative, Step, Variant,
    View, choice, derived, element, extent, integer, number,
)  # fmt: skip
from ...core.variant import aligned
from ...schedules.gemm import product_kernels
from ...schedules.linear_loss import BIAS, ROUND, chunk_rows
from ...schedules.row_groups import LONG
from ..gemm.gemm import INNER, GemmDescriptor, check_elements
from .cross_entropy import FINISH, PREPARE_KERNEL, REDUCTIONS

_PREPARE = 32768
_PARTS = 64
FINISH_TILE = 8192
_TF32 = Relative(2.0**15, mean=2.0**14)  # operands are rounded to 11 bits, where the formula has 24
INDICES = (ElementKind.I64, ElementKind.I32)


@dataclass(frozen=True, kw_only=True)
class LinearCrossEntropyDescriptor(Descriptor):
    """x is [rows, hidden], weight [num_classes, hidden]; the loss has shape () or, with "none", (rows,).

    class_start: the classes are class_start … class_start + num_classes - 1 of more, a shard of a vocabulary; lse and
    target_logit (0 for a target that lies elsewhere) are the shard's. chunk: rows at a time, 0 for what fits.
    logits_element: default `element`; float32 for 16-bit operands. math_precision as of `GemmDescriptor`.
    """

    rows: int = extent()
    hidden: int = extent()
    num_classes: int = extent(minimum=1)
    ignore_index: int = integer(-100)
    label_smoothing: float = number(0.0, minimum=0.0, maximum=1.0)
    z_loss: float = number(0.0, minimum=0.0)
    softcap: float = number(0.0, minimum=0.0)
    reduction: str = choice(REDUCTIONS, "mean")
    class_start: int | None = integer(None)
    chunk: int = extent(0)
    math_precision: str = choice(("element", "tf32"), "element")
    logits_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        check_elements(self, "logits_element")
        if self.class_start is not None and (self.reduction != "none" or self.label_smoothing or self.z_loss):
            raise InvalidProblemError(
                "a shard of the classes (class_start) has lse and target_logit of its own, from which losses follow: "
                "it takes reduction='none', and neither label_smoothing nor z_loss"
            )

    @property
    def loss_shape(self) -> tuple[int, ...]:
        """One loss a row, or one in all."""
        return (self.rows,) if self.reduction == "none" else ()

    def product(self, m: int, n: int, k: int, out: ElementKind) -> GemmDescriptor:
        """That of a plain product with the same elements and precision."""
        return GemmDescriptor(m=m, n=n, k=k, math_precision=self.math_precision, out_element=out, element=self.element)

    def chunk_rows(self, weights: bool) -> int:
        """Rows of a chunk."""
        if self.chunk:
            return self.chunk
        return chunk_rows(self.rows, self.num_classes, self.hidden, self.logits_element, weights)


@dataclass
class Logits:
    """The logits of all rows, and of each row whether it counts, its class in this shard, and that class's weight."""

    all: Any
    counts: Any
    index: Any
    own: Any
    weights: Any

    @classmethod
    def of(
        cls, desc: LinearCrossEntropyDescriptor, *, x: Any, weight: Any, targets: Any, bias: Any, class_weight: Any,
        store: Any,
    ) -> Logits:  # fmt: skip
        """By NumPy, in the dtype of x."""
        z = store(x @ weight.T)
        z = z if bias is None else z + bias
        if desc.softcap:
            z = x.dtype.type(desc.softcap) * np.tanh(z / x.dtype.type(desc.softcap))
        t = targets.astype(np.int64) - (desc.class_start or 0)
        counts = (targets != desc.ignore_index) & (t >= 0) & (t < desc.num_classes)
        index = np.where(counts, t, 0)
        weights = np.ones(desc.num_classes, x.dtype) if class_weight is None else class_weight
        return cls(z, counts, index, np.where(counts, weights[index], 0).astype(x.dtype), weights)

    @property
    def lse(self) -> Any:
        """log Σ exp(l)."""
        top = self.all.max(axis=1, keepdims=True)
        return (top + np.log(np.exp(self.all - top).sum(axis=1, keepdims=True)))[:, 0]

    @property
    def target(self) -> Any:
        """l[t], 0 where the row does not count."""
        return np.where(self.counts, self.all[np.arange(len(self.index)), self.index], 0)

    def _probabilities(self, lse: Any) -> Any:
        """exp(l - lse); of rows whose lse has few digits of the sum left (`full_lse` in the kernel), by the sum."""
        full = np.abs(lse) >= 2.0**10
        made = np.exp(self.all - lse[:, None])
        if full.any():
            own = np.exp(self.all - self.all.max(axis=1, keepdims=True))
            made = np.where(full[:, None], own / own.sum(axis=1, keepdims=True), made)
        return made

    def slopes(self, desc: LinearCrossEntropyDescriptor, lse: Any, up: Any, dlse: Any, dtarget: Any) -> Any:
        """The gradient of the products x Wᵀ."""
        eps, rows = self.all.dtype.type(desc.label_smoothing), np.arange(len(self.index))
        up = np.where(self.counts, up, 0)
        each = eps / desc.num_classes
        spread = up * ((1 - eps) * self.own + each * (self.weights.sum() if eps else 0) + 2 * desc.z_loss * lse) + dlse
        live = self.counts | (np.ndim(dlse) > 0)  # lse of a row that is left out has a gradient, too
        g = np.where(live[:, None], self._probabilities(lse) * spread[:, None], 0)
        g[rows, self.index] -= np.where(self.counts, up * (1 - eps) * self.own - dtarget, 0)
        if eps:
            g -= each * up[:, None] * self.weights
        if desc.softcap:
            slope = 1 - np.square(self.all / self.all.dtype.type(desc.softcap))
            g = np.where(live[:, None], g * slope, 0)  # of a row that is left out 0, whatever its logits are
        return np.asarray(g, self.all.dtype)


def gradients(g: Any, x: Any, weight: Any, store: Any) -> dict[str, Any]:
    """Those of the operands from that of the products."""
    g = store(g)
    return {"dx": g @ weight, "dweight": g.T @ x, "dbias": g.sum(axis=0)}


ROWS = Params(
    "LinearCrossEntropyParams", logits="ptr", grad="ptr", targets="ptr", bias="ptr", weight="ptr", loss="ptr",
    lse="ptr", lse_out="ptr", target_logit="ptr", dloss="ptr", dlse="ptr", dtarget="ptr", total_weight="ptr",
    sums="workspace", prepared="workspace", status="status", first="i64", cols="i64", pitch="i64", grad_pitch="i64",
    class_start="i64", ignore="i64", parts="i64", targets_step="i64", bias_step="i64", weight_step="i64",
    loss_step="i64", lse_step="i64", target_step="i64", dloss_step="i64", dlse_step="i64", dtarget_step="i64",
    smoothing="f64", z_loss="f64", softcap="f64", wide_targets="i32", part="i32", mean="i32", per_row="i32",
    keep_sums="i32", backward="i32", stage="i32", long_group=LONG,
)  # fmt: skip


def row_constants(p: Problem) -> dict[str, Any]:
    """What the pass over the logits needs of descriptor and operands, whichever direction."""
    desc = p.desc

    def step(name: str) -> int:
        view = p.views.get(name)
        return 0 if view is None or not view.strides else view.strides[0]

    return {
        "weight": "class_weight", "cols": desc.num_classes, "class_start": desc.class_start or 0,
        "ignore": desc.ignore_index, "targets_step": step("targets"), "bias_step": step("bias"),
        "weight_step": step("class_weight"), "loss_step": step("loss"), "lse_step": step("lse"),
        "target_step": step("target_logit"), "dloss_step": step("dloss"), "dlse_step": step("dlse"),
        "dtarget_step": step("dtarget_logit"), "smoothing": desc.label_smoothing, "z_loss": desc.z_loss,
        "softcap": desc.softcap, "wide_targets": int(p.targets.element is ElementKind.I64),
        "part": int(desc.class_start is not None), "mean": int(desc.reduction == "mean"),
        "per_row": int(desc.reduction == "none"),
    }  # fmt: skip


def target_sums(p: Problem, weights: View | None, total: bool, spread: bool) -> tuple[int, Step]:
    """Σ w[t], in so many parts (0 unless `total`), then Σ w, if `spread`: doubles in the workspace from byte 0 on."""
    desc = p.desc
    tile = max(_PREPARE, -(-desc.rows // _PARTS))
    parts = max(1, -(-desc.rows // tile)) if total else 0
    constants = {
        "weight": "@null" if weights is None else "class_weight", "ignore": desc.ignore_index,
        "weight_step": 0 if weights is None else weights.strides[0],
        "wide_targets": int(p.targets.element is ElementKind.I64), "rows": desc.rows, "cols": desc.num_classes,
        "outer_shape": [desc.rows] + [1] * 7, "outer": [[p.targets.strides[0]] + [0] * 7], "step": [0], "outer_rank": 1,
        "out": 0, "parts": parts, "tile": tile,
    }  # fmt: skip
    return parts, Step("prepare", (parts + spread, 1, 1), constants, {}, 1024)


def prepared(p: Problem, total: bool) -> tuple[dict[str, Any], list[Step], int]:
    """What `target_sums` makes for a gradient that needs it: fields of the pass, launches, the first free byte."""
    spread = p.desc.label_smoothing > 0 and p.class_weight is not None
    if not total and not spread:
        return {"prepared": 0, "parts": 0}, [], 0
    parts, step = target_sums(p, p.class_weight, total, spread)
    return {"prepared": 0, "parts": parts}, [step], aligned(16 * (parts + 1))


SOURCE = "loss/linear_cross_entropy.cu"


def _narrow(kind: ElementKind) -> dict[str, tuple[ElementKind, ...]]:
    """Sums are rounded where they are wider than the element."""
    return {"SUM": (kind.acc,) if kind is not kind.acc else ()}


SUMS = (
    Kernel("bias", "linear_bias<{T}>", BIAS, source="loss/linear_sums.cu"),
    Kernel("round", "linear_round<{T}, {SUM}>", ROUND, _narrow, source="loss/linear_sums.cu"),
    Kernel("prepare", PREPARE_KERNEL.template, PREPARE_KERNEL.params, threads=1024, source="loss/cross_entropy.cu"),
    Kernel("finish", "cross_entropy_finish<{T}>", FINISH, threads=1024, source="loss/cross_entropy.cu"),
)
"""The kernels of every loss of a linear layer, beside its own pass over the logits."""
KERNELS = (
    Kernel(
        "rows", "linear_cross_entropy_rows<{T}, {L}>", ROWS,
        lambda kind: {"L": tuple(dict.fromkeys((kind, kind.acc)))}, threads=LONG, min_blocks=1, source=SOURCE,
    ),
    *SUMS,
)  # fmt: skip


def without_loss(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels of a gradient, which adds up no losses."""
    return tuple(kernel for kernel in kernels if kernel.name != "finish")


def gemm_variants(
    geometry: Callable[[tuple[Variant, ...]], Any], source: str, kernels: tuple[Kernel, ...]
) -> tuple[Variant, ...]:
    """A row for each of `GemmPlan` but those of long sums and of copies; what one does not take goes to the last."""
    *_, last = gemm = [row for row in INNER if not row.name.endswith("split")]

    def refuses(row: Variant) -> Callable[[Any], str | None]:
        return lambda desc: row.refuses(desc.product(1, 1, 1, desc.element)) if row.refuses else None

    made = []
    for row in gemm:
        used = (row,) if row is last else (row, last)
        products = {k.name: k for one in used for k in product_kernels(one)}
        made.append(
            Variant(
                row.name, geometry(used), source=source, kernels=(*kernels, *products.values()), elements=row.elements,
                design=row.design, backend=row.backend, missing=row.missing, refuses=refuses(row),
                guarantee=Guarantee(
                    _TF32 if row.guarantee.math == "tf32" else Chained(4, mean=3), math=row.guarantee.math,
                    order=row.guarantee.order,
                ),
            )
        )  # fmt: skip
    return tuple(made)


def variants(geometry: Callable[[tuple[Variant, ...]], Any], forward: bool) -> tuple[Variant, ...]:
    """The rows of linear_cross_entropy, or of its gradient."""
    return gemm_variants(geometry, SOURCE, KERNELS if forward else without_loss(KERNELS))


def case(draw: Any) -> LinearCrossEntropyDescriptor:
    """Few rows of few classes, in one chunk or several; and more classes than a slab of a block."""
    kind = draw.element
    classes = draw.sizes(5, 1, 10, 64, 130, rare=(4100, 9001))
    rows, hidden = draw.sizes(0, 1, 3, 7, 20), draw.sizes(0, 1, 8, 17, 64)
    if draw.rarely():  # tiles of full width
        rows, hidden, classes = 260, 64, 264
    part = draw.integer(0, 4) == 0
    return LinearCrossEntropyDescriptor(
        rows=rows, hidden=hidden, num_classes=classes,
        ignore_index=draw.choice((-100, 0, 3)), label_smoothing=0.0 if part else draw.choice((0.0, 0.1)),
        z_loss=0.0 if part else draw.choice((0.0, 1e-2)), softcap=draw.choice((0.0, 3.0)),
        reduction="none" if part else draw.choice(REDUCTIONS), class_start=draw.choice((0, 4)) if part else None,
        chunk=draw.choice((0, 0, 3, 8)) if rows <= 20 else 0, logits_element=draw.choice((kind, kind.acc)),
        element=kind, math_precision=draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element",
    )  # fmt: skip
