"""Where the 304 plans of baracuda are here: run, it checks that every name resolves and lists those that have none.

`SAME` is named alike; `baracuda_py.named_plans` has those that are a plan with fields fixed; `ELSEWHERE` functions that
compose plans; `ABSENT` what is not here yet. `tools/docs.py` writes the tables of docs/reference-names.md from them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import baracuda_py as bc  # noqa: E402
from baracuda_py.core import registry  # noqa: E402
from baracuda_py.named_plans import FAMILIES, NAMES  # noqa: E402

WORDS = re.compile(r"`(\w+)`")


def _plans(words: str) -> list[str]:
    return [f"{word}Plan" for word in words.split()]


SAME = _plans("""
    Alibi AlibiBackward BatchPagedDecode BatchPagedDecodeFp8 BatchPagedPrefill BatchRaggedPrefill CascadeAttention
    CascadeMergeStates FlashDecoding FlashSdpa FlashSdpaBackward FlashSdpaSm89 FlashSdpaVarlen FlashSdpaVarlenBackward
    KvCacheAppend PagedKvAppend Rope RopeBackward Sdpa SdpaBackward SdpaBlockSparse
    Affine Binary BinaryBackward Cast GatedActivation GatedActivationBackward Ternary TernaryBackward Unary
    UnaryBackward Embedding EmbeddingBackward Gemm BatchedGemm GroupedGemm DenseGemm Fp8Gemm GemvDense Int4Gemm IntGemm
    Gather GatherBackward Nonzero OneHot Scatter CrossEntropyLoss CrossEntropyLossBackward CtcLoss CtcLossBackward
    LayerNorm LayerNormBackward RMSNorm RMSNormBackward FakeQuantize FakeQuantizeBackward QuantizedLinear
    SmoothQuantLinear Dropout DropoutBackward Random Reduce ReduceBackward Trace Scan ScanBackward
    Concat ConcatBackward Fill Pad PadBackward WriteSlice GumbelSoftmax GumbelSoftmaxBackward Softmax SoftmaxBackward
    Cholesky Sparsemax SparsemaxBackward Histogram Searchsorted Sort SortBackward Topk UniqueConsecutive AdamStep
    Interpolate InterpolateBackward Nms RoiAlign RoiAlignBackward RoiPool RoiPoolBackward Fp8Cast Fft Irfft Rfft Eig
    Eigh Qr Svd CausalConv1d CausalConv1dBackward SelectiveScan SelectiveScanBackward
""")

ELSEWHERE = {
    **dict.fromkeys(
        _plans(" ".join(f"DequantizePer{scope}Backward" for scope in ("Tensor", "Channel", "Token", "Group"))),
        "dy times the scales is `mul`; `DequantizeBackwardPlan` has the gradient of the scales",
    ),
    "CtcLossCudnnPlan": "`CtcLossPlan` and `CtcLossBackwardPlan`, whose inputs are log-probabilities",
    **dict.fromkeys(_plans("FftShift FftShiftNd"), "`fftshift` and `ifftshift`, of rolls along any axes"),
    "BatchedQrPlan": "`QrPlan`, which takes a batch",
    "BatchedQrMaterializePlan": "`HouseholderProductPlan`, which takes a batch",
    **dict.fromkeys(_plans("BatchedSvd BatchedSvda"), "`SvdPlan`, which takes a batch"),
    "LstSqPlan": "`lstsq`, of `SvdPlan`",
    "InversePlan": "`inv` and `inv_ex`, of `LuFactorPlan` and `TriangularSolvePlan`",
    "LuPlan": "`LuFactorPlan`; `lu` gives P, L and U",
    "SolvePlan": "`solve` and `solve_ex`, of `LuFactorPlan` and `TriangularSolvePlan`",
    "HistogramddPlan": "`histogramdd`, of as many `BinIndexPlan` as there are axes",
    "AffineGridPlan": "`affine_grid`, a matrix product",
    "GridSamplePlan": "`grid_sample`, of `GatherScatterPlan`",
    "GridSampleBackwardPlan": "`GatherScatterBackwardPlan`, which sorts what `grid_sample` read",
    "FractionalMaxPool2dPlan": "`fractional_max_pool2d`, of `GatherPlan`",
    "FractionalMaxPool3dPlan": "`fractional_max_pool3d`, of `GatherPlan`",
    "MoePlan": "`moe_permute`, then `GroupedBlockGemmPlan` or `GroupedGemmPlan`, then `moe_unpermute`",
    **dict.fromkeys(
        _plans("SsdChunkScan SsdChunkScanBackward"), "`mamba2_ssd`, around `LinearAttentionPlan` and its backward"
    ),
    "RingAttentionPlan": "ring_attention of `distributed`, around `FlashSdpaPlan` and its backward",
    "ColumnParallelLinearPlan": "`bc.distributed.column_parallel_linear`",
    "RowParallelLinearPlan": "`bc.distributed.row_parallel_linear`",
    "DistributedAdamStepPlan": "`bc.distributed.distributed_adam_step`",
    "UniquePlan": "`unique`, of `SortPlan` and `UniqueConsecutivePlan`",
}

_ABSENT = {
    "hyper-connections": "HyperConnection",
    "linear algebra": "BatchedOrmqr BatchedOrmqrWy",
    "optimizers": "LambStep SgdStep",
}  # fmt: skip

ABSENT = {name: family for family, words in _ABSENT.items() for name in _plans(words)}


def table() -> str:
    """Each name that has another plan here, by families: the plan, what is fixed, and what else to know."""
    lines = []
    for family, rows in FAMILIES.items():
        lines += [f"### {family.capitalize()}", "", "| Name | Plan | Fixed | |", "| --- | --- | --- | --- |"]
        lines += [f"| `{name}` | `{row.plan}` | {row.said} | {row.note} |" for name, row in rows.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def same() -> str:
    """The names that are the same."""
    return ", ".join(f"`{name}`" for name in SAME) + "."


def elsewhere() -> str:
    """The names that are no plan here but functions."""
    rows = [f"| `{name}` | {text} |" for name, text in ELSEWHERE.items()]
    return "\n".join(["| Name | Here |", "| --- | --- |", *rows])


def absent() -> str:
    """The names that have nothing here."""
    rows = [f"| {family} | {', '.join(f'`{name}`' for name in _plans(words))} |" for family, words in _ABSENT.items()]
    return "\n".join(["| Family | Names |", "| --- | --- |", *rows])


def unresolved() -> list[str]:
    """What the tables say and the package has not."""
    real = {*registry.plans(), *(name for name in dir(bc) if name.endswith("Plan"))}
    words = {word for text in ELSEWHERE.values() for word in WORDS.findall(text)}
    wrong = [name for name in (*SAME, *NAMES) if name not in real]
    wrong += [
        f"{name} of {row.plan}" for name, row in NAMES.items() if getattr(bc, name).__bases__[-1].__name__ != row.plan
    ]
    return wrong + sorted(word for word in words if not hasattr(bc, word))


def main() -> int:
    print(f"{len(SAME)} alike, {len(NAMES)} with fields fixed, {len(ELSEWHERE)} functions, {len(ABSENT)} not here:")
    for name, why in (*ELSEWHERE.items(), *ABSENT.items()):
        print(f"  {name:<32} {why}")
    for word in unresolved():
        print(f"unresolved: {word}")
    return int(bool(unresolved()))


if __name__ == "__main__":
    raise SystemExit(main())
