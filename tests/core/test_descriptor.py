"""Descriptors: every field helper, its error, and what makes two of them one."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from baracuda_py.core import (
    FLOATS,
    Descriptor,
    ElementKind,
    choice,
    element,
    extent,
    extents,
    flag,
    integer,
    number,
    shapes,
)
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError


class Mode(enum.Enum):
    MEAN = "mean"
    SUM = "sum"


@dataclass(frozen=True, kw_only=True)
class Sample(Descriptor):
    rows: int = extent(4)
    heads: int = extent(2, minimum=1)
    axis: int = integer(-1, minimum=-3, maximum=2)
    window: int | None = integer(None, minimum=1)
    batch: tuple[int, ...] = extents((2, 3))
    parts: tuple[tuple[int, ...], ...] = shapes(((1, 2), ()))
    eps: float = number(1e-6, above=0.0)
    dropout: float = number(0.0, minimum=0.0, maximum=1.0)
    scale: float | None = number(None)
    causal: bool = flag(False)
    mode: Mode = choice(Mode, Mode.MEAN)
    layout: str = choice(("bhsd", "bshd"), "bhsd")
    index: ElementKind | None = element((ElementKind.I32, ElementKind.I64), default=None)
    element: ElementKind = element(FLOATS, default=ElementKind.F32)

    def validate(self) -> None:
        if self.axis == 2 and self.rows == 0:
            raise InvalidProblemError("rows must be > 0 along axis 2")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("rows", -1, ">= 0"), ("rows", 2.0, "integer"), ("rows", True, "integer"), ("rows", "4", "integer"),
        ("heads", 0, ">= 1"), ("axis", 3, "[-3, 2]"), ("window", 0, ">= 1"), ("batch", (2, -1), ">= 0"),
        ("batch", 1.5, "tuple of sizes"), ("eps", 0.0, "> 0"), ("eps", float("nan"), "finite"),
        ("eps", "x", "finite number"),
        ("dropout", 1.5, "<= 1"), ("causal", 1, "True or False"), ("mode", "max", "mean"), ("layout", "sbhd", "bhsd"),
    ],
)  # fmt: skip
def test_a_bad_value_names_field_value_and_what_is_allowed(field: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        Sample(**{field: value})
    message = str(caught.value)
    assert message.startswith(field) and repr(value) in message.replace("-1", repr(value)) and says in message
    assert isinstance(caught.value, ValueError)


def test_an_element_outside_the_list_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="element int32 is not supported; it may be one of float32"):
        Sample(element="int32")


def test_values_are_normalised_so_that_equal_problems_are_equal() -> None:
    a = Sample(rows=np.int64(4), batch=[2, 3], mode="sum", element="bfloat16", index=np.int32, eps=1)
    b = Sample(rows=4, batch=(2, 3), mode=Mode.SUM, element=ElementKind.BF16, index="int32", eps=1.0)
    assert a == b and hash(a) == hash(b)
    assert Sample(batch=7).batch == (7,)
    assert a != dataclasses.replace(a, causal=True)


def test_frozen_keyword_only_and_picklable() -> None:
    sample = Sample()
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.rows = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample(4)  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(sample)) == sample


def test_relations_are_validated_after_the_fields() -> None:
    with pytest.raises(InvalidProblemError, match="along axis 2"):
        Sample(rows=0, axis=2)


@pytest.mark.parametrize(("kind", "acc"), [("float16", "float32"), ("bfloat16", "float32"), ("float64", "float64")])
def test_acc_is_what_statistics_are_saved_in(kind: str, acc: str) -> None:
    assert str(Sample(element=kind).acc) == acc
