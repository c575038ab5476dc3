"""cross_entropy of logits against class indices (torch.nn.functional.cross_entropy), with its gradient on request.

With z = logits - lse, w the class weights (1 without), ε the label smoothing and t the target of row i

    loss_i = -(1 - ε) w[t] z[t] - ε / C Σ_c w[c] z[c]        0 where t is ignore_index
    mean   = Σ loss_i / Σ w[t]    sum = Σ loss_i             both sums over the rows not ignored

`dlogits` is the gradient for an upstream gradient of 1 and may be the logits' own memory: training then reads the
logits once. The mean over no rows is NaN, as in PyTorch (its gradient is 0 here). Sums over rows are kept in float64,
in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Step, Variant, View, Vjp, choice, element, extent, extents, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.variant import aligned
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import permuted, shape_of
from ...core.arrays import read
from ...schedules.loss_sums import finish_steps
from ...schedules.row_groups import (
    FLUSHED, LONG, ROWS_OF_A_WARP, SLAB, STRIDED, WIDE, GroupRows, group_kernels, group_of, group_params, group_rows,
    launch, row_sets, slabs,
)  # fmt: skip
from ...core.args import finite_only
from ...core.benchmark import Benchmark, COMPILED, EAGER
from .cross_entropy_formulas import reference
from .cross_entropy_terms import cross_entropy_of_classes, cross_entropy_of_probabilities
from .cross_entropy_torch import in_torch
from .row_functions import classes_last
from .row_loss import some_ignored

_LOGITS = "*batch_shape num_classes"
_FINISH = 8192
_PREPARE = 32768
_PARTS = 64
REDUCTIONS = ("none", "mean", "sum")


@dataclass(frozen=True, kw_only=True)
class CrossEntropyLossDescriptor(Descriptor):
    """logits (*batch_shape, num_classes), targets batch_shape; the loss has shape () or, with "none", batch_shape."""

    batch_shape: tuple[int, ...] = extents()
    num_classes: int = extent(minimum=1)
    ignore_index: int = integer(-100)
    label_smoothing: float = number(0.0, minimum=0.0, maximum=1.0)
    reduction: str = choice(REDUCTIONS, "mean")
    element: ElementKind = element()

    @property
    def loss_shape(self) -> tuple[int, ...]:
        """One loss a row, or one in all."""
        return self.batch_shape if self.reduction == "none" else ()


@finite_only  # as the policy says
def random_weights(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: class weights are positive."""
    return rng.uniform(0.25, 2.0, shape)


@dataclass(slots=True, kw_only=True)
class CrossEntropyLossArgs(Args):
    """loss, lse and total_weight are in the accumulator's element: float32, float64 for float64 logits.

    `stats` are each row's maximum and Σ exp(logits - maximum), and `total_weight` = Σ w[t] over the rows not ignored:
    what the backward takes. `lse` = log Σ exp(logits) is for who wants it (a z-loss): one number of the row's own size
    keeps fewer digits of a probability than those two.
    """

    logits: Array = operand(_LOGITS)
    targets: Array = operand("*batch_shape", element=(ElementKind.I64, ElementKind.I32), values=(0, "num_classes"))
    weight: Array | None = operand("num_classes", optional=True, values=random_weights)
    loss: Array = output("*loss_shape", element="acc")
    lse: Array | None = output("*batch_shape", element="acc", optional=True)
    stats: Array | None = output("*batch_shape 2", element="acc", optional=True, layout="dense")
    total_weight: Array | None = output(element="acc", optional=True)
    dlogits: Array | None = output(_LOGITS, optional=True, inplace=("logits",))


_COMMON = {"ignore": "i64", "weight_step": "i64", "wide_targets": "i32"}
PREPARE = Params("CrossEntropyPrepareParams", targets="ptr", weight="ptr", out="workspace", parts="i64", tile="i64",
                 **_COMMON, **group_params(0, 1))  # fmt: skip
ROWS = Params(
    "CrossEntropyParams", logits="ptr", targets="ptr", weight="ptr", loss="ptr", lse="ptr", stats="ptr", dlogits="ptr",
    prepared="workspace", sums="workspace", status="status", smoothing="f64", parts="i64",
    per_row="i32", mean="i32", keep_sums="i32", stage="i32", wide_weight="i32", sets="i32",
    **_COMMON, **group_params(2, 3),
)  # fmt: skip
FINISH = Params("CrossEntropyFinishParams", loss="ptr", total_weight="ptr", sums="workspace", out="workspace",
                count="i64", tile="i64", last="i32", mean="i32", reduced="i32")  # fmt: skip
_ROWS = "cross_entropy_rows<{T}, {GROUP}, {MODE}, {SMOOTH}>"
_LONG = "cross_entropy_long<{T}, {MODE}, {SMOOTH}>"
_CLUSTERED = "cross_entropy_cluster<{T}, {MODE}, {SMOOTH}>"
_CLUSTER = 4  # blocks
PREPARE_KERNEL = Kernel("prepare", "cross_entropy_prepare<{T}>", PREPARE, threads=1024)


_PLAIN = {"MODE": (WIDE, STRIDED), "SMOOTH": (0,)}
_SMOOTH = {"MODE": (WIDE, STRIDED), "SMOOTH": (1, 2)}  # evenly, by weight


def target_rows(p: Problem, outputs: tuple[View | None, ...]) -> GroupRows | str:
    """logits, dlogits, and one element a row of targets and `outputs`."""
    return group_rows((p.logits, p.dlogits), (p.targets, *outputs))


def common(p: Problem) -> dict[str, Any]:
    """The constants of every kernel that reads targets and weights."""
    return {
        "ignore": p.desc.ignore_index, "wide_targets": int(p.targets.element is ElementKind.I64),
        "weight_step": 0 if p.weight is None else p.weight.strides[0],
    }  # fmt: skip


def prepare_step(p: Problem, rows: GroupRows, total: bool) -> tuple[int, Step | None]:
    """Σ w[t] in parts (0 of them unless `total`), then Σ w if smoothing asks for it; pairs of doubles at offset 0."""
    tile = max(_PREPARE, -(-rows.rows // _PARTS))
    parts = max(1, -(-rows.rows // tile)) if total else 0
    spread = p.desc.label_smoothing > 0 and p.weight is not None
    if not parts + spread:
        return 0, None
    constants = {
        **common(p), "rows": rows.rows, "cols": rows.cols, "outer_shape": rows.params()["outer_shape"],
        "outer": [rows.params()["outer"][2]], "step": [0], "outer_rank": len(rows.outer_shape), "out": 0,
        "parts": parts, "tile": tile,
    }  # fmt: skip
    return parts, Step("prepare", (parts + spread, 1, 1), constants, {}, 1024)


def _geometry(p: Problem) -> Geometry | str:
    """A block, or a group of threads, for each row."""
    desc = p.desc
    group = group_of(desc.num_classes, desc.element, groups=ROWS_OF_A_WARP)
    if group is None:
        held = slabs(desc.num_classes, desc.element, p.device.smem) if p.dlogits is not None else 0
        return _launches(p, "long", lambda rows: (rows, LONG, held), {"stage": held})
    name, block, _ = launch(0, group)
    rows = math.prod(desc.batch_shape)
    sets = row_sets(rows, group) if p.dlogits is not None else 1  # a loss alone is faster a set a block
    each = block // group[0] * group[2] * sets
    name = name if desc.label_smoothing == 0 else name.replace("rows_", "")
    return _launches(p, name, lambda rows: (-(-rows // each), block, 0), {"sets": sets})


def _cluster(p: Problem) -> Geometry | str:
    """A cluster for each row that no block holds, with the gradient: all of it stays in shared memory."""
    desc = p.desc
    if p.dlogits is None:
        return "serves dlogits"
    held = slabs(desc.num_classes, desc.element, p.device.smem)
    all_slabs = -(-desc.num_classes * desc.element.itemsize // SLAB)
    if held == all_slabs:
        return f"serves rows that a block does not hold in {held} slabs of {SLAB} bytes, got {desc.num_classes} classes"
    held = min(held, -(-all_slabs // _CLUSTER))
    return _launches(p, "cluster", lambda rows: (rows, LONG, held), {"stage": held}, _CLUSTER)


def _launches(
    p: Problem, name: str, launched: Callable[[int], tuple[int, int, int]], fields: Mapping[str, int], cluster: int = 1
) -> Geometry | str:
    """All launches; `launched` gives blocks or clusters, threads and slabs of a block by the number of rows."""
    desc = p.desc
    per_row = desc.reduction == "none"
    rows = target_rows(p, (p.loss if per_row else None, p.lse))
    if isinstance(rows, str):
        return rows
    blocks, block, held = launched(rows.rows)
    if blocks * cluster >= 2**31:
        return f"needs {blocks * cluster} blocks, a grid has 2**31 - 1"
    mean = desc.reduction == "mean"
    keep = not per_row or p.total_weight is not None
    parts, prepare = prepare_step(p, rows, mean and p.dlogits is not None)
    used = aligned(16 * (parts + 1)) if prepare else 0
    weight = p.weight
    smooth = 0 if desc.label_smoothing == 0 else 1 if weight is None else 2
    constants = {
        **rows.params(), **common(p), "prepared": 0, "sums": used,
        "smoothing": desc.label_smoothing, "parts": parts, "per_row": int(per_row), "mean": int(mean),
        "keep_sums": int(keep), "stage": 0, "sets": 1, **fields,
        "wide_weight": int(weight is not None and weight.dense and weight.ptr % 16 == 0),
    }  # fmt: skip
    steps = [prepare] if prepare and rows.rows else []
    if blocks:
        axes = {"MODE": WIDE if rows.wide else STRIDED, "SMOOTH": smooth}
        kernel = f"smooth_{name}" if smooth else name
        steps.append(Step(kernel, (blocks * cluster, 1, 1), constants, axes, block, held * SLAB, cluster))
    if keep:
        last = {"mean": int(mean), "reduced": int(not per_row)}
        finish, used = finish_steps(used, blocks, _FINISH, last)
        steps += finish
    # Which rows a block adds up depends on whether dlogits is wanted, and so does the sum of all.
    order = f"{constants['sets']} sets" if keep and constants["sets"] > 1 else ""
    return Geometry(tuple(steps), used, rows.layout_class, order)


_FLOATS = (ElementKind.F32, ElementKind.F16, ElementKind.BF16)
_REDUCED = (PREPARE_KERNEL, Kernel("finish", "cross_entropy_finish<{T}>", FINISH, threads=1024))


def _row(name: str, elements: tuple[ElementKind, ...], threads: int) -> Variant:
    """Registers for `threads` threads a multiprocessor, for three quarters of them with smoothed labels."""
    return Variant(
        name, _geometry, source="loss/cross_entropy.cu", elements=elements,
        kernels=(
            *group_kernels(_ROWS, ROWS, _PLAIN, threads=threads, groups=ROWS_OF_A_WARP),
            *group_kernels(_ROWS, ROWS, _SMOOTH, threads=threads * 3 // 4, name="smooth", groups=ROWS_OF_A_WARP),
            Kernel("long", _LONG, ROWS, _PLAIN, LONG, 2),
            Kernel("smooth_long", _LONG, ROWS, _SMOOTH, LONG, 1),
            *_REDUCED,
        ),
        guarantee=Guarantee(Relative(2), batch_invariant=True, flushes=FLUSHED),
    )  # fmt: skip


class CrossEntropyLossPlan(Plan):
    """Cross entropy of logits against class indices, with what its gradient needs, or the gradient, on request.

    With z = logits - lse, w the class weights (1 without), ε the label smoothing and t a row's target, its loss is
    -(1 - ε) w[t] z[t] - ε / C Σ w[c] z[c], and 0 where t is ignore_index. The mean is over Σ w[t] of the rows that
    count, that of none NaN, with a gradient of 0. Sums over rows are kept in float64, in a fixed order.
    """

    op = "loss.cross_entropy"
    descriptor = CrossEntropyLossDescriptor
    args = CrossEntropyLossArgs
    reference = staticmethod(reference)
    vjp = Vjp("CrossEntropyLossBackwardPlan", grads={"logits": "dlogits"})
    value_policy = (
        "a target outside [0, num_classes) that is not ignore_index counts as ignored; class weights are finite: what "
        "those that are not make of the losses is unspecified"
    )
    variants = (
        Variant(
            "cluster", _cluster, source="loss/cross_entropy.cu", elements=_FLOATS, design=ArchSku.SM90A,
            kernels=(
                Kernel("cluster", _CLUSTERED, ROWS, _PLAIN, LONG, 3),
                Kernel("smooth_cluster", _CLUSTERED, ROWS, _SMOOTH, LONG, 1),
                *_REDUCED,
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True, order="cluster", flushes=FLUSHED),
        ),
        _row("row", _FLOATS, 1024),
        _row("row_f64", (ElementKind.F64,), 512),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{label} [{rows}, {classes}] bf16", batch_shape=rows, num_classes=classes, element="bfloat16", also=also,
            peers=(EAGER,) if also else (EAGER, COMPILED),
        )
        for rows, classes in ((8192, 128256), (524288, 256))
        for label, also in (("loss", ()), ("loss + dlogits", ("dlogits",)))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CrossEntropyLossDescriptor:
        """Rows of every schedule, every reduction, smoothed or not."""
        classes = draw.sizes(5, 1, 10, 64, 257, 1000, 4099, 20011, rare=(200, 3000, 60007))
        return CrossEntropyLossDescriptor(
            batch_shape=draw.shape(0, 2 if classes <= 1000 else 1, 0, 7 if classes <= 1000 else 2), num_classes=classes,
            ignore_index=draw.choice((-100, 0, 3)), label_smoothing=draw.choice((0.0, 0.1)),
            reduction=draw.choice(REDUCTIONS), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: CrossEntropyLossDescriptor, arrays: dict[str, Any]) -> None:
        """Every fifth row is ignored."""
        arrays["targets"] = some_ignored(arrays["targets"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: CrossEntropyLossDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Targets must name a class or be ignore_index."""
        t = arrays["targets"]
        bad = (t != desc.ignore_index) & ((t < 0) | (t >= desc.num_classes))
        return f"{np.count_nonzero(bad)} targets outside [0, {desc.num_classes})" if bad.any() else None

    @classmethod
    def bytes(cls, desc: CrossEntropyLossDescriptor) -> int:
        """The logits and int64 targets once, and the losses."""
        rows = int(np.prod(desc.batch_shape, dtype=np.int64))
        losses = rows if desc.reduction == "none" else 1
        return rows * (desc.num_classes * desc.element.itemsize + 8) + losses * desc.acc.itemsize


_plain: Any = functional(CrossEntropyLossPlan)


def _axis(logits: Any, targets: Any, axis: int | None) -> int:
    """The axis of the classes: by default the last, or 1 where only that leaves the targets' shape."""
    if axis is not None:
        return axis
    whole, rest = shape_of(logits, "logits"), shape_of(targets, "targets")
    torchs = len(whole) > 2 and rest == (whole[0], *whole[2:]) and rest != whole[:-1]
    return 1 if torchs else -1


def _back(dlogits: Any, axis: int) -> Any:
    """Gradients with the classes last, with them along `axis`."""
    rank = len(shape_of(dlogits, "dlogits"))
    order = list(range(rank - 1))
    order.insert(axis % rank, rank - 1)
    return permuted(dlogits, order, "dlogits")


@entry(CrossEntropyLossPlan)
def cross_entropy(
    logits: Array, targets: Array, weight: Array | None = None, *, axis: int | None = None, ignore_index: Any = -100,
    label_smoothing: Any = 0.0, reduction: Any = "mean", z_loss: float = 0.0, softcap: float = 0.0,
    logit_scale: float = 1.0, return_lse: bool = False, return_stats: bool = False, return_total_weight: bool = False,
    return_dlogits: bool = False, return_entropy: bool = False, return_argmax: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Cross entropy of logits against classes, or probabilities of the classes (torch.nn.functional.cross_entropy).

    logits have their classes along `axis`: by default the last, or 1 as PyTorch has them, [N, C, d1, …], where only
    that fits the shape of the targets. targets: classes of int32 or int64 in the shape of the other axes, or
    probabilities of the logits' shape and element. weight: of the classes. z_loss: the factor of lse², which is added
    to each loss. softcap: logits become softcap tanh(logits / softcap). logit_scale: what they are multiplied by first.

    The loss is in float32 (float64 of float64); the mean is over the sum of the weights of the rows that are not
    ignored, of probabilities over the rows. return_dlogits: the gradient in the same reads; return_lse, return_stats
    and return_total_weight: what `CrossEntropyLossPlan` makes besides. return_entropy, return_argmax: the entropy of
    softmax(logits), which has a gradient, and the place of the largest logit, `CrossEntropyTermsPlan`.
    """
    soft = read(targets, "targets").element.is_float
    return_entropy, return_argmax = truth("return_entropy", return_entropy), truth("return_argmax", return_argmax)
    more = {"z_loss": z_loss, "softcap": softcap, "logit_scale": logit_scale}
    facts = {"label_smoothing": label_smoothing, "reduction": reduction, "stream": stream, "preference": preference}
    at = _axis(logits, targets, axis)
    rows = logits if at == -1 else classes_last(logits, "logits", at)
    extra = return_entropy or return_argmax or z_loss != 0 or softcap != 0 or logit_scale != 1
    if not (soft or extra):
        made = _plain(
            rows, targets, weight, ignore_index=ignore_index, return_lse=return_lse, return_stats=return_stats,
            return_total_weight=return_total_weight, return_dlogits=return_dlogits, out=_rows_of(out, at), **facts,
        )  # fmt: skip
        return made if at == -1 or not return_dlogits else (*made[:-1], _back(made[-1], at))
    if asked := [n for n, on in (("return_lse", return_lse), ("return_stats", return_stats),
                                 ("return_total_weight", return_total_weight), ("return_dlogits", return_dlogits))
                 if on]:  # fmt: skip
        raise InvalidProblemError(
            f"{asked[0]}=True is for classes without z_loss, softcap, logit_scale, return_entropy and return_argmax"
        )
    facts |= {"return_entropy": return_entropy, "return_argmax": return_argmax, "out": out, **more}
    if not soft:
        return cross_entropy_of_classes(rows, targets, weight, ignore_index=ignore_index, **facts)
    if ignore_index != -100:
        raise InvalidProblemError(f"probabilities have no ignore_index; it must be -100, got {shown(ignore_index)}")
    targets = targets if at == -1 else classes_last(targets, "targets", at)
    return cross_entropy_of_probabilities(rows, targets, weight, **facts)


def _rows_of(out: Any, at: int) -> Any:
    """`out=` as the plan takes it."""
    if at == -1 or not isinstance(out, dict) or out.get("dlogits") is None:
        return out
    return {**out, "dlogits": classes_last(out["dlogits"], "out['dlogits']", at)}
