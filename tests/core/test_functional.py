"""The functional layer: descriptors solved from shapes, outputs made and given, errors that say what to pass."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frame_toys import AxpyPlan, UpdatePlan

import baracuda_py as bc
from baracuda_py.calls.functional import functional
from baracuda_py.core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Plan,
    PlanPreference,
    TensorRef,
    Variant,
    element,
    extent,
    extents,
    number,
    operand,
    output,
)
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.solving import solve


@dataclass(frozen=True, kw_only=True)
class MixDescriptor(Descriptor):
    """Two tuples share x; either can be told from w or b, or by name."""

    batch: tuple[int, ...] = extents()
    features: tuple[int, ...] = extents()
    width: int = extent()
    scale: float = number(1.0)
    index: ElementKind = element((ElementKind.I32, ElementKind.I64))
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class MixArgs(Args):
    x: Array = operand("*batch *features")
    i: Array = operand("width", element="index", values=(0, 2))
    w: Array | None = operand("*features width", optional=True)
    y: Array = output("*batch width")
    rest: Array | None = output("*batch", element="acc", optional=True)


def mix(desc: Any, *, x: Any, i: Any, w: Any, wanted: set[str]) -> Mapping[str, Any]:
    flat = x.reshape(*desc.batch, -1).sum(-1)
    return {"y": np.repeat(flat[..., None], desc.width, -1) * x.dtype.type(desc.scale), "rest": flat}


class MixPlan(Plan):
    descriptor = MixDescriptor
    args = MixArgs
    reference = staticmethod(mix)
    variants = (Variant("none", lambda p: "not here", source="toy.cu"),)


MixPlan.op = "test.mix"
mixed = functional(MixPlan)
axpy = functional(AxpyPlan)
update = functional(UpdatePlan)
X, INDEX, W = np.ones((2, 3, 4), np.float32), np.zeros(5, np.int64), np.ones((4, 5), np.float32)


def solved(shapes: Mapping[str, Any], **given: Any) -> Any:
    kinds = dict.fromkeys(shapes, ElementKind.F32) | {"i": ElementKind.I64}
    return solve(MixPlan, shapes, kinds, given)


def test_dimensions_are_unified() -> None:
    want = MixDescriptor(batch=(2, 3), features=(4,), width=5, index="int64", element="float32")
    assert solved({"x": (2, 3, 4), "i": (5,), "w": (4, 5)}) == want
    assert solved({"x": (2, 3, 4), "i": (5,)}, features=4) == want
    assert solved({"x": (2, 3, 4), "i": (5,)}, batch=[2, 3]) == want
    assert solved({"x": (4,), "i": (0,)}, batch=()).features == (4,)


@pytest.mark.parametrize(
    ("shapes", "given", "says"),
    [
        ({"x": (2, 3, 4), "i": (5,)}, {}, r"leave batch, features open; pass batch=, features="),
        ({"x": (2, 3, 4), "i": (5, 1), "w": (4, 5)}, {}, r"i must have shape \(width\), got \(5, 1\)"),
        ({"x": (3,), "i": (5,)}, {"features": (2, 3)}, r"x must have shape \(\*batch \*features\), got \(3,\)"),
        ({"x": (3,), "i": (5,)}, {"features": -1}, "features must be an integer >= 0, got -1"),
    ],
)
def test_what_does_not_unify_is_told(shapes: Any, given: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says):
        solved(shapes, **given)


def test_a_call_makes_its_outputs() -> None:
    y = mixed(X, INDEX, W, scale=2)
    assert y.shape == (2, 3, 5) and y.dtype == np.float32 and (y == 8).all()
    y, rest = mixed(X, INDEX, W, return_rest=True)
    assert rest.shape == (2, 3) and (rest == 4).all()
    assert mixed(X.astype(np.float16), INDEX, features=4, return_rest=True)[1].dtype == np.float32
    assert mixed(X.astype(ml_dtypes.bfloat16), INDEX, features=[4]).dtype == ml_dtypes.bfloat16


def test_outputs_may_be_given() -> None:
    y, rest = np.empty((2, 3, 5), np.float32), np.empty((2, 3), np.float32)
    assert mixed(X, INDEX, W, out=y) is y
    assert mixed(X, INDEX, W, return_rest=True, out=(y, rest))[0] is y
    made = mixed(X, INDEX, W, return_rest=True, out={"rest": rest})
    assert made[1] is rest and made[0] is not y
    with pytest.raises(InvalidProblemError, match=r"out= must give 1 arrays \(y\), got 2"):
        mixed(X, INDEX, W, out=(y, rest))
    with pytest.raises(InvalidProblemError, match=r"out= names \['z'\]; the outputs are \['y'\]"):
        mixed(X, INDEX, W, out={"z": y})
    with pytest.raises(InvalidProblemError, match="y must have shape"):
        mixed(X, INDEX, W, out=rest)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((None, INDEX, W), "x is required, got None"),
        (([1.0, 2.0], INDEX, W), "x must be an array .* got list"),
        ((3.0, INDEX, W), "x must be an array"),
        ((X, INDEX.astype(np.float32), W), "index float32 is not supported"),
        ((X, INDEX, W.astype(np.float64)), "w must be float32, got float64"),
        ((X, INDEX, np.ones((5, 5), np.float32)), "x must have shape|w must have shape"),
    ],
)
def test_wrong_arguments_name_the_operand(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises((InvalidProblemError, UnsupportedError), match=says):
        mixed(*arguments)


def test_unknown_keywords_are_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'dim'"):
        mixed(X, INDEX, W, dim=1)


def test_the_signature_reads() -> None:
    names = list(inspect.signature(mixed).parameters)
    assert names[:3] == ["x", "i", "w"] and {"scale", "return_rest", "out", "stream", "preference"} <= set(names)
    assert mixed.__name__ == "mix" and mixed.plan is MixPlan


def test_a_repeated_call_selects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = axpy(X, alpha=2.0)
    monkeypatch.setattr(AxpyPlan, "select", lambda *a, **k: pytest.fail("selected again"))
    assert (axpy(X, alpha=2.0) == first).all()
    assert (axpy(X, alpha=5.0, step=2) == 10).all()  # scalars are no part of the key
    with pytest.raises(pytest.fail.Exception):
        axpy(X[0])


def test_outputs_that_need_an_absent_input_are_left_out() -> None:
    assert isinstance(axpy(X, return_total=True), np.ndarray)
    y, total = axpy(X, X[0, 0], return_total=True)
    assert total.shape == () and total == y.sum()


def test_in_place_functions_return_what_they_change() -> None:
    params, grads = [np.ones(3, np.float32), np.ones(2, np.float32)], [np.ones(3, np.float32), np.ones(2, np.float32)]
    assert update(params, grads, lr=0.5) is params
    assert params[0].tolist() == [0.5] * 3
    with pytest.raises(InvalidProblemError, match="takes no out="):
        update(params, grads, out=params)
    assert update([], [], element="float32") == []
    with pytest.raises(InvalidProblemError, match="leave element open; pass element="):
        update([], [])
    with pytest.raises(InvalidProblemError, match="params must be a list of arrays, got ndarray"):
        update(params[0], grads)


def test_preferences_and_tensor_refs() -> None:
    with pytest.raises(UnsupportedError, match="backend"):
        from baracuda_py.core import BackendKind

        axpy(X, preference=PlanPreference(prefer_backend=BackendKind.CUBLAS))
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    refs = [TensorRef(a.ctypes.data, (4,), None, "float32", device=-1) for a in (x, y)]
    axpy(refs[0], out=refs[1])
    assert y.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("good", "wrong"),
    [
        ({"axis": 1}, [{"axis": 1.0}, {"axis": True}]),
        ({"axis": (0, 1)}, [{"axis": (0.0, 1)}, {"axis": (False, True)}]),
        ({"keepdims": True}, [{"keepdims": 1}, {"keepdims": 1.0}]),
        ({"shape": (2, 3)}, [{"shape": (2.0, 3)}]),
    ],
)
def test_an_attribute_that_equals_a_good_one_is_refused_after_it_too(
    good: dict[str, Any], wrong: list[dict[str, Any]]
) -> None:
    x = np.ones((2, 3), np.float32)
    bc.sum(x, **good)
    for one in wrong:
        with pytest.raises(InvalidProblemError):
            bc.sum(x, **one)
