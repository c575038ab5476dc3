"""What optimizers keep of a step for the next one: whatever has changed in between is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

NAMES = ("AdamW", "Adam", "RMSprop", "RAdam", "NAdam", "SGD")


def parameters() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64)) for s in ((3, 4), (5,), ())]


def freeze(one: Any) -> None:
    one.param_groups[0]["params"][1].grad = None


def replace_state(one: Any) -> None:
    p = one.param_groups[0]["params"][0]
    one.state[p] = {n: x.clone() * 2 if n != "step" else x.clone() for n, x in one.state[p].items()}


def replace_tensor(one: Any) -> None:
    p = one.param_groups[0]["params"][0]
    name = next(n for n in one.state[p] if n not in ("step", "mu_product"))
    one.state[p][name] = one.state[p][name] * 0.5


def forget(one: Any) -> None:
    one.state.clear()


def count(one: Any) -> None:
    p = one.param_groups[0]["params"][0]
    if "step" in one.state[p]:
        one.state[p]["step"] += 5


def count_anew(one: Any) -> None:
    p = one.param_groups[0]["params"][0]
    if "step" in one.state[p]:
        one.state[p]["step"] = torch.tensor(9.0)


def load(one: Any) -> None:
    one.load_state_dict(one.state_dict())


def exchange(one: Any) -> None:
    params = one.param_groups[0]["params"]
    params[1] = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    params[1].grad = torch.full_like(params[1], 0.3)


def add(one: Any) -> None:
    new = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    one.add_param_group({"params": [new], "lr": 0.1})
    new.grad = torch.full_like(new, 0.2)


def move(one: Any) -> None:
    p = one.param_groups[0]["params"][0]
    p.data = p.data + 1


def rate(one: Any) -> None:
    one.param_groups[0]["lr"] = 0.3


CHANGES = (freeze, replace_state, replace_tensor, forget, count, count_anew, load, exchange, add, move, rate)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_changes_between_steps_is_seen(name: str, change: Callable[[Any], None]) -> None:
    """Beside torch's own, which looks at everything at each step."""
    ends = []
    for place in (optim, torch.optim):
        params = parameters()
        given = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
        one = getattr(place, name)(params, lr=0.05, **given)
        generator = torch.Generator().manual_seed(1)
        for i in range(6):
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if i == 3:
                change(one)
            one.step()
        ends.append([p.detach() for group in one.param_groups for p in group["params"]])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-10, atol=1e-12)


def test_steps_that_are_kept_are_counted_alone() -> None:
    params = parameters()
    one = optim.AdamW(params, lr=0.05)
    for i in range(5):
        for p in params:
            p.grad = torch.ones_like(p)
        if i == 2:
            params[1].grad = None
        one.step()
    assert [float(one.state[p]["step"]) for p in params] == [5, 4, 5]
    assert all(one.state[p]["step"].shape == () for p in params)


def test_two_optimizers_of_one_rule() -> None:
    """They share what is prepared, and nothing else."""
    both = [optim.AdamW(parameters(), lr=0.05), optim.AdamW(parameters(), lr=0.05)]
    for _ in range(4):
        for one in both:
            for p in one.param_groups[0]["params"]:
                p.grad = torch.ones_like(p)
            one.step()
    first, second = ([p.detach() for p in one.param_groups[0]["params"]] for one in both)
    assert all(map(torch.equal, first, second))


def test_steps_under_inference_mode() -> None:
    params = parameters()
    one = optim.AdamW(params, lr=0.05)
    for p in params:
        p.grad = torch.ones_like(p)
    with torch.inference_mode():
        one.step()
        one.step()
    one.step()
    assert all(float(one.state[p]["step"]) == 3 for p in params)


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Lion"])
def test_a_compiled_step_is_the_step(name: str) -> None:
    """torch.compile's graph ends there."""
    ends = []
    for compiled in (False, True):
        params = parameters()
        more = {"momentum": 0.9} if name == "SGD" else {}
        one = getattr(optim, name)(params, lr=0.05, **more)
        step = torch.compile(one.step, backend="eager") if compiled else one.step
        for i in range(3):
            for p in params:
                p.grad = torch.full_like(p, 0.5 - i)
            step()
        ends.append([p.detach() for p in params])
    assert all(map(torch.equal, *ends))
