"""The plans that baracuda names one by one and this package has as kinds of a table's plan, by baracuda's names.

`NAMES` is the table: a name → the plan, and what is fixed of its descriptor. A name is a class of this module that is
made when it is first asked for, and so is its descriptor; `baracuda_py.HuberLossPlan` is one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ._forking import Mutex
from .core import Plan, registry
from .core.descriptor import axes, axis, extent, extents, integer, per_axis
from .core.named import Name, OneOf, Rank, Told, descriptor_name, documented, named_plan
from .help.formula import formula
from .ops.layout.axes import place

_LOCK = Mutex(whole=True)
Rows = dict[str, Name]


def _both(name: str, plan: str, fixed: dict[str, Any], *, more: dict[str, Any] | None = None, note: str = "") -> Rows:
    """The rows of a forward plan and of its gradient."""
    return {f"{name}{way}Plan": Name(f"{plan}{way}Plan", fixed, more or {}, note) for way in ("", "Backward")}


def _place(desc: Any) -> int:
    """The axis `axis`, which is settled after the fields that it tells."""
    return place(desc.axis, len(desc.shape))


# ---- elementwise, reductions, norms --------------------------------------------------------------------------------

_ELEMENTWISE: Rows = {
    "BinaryCmpPlan": Name("BinaryPlan", {"kind": OneOf(("eq", "ne", "gt", "ge", "lt", "le"))}),
    **_both("BinaryParam", "Ternary", {"kind": "lerp"}, note="The weight is c, an array or a number."),
    **_both("PRelu", "Binary", {"kind": "prelu"}, note="The weight is b."),
    **_both("UnaryParam", "Unary", {"kind": "threshold"}, note="PowI is kind pow of BinaryPlan with a number."),
    **_both("Where", "Ternary", {"kind": "where"}, note="The condition is a."),
    **_both("MaskedFill", "Ternary", {"kind": "where"}, note="The mask is a, the value b and the array c."),
    "CastSubBytePlan": Name("CastPlan"),
}

_REDUCTIONS: Rows = {
    "ArgReducePlan": Name("ReducePlan", {"kind": OneOf(("argmax", "argmin"))}),
    "BoolReducePlan": Name("ReducePlan", {"kind": OneOf(("any", "all"))}),
    "CountReducePlan": Name("ReducePlan", {"kind": "count_nonzero"}),
    "ReduceToPlan": Name(
        "ReducePlan", {"kind": OneOf(("sum", "amax", "amin", "prod")), "keepdims": True},
        note="axis has the axes along which the smaller shape was broadcast.",
    ),
    **_both("BatchNorm", "ChannelNorm", {"over": "batch"}),
    **_both("GroupNorm", "ChannelNorm", {"over": "group"}),
    **_both("InstanceNorm", "ChannelNorm", {"over": "instance"}),
}  # fmt: skip

# ---- losses --------------------------------------------------------------------------------------------------------

_POINTWISE = {
    "Mse": "mse_loss", "L1": "l1_loss", "SmoothL1": "smooth_l1_loss", "Huber": "huber_loss",
    "Bce": "binary_cross_entropy", "BceWithLogits": "binary_cross_entropy_with_logits", "KlDiv": "kl_div_loss",
    "PoissonNll": "poisson_nll_loss", "GaussianNll": "gaussian_nll_loss", "HingeEmbedding": "hinge_embedding_loss",
    "MarginRanking": "margin_ranking_loss",
}  # fmt: skip
_ROWS = {
    "Nll": "nll_loss", "CosineEmbedding": "cosine_embedding_loss", "TripletMargin": "triplet_margin_loss",
    "MultiMargin": "multi_margin_loss", "MultilabelMargin": "multilabel_margin_loss",
    "MultilabelSoftMargin": "multilabel_soft_margin_loss",
}  # fmt: skip

_LOSSES: Rows = {
    name: row
    for plan, kinds in (("PointwiseLoss", _POINTWISE), ("RowLoss", _ROWS))
    for own, kind in kinds.items()
    for name, row in _both(f"{own}Loss", plan, {"kind": kind}).items()
} | _both("FusedLinearCrossEntropy", "LinearCrossEntropy", {})

# ---- segments and bags ---------------------------------------------------------------------------------------------

_EMPTY = "A segment without tokens is -inf of max, inf of min; with_empty=True and empty=0 make it baracuda's 0."
_BAGS = OneOf(("offsets", "starts", "evenly"), first=True)

_SEGMENTS: Rows = {
    name: row
    for kind in ("sum", "mean", "max", "min", "prod")
    for own, by in (("Segment", "sorted"), ("UnsortedSegment", "ids"))
    for name, row in _both(
        f"{own}{kind.title()}", "SegmentReduce", {"kind": kind, "by": by}, note=_EMPTY if kind in ("max", "min") else ""
    ).items()
} | {
    **_both("EmbeddingBag", "GatherScatter", {"kind": OneOf(("sum", "mean")), "by": _BAGS}),
    **_both("EmbeddingBagMax", "GatherScatter", {"kind": "max", "by": _BAGS, "with_empty": True}),
}

# ---- pooling -------------------------------------------------------------------------------------------------------


def _pool(kind: str, rank: int, adaptive: bool = False) -> Name:
    absent = "kernel_size" if adaptive else "output_size"
    fixed = {"kind": kind, "spatial_rank": rank, absent: None}
    return Name("PoolPlan", fixed, note="The gradient is PoolBackwardPlan's.")


_POOLS: Rows = {
    f"{'Adaptive' if adaptive else ''}{kind.title()}Pool{rank}dPlan": _pool(kind, rank, adaptive)
    for adaptive in (False, True)
    for kind in ("max", "avg")
    for rank in (1, 2, 3)
} | {
    **_both("LpPool1d", "Pool", {"kind": "lp", "spatial_rank": 1, "output_size": None}),
    **_both("LpPool2d", "Pool", {"kind": "lp", "spatial_rank": 2, "output_size": None}),
}

# ---- convolutions --------------------------------------------------------------------------------------------------


def _convolution(rank: int, transposed: bool) -> Name:
    note = "The gradients are ConvBackwardPlan's." + (" The stride is input_dilation." if transposed else "")
    return Name("ConvPlan", {"filter_shape": Rank(rank + 2), "transposed": transposed}, note=note)


_CONVOLUTIONS: Rows = {
    f"Conv{'Transpose' if transposed else ''}{rank}dPlan": _convolution(rank, transposed)
    for transposed in (False, True)
    for rank in (1, 2, 3)
}

# ---- indexing and sorts --------------------------------------------------------------------------------------------

_INDEXING: Rows = {
    **_both("IndexSelect", "Take", {"index_shape": Rank(1)}),
    "ScatterAddPlan": Name("ScatterPlan", {"kind": "add", "include_self": True}),
    "IndexAddPlan": Name(
        "IndexPutPlan",
        {
            "kind": "add", "include_self": True, "batch": 0, "axes": Told(lambda desc: (_place(desc),)),
            "index_shapes": Told(lambda desc: ((desc.index_length,),)),
        },
        {"axis": axis, "index_length": extent}, "index_length: how many slices along axis are added.",
    ),
}  # fmt: skip

_SORTS: Rows = {
    "ArgsortPlan": Name("SortPlan", note="The indices alone are made where y is None."),
    **_both("Msort", "Sort", {}, note="Every sort here is stable."),
    "TopkBackwardPlan": Name("SortBackwardPlan"),
    "KthvaluePlan": Name(
        "SortPlan", {"start": Told(lambda desc: desc.k - 1), "stop": Told(lambda desc: desc.k)},
        {"k": lambda: integer(minimum=1)}, "k counts from 1, as in PyTorch.",
    ),
    "KthvalueBackwardPlan": Name("SortBackwardPlan"),
    "BincountPlan": Name("HistogramPlan", {"closed": False}, note="low is 0 and high the number of bins."),
}  # fmt: skip

# ---- layout --------------------------------------------------------------------------------------------------------


def _walks(name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = getattr(import_module("baracuda_py.ops.layout.named_walks"), name)
    return found


def _walk(name: str) -> dict[str, Any]:
    """The fields of `ViewCopyDescriptor` by a function of `ops.layout.named_walks`."""

    def told(field: str) -> Told:
        return Told(lambda desc: _walks(name)(desc).fields[field])

    return {field: told(field) for field in ("loops", "start", "steps", "out_shape")}


_ROLLED = {"mode": "circular", "padding": Told(lambda desc: _walks("rolling")(desc))}
_FACTOR: Callable[[], Any] = lambda: extent(minimum=1)  # noqa: E731

_LAYOUT: Rows = {
    "ContiguizePlan": Name("ViewCopyPlan", _walk("identity"), note="x has any strides, and begins where it does."),
    **_both(
        "Permute",
        "ViewCopy",
        _walk("permuted"),
        more={"axes": lambda: axes(ordered=True)},
        note="axes: those of x in their order in y.",
    ),
    **_both("Flip", "ViewCopy", _walk("reversed_along"), more={"axes": axes}, note="axes: those that are reversed."),
    **_both(
        "Repeat",
        "ViewCopy",
        _walk("repeated"),
        more={"reps": extents},
        note="reps: how often along each axis, as of tile.",
    ),
    **_both(
        "Roll",
        "Pad",
        _ROLLED,
        more={"shifts": lambda: per_axis(minimum=-(2**31), of="shape")},
        note="shifts: how much further an element goes along each axis.",
    ),
    **_both("Triu", "Triangle", {"upper": True}),
    **_both("Tril", "Triangle", {"upper": False}),
    "PixelShufflePlan": Name("ViewCopyPlan", _walk("channels_to_pixels"), {"upscale_factor": _FACTOR}),
    "PixelUnshufflePlan": Name("ViewCopyPlan", _walk("pixels_to_channels"), {"downscale_factor": _FACTOR}),
    "Im2ColPlan": Name("Im2colPlan", {"spatial": Rank(2)}),
    "Im2Col1dPlan": Name("Im2colPlan", {"spatial": Rank(1)}),
    "Col2Im1dPlan": Name("Col2imPlan", {"spatial": Rank(1)}),
}

# ---- quantised -----------------------------------------------------------------------------------------------------


def _along_the_last(desc: Any, count: int) -> tuple[int, ...]:
    return (1,) * (len(desc.shape) - 1) + (count,) * bool(desc.shape)


_SCOPES: dict[str, tuple[Callable[[Any], tuple[int, ...]], dict[str, Any], str]] = {
    "Tensor": (lambda desc: (0,) * len(desc.shape), {}, ""),
    "Channel": (
        lambda desc: tuple(int(a == _place(desc)) for a in range(len(desc.shape))), {"axis": axis},
        "axis: that of the channels.",
    ),
    "Token": (lambda desc: _along_the_last(desc, 0), {}, ""),
    "Group": (
        lambda desc: _along_the_last(desc, desc.group_size), {"group_size": _FACTOR},
        "group_size: how many neighbours along the last axis share a scale.",
    ),
}  # fmt: skip
"""What has a scale: the extents of its block, 0 for all of an axis, the fields that tell them, and what those are."""

_GGUF = OneOf((
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "iq4_nl", "iq4_xs",
))  # fmt: skip


def _scope(name: str, block: Callable[[Any], tuple[int, ...]], more: dict[str, Any], note: str) -> Rows:
    fixed: dict[str, Any] = {"block_shape": Told(block)}
    ends = f"quant_min and quant_max: the ends of the codes' range. {note}".strip()
    return {
        f"QuantizePer{name}Plan": Name("QuantizePlan", fixed, more, note),
        f"QuantizePer{name}BackwardPlan": Name("FakeQuantizeBackwardPlan", fixed | {"divided": True}, more, ends),
        f"DequantizePer{name}Plan": Name("DequantizePlan", fixed, more, note),
    }


_QUANTISED: Rows = {name: row for scope, told in _SCOPES.items() for name, row in _scope(scope, *told).items()} | {
    "DynamicRangeQuantizePlan": Name(
        "DynamicQuantizePlan", {"kind": "symmetric"}, note="Scales of tokens are those of block_shape (1, …, 1, 0)."
    ),
    "Fp8DequantPlan": Name("Fp8DequantizePlan"),
    "Nf4DequantizePlan": Name("BlockDequantizePlan", {"kind": "nf4"}),
    "Nf4MmvqPlan": Name("BlockGemmPlan", {"kind": "nf4", "m": 1}),
    "Nf4MmvqMultiMPlan": Name("BlockGemmPlan", {"kind": "nf4"}),
    "GgufDequantizePlan": Name("BlockDequantizePlan", {"kind": _GGUF}),
    "GgufMmvqPlan": Name("BlockGemmPlan", {"kind": _GGUF, "m": 1}),
    "GgufMmvqMultiMPlan": Name("BlockGemmPlan", {"kind": _GGUF}),
    "GgufMmvqBatchedPlan": Name(
        "GroupedBlockGemmPlan", {"kind": _GGUF}, note="Rows come expert by expert, as moe_permute puts them."
    ),
    "Int4AwqGemmPlan": Name("BlockGemmPlan", {"kind": "uint4"}, note="repack_awq makes its weights of AWQ's."),
    "Int4MarlinGemmPlan": Name("BlockGemmPlan", {"kind": "int4"}, note="Weights are not shuffled as Marlin's are."),
    "BinGemmPlan": Name("PackedGemmPlan", {"kind": "binary"}),
    "GemmSparse24Plan": Name("Sparse24GemmPlan"),
}

# ---- sampling ------------------------------------------------------------------------------------------------------

_SAMPLING: Rows = {
    "TopKTopPSamplingPlan": Name("SamplingPlan", {"probabilities": True}),
    "PerRowSamplingPlan": Name(
        "SamplingPlan", {"probabilities": True}, note="Cut-offs for each row are the operands of the plural names."
    ),
    "SpeculativeSamplingPlan": Name("VerifyChainPlan"),
    "TokenPenaltyPlan": Name("AdjustLogitsPlan", note="It counts the tokens of a history itself."),
}

# ---- all of them ---------------------------------------------------------------------------------------------------

# ---- Fourier transforms --------------------------------------------------------------------------------------------

_FOURIER: Rows = {
    "FftNdPlan": Name("FftPlan", note="One to three axes; `fftn` and `ifftn` take more, by passes."),
    "RfftNdPlan": Name("RfftPlan", note="One to three axes; `rfftn` takes more, by passes."),
    "IrfftNdPlan": Name("IrfftPlan", note="One to three axes; `irfftn` takes more, by passes."),
}

FAMILIES: dict[str, Rows] = {
    "elementwise": _ELEMENTWISE, "reductions and norms": _REDUCTIONS, "losses": _LOSSES, "segments": _SEGMENTS,
    "pooling": _POOLS, "convolutions": _CONVOLUTIONS, "indexing": _INDEXING, "sorts": _SORTS, "layout": _LAYOUT,
    "quantised": _QUANTISED, "sampling": _SAMPLING, "Fourier transforms": _FOURIER,
}  # fmt: skip

NAMES: Rows = {name: row for rows in FAMILIES.values() for name, row in rows.items()}

DESCRIPTORS: dict[str, str] = {descriptor_name(name): name for name, row in NAMES.items() if row.narrows}
"""The descriptors that come with them → the plan that each is of."""


def _make(name: str, row: Name, base: type[Plan]) -> type[Plan]:
    made = named_plan(name, row, base, __name__)
    one = "kind" in row.fixed and len(made.kinds) == 1 and made.direction == "forward"
    made.__doc__ = documented(row, base, formula(*made.kinds) if one else "")
    return made


def __getattr__(name: str) -> Any:
    plan = DESCRIPTORS.get(name, name)
    if plan not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    row, space = NAMES[plan], globals()
    base = registry.public(row.plan)  # which imports its page, and so is not done under the lock
    with _LOCK():
        if plan not in space:
            made = _make(plan, row, base)
            space |= {descriptor_name(plan): made.descriptor} if row.narrows else {}
            space[plan] = made
    return space[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES, *DESCRIPTORS})
