"""Arguments of functions written by hand that do not fit: typed errors that name them, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
INDEX = np.array([0, 2], np.int64)


class Producer:
    """An array that is known through DLPack alone."""

    def __dlpack__(self, **options: Any) -> Any:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return X.__dlpack_device__()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bc.compress(INDEX, X, axis="first"), "axis must be an integer or None, got 'first'"),
        (lambda: bc.index_reduce(X, INDEX, X[:2], "sum", axis=0.5), "axis must be an integer, got 0.5"),
        (lambda: bc.softmax(X, temperature=10**400), "temperature must be a number"),
        (lambda: bc.percentile(X, 10**400), "q must be from 0 to 100"),
        (lambda: bc.norm_backward(X[0], X, p="two"), "p must be a number"),
        (lambda: bc.average(X, X, returned=NotImplemented), "returned must be True or False"),
        (lambda: bc.cross_entropy(X, INDEX[[0, 1, 0]], return_entropy=1), "return_entropy must be True or False"),
        (lambda: bc.linear(X, np.ones((), np.float32)), "weight must have at least two axes"),
        (lambda: bc.adjoint(Producer()), "x: no views are made of a Producer here"),
        (lambda: bc.less(X > 2, 10**5000), "an integer of"),
    ],
)
def test_the_argument_is_named(call: Callable[[], Any], says: str) -> None:
    with pytest.raises((InvalidProblemError, UnsupportedError), match=says):
        call()


def test_an_error_of_arguments_that_fit_is_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the function itself is not dressed as the caller's."""

    def broken(*args: Any, **given: Any) -> Any:
        raise ValueError("a defect")

    monkeypatch.setitem(bc.compress.__wrapped__.__globals__, "nonzero", broken)
    with pytest.raises(ValueError, match=r"^a defect$") as raised:
        bc.compress(INDEX, X, axis=0)
    assert not isinstance(raised.value, InvalidProblemError)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda w: bc.embedding(INDEX, w, max_norm=0.1, padding_idx=7), "padding_idx"),
        (lambda w: bc.embedding(INDEX, w, max_norm=0.1, out=np.zeros(3, np.float32)), "y"),
        (lambda w: bc.embedding_bag(INDEX[None], w, max_norm=0.1, scale_grad_by_freq="no"), "scale_grad_by_freq"),
        (lambda w: bc.embedding_bag(INDEX[None], w, max_norm=0.1, out=np.zeros(3, np.float32)), "y"),
    ],
)
def test_no_row_is_shortened_before_an_error(call: Callable[[Any], Any], says: str) -> None:
    weight = X.copy()
    with pytest.raises(InvalidProblemError, match=says):
        call(weight)
    assert (weight == X).all()


def test_nothing_is_moved_before_an_error_of_the_statistics() -> None:
    mean, moved = X[:2], np.zeros(4, np.float32)
    with pytest.raises(InvalidProblemError, match="running_var must have shape"):
        bc.batch_norm_gather_stats_with_counts(mean, mean + 1, INDEX, moved, np.zeros(3, np.float32))
    assert not moved.any()
