"""cross_entropy: PyTorch's definition row by row, its reductions, policies, and the fused gradient."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.loss.cross_entropy import CrossEntropyLossDescriptor, CrossEntropyLossPlan, cross_entropy
from baracuda_py.ops.loss.cross_entropy_backward import cross_entropy_backward
from baracuda_py.schedules.row_groups import row_sets

REDUCTIONS = ("none", "mean", "sum")
OPTIONS = list(itertools.product(REDUCTIONS, (0.0, 0.3), (False, True)))


def _rows(logits, targets, weight, ignore, eps):
    """Loss and target weight of every row, by math.exp and math.fsum."""
    losses, weights = [], []
    for row, t in zip(logits.tolist(), targets.tolist(), strict=True):
        if t == ignore:
            losses.append(0.0)
            weights.append(0.0)
            continue
        w = [1.0] * len(row) if weight is None else weight.tolist()
        lse = math.log(math.fsum(math.exp(v) for v in row))
        smooth = math.fsum(a * (lse - v) for a, v in zip(w, row, strict=True)) / len(row)
        losses.append((1 - eps) * w[t] * (lse - row[t]) + eps * smooth)
        weights.append(w[t])
    return losses, weights


def _problem(rows: int = 12, classes: int = 7, seed: int = 0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, classes, rows)
    targets[::5] = -100
    return rng.standard_normal((rows, classes)), targets, rng.uniform(0.2, 2, classes)


@pytest.mark.parametrize(("reduction", "eps", "weighted"), OPTIONS)
def test_against_the_definition(reduction: str, eps: float, weighted: bool) -> None:
    """The weighted mean divides by the weights of the targets that count."""
    x, t, w = _problem()
    weight = w if weighted else None
    losses, weights = _rows(x, t, weight, -100, eps)
    expected = {"none": losses, "sum": math.fsum(losses), "mean": math.fsum(losses) / math.fsum(weights)}[reduction]
    loss, total = cross_entropy(x, t, weight, label_smoothing=eps, reduction=reduction, return_total_weight=True)
    np.testing.assert_allclose(loss, expected, rtol=1e-13)
    np.testing.assert_allclose(total, math.fsum(weights), rtol=1e-14)


@pytest.mark.parametrize(("reduction", "eps", "weighted"), OPTIONS)
def test_fused_gradient_is_the_backward(reduction: str, eps: float, weighted: bool) -> None:
    """dlogits of the forward equals the backward of ones, with and without the saved weight sum."""
    x, t, w = _problem(seed=1)
    options = {"label_smoothing": eps, "reduction": reduction}
    weight = w if weighted else None
    loss, stats, total, dlogits = cross_entropy(
        x, t, weight, return_stats=True, return_total_weight=True, return_dlogits=True, **options
    )
    up = np.ones_like(loss)
    for saved in (total, None):
        got = cross_entropy_backward(up, x, t, stats, weight, saved, **options)
        np.testing.assert_allclose(got, dlogits, rtol=1e-12, atol=1e-15)
    assert (dlogits[t == -100] == 0).all()


def test_no_row_counts() -> None:
    """The mean is NaN as in PyTorch, the sum 0, the gradient 0."""
    x, t = np.ones((3, 4), np.float32), np.full(3, -100)
    loss, dlogits = cross_entropy(x, t, return_dlogits=True)
    assert np.isnan(loss) and (dlogits == 0).all()
    assert cross_entropy(x, t, reduction="sum") == 0
    assert np.isnan(cross_entropy(x[:0], t[:0]))


def test_targets_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as ignored; a checked run refuses them."""
    x, t, _ = _problem()
    bad = np.where(t == -100, 7, t)
    bad[0] = -1
    assert cross_entropy(x, bad) == cross_entropy(x, t)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(InvalidProblemError, match="targets outside"):
        cross_entropy(x, bad, reduction="sum")


def test_batch_axes_and_targets() -> None:
    """[B, S, V] with [B, S], int32 or int64, and an ignore_index that is a class."""
    x, t, _ = _problem(12)
    for dtype in (np.int32, np.int64):
        loss = cross_entropy(x.reshape(3, 4, 7), t.reshape(3, 4).astype(dtype), reduction="none", ignore_index=2)
        flat, _ = _rows(x, np.where((t == 2) | (t == -100), 2, t), None, 2, 0.0)
        np.testing.assert_allclose(loss.reshape(-1), flat, rtol=1e-13)


def test_gradient_in_place() -> None:
    """dlogits may be the logits' memory; loss of 16-bit logits is float32."""
    import ml_dtypes

    x, t, _ = _problem()
    logits = x.astype(ml_dtypes.bfloat16)
    loss, dlogits = cross_entropy(logits, t, return_dlogits=True)
    assert loss.dtype == np.float32
    kept = logits.copy()
    cross_entropy(logits, t, return_dlogits=True, out={"dlogits": logits})
    np.testing.assert_array_equal(logits, dlogits)
    assert not np.array_equal(kept, logits)


def test_confident_rows_keep_their_small_loss() -> None:
    """lse - x[t] would lose it to cancellation: the loss is the distance from the maximum."""
    x = np.array([[1000.0, 990.0]], np.float32)
    np.testing.assert_allclose(cross_entropy(x, np.array([0])), math.log1p(math.exp(-10)), rtol=1e-6)


def _steps(reduction: str, rows: int, classes: int, fused: bool, **options) -> list[str]:
    from baracuda_py.core.dispatch import dense_problem

    desc = CrossEntropyLossDescriptor(
        batch_shape=(rows,), num_classes=classes, reduction=reduction, element="bfloat16", **options
    )
    problem = dense_problem(CrossEntropyLossPlan, desc, fake_device(9.0))
    if fused:
        problem.views["dlogits"] = problem.views["logits"]
    found = (row.geometry(problem) for row in CrossEntropyLossPlan.variants)
    return [step.kernel for step in next(g for g in found if not isinstance(g, str)).steps]


def test_launches() -> None:
    """The denominator is summed first only where a mean's gradient needs it; many blocks are added in levels."""
    assert _steps("none", 100, 256, False) == ["rows_8x4"]
    assert _steps("sum", 100, 256, True) == ["rows_8x4", "finish"]
    assert _steps("mean", 32768, 256, False) == ["rows_8x4", "finish"]
    assert _steps("mean", 32768, 256, True) == ["prepare", "rows_8x4", "finish"]
    assert _steps("mean", 8192, 128256, True) == ["prepare", "cluster", "finish"]
    assert _steps("mean", 8192, 40000, True) == ["prepare", "long", "finish"]
    assert _steps("mean", 8192, 128256, False) == ["long", "finish"]
    assert _steps("mean", 20000, 4096, False) == ["rows_128x4", "finish", "finish"]
    assert _steps("mean", 0, 256, True) == ["finish"]


def test_blocks_take_several_sets_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated: the losses and gradients of a block's rows, whole and cut off, are those of one set a block."""
    from baracuda_py.core.preference import PlanPreference
    from baracuda_py.schedules import row_groups
    from baracuda_py.testing.draw import fill
    from baracuda_py.testing.emulated import emulate
    from baracuda_py.testing.emulator import emulated_device
    from baracuda_py.testing.operands import operands

    monkeypatch.setattr(row_groups, "_BLOCKS", 1)
    for rows, classes, element in ((300, 40, "bfloat16"), (150, 250, "bfloat16"), (140, 20, "float32")):
        desc = CrossEntropyLossDescriptor(batch_shape=(rows,), num_classes=classes, reduction="mean", element=element)
        case = fill(CrossEntropyLossPlan, desc, np.random.default_rng(rows), {"weight": classes == 250})
        emulate(CrossEntropyLossPlan(desc, PlanPreference(), emulated_device(9.0, None)), operands(case, None))


def test_sets_of_rows() -> None:
    """What a block takes follows from the extents alone."""
    assert [row_sets(rows, (8, 4, 1)) for rows in (100, 131072, 1 << 20)] == [1, 4, 8]
    assert row_sets(1 << 20, (8, 1, 4)) == 2 and row_sets(1 << 20, (128, 4, 1)) == 1


def _gpu_problem(rows: int, classes: int, dtype: str, seed: int = 0):
    import cupy

    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, classes)).astype(dtype)
    t = rng.integers(0, classes, rows)
    t[3::7] = -100
    return x, t, cupy.asarray(x), cupy.asarray(t)


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [5, 256, 1000, 4001, 16000, 70001, 130_000])
def test_gpu_bits_do_not_depend_on_the_layout(classes: int) -> None:
    """Rows alone, misaligned and strided give the bits of the dense batch; in place and apart are equal."""
    import cupy

    x, _, gx, gt = _gpu_problem(9, classes, "float16")
    options = {
        "reduction": "none",
        "label_smoothing": 0.1,
        "return_lse": True,
        "return_stats": True,
        "return_dlogits": True,
    }
    results = cross_entropy(gx, gt, **options)
    alone = cross_entropy(gx[4:5], gt[4:5], **options)
    shifted = cupy.empty((9, classes + 1), "float16")[:, 1:]
    shifted[...] = gx
    spread = cupy.empty((9, classes, 2), "float16")[..., 0]
    spread[...] = gx
    for view in (shifted, spread):
        for got, wanted in zip(cross_entropy(view, gt, **options), results, strict=True):
            cupy.testing.assert_array_equal(got, wanted)
    for got, wanted in zip(alone, results, strict=True):
        cupy.testing.assert_array_equal(got[0], wanted[4])
    copy = gx.copy()
    cross_entropy(copy, gt, reduction="none", label_smoothing=0.1, return_dlogits=True, out={"dlogits": copy})
    cupy.testing.assert_array_equal(copy, results[3])
    assert x.shape == gx.shape


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 1000, 70_000, 300_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_gpu_mean_over_many_rows(rows: int, weighted: bool) -> None:
    """Several levels of `finish`, several parts of `prepare`."""
    import cupy

    x, t, gx, gt = _gpu_problem(rows, 6, "float32")
    w = np.random.default_rng(1).uniform(0.2, 2, 6).astype("float32") if weighted else None
    gw = None if w is None else cupy.asarray(w)
    loss, total, dlogits = cross_entropy(gx, gt, gw, return_total_weight=True, return_dlogits=True)
    expected = cross_entropy(x.astype("float64"), t, None if w is None else w.astype("float64"),
                             return_total_weight=True, return_dlogits=True)  # fmt: skip
    np.testing.assert_allclose(cupy.asnumpy(loss), expected[0], rtol=3e-7)
    np.testing.assert_allclose(cupy.asnumpy(total), expected[1], rtol=3e-7)
    np.testing.assert_allclose(cupy.asnumpy(dlogits), expected[2], rtol=2e-5, atol=1e-6 / rows)
