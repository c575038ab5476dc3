"""torch.optim's classes by update rules: values of torch, states that either loads, keywords, what is refused."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from baracuda_py import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

SHAPES = ((3, 4), (5,), (), (2, 3, 4), (0, 3))
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"weight_decay": 0.1, "maximize": True}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.8, 0.9)}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.1}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("RMSprop", {"weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.8}),
    ("Rprop", {"lr": 0.1, "step_sizes": (0.01, 1.0)}),
    ("ASGD", {"weight_decay": 0.1, "t0": 5, "lambd": 0.1}),
]
OPTIONS += [
    ("Adafactor", {"weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {"lr": 0.1, "d": 1.5, "beta2_decay": -0.5, "eps": (1e-4, 1e-2)}),
]
NAMES = sorted({name for name, _ in OPTIONS})


def parameters(dtype: Any = torch.float64, shapes: Any = SHAPES) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes]


def of(name: str) -> Any:
    """torch's Adafactor divides by the size of a tensor."""
    return SHAPES[:-1] if name == "Adafactor" else SHAPES


def walked(optimizer: Any, steps: int = 20, seed: int = 1) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize(("name", "given"), OPTIONS, ids=str)
def test_twenty_steps_are_those_of_torch(name: str, given: dict[str, Any]) -> None:
    ours, theirs = (getattr(m, name)(parameters(shapes=of(name)), **given) for m in (optim, torch.optim))
    torch.testing.assert_close(walked(ours), walked(theirs), rtol=1e-12, atol=1e-12)
    a, b = ours.state_dict(), theirs.state_dict()
    assert [sorted(s) for s in a["state"].values()] == [sorted(s) for s in b["state"].values()]
    torch.testing.assert_close(a["state"], b["state"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "given"), OPTIONS, ids=str)
def test_float32(name: str, given: dict[str, Any]) -> None:
    ours, theirs = (getattr(m, name)(parameters(torch.float32, of(name)), **given) for m in (optim, torch.optim))
    loose = (
        {"rtol": 1e-3, "atol": 1e-4} if name == "RMSprop" else {"rtol": 2e-5, "atol": 2e-6}
    )  # a difference of squares
    torch.testing.assert_close(walked(ours), walked(theirs), **loose)


@pytest.mark.parametrize("name", NAMES)
def test_either_loads_the_other(name: str) -> None:
    given = next(g for n, g in OPTIONS if n == name)
    for first, second in ((optim, torch.optim), (torch.optim, optim)):
        begun = getattr(first, name)(parameters(shapes=of(name)), **given)
        walked(begun, 3)
        other = getattr(second, name)([torch.nn.Parameter(p.detach().clone()) for p in begun.param_groups[0]["params"]])
        other.load_state_dict(copy.deepcopy(begun.state_dict()))
        bound = 1e-7 if name == "NAdam" else 1e-12  # torch loads a product of momenta in float32 as float64
        torch.testing.assert_close(walked(begun, 4, 5), walked(other, 4, 5), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", [*NAMES, "Muon"])
def test_the_signature_is_that_of_torch(name: str) -> None:
    ours, theirs = (list(inspect.signature(getattr(m, name)).parameters.values()) for m in (optim, torch.optim))
    assert [(p.name, p.kind, p.default) for p in ours if p.name != "ns_coefficients"] == [
        (p.name, p.kind, p.default) for p in theirs if p.name != "ns_coefficients"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_states_of_16_bit_parameters_are_float32(name: str) -> None:
    made = getattr(optim, name)(parameters(torch.bfloat16), **({"momentum": 0.9} if name == "SGD" else {}))
    walked(made, 2)
    again = getattr(optim, name)(parameters(torch.bfloat16), **({"momentum": 0.9} if name == "SGD" else {}))
    again.load_state_dict(copy.deepcopy(made.state_dict()))
    for one in (made, again):
        states = [s for state in one.state.values() for s in state.values() if s.dim()]
        assert states and all(s.dtype == torch.float32 for s in states)
    for a, b in zip(made.state.values(), again.state.values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["Adam", "Adamax", "NAdam", "RAdam", "Adadelta", "RMSprop", "Rprop", "ASGD"])
def test_steps_counted_on_the_device(name: str) -> None:
    plain, counted = (getattr(optim, name)(parameters(), capturable=c) for c in (False, True))
    torch.testing.assert_close(walked(plain, 5), walked(counted, 5), rtol=1e-6, atol=1e-7)


def test_rates_on_the_device_factors_and_groups() -> None:
    lr = torch.tensor(0.02, dtype=torch.float64)
    given = [{"params": parameters()[:2], "lr": lr}, {"params": parameters()[2:], "weight_decay": 0.3}]
    ours, theirs = (m.Adam(copy.deepcopy(given), lr=0.5) for m in (optim, torch.optim))
    torch.testing.assert_close(walked(ours, 5), walked(theirs, 5), rtol=1e-11, atol=1e-12)
    halved, whole = (optim.SGD(parameters(), lr=0.1) for _ in range(2))
    for one, factor in ((halved, torch.tensor(0.5)), (whole, 1.0)):
        for p in one.param_groups[0]["params"]:
            p.grad = torch.ones_like(p) * (1.0 if one is halved else 0.5)
        one.step(grad_scale=factor)
    torch.testing.assert_close(halved.param_groups[0]["params"], whole.param_groups[0]["params"])


def test_a_grad_scaler_leaves_scaling_to_the_step() -> None:
    for found, moved in ((0.0, True), (1.0, False)):
        made = optim.SGD(parameters(), lr=0.1, momentum=0.9, fused=True)
        before = [p.detach().clone() for p in made.param_groups[0]["params"]]
        made.found_inf, made.grad_scale = torch.tensor(found), torch.tensor(4.0)
        for p in made.param_groups[0]["params"]:
            p.grad = torch.full_like(p, 4.0)
        made.step()
        for p, old in zip(made.param_groups[0]["params"], before, strict=True):
            torch.testing.assert_close(p.detach(), old - 0.1 if moved else old)


def test_closures_and_parameters_without_gradients() -> None:
    made = optim.RMSprop(parameters())
    first = made.param_groups[0]["params"][0]

    def closure() -> Any:
        loss = (first**2).sum()
        (first.grad,) = torch.autograd.grad(loss, first)
        return loss

    before = first.detach().clone()
    loss = made.step(closure)
    assert torch.equal(loss.detach(), (before**2).sum()) and not torch.equal(first, before)
    assert len(made.state) == 1


def test_views_with_strides() -> None:
    base = [torch.randn(4, 6, dtype=torch.float64).t(), torch.randn(9, dtype=torch.float64)[::2]]
    for name in ("SGD", "Adamax"):
        sets = [[torch.nn.Parameter(x.detach()) for x in copy.deepcopy(base)] for _ in range(2)]
        ours, theirs = (getattr(m, name)(s) for m, s in zip((optim, torch.optim), sets, strict=True))
        torch.testing.assert_close(walked(ours, 3), walked(theirs, 3), rtol=1e-12, atol=1e-12)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="differentiable"):
        optim.Adam(parameters(), differentiable=True)
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    p.grad = torch.ones_like(p)
    with pytest.raises(UnsupportedError, match="dense, real"):
        optim.SGD([p], lr=0.1).step()
    wrongs: list[tuple[str, dict[str, Any]]] = [
        ("Lion", {"lr": -1.0}), ("Adan", {"betas": (0.9, 1.0, 0.9)}), ("LAMB", {"clip": 0.0}),
        ("LARS", {"trust": -1.0}), ("Adam8bit", {"min_8bit_size": -1}), ("Muon", {"ns_steps": 100}),
        ("AdamW8bit", {"state_code": "int4"}),
    ]  # fmt: skip
    for name, wrong in wrongs:
        with pytest.raises(InvalidProblemError, match=next(iter(wrong))):
            getattr(optim, name)(parameters(shapes=((2, 2),)), **wrong)


def test_optimizers_that_torch_has_not() -> None:
    """Formulas of the papers, in torch's operations."""
    torch.manual_seed(0)
    start = [torch.randn(3, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    grads = [[torch.randn_like(x) for x in start] for _ in range(4)]

    def run(name: str, **given: Any) -> list[Any]:
        params = [torch.nn.Parameter(x.clone()) for x in start]
        made = getattr(optim, name)(params, **given)
        for step in grads:
            for p, g in zip(params, step, strict=True):
                p.grad = g.clone()
            made.step()
        return [p.detach() for p in params]

    def by_hand(step: Any) -> list[Any]:
        found = []
        for i, p in enumerate(x.clone() for x in start):
            state = [torch.zeros_like(p) for _ in range(3)]
            last = None
            for t, each in enumerate(grads, 1):
                p = step(p, each[i], state, t, each[i] if last is None else last)
                last = each[i]
            found.append(p)
        return found

    def lion(p: Any, g: Any, s: Any, t: int, last: Any) -> Any:
        u = (0.9 * s[0] + 0.1 * g).sign()
        s[0] = 0.99 * s[0] + 0.01 * g
        return p * (1 - 0.1 * 0.3) - 0.1 * u

    def adan(p: Any, g: Any, s: Any, t: int, last: Any) -> Any:
        s[0] = 0.98 * s[0] + 0.02 * g
        s[1] = 0.92 * s[1] + 0.08 * (g - last)
        s[2] = 0.99 * s[2] + 0.01 * (g + 0.92 * (g - last)) ** 2
        below = (s[2] / (1 - 0.99**t)).sqrt() + 1e-8
        u = (s[0] / (1 - 0.98**t) + 0.92 * s[1] / (1 - 0.92**t)) / below
        return (p - 0.1 * u) / (1 + 0.1 * 0.3)

    def lamb(p: Any, g: Any, s: Any, t: int, last: Any) -> Any:
        s[0], s[1] = 0.9 * s[0] + 0.1 * g, 0.999 * s[1] + 0.001 * g * g
        u = s[0] / (1 - 0.9**t) / ((s[1] / (1 - 0.999**t)).sqrt() + 1e-6) + 0.3 * p
        return p - 0.1 * (p.norm() / u.norm()) * u

    def lars(p: Any, g: Any, s: Any, t: int, last: Any) -> Any:
        trust = 0.02 * p.norm() / (g.norm() + 0.3 * p.norm() + 1e-8)
        s[0] = 0.9 * s[0] + trust * (g + 0.3 * p)
        return p - 0.1 * s[0]

    for name, step, more in (
        ("Lion", lion, {}),
        ("Adan", adan, {}),
        ("LAMB", lamb, {}),
        ("LARS", lars, {"trust": 0.02}),
    ):
        made = run(name, lr=0.1, weight_decay=0.3, **more)
        torch.testing.assert_close(made, by_hand(step), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "given", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}], ids=str
)
def test_muon_is_that_of_torch(given: dict[str, Any]) -> None:
    """Products of bfloat16 round in other places: the direction agrees to its digits."""
    shapes = ((3, 4), (5, 3), (3, 4), (0, 3))
    ours, theirs = (m.Muon(parameters(torch.float32, shapes), lr=0.02, **given) for m in (optim, torch.optim))
    torch.testing.assert_close(walked(ours, 4)[:3], walked(theirs, 4)[:3], rtol=0, atol=4e-3)
    assert sorted(ours.state_dict()["state"][0]) == sorted(theirs.state_dict()["state"][0])


@pytest.mark.parametrize(
    ("name", "plain", "given", "bound"),
    [
        ("AdamW8bit", "AdamW", {"lr": 1e-3}, 0.03), ("Adam8bit", "Adam", {"lr": 1e-3}, 0.03),
        ("Lion8bit", "Lion", {"lr": 1e-3}, 0.03), ("SGD8bit", "SGD", {"lr": 1e-2, "momentum": 0.9}, 3e-3),
        ("AdamW8bit", "AdamW", {"lr": 1e-3, "state_code": "fp8"}, 0.04),
        ("AdamW8bit", "AdamW", {"lr": 1e-3, "state_code": "linear"}, 0.1),
        ("SGD8bit", "SGD", {"lr": 1e-2, "momentum": 0.9, "state_code": "linear"}, 3e-2),
        ("Lion8bit", "Lion", {"lr": 1e-3, "state_code": "fp8"}, 0.04),
    ],
)  # fmt: skip
def test_states_of_8_bits_drift_little_in_a_thousand_steps(
    name: str, plain: str, given: dict[str, Any], bound: float
) -> None:
    """A noisy quadratic: parameters move by 1; the mean distance of the two walks is a few hundredths of that."""
    found = []
    code = {name: given[name] for name in given if name == "state_code"}
    given = {name: value for name, value in given.items() if name not in code}
    for one, more in ((name, {"min_8bit_size": 1, **code}), (plain, {})):
        generator = torch.Generator().manual_seed(0)
        target = torch.randn(20, 16, generator=generator).sign()
        p = torch.nn.Parameter(torch.zeros(20, 16))
        made = getattr(optim, one)([p], **given, **more)
        for _ in range(1000):
            p.grad = p.detach() - target + 0.1 * torch.randn(p.shape, generator=generator)
            made.step()
        found.append(p.detach())
        held = next(iter(made.state.values()))
    assert held is not None
    assert float((found[0] - found[1]).abs().mean()) < bound
    assert float((found[0] - target).abs().mean()) < 0.3


def test_codes_are_saved_and_loaded_as_they_are() -> None:
    made = optim.AdamW8bit(parameters(torch.bfloat16, ((20, 16), (3,))), min_8bit_size=16)
    walked(made, 2)
    again = optim.AdamW8bit(parameters(torch.bfloat16, ((20, 16), (3,))), min_8bit_size=16)
    again.load_state_dict(copy.deepcopy(made.state_dict()))
    for a, b in zip(made.state.values(), again.state.values(), strict=True):
        assert [x.dtype for x in a.values()] == [b[n].dtype for n in a]
        assert all(torch.equal(x, b[n]) for n, x in a.items())
    assert [s["exp_avg"].dtype for s in made.state.values()] == [torch.uint8, torch.float32]
