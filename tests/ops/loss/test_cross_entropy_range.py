"""The gradient of logits far from 0: as exact as near 0, on every backend, from the statistics and fused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from baracuda_py.ops.loss.cross_entropy import CrossEntropyLossDescriptor, CrossEntropyLossPlan
from baracuda_py.ops.loss.cross_entropy_backward import CrossEntropyLossBackwardPlan
from baracuda_py.testing.places import call

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
SHIFTS = {
    "float16": (0, 1000, -30000), "bfloat16": (0, 1e5, -1e30), "float32": (0, 1000, -1e5, 1e7, 3e38),
    "float64": (0, 1e5, -1e12, 1e300),
}  # fmt: skip
SIZES = (9, 300, 9001)  # a row in part of a warp, in a block, in several of the backward's segments


def _problem(element: str, shift: float, classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(classes)
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    with np.errstate(over="ignore"):
        x = (rng.standard_normal((2, classes)) * 3 + shift).astype(dtype)
    return x, np.array([int(np.argmax(x[0])), 1])


def _truth(x: Any, targets: Any) -> np.ndarray:
    """softmax - onehot; differences from the maximum are exact in 60 digits and small where they count."""
    with mpmath.workdps(60):
        rows = []
        for row, t in zip(x, targets, strict=True):
            values, counts = np.unique(row.astype(np.float64), return_counts=True)
            top = mpmath.mpf(float(values[-1]))
            e = {float(v): mpmath.exp(mpmath.mpf(float(v)) - top) for v in values}
            total = mpmath.fsum(int(n) * e[float(v)] for v, n in zip(values, counts, strict=True))
            rows.append([float(e[float(v)] / total - (i == t)) for i, v in enumerate(row)])
    return np.array(rows)


@pytest.mark.parametrize("classes", SIZES)
@pytest.mark.parametrize(("element", "shift"), [(e, s) for e, shifts in SHIFTS.items() for s in shifts])
def test_digits_do_not_depend_on_where_the_logits_lie(place: str, element: str, shift: float, classes: int) -> None:
    x, t = _problem(element, shift, classes)
    desc = CrossEntropyLossDescriptor(batch_shape=2, num_classes=classes, reduction="sum", element=element)
    made = call(CrossEntropyLossPlan, desc, ("loss", "stats", "dlogits"), place, logits=x, targets=t)
    back = call(
        CrossEntropyLossBackwardPlan, desc, ("dlogits",), place, logits=x, targets=t, stats=made["stats"],
        dloss=np.ones(()),
    )  # fmt: skip
    expected = _truth(x, t)
    own = max(EPS[element], 8 * EPS["float64" if element == "float64" else "float32"])
    for got in (back["dlogits"], made["dlogits"]):
        error = np.abs(got.astype(np.float64) - expected)
        assert np.max(error) <= 1.01 * own * np.max(np.abs(expected))
    if place != "numpy":
        assert back["dlogits"].tobytes() == made["dlogits"].tobytes()  # one formula


@pytest.mark.parametrize("element", EPS)
def test_no_probability_exceeds_one(place: str, element: str) -> None:
    """A row whose maximum stands alone: the gradient of every other class is not negative, of its own not positive."""
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    x = np.zeros((6, 40), dtype)
    x[:, 3] = np.array([0.5, 20, 200, 3e3, 2.5e4, 6e4]).astype(dtype)
    t = np.full(6, 3)
    desc = CrossEntropyLossDescriptor(batch_shape=6, num_classes=40, reduction="none", element=element)
    made = call(CrossEntropyLossPlan, desc, ("loss", "stats", "lse"), place, logits=x, targets=t)
    back = call(CrossEntropyLossBackwardPlan, desc, ("dlogits",), place, logits=x, targets=t, stats=made["stats"],
                dloss=np.ones(6))  # fmt: skip
    got = back["dlogits"].astype(np.float64)
    assert (np.delete(got, 3, axis=1) >= 0).all() and (got[:, 3] <= 0).all() and (got[:, 3] >= -1).all()
    assert (made["loss"] >= 0).all() and (made["stats"][:, 1] >= 1).all()
    np.testing.assert_array_equal(made["stats"][:, 0], x.max(axis=1).astype(made["stats"].dtype))
    np.testing.assert_allclose(made["lse"], np.logaddexp(np.log(39), x[:, 3].astype(np.float64)), rtol=2e-6)


def test_statistics_of_an_ignored_long_row(place: str) -> None:
    """They are asked for, so they are there, though its loss and gradient are 0."""
    x = np.linspace(-4, 4, 20011).astype(np.float32)[None]
    desc = CrossEntropyLossDescriptor(batch_shape=1, num_classes=20011, reduction="sum", element="float32")
    made = call(CrossEntropyLossPlan, desc, ("loss", "stats"), place, logits=x, targets=np.array([-100]))
    np.testing.assert_allclose(made["stats"], [[4, np.exp(x.astype(np.float64) - 4).sum()]], rtol=1e-6)
    assert made["loss"] == 0
