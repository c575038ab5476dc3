"""What an emulation depends on is in its key; what is known is not run, and what fails is not noted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import emulations
import numpy as np
import pytest

from baracuda_py import LayerNormPlan, PlanPreference, RMSNormPlan
from baracuda_py.core.plan import Plan
from baracuda_py.testing import Operands, emulated_device, fill, operands


def problem(
    plan: type[Plan] = RMSNormPlan, cc: float = 9.0, deterministic: bool = False, seed: int = 0, **facts: Any
) -> tuple[Plan, Operands]:
    desc = plan.descriptor(**{"batch_shape": (3,), "normalized_shape": (8,)} | facts, element="float32")
    ready = operands(fill(plan, desc, np.random.default_rng(seed)))
    return plan(desc, PlanPreference(deterministic=deterministic), emulated_device(cc)), ready


def changed(how: str) -> tuple[Plan, Operands]:
    plan, ready = problem()
    if how == "a byte of an operand":
        ready.laid["x"].before[ready.laid["x"].start] ^= 1
    elif how == "a number":
        ready.case.arrays["eps"] = 0.123
    elif how == "the text of the kernel":
        plan.rows = tuple(replace(row, prelude=lambda element, kind: "// a\n#define ANOTHER 1\n") for row in plan.rows)
    return plan, ready


def test_equal_emulations_have_one_key() -> None:
    assert emulations.key(*problem()) == emulations.key(*problem()) == emulations.key(*changed("nothing"))


@pytest.mark.parametrize("how", ["a byte of an operand", "a number", "the text of the kernel"])
def test_each_thing_is_in_the_key(how: str) -> None:
    assert emulations.key(*changed(how)) != emulations.key(*problem())


def test_problems_devices_and_preferences_are_in_the_key() -> None:
    made = [problem(), problem(seed=1), problem(batch_shape=(4,)), problem(cc=8.0), problem(deterministic=True)]
    made += [problem(LayerNormPlan)]
    assert len({emulations.key(*one) for one in made}) == len(made)


def test_what_is_known_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[Plan] = []
    monkeypatch.setattr(emulations, "emulate", lambda plan, ready: ran.append(plan))
    monkeypatch.setattr(emulations, "written", [tmp_path / "passed"])
    monkeypatch.setattr(emulations, "SAMPLE", 0)
    monkeypatch.setattr(emulations, "known", frozenset)
    emulations.passes(*problem())
    assert len(ran) == 1
    keys = (tmp_path / "passed").read_text().split()
    monkeypatch.setattr(emulations, "known", lambda: frozenset(keys))
    emulations.passes(*problem())
    assert len(ran) == 1
    emulations.passes(*problem(seed=1))
    assert len(ran) == 2


def test_what_fails_is_not_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(plan: Plan, ready: Operands) -> None:
        raise AssertionError("wrong")

    monkeypatch.setattr(emulations, "emulate", fails)
    monkeypatch.setattr(emulations, "written", [tmp_path / "passed"])
    monkeypatch.setattr(emulations, "known", frozenset)
    with pytest.raises(AssertionError, match="wrong"):
        emulations.passes(*problem())
    assert not (tmp_path / "passed").exists()
