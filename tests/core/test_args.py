"""Declarations of operands: shapes in the descriptor's terms, elements, and the errors of a call that breaks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan, UpdateArgs, UpdateDescriptor, UpdatePlan
from hypothesis import given
from hypothesis import strategies as st

from baracuda_py.core import Args, Array, Descriptor, ElementKind, extent, extents, inout, operand, output, scalar
from baracuda_py.core.args import arrays_of, broadcasts_to, expect_shape, operands_of, scalars_of
from baracuda_py.core.errors import InvalidProblemError


@dataclass(frozen=True, kw_only=True)
class Sample(Descriptor):
    batch: tuple[int, ...] = extents((2, 3))
    heads: int = extent(4)
    element: ElementKind = ElementKind.BF16

    @property
    def double(self) -> int:
        return 2 * self.heads

    @property
    def tail(self) -> tuple[int, ...]:
        return (5, 6)


@dataclass(slots=True, kw_only=True)
class SampleArgs(Args):
    x: Array = operand("*batch heads 7 double *tail")
    index: Array = operand("heads", element=(ElementKind.I32, ElementKind.I64))
    state: Array | None = inout("1", element="acc", optional=True)
    y: Array = output("", element=ElementKind.F64)
    lr: Any = scalar(0.1)


def test_shapes_are_read_in_the_descriptors_terms() -> None:
    specs = {spec.name: spec for spec in operands_of(SampleArgs)}
    desc = Sample()
    assert specs["x"].shape(desc) == (2, 3, 4, 7, 8, 5, 6)
    assert specs["y"].shape(desc) == () and specs["state"].shape(desc) == (1,)
    assert specs["index"].elements(desc) == (ElementKind.I32, ElementKind.I64)
    assert specs["state"].elements(desc) == (ElementKind.F32,) and specs["y"].elements(desc) == (ElementKind.F64,)
    assert [s.name for s in arrays_of(SampleArgs)] == ["x", "index", "state", "y"]
    assert [s.name for s in scalars_of(SampleArgs)] == ["lr"]
    assert (specs["state"].reads, specs["state"].writes) == (True, True) and not specs["y"].reads


def test_args_have_slots_and_keywords_only() -> None:
    with pytest.raises(TypeError):
        AxpyArgs(1, 2)  # type: ignore[misc]
    args = AxpyArgs(x=None, y=None)
    with pytest.raises(AttributeError):
        args.z = 1  # type: ignore[attr-defined]
    assert args.alpha == 2.0 and args.bias is None


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(SHAPES, SHAPES)
def test_broadcasting_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(a, b) == b
    except ValueError:
        fits = False
    assert broadcasts_to(a, b) == fits


def test_a_wrong_shape_is_told_in_the_declarations_words() -> None:
    spec = operands_of(SampleArgs)[0]
    with pytest.raises(
        InvalidProblemError, match=r"x must have shape .* \(\*batch heads 7 double \*tail\), got \(1,\)"
    ):
        expect_shape(spec, Sample(), (1,))


def call(**changes: Any) -> None:
    x = np.ones((2, 3), np.float32)
    plan = AxpyPlan.select(AxpyDescriptor(shape=(2, 3), element="float32"), device="cpu")
    plan.run(AxpyArgs(**{"x": x, "y": np.empty_like(x), **changes}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x": None}, "x is required, got None"),
        ({"x": [1.0]}, "x must be an array"),
        ({"x": np.ones((2, 3), np.float64)}, "x must be float32, got float64"),
        ({"bias": np.ones((2, 1, 3), np.float32)}, r"bias must broadcast to shape \(2, 3\)"),
        ({"total": np.zeros((), np.float32)}, "total is wanted but bias is None"),
        ({"alpha": "big"}, "alpha must be a number or a 0-d"),
        ({"alpha": np.ones(2, np.float32)}, "alpha must be a number or a 0-d"),
        ({"step": 1.5}, "step must be an integer, got 1.5"),
        ({"step": 2**64}, "step must fit 64 bits"),
    ],
)
def test_a_wrong_call_names_the_operand(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says):
        call(**changes)


@pytest.mark.parametrize("alpha", [3, 3.0, np.float32(3), np.int64(3), np.array(3.0), np.array(3, np.int32)])
def test_scalars_may_be_numbers_of_any_kind(alpha: Any) -> None:
    y = np.empty((2, 3), np.float32)
    call(alpha=alpha, y=y, step=np.int32(2))
    assert (y == 6).all()


def test_lists_must_have_the_declared_length() -> None:
    plan = UpdatePlan.select(UpdateDescriptor(shapes=((2,), (3,)), element="float32"), device="cpu")
    a, b = np.ones(2, np.float32), np.ones(3, np.float32)
    for wrong in ([a], [a, b, a], a, ()):
        with pytest.raises(InvalidProblemError, match="params must be a list of 2 arrays"):
            plan.run(UpdateArgs(params=wrong, grads=[a, b]))  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match=r"grads\[1\] must have shape \(3,\)"):
        plan.run(UpdateArgs(params=[a.copy(), b.copy()], grads=[a, a]))


def test_an_args_object_of_another_plan_is_refused() -> None:
    plan = AxpyPlan.select(AxpyDescriptor(shape=(2,), element="float32"), device="cpu")
    with pytest.raises(InvalidProblemError, match="AxpyPlan takes AxpyArgs, got UpdateArgs"):
        plan.run(UpdateArgs(params=[], grads=[]))
