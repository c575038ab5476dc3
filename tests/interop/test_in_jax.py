"""Every page's op in JAX: under jit it gives the bits of the plain call, its gradients are those of its backward op,
and vmap is a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.testing.reference import difference
from tests.interop.in_jax import PLANS, Drawn, alike, drawn, in_jax, jax, problems, same

NAMES = sorted(PLANS)


@pytest.fixture(autouse=True)
def _with_64_bits() -> Any:
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_jit_gives_the_bits_of_the_plain_call(name: str) -> None:
    served = 0
    for one in problems(PLANS[name]):
        arrays = in_jax(one.arrays)
        if arrays is None:
            continue
        want, got = one.plain(), jax.tree.leaves(jax.jit(lambda one=one, **given: one.call(**given))(**arrays))
        assert len(want) == len(got), str(one.case)
        for a, b in zip(want, got, strict=True):
            assert isinstance(b, jax.Array) and same(b, a), str(one.case)
        served += 1
    assert served


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_loop(name: str) -> None:
    """Over all operands, and over one of them, another from problem to problem."""
    served = 0
    for one in problems(PLANS[name]):
        if served == 3:
            break
        if not jax.tree.leaves(in_jax(one.arrays)):  # lists may be empty
            continue
        cases = [drawn(case) for case in alike(one.case, 2)]
        names = sorted(one.arrays)
        alone = names[(served + len(name)) % len(names)]
        _check_loop(cases, set(names) if served == 0 else {alone})
        served += 1
    assert served


def _check_loop(cases: list[Drawn], mapped: set[str]) -> None:
    first = cases[0]
    given = {
        name: jax.tree.map(lambda *items: np.stack(items), *(c.arrays[name] for c in cases)) if name in mapped else held
        for name, held in first.arrays.items()
    }
    axes = {n: 0 if n in mapped else None for n in given}
    call = jax.vmap(lambda arrays: first.call(**arrays), in_axes=(axes,))
    got = [np.asarray(made) for made in jax.tree.leaves(jax.jit(call)(in_jax(given)))]
    for i, case in enumerate(cases):
        one = Drawn(case.case, {n: (case if n in mapped else first).arrays[n] for n in given}, first.facts)
        for a, b in zip(one.plain(), got, strict=True):
            assert same(b[i], a), f"{one.case}, mapped over {mapped}: {difference(b[i], a)}"
