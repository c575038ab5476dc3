"""A vocabulary over ranks against the dense ops and a float64 formula; the bits of one rank on 2, 4 and 8."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import distributed as D

SIZES = (1, 2, 4, 8)
CLASSES, HIDDEN = 72, 24
ELEMENTS = (np.float32, ml_dtypes.bfloat16, np.float64)
LOSS = {"label_smoothing": 0.1, "z_loss": 0.02}


def part(x: Any, comm: Any, axis: int) -> Any:
    return np.ascontiguousarray(np.split(x, comm.size, axis)[comm.rank])


@cache
def problem(element: Any) -> tuple[Any, ...]:
    """x, weight, bias, logits, targets of which some are ignored, some no class, an upstream gradient of rows."""
    rng = np.random.default_rng(3)
    x, weight, bias = (rng.standard_normal(s).astype(element) for s in ((4, 5, HIDDEN), (CLASSES, HIDDEN), (CLASSES,)))
    logits = (6 * rng.standard_normal((4, 5, CLASSES))).astype(element)
    targets = rng.integers(0, CLASSES, (4, 5))
    targets[1, 2], targets[0, 0], targets[3, 4], targets[2] = -100, 71, CLASSES + 3, (0, 8, 9, 35, 36)
    return x, weight, bias, logits, targets, rng.standard_normal((4, 5)).astype(np.float32)


def dense(logits: Any, targets: Any, reduction: str, smoothing: float, zeta: float) -> tuple[Any, Any]:
    """Loss and lse in float64."""
    z = logits.astype(np.float64)
    top = z.max(axis=-1, keepdims=True)
    lse = (top + np.log(np.exp(z - top).sum(axis=-1, keepdims=True)))[..., 0]
    valid = (targets >= 0) & (targets < CLASSES)
    hit = np.take_along_axis(z, np.where(valid, targets, 0)[..., None], -1)[..., 0]
    loss = (1 - smoothing) * (lse - hit) + smoothing * (lse - z.mean(axis=-1)) + zeta * lse**2
    loss = np.where(valid, loss, 0)
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / valid.sum()}[reduction], lse


def same(ranks: list[Any]) -> Any:
    """What every rank has."""
    assert all(one.tobytes() == ranks[0].tobytes() for one in ranks)
    return ranks[0]


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("element", ELEMENTS, ids=lambda one: np.dtype(one).name)
def test_cross_entropy(element: Any, reduction: str) -> None:
    *_, logits, targets, _ = problem(element)
    for given in ({}, LOSS):
        alone = None
        for size in SIZES:
            made = D.run_ranks(
                lambda comm, given=given: D.vocab_parallel_cross_entropy(
                    part(logits, comm, 2), targets, comm, reduction=reduction, return_lse=True, **given
                ),
                size,
            )
            found = same([one[0] for one in made]), same([one[1] for one in made])
            alone = alone or found
            assert [one.tobytes() for one in alone] == [one.tobytes() for one in found]
        want = dense(logits, targets, reduction, given.get("label_smoothing", 0.0), given.get("z_loss", 0.0))
        wide = np.float64 if element is np.float64 else np.float32
        for one, two in zip(alone or (), want, strict=True):
            assert one.dtype == wide and one.shape == np.shape(two)
            np.testing.assert_allclose(one, two, rtol=1e-12 if element is np.float64 else 2e-6, atol=1e-6)


def test_exchanged_numbers_are_few_and_padding_of_minus_infinity_is_no_class() -> None:
    *_, logits, targets, _ = problem(np.float32)
    padded, aims = logits.copy(), np.where((targets >= 0) & (targets < 30), targets, -100)
    padded[..., 30:] = -np.inf  # whole slices have no finite logit
    for size in (1, 4):
        loss = same(D.run_ranks(lambda c: D.vocab_parallel_cross_entropy(part(padded, c, 2), aims, c), size))
        assert np.isclose(loss, bc.cross_entropy(np.ascontiguousarray(logits[..., :30]), aims), rtol=1e-6)
    huge = logits * np.float32(1e30)
    loss = same(D.run_ranks(lambda c: D.vocab_parallel_cross_entropy(part(huge, c, 2), targets * 0 + 3, c), 2))
    assert np.isclose(loss, bc.cross_entropy(huge, targets * 0 + 3), rtol=1e-6)


def test_options_and_errors() -> None:
    x, weight, bias, logits, targets, _ = problem(np.float32)
    out = np.empty((), np.float32)
    assert D.vocab_parallel_cross_entropy(logits, targets.astype(np.int32), out=out) is out
    assert out == D.vocab_parallel_cross_entropy(logits, targets)
    empty = D.vocab_parallel_cross_entropy(logits[:0], targets[:0], reduction="sum")
    assert empty == 0 and np.isnan(D.vocab_parallel_cross_entropy(logits, targets * 0 - 100))
    for call, match in (
        (lambda: D.vocab_parallel_cross_entropy(logits, targets[0]), "targets must have the shape"),
        (lambda: D.vocab_parallel_cross_entropy(logits[..., :5], targets), "has no 8 slices"),
        (lambda: D.vocab_parallel_cross_entropy(logits, targets, label_smoothing=2.0), "label_smoothing must be"),
        (lambda: D.vocab_parallel_cross_entropy(logits, targets, reduction="some"), "reduction must be one of"),
        (lambda: D.vocab_parallel_cross_entropy(logits, targets, return_lse=1), "return_lse must be True"),
        (lambda: D.vocab_parallel_linear_cross_entropy(x, weight[:, :3], targets, bias), "x must be"),
        (lambda: D.vocab_parallel_linear_cross_entropy(x, weight[:5], targets), "5 classes have no 8 slices"),
        (lambda: D.vocab_parallel_embedding(targets, weight[0]), "weight_shard must be"),
        (lambda: D.vocab_parallel_embedding(logits, weight), "indices"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=match):
            call()


def test_embedding() -> None:
    _, weight, _, _, targets, _ = problem(ml_dtypes.bfloat16)
    want = np.where((targets >= 0) & (targets < CLASSES), 1, 0)[..., None] * weight[np.clip(targets, 0, CLASSES - 1)]
    for size in SIZES:
        made = D.run_ranks(lambda c: D.vocab_parallel_embedding(targets, part(weight, c, 0), c), size)
        assert np.array_equal(same(made), want.astype(weight.dtype))
    made = D.run_ranks(lambda c: D.vocab_parallel_embedding(targets, part(weight, c, 0), c, sequence_parallel=True), 4)
    assert np.array_equal(np.concatenate(made), want.astype(weight.dtype))


@pytest.mark.parametrize("element", ELEMENTS[:2], ids=lambda one: np.dtype(one).name)
def test_linear_cross_entropy(element: Any) -> None:
    x, weight, bias, _, targets, _ = problem(element)
    logits = x.astype(np.float64) @ weight.astype(np.float64).T + bias.astype(np.float64)
    for reduction, cap in (("mean", 0.0), ("none", 5.0)):
        alone = None
        for size in SIZES:
            made = D.run_ranks(
                lambda comm, reduction=reduction, cap=cap: D.vocab_parallel_linear_cross_entropy(
                    x, part(weight, comm, 0), targets, part(bias, comm, 0), comm, reduction=reduction, softcap=cap,
                    z_loss=0.02, return_lse=True,
                ),
                size,
            )  # fmt: skip
            found = same([one[0] for one in made]), same([one[1] for one in made])
            alone = alone or found
            assert [one.tobytes() for one in alone] == [one.tobytes() for one in found]
        capped = cap * np.tanh(logits / cap) if cap else logits
        for one, two in zip(alone or (), dense(capped, targets, reduction, 0.0, 0.02), strict=True):
            np.testing.assert_allclose(one, two, rtol=2e-2 if element is ml_dtypes.bfloat16 else 5e-6, atol=1e-5)


def test_gradients_with_the_loss_are_those_of_autograd() -> None:
    torch = pytest.importorskip("torch")
    x, weight, bias, logits, targets, _ = problem(np.float32)
    for reduction in ("mean", "none"):
        given = {"reduction": reduction, "z_loss": 0.02}
        z = torch.from_numpy(logits).clone().requires_grad_()
        _, dlogits = D.vocab_parallel_cross_entropy(logits, targets, return_dlogits=True, **given)
        D.vocab_parallel_cross_entropy(z, torch.from_numpy(targets), **given).sum().backward()
        assert dlogits.tobytes() == z.grad.numpy().tobytes()
        two = D.vocab_parallel_cross_entropy(z, torch.from_numpy(targets), return_dlogits=True, **given)
        assert torch.equal(two[1], z.grad) and two[0].requires_grad and not two[1].requires_grad
        made = D.vocab_parallel_linear_cross_entropy(
            x, weight, targets, bias, return_lse=True, return_dx=True, return_dweight=True, return_dbias=True, **given
        )
        tensors = [torch.from_numpy(one).clone().requires_grad_() for one in (x, weight, bias)]
        D.vocab_parallel_linear_cross_entropy(
            tensors[0], tensors[1], torch.from_numpy(targets), tensors[2], **given
        ).sum().backward()
        assert made[0].tobytes() == D.vocab_parallel_linear_cross_entropy(x, weight, targets, bias, **given).tobytes()
        for one, tensor in zip(made[2:], tensors, strict=True):
            assert one.tobytes() == tensor.grad.numpy().tobytes()
        assert len(D.vocab_parallel_linear_cross_entropy(x, weight, targets, return_dx=True, return_dbias=True)) == 2
