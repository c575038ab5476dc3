"""linear_cross_entropy against the unfused formula in float64: chunks, options, shards, gradients, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.core.variant import Problem
from baracuda_py.ops.loss.linear_cross_entropy import LinearCrossEntropyPlan
from baracuda_py.ops.loss.linear_cross_entropy_backward import LinearCrossEntropyBackwardPlan
from baracuda_py.schedules.linear_loss import chunk_rows
from baracuda_py.testing.places import call

RNG = np.random.default_rng(8)
X, W, B = RNG.standard_normal((10, 6)), RNG.standard_normal((9, 6)), RNG.standard_normal(9)
T = np.array([0, 8, -100, 3, 3, 7, -100, 1, 2, 5])


def unfused(**options: Any) -> np.ndarray:
    return bc.cross_entropy(X @ W.T + B, T, reduction="none", **options)


@pytest.mark.parametrize("chunk", [0, 1, 3, 10, 64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_against_cross_entropy(chunk: int, reduction: str, smoothing: float) -> None:
    weights = RNG.uniform(0.5, 2, 9)
    logits = X @ W.T + B
    expected, slopes = bc.cross_entropy(
        logits, T, weights, reduction=reduction, label_smoothing=smoothing, return_dlogits=True
    )
    loss, dx, dweight, dbias = bc.linear_cross_entropy(
        X, W, T, B, weights, reduction=reduction, label_smoothing=smoothing, chunk=chunk, return_dx=True,
        return_dweight=True, return_dbias=True,
    )  # fmt: skip
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(dx, slopes @ W, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(dweight, slopes.T @ X, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(dbias, slopes.sum(0), rtol=1e-11, atol=1e-14)


def test_z_loss_and_softcap() -> None:
    logits = 3 * np.tanh((X @ W.T + B) / 3)
    lse = np.log(np.exp(logits).sum(1))
    expected = np.where(T < 0, 0, lse - logits[np.arange(10), np.maximum(T, 0)] + 0.1 * lse**2)
    loss = bc.linear_cross_entropy(X, W, T, B, softcap=3.0, z_loss=0.1, reduction="none")
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_more_axes_and_log_probs() -> None:
    """Rows along any axes; log-probabilities are the losses' negatives."""
    x, t = X.reshape(2, 5, 6), T.reshape(2, 5)
    loss, lse, dx = bc.linear_cross_entropy(x, W, t, B, reduction="none", return_lse=True, return_dx=True)
    assert loss.shape == lse.shape == (2, 5) and dx.shape == x.shape
    np.testing.assert_allclose(loss.reshape(-1), unfused(), rtol=1e-12)
    np.testing.assert_array_equal(bc.linear_log_prob(x, W, t, B), -loss)
    assert bc.linear_log_prob(X[0], W, np.array(4)).shape == ()
    with pytest.raises(InvalidProblemError, match="without its last axis"):
        bc.linear_cross_entropy(x, W, T)


def test_shards_of_a_vocabulary_add_up() -> None:
    """Losses and gradients follow from each shard's lse and target_logit, of which gradients flow back."""
    shards = [(0, 4), (4, 5), (5, 9)]
    parts = [
        bc.linear_cross_entropy(
            X, W[a:b], T, B[a:b], reduction="none", class_start=a, return_lse=True, return_target_logit=True
        )[1:]
        for a, b in shards
    ]
    lse = np.logaddexp.reduce([p[0] for p in parts])
    np.testing.assert_allclose(np.where(T < 0, 0, lse - sum(p[1] for p in parts)), unfused(), rtol=1e-12)
    counts = (T >= 0).astype(np.float64)
    whole = bc.linear_cross_entropy(X, W, T, B, reduction="sum", return_dx=True, return_dweight=True)
    dx, dweight = 0, []
    for (a, b), _ in zip(shards, parts, strict=True):
        made = bc.linear_cross_entropy_backward(
            np.zeros(10), X, W[a:b], T, lse, B[a:b], dlse=counts, dtarget_logit=-counts, reduction="none", class_start=a
        )
        dx, dweight = dx + made[0], [*dweight, made[1]]
    np.testing.assert_allclose(dx, whole[1], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(np.concatenate(dweight), whole[2], rtol=1e-11, atol=1e-13)
    with pytest.raises(InvalidProblemError, match="a shard of the classes"):
        bc.linear_cross_entropy(X, W, T, class_start=0)


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_equal_logits_of_any_size(element: str, place: str) -> None:
    """Four classes have a quarter each, though an lse of 2e8, or 2e18, holds no digit of their sum."""
    size = 1e4 if element == "float32" else 1e9
    x, w, t = np.full((1, 2), size), np.full((4, 2), size), np.array([1])
    desc = LinearCrossEntropyBackwardPlan.descriptor(rows=1, hidden=2, num_classes=4, element=element)
    given: dict[str, Any] = {
        "x": x,
        "weight": w,
        "targets": t,
        "dloss": np.ones(()),
        "lse": np.full(1, 2 * size * size),
    }
    made = call(LinearCrossEntropyBackwardPlan, desc, {"dweight"}, place, **given)["dweight"]
    np.testing.assert_allclose(made, np.array([[0.25], [-0.75], [0.25], [0.25]]) * x, rtol=1e-6)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize(
    "outputs", [{"loss", "dx"}, {"loss", "dx", "lse"}, {"loss", "dx", "dweight", "lse", "target_logit"}]
)
def test_left_out_rows_have_no_gradient_whatever_their_logits(outputs: set[str], softcap: float, place: str) -> None:
    x, left_out = X.astype(np.float32), T < 0
    x[left_out] *= 1e38 if "dweight" in outputs else np.inf  # 0 · inf would reach dweight
    desc = LinearCrossEntropyPlan.descriptor(rows=10, hidden=6, num_classes=9, softcap=softcap, element="float32")
    given = {"weight": 3 * W.astype(np.float32), "targets": T}
    made = call(LinearCrossEntropyPlan, desc, outputs, place, x=x, **given)
    want = call(LinearCrossEntropyPlan, desc, outputs, place, x=X.astype(np.float32), **given)
    assert not made["dx"][left_out].any()
    for name in outputs & {"dx", "dweight"}:
        np.testing.assert_array_equal(made[name], want[name])


def test_no_rows() -> None:
    empty = X[:0], W, T[:0]
    loss, dweight = bc.linear_cross_entropy(*empty, return_dweight=True)
    assert np.isnan(loss) and not dweight.any()
    assert bc.linear_cross_entropy(*empty, reduction="sum") == 0
    assert bc.linear_cross_entropy(*empty, reduction="none").shape == (0,)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "softcap": 2.0, "z_loss": 0.01, "label_smoothing": 0.1}])
def test_autograd(options: dict[str, Any]) -> None:
    """Against torch's own, of the unfused formula."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, w, b, t = (torch.from_numpy(v.copy()) for v in (X, W, B, T))
    given = [v.requires_grad_() for v in (x, w, b)]
    loss = bt.linear_cross_entropy(x, w, t, b, chunk=4, **options)
    z = torch.nn.functional.linear(x, w, b)
    cap, zeta = options.pop("softcap", 0), options.pop("z_loss", 0)
    z = cap * torch.tanh(z / cap) if cap else z
    expected = torch.nn.functional.cross_entropy(z, t, **options)
    expected = expected + zeta * (torch.logsumexp(z, -1)[t >= 0] ** 2).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(2 * loss, given), torch.autograd.grad(2 * expected, given), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_jax() -> None:
    """jit and grad."""
    jax = pytest.importorskip("jax")
    import baracuda_py.jax  # noqa: F401

    x, w, t = X.astype(np.float32), W.astype(np.float32), T.astype(np.int32)

    def unfused_mean(x: Any, w: Any) -> Any:
        z = jax.nn.log_softmax(x @ w.T)
        picked = z[np.arange(10), np.maximum(t, 0)]
        return -(picked * (t >= 0)).sum() / (t >= 0).sum()

    ours = jax.jit(jax.value_and_grad(lambda x, w: bc.linear_cross_entropy(x, w, jax.numpy.asarray(t)), (0, 1)))
    loss, slopes = ours(jax.numpy.asarray(x), jax.numpy.asarray(w))
    expected, wanted = jax.value_and_grad(unfused_mean, (0, 1))(x, w)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for a, b in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def _geometry(rows: int, hidden: int, classes: int, **outputs: bool) -> Any:
    desc = bc.LinearCrossEntropyDescriptor(rows=rows, hidden=hidden, num_classes=classes, element="bfloat16")
    shapes = {"x": (rows, hidden), "weight": (classes, hidden), "dx": (rows, hidden), "dweight": (classes, hidden)}
    given = ("x", "weight", *(n for n, wanted in outputs.items() if wanted))
    views: dict[str, View | None] = dict.fromkeys(
        (
            "x",
            "weight",
            "targets",
            "bias",
            "class_weight",
            "loss",
            "lse",
            "target_logit",
            "total_weight",
            "dx",
            "dweight",
        )
    ) | {"dbias": None}
    for i, name in enumerate(given):
        views[name] = View((i + 1) << 40, shapes[name], dense_strides(shapes[name]), ElementKind.BF16)
    views["targets"] = View(9 << 40, (rows,), (1,), ElementKind.I64)
    views["loss"] = View(10 << 40, (), (), ElementKind.F32)
    found = LinearCrossEntropyPlan.variants[0].geometry(Problem(desc, fake_device(9.0), views))
    assert not isinstance(found, str), found
    return found


def test_memory_and_launches() -> None:
    """Logits of a large vocabulary are cut; a fifth of what they, their gradient and float32 copies take, or less."""
    rows, hidden, classes = 16384, 2048, 248320
    found = _geometry(rows, hidden, classes, dx=True, dweight=True)
    assert found.workspace < rows * classes * (2 + 2 + 4 + 4) // 5
    assert len([s for s in found.steps if getattr(s, "kernel", "") == "rows"]) == 4
    lone = _geometry(8192, 4096, 128256, dx=True, dweight=True)
    assert len([s for s in lone.steps if getattr(s, "kernel", "") == "rows"]) == 1
    assert _geometry(8192, 4096, 128256).workspace < 400 << 20


def test_chunks() -> None:
    assert chunk_rows(100, 1000, 64, ElementKind.BF16, True) == 100
    assert chunk_rows(0, 1000, 64, ElementKind.BF16, True) == 1
    assert chunk_rows(16384, 248320, 2048, ElementKind.BF16, True) == 4096
