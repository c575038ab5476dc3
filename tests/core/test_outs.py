"""out= and stream= of every function: what is given is written and returned, with the bits of a call without it."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.core.args import arrays_of
from tests.interop.hand_written import GIVEN, operands_of

NAMES = [n for n in EXPORTS if not isinstance(f := getattr(bc, n), type) and callable(f) and hasattr(f, "plan")]
WRITTEN = [n for n in NAMES if not hasattr(getattr(bc, n), "entry") or n in GIVEN]


def in_place(name: str) -> bool:
    """Whether a function updates operands and makes no array, which its help says."""
    plan = getattr(bc, name).plan
    specs = arrays_of(plan.args) if isinstance(plan, type) else ()
    return not any(s.role == "out" for s in specs) and any(s.role == "inout" for s in specs)


def test_every_function_takes_them() -> None:
    for name in NAMES:
        function: Any = getattr(bc, name)
        taken = inspect.signature(function).parameters
        assert "stream" in taken or any(p.kind is p.VAR_KEYWORD for p in taken.values()), name
        if in_place(name):
            assert "in place" in str(function.__doc__), name
        else:
            assert "out" in taken, name


@pytest.mark.parametrize("name", [n for n in WRITTEN if not in_place(n)])
def test_functions_written_by_hand_write_what_is_given(name: str) -> None:
    function: Any = getattr(bc, name)
    operands, facts = operands_of(name)
    made = function(*deepcopy(operands), **facts)  # some update an operand, and make an array besides
    several = isinstance(made, (tuple, list))
    wanted = list(made) if several else [made]
    if not all(isinstance(one, np.ndarray) for one in wanted):
        return  # a Python value, such as that of `allclose`
    outs = [np.full_like(one, 1) for one in wanted]
    listed = {s.name: outs for s in arrays_of(function.plan.args) if s.role == "out"} if type(made) is list else None
    given = function(*operands, **facts, out=listed or (tuple(outs) if several else outs[0]))
    for one, out, want in zip(given if several else [given], outs, wanted, strict=True):
        assert one is out
        np.testing.assert_array_equal(out, want)
