"""torch.optim's classes with options drawn at random, ten times each: thirty steps in float64 are torch's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

SHAPES = ((3, 4), (5,), (), (2, 3, 4))
Draw = Callable[[random.Random], Any]


def between(low: float, high: float) -> Draw:
    """A number, or now and then an end."""
    return lambda rng: rng.choice((low, high, *(rng.uniform(low, high) for _ in range(4))))


def one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def pair(first: Draw, second: Draw) -> Draw:
    return lambda rng: (first(rng), second(rng))


FLAG, BETAS = one_of(False, True), pair(between(0.0, 0.95), between(0.5, 0.999))
SHARED: dict[str, Draw] = {"maximize": FLAG, "foreach": one_of(None, False, True)}
DECAYED = {**SHARED, "weight_decay": between(0.0, 0.3), "lr": between(1e-4, 0.2)}
ADAM = {**DECAYED, "betas": BETAS, "eps": between(1e-8, 1e-2)}
OPTIONS: dict[str, dict[str, Draw]] = {
    "SGD": {**DECAYED, "momentum": between(0.0, 0.95), "dampening": between(0.0, 0.5), "nesterov": FLAG},
    "Adam": {**ADAM, "amsgrad": FLAG, "decoupled_weight_decay": FLAG},
    "AdamW": {**ADAM, "amsgrad": FLAG},
    "Adamax": ADAM,
    "NAdam": {**ADAM, "momentum_decay": between(1e-3, 0.1), "decoupled_weight_decay": FLAG},
    "RAdam": {**ADAM, "decoupled_weight_decay": FLAG},
    "Adagrad": {**DECAYED, "lr_decay": between(0.0, 0.2), "initial_accumulator_value": between(0.0, 0.5),
                "eps": between(1e-10, 1e-3)},
    "Adadelta": {**DECAYED, "rho": between(0.1, 0.99), "eps": between(1e-8, 1e-3)},
    "RMSprop": {**DECAYED, "alpha": between(0.5, 0.99), "centered": FLAG, "momentum": between(0.0, 0.9),
                "eps": between(1e-6, 1e-2)},
    "Rprop": {**SHARED, "lr": between(1e-3, 0.2), "etas": pair(between(0.3, 0.9), between(1.05, 1.5)),
              "step_sizes": pair(between(1e-6, 1e-3), between(0.2, 2.0))},
    # torch's foreach rounds ASGD's rate to float32 in another place than its own loop does.
    "ASGD": {**DECAYED, "foreach": one_of(None, False),
             "lambd": between(1e-4, 0.2), "alpha": between(0.5, 0.9), "t0": one_of(0.0, 5.0, 1e6)},
    "Adafactor": {**DECAYED, "beta2_decay": between(-0.9, -0.3), "d": between(1.0, 2.0),
                  "eps": pair(between(1e-8, 1e-3), between(1e-4, 1e-2))},
}  # fmt: skip


def drawn(name: str, rng: random.Random) -> dict[str, Any]:
    """Each option that torch would take beside the others, or its default."""
    made = {word: draw(rng) for word, draw in OPTIONS[name].items() if rng.random() < 0.7}
    if made.get("nesterov"):
        made |= {"momentum": max(made.get("momentum", 0.0), 0.1), "dampening": 0.0}
    return made


def walked(kind: Any, given: dict[str, Any], halves: bool, seed: int) -> Iterable[Any]:
    """The parameters after thirty steps; halves: in two groups, of which the second has its own rate, halved midway."""
    generator = torch.Generator().manual_seed(seed)

    def made(shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    params = [torch.nn.Parameter(made(shape)) for shape in SHAPES]
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.03}] if halves else params
    optimizer = kind(groups, **given)
    for step in range(30):
        for p in params:
            p.grad = made(tuple(p.shape))
        if step % 7 == 3:
            params[1].grad = None if step % 2 else torch.zeros_like(params[1])
        optimizer.step()
        if step == 15:
            optimizer.param_groups[-1]["lr"] /= 2
    return [p.detach() for p in params]


@pytest.mark.parametrize("name", OPTIONS)
def test_ten_sets_of_options(name: str) -> None:
    rng = random.Random(name)
    for seed in range(10):
        given, halves = drawn(name, rng), rng.random() < 0.5
        ours, theirs = (walked(getattr(m, name), given, halves, seed) for m in (optim, torch.optim))
        torch.testing.assert_close(
            ours, theirs, rtol=1e-9, atol=1e-11, msg=lambda text, given=given: f"{name} {given}: {text}"
        )
