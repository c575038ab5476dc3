"""A seed that a call does not give: refused by every plan where its descriptor draws, and 0 where it does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from baracuda_py import InvalidProblemError
from baracuda_py.core import registry
from baracuda_py.core.args import scalars_of
from baracuda_py.core.device import fake_device
from baracuda_py.core.plan import Plan
from baracuda_py.testing import fill, operands, pointer_view, recording
from baracuda_py.testing.draw import Case, SeededDraw, combinations
from baracuda_py.testing.launches import capabilities

PLANS = registry.plans()
DRAWN = {name: s for name, plan in PLANS.items() for s in scalars_of(plan.args) if s.name == "seed" and s.drawn}


def case_of(name: str, draws: bool) -> Case:
    """A drawn problem with elements, whose descriptor draws, or does not."""
    plan = PLANS[name]
    pairs = combinations(plan)
    for seed in range(200):
        kind, element = pairs[seed % len(pairs)]
        desc = plan.case(SeededDraw(seed, element, kind))
        if DRAWN[name].draws(desc) is draws:
            case = fill(plan, desc, np.random.default_rng(seed), kind=kind)
            if all(array.size for array in case.arrays.values() if isinstance(array, np.ndarray)):
                return case
    raise AssertionError(f"no problem of {name} draws: {draws}")


class Calls:
    """A plan's calls on the CPU, or on a device that is not there, with the same operands each time."""

    def __init__(self, case: Case, device: str) -> None:
        place: Any = "cpu" if device == "cpu" else fake_device(max(capabilities(case.plan)))
        self.plan: Plan = case.plan.select(case.desc, device=place)
        self.ready = operands(case)
        self.fields = self.ready.fields() if device == "cpu" else self.ready.fields(pointer_view)
        self.fields.pop("seed")
        self.workspace = None
        if device != "cpu" and (nbytes := self.plan.workspace_size(self.args(seed=1))):
            room = np.zeros(nbytes + 256, np.uint8)
            self.workspace = pointer_view(room[-room.ctypes.data % 256 :][:nbytes])

    def args(self, **seed: Any) -> Any:
        """The Args of a call with a seed, or without."""
        return self.plan.args(**self.fields, **seed)

    def made(self, **seed: Any) -> list[bytes]:
        """What a call writes, or the parameters of its launches; the second of two, which takes the short path."""
        args = self.args(**seed)
        for _ in range(2):
            with recording() as record:
                self.plan.run(args, self.workspace)
        written = [np.array(one.view, order="C").tobytes() for spec, _, one in self.ready.items() if spec.writes]
        return [launch.image for launch in record.launches] or written


def test_all_that_draws_at_times_is_here() -> None:
    assert DRAWN.keys() == {
        "DropoutPlan", "DropoutBackwardPlan", "FlashSdpaPlan", "FlashSdpaSm89Plan", "FlashSdpaBackwardPlan", "SdpaPlan",
        "SdpaBackwardPlan", "FlashSdpaVarlenPlan", "FlashSdpaVarlenBackwardPlan", "QuantizePlan",
    }  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", DRAWN)
def test_a_call_that_draws_needs_a_seed(name: str, device: str) -> None:
    calls = Calls(case_of(name, draws=True), device)
    first = calls.made(seed=3)
    for seed in ({}, {"seed": None}):  # of a layout that is known by now
        assert calls.args(**seed).seed is None
        with pytest.raises(InvalidProblemError, match=f"seed is None where {DRAWN[name].drawn} is"):
            calls.made(**seed)
        assert "seed is None" in calls.plan.can_implement(calls.args(**seed)).reason
        with pytest.raises(InvalidProblemError, match="seed is None"):
            calls.plan.bind(calls.args(**seed), calls.workspace)
    assert first == calls.made(seed=3)
    assert len({tuple(calls.made(seed=n)) for n in range(9)}) > 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", DRAWN)
def test_a_call_that_draws_nothing_needs_none(name: str, device: str) -> None:
    calls = Calls(case_of(name, draws=False), device)
    wanted = calls.made(seed=0)
    assert calls.made() == calls.made(seed=None) == wanted
    with recording():  # as `made`: what was loaded there may have been given up since
        calls.plan.bind(calls.args(), calls.workspace)()


@pytest.mark.parametrize("p", [0, 1])
def test_of_all_or_nothing_dropout_draws_nothing(p: int) -> None:
    case = case_of("DropoutPlan", draws=True)
    assert Calls(dataclasses.replace(case, desc=dataclasses.replace(case.desc, p=p)), "cpu").made()
