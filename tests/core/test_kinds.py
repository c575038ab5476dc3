"""Operands that only some kinds of a table op have, and descriptor fields with a number an axis."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.numpy import NumpyRunner
from baracuda_py.calls.functional import functional
from baracuda_py.core import Descriptor, ElementKind, element, per_axis, spread
from baracuda_py.core.args import arrays_of
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.execution import MISS
from baracuda_py.ops.pooling.pool_backward import PoolBackwardPlan
from baracuda_py.testing.draw import SeededDraw, make_case


@dataclass(frozen=True, kw_only=True)
class Axes(Descriptor):
    size: Any = per_axis(minimum=1)
    step: Any = per_axis(None, minimum=1)
    element: ElementKind = element(default="float32")


def test_an_integer_or_one_an_axis():
    assert Axes(size=3).size == 3
    assert Axes(size=np.int64(3)).size == 3 and type(Axes(size=np.int64(3)).size) is int
    assert Axes(size=[3, np.int32(4)], step=(1, 2)).size == (3, 4)
    assert Axes(size=3).step is None
    assert spread("size", 3, 2) == (3, 3) and spread("size", (3, 4), 2) == (3, 4)
    assert hash(Axes(size=[3, 4])) == hash(Axes(size=(3, 4)))


@pytest.mark.parametrize("size", [0, (1, 0), 2**31, True, 1.5, "3", None, (1.5,)])
def test_other_values_are_refused(size):
    with pytest.raises(InvalidProblemError, match="size"):
        Axes(size=size)


def test_another_number_of_axes_is_refused():
    with pytest.raises(InvalidProblemError, match="size must be an integer or one for each of the 2 axes"):
        spread("size", (1, 2, 3), 2)


def function(kind):
    fixed = {"norm_type": None} if kind != "lp" else {}
    return functional(PoolBackwardPlan, f"{kind}_backward", kind=bc.PoolKind(kind), spatial_rank=1, **fixed)


def positional(call):
    return [n for n, p in inspect.signature(call).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_a_function_of_one_kind_takes_what_the_kind_has():
    assert positional(function("avg")) == ["dy"]
    assert positional(function("max")) == ["dy", "indices"]
    assert positional(function("lp")) == ["dy", "x", "y"]
    assert positional(bc.pool_backward) == ["dy", "x", "y", "indices"]
    assert "return_indices" in inspect.signature(bc.max_pool2d).parameters
    assert "return_indices" not in inspect.signature(bc.avg_pool2d).parameters


def test_random_problems_have_what_their_kind_has():
    for kind, names in (("avg", {"dy"}), ("max", {"dy", "indices"}), ("lp", {"dy", "x", "y"})):
        for seed in range(8):
            case = make_case(PoolBackwardPlan, SeededDraw(seed, ElementKind.F32, bc.PoolKind(kind)))
            assert {name for name, value in case.arrays.items() if value is not None} == names


def test_the_direct_path_is_given_none_for_the_others(monkeypatch):
    seen: list[Any] = []

    class Recorder:
        def call(self, *given: Any) -> Any:
            seen.append(given)
            return MISS

        def learn(self, arrays: Any) -> None:
            seen.append(arrays)

    monkeypatch.setattr(NumpyRunner, "direct", lambda runner, makers, lead, views: Recorder())
    dy = np.ones((2, 3))
    got = function("avg")(dy, shape=(2, 6), kernel_size=2)
    given, arrays = seen
    assert given[0] is dy and given[1:] == (None, None, None)
    assert set(arrays) == {s.name for s in arrays_of(PoolBackwardPlan.args)}
    assert arrays["dx"] is got and arrays["x"] is None
