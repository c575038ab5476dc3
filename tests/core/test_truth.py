"""What serves where the truth is an infinity that the dtypes of an op cannot tell from NaN, and what does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.error_bound import Relative
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.reference import evaluate
from baracuda_py.testing.truth import Truth

INF, NAN = np.inf, np.nan


def is_right(truth: Truth, name: str, y: Any, dtype: Any) -> bool:
    return truth.wrong({(name, 0): np.array(y, dtype)}, Relative(2)) is None


def test_nan_serves_where_an_intermediate_that_is_kept_in_the_element_is_zero() -> None:
    """dy is rounded to float16 before it meets an infinite scale: that of the first row is then 0."""
    desc = bc.BlockGemmBackwardDescriptor(
        m=2, n=1, k=32, kind="q8_0", group=32, out_element="float32", element="float16"
    )
    codes = np.concatenate([np.array([INF], np.float16).view(np.uint8), np.ones(32, np.uint8)])[None]
    arrays = {"codes": codes, "scales": None, "zeros": None, "index": None, "scale": 1.0}
    arrays["dy"] = np.array([[1e-30], [1]], np.float32)
    truth = Truth(Case(bc.BlockGemmBackwardPlan, desc, arrays, frozenset({"dx"})))
    for rows, right in (((INF, INF), True), ((NAN, INF), True), ((INF, NAN), False), ((0, INF), False)):
        assert is_right(truth, "dx", np.repeat(np.array(rows)[:, None], 32, 1), np.float16) is right


def of_ctc(log_prob: float, dtype: Any = np.float64) -> Truth:
    """One step of one class, and an infinite gradient: dlog_probs = inf (exp(log_prob) - 1)."""
    desc = bc.CtcLossBackwardDescriptor(
        input_length=1, batch=1, classes=1, target_shape=(1, 1), max_target_length=1, reduction="none",
        element=np.dtype(dtype).name,
    )  # fmt: skip
    arrays = {"dloss": np.array([INF], dtype), "log_probs": np.full((1, 1, 1), log_prob, dtype)}
    arrays |= {"targets": np.zeros((1, 1), np.int64), "input_lengths": np.ones(1, np.int64)}
    arrays["target_lengths"] = np.zeros(1, np.int64)
    bc.CtcLossBackwardPlan.complete(desc, arrays)
    return Truth(Case(bc.CtcLossBackwardPlan, desc, arrays, frozenset({"dlog_probs"})))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinity_times_rounding_errors_has_no_sign(dtype: Any) -> None:
    truth = of_ctc(-float(np.finfo(dtype).eps) / 4, dtype)  # half the way to the next number below 1
    for y, right in ((-INF, True), (NAN, True), (INF, True), (0, False), (1, False)):
        assert is_right(truth, "dlog_probs", [[[y]]], dtype) is right


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinity_times_a_factor_that_is_known_has_one(dtype: Any) -> None:
    truth = of_ctc(-1e-3, dtype)
    for y, right in ((-INF, True), (NAN, False), (INF, False), (0, False)):
        assert is_right(truth, "dlog_probs", [[[y]]], dtype) is right


def test_a_result_of_a_narrower_element_is_compared_without_a_warning() -> None:
    """The range is that of the op's element, here beyond what the result's holds."""
    desc = bc.MovingAverageQParamsDescriptor(channels=2, element="float64")
    case = fill(bc.MovingAverageQParamsPlan, desc, np.random.default_rng(0))
    right = evaluate(case)["running_min"].astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_right(Truth(case), "running_min", right, np.float32)
