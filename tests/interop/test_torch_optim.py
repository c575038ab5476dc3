"""`optim.AdamW` in the place of torch's: its keywords, groups, schedulers, loss scaling and states."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from baracuda_py import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

BOTH = (optim.AdamW, torch.optim.AdamW)


def rate(value: Any) -> Any:
    return torch.tensor(value, dtype=torch.float64)


def parameters(dtype: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5,), (), (2, 3, 4))
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes]


def walked(optimizer: Any, steps: int = 4, seed: int = 1, scheduler: Any = None) -> list[Any]:
    """The parameters after some steps with gradients that shrink, so that the largest second moment is an old one."""
    generator = torch.Generator().manual_seed(seed)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for i in range(steps):
        for p in params:
            p.grad = (torch.randn(p.shape, generator=generator, dtype=torch.float64) / 4**i).to(p.dtype)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return params


def alike(ours: Any, theirs: Any, **bound: float) -> None:
    torch.testing.assert_close([p.detach() for p in ours], [p.detach() for p in theirs], **bound)


TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def test_the_signature_is_that_of_torch() -> None:
    ours, theirs = (inspect.signature(one).parameters for one in BOTH)
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"fused": True},
        {"fused": False, "foreach": None, "amsgrad": False, "differentiable": False, "capturable": False},
        {"foreach": True},
        {"foreach": False},
        {"amsgrad": True},
        {"amsgrad": True, "maximize": True, "weight_decay": 0.3},
        {"amsgrad": True, "fused": True, "lr": rate(0.02)},
        {"betas": (rate(0.8), rate(0.9))},
        {"lr": rate([0.02])},
    ],
    ids=str,
)
def test_keywords_of_torch(given: dict[str, Any]) -> None:
    alike(*(walked(one(parameters(), **given)) for one in BOTH), **TIGHT)


def test_what_torch_refuses_in_other_places_is_served() -> None:
    """A rate on the device beside foreach=True, and steps counted on the device."""
    given = {"lr": rate(0.02), "amsgrad": True}
    theirs = walked(torch.optim.AdamW(parameters(), **given))
    for more in ({"foreach": True}, {"capturable": True}, {"capturable": True, "fused": True}):
        alike(walked(optim.AdamW(parameters(), **given, **more)), theirs, rtol=1e-7, atol=1e-9)


def test_keywords_by_position() -> None:
    given = (0.02, (0.8, 0.9), 1e-6, 0.1, True)
    ours, theirs = (one(parameters(), *given) for one in BOTH)
    alike(walked(ours), walked(theirs), **TIGHT)
    assert ours.defaults == theirs.defaults


def test_amsgrad_of_short_parameters_keeps_float32_moments() -> None:
    short, wide = parameters(torch.bfloat16), parameters(torch.bfloat16)
    wide = [torch.nn.Parameter(p.detach().double()) for p in wide]
    walked(optimizer := optim.AdamW(short, lr=0.1, amsgrad=True))
    walked(torch.optim.AdamW(wide, lr=0.1, amsgrad=True))
    torch.testing.assert_close([p.detach().double() for p in short], [p.detach() for p in wide], rtol=2e-2, atol=1e-2)
    assert optimizer.state[short[0]]["max_exp_avg_sq"].dtype == torch.float32
    again = optim.AdamW(short, amsgrad=True)
    again.load_state_dict(optimizer.state_dict())
    saved, held = (one.state[short[0]]["max_exp_avg_sq"] for one in (optimizer, again))
    assert saved is not held and torch.equal(saved, held)


@pytest.mark.parametrize("given", [{}, {"amsgrad": True}, {"fused": True}, {"fused": True, "amsgrad": True}], ids=str)
def test_states_go_both_ways(given: dict[str, Any]) -> None:
    """Each goes on from the other's state, groups and all, as torch goes on from its own."""
    ends = []
    for first in BOTH:
        for second in BOTH:
            optimizer = first(parameters(), lr=0.02, **given)
            params = walked(optimizer, 3)
            state = copy.deepcopy(optimizer.state_dict())
            again = second(params)
            again.load_state_dict(state)
            assert again.state_dict()["param_groups"] == state["param_groups"]
            ends.append(walked(again, 3, seed=2))
            assert all(float(again.state[p]["step"]) == 6 for p in params)
    for other in ends[:-1]:
        alike(other, ends[-1], **TIGHT)


def test_a_state_from_before_a_keyword_was_known_and_a_pickle() -> None:
    params = parameters()
    walked(optimizer := optim.AdamW(params), 2)
    state = copy.deepcopy(optimizer.state_dict())
    for name in ("foreach", "fused", "amsgrad", "differentiable"):
        del state["param_groups"][0][name]
    again = optim.AdamW(copy.deepcopy(params))
    again.load_state_dict(state)
    third = pickle.loads(pickle.dumps(optimizer))
    alike(walked(again), walked(optimizer), rtol=0, atol=0)
    alike(walked(third), params, rtol=0, atol=0)


def test_groups_as_a_trainer_makes_them() -> None:
    """Matrices decay, vectors do not; a group may say its own rate, betas and amsgrad."""

    def groups(params: list[Any]) -> list[dict[str, Any]]:
        matrices, vectors = [p for p in params if p.dim() > 1], [p for p in params if p.dim() < 2]
        return [
            {"params": matrices, "weight_decay": 0.1, "amsgrad": True},
            {"params": vectors[:1], "weight_decay": 0.0, "lr": 0.03},
            {"params": vectors[1:], "betas": (0.5, 0.6)},
        ]

    alike(*(walked(one(groups(parameters()), lr=0.01, fused=True)) for one in BOTH), **TIGHT)


SCHEDULERS = {
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
    "one cycle, with betas": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("lr", [0.05, "tensor"])
def test_schedulers(name: str, lr: Any) -> None:
    ends = []
    for one in BOTH:
        value = rate(0.05) if lr == "tensor" else lr
        optimizer = one(parameters(), lr=value)
        ends.append(walked(optimizer, 6, scheduler=SCHEDULERS[name](optimizer)))
    alike(*ends, **TIGHT)


@pytest.mark.parametrize("fused", [True, None])
@pytest.mark.parametrize("amsgrad", [True, False])
@pytest.mark.parametrize("unscale", [True, False])
def test_under_a_grad_scaler(fused: bool | None, amsgrad: bool, unscale: bool) -> None:
    """Gradients are unscaled, and a step with one that is not finite is none, whoever does it."""
    ends = []
    for one in BOTH:
        params = parameters(torch.float32)
        optimizer = one(params, lr=0.02, fused=fused, amsgrad=amsgrad)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        generator = torch.Generator().manual_seed(3)
        for i in range(5):
            optimizer.zero_grad()
            weights = [torch.randn(p.shape, generator=generator) for p in params]
            loss = sum((w * p.square()).sum() for w, p in zip(weights, params, strict=True))
            scaler.scale(loss * (torch.inf if i == 2 else 1.0)).backward()
            if unscale:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(params, 0.5)
            scaler.step(optimizer)
            scaler.update()
        assert all(float(optimizer.state[p]["step"]) == 4 for p in params)
        ends.append((params, scaler.get_scale()))
    (ours, scale), (theirs, their_scale) = ends
    assert scale == their_scale
    alike(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", [{"lr": rate(0.1)}, {"amsgrad": True, "fused": True}], ids=str)
def test_a_closure(given: dict[str, Any]) -> None:
    ends = []
    for one in BOTH:
        params = parameters()
        optimizer = one(params, **given)

        def closure(params: Any = params, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = sum(p.square().sum() for p in params)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        ends.append((losses, params))
    assert ends[0][0] == pytest.approx(ends[1][0]) and ends[0][0][-1] < ends[0][0][0]
    alike(ends[0][1], ends[1][1], **TIGHT)


def test_what_is_refused() -> None:
    params = parameters()
    with pytest.raises(UnsupportedError, match=r"differentiable: .*torch.optim.AdamW"):
        optim.AdamW(params, differentiable=True)
    with pytest.raises(UnsupportedError, match="differentiable"):
        optim.AdamW([{"params": params, "differentiable": True}])
    theirs = torch.optim.AdamW(params, differentiable=True).state_dict()
    with pytest.raises(UnsupportedError, match="differentiable"):
        optim.AdamW(params).load_state_dict(theirs)
    with pytest.raises(InvalidProblemError, match=r"fused.*foreach"):
        optim.AdamW(params, fused=True, foreach=True)
    with pytest.raises(InvalidProblemError, match="lr"):
        optim.AdamW(params, lr=torch.tensor([0.1, 0.2]))
    with pytest.raises(TypeError, match="decoupled"):
        optim.AdamW(params, decoupled=True)
