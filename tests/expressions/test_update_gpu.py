"""Updates on a GPU: every rule's elements against the reference in float64, storage, graphs, torch's optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError
from baracuda_py.expressions.update_codes import KINDS, code_map, encoded

pytestmark = pytest.mark.gpu
GPT2 = (
    (2048, 768),
    (1024, 768),
    (768, 2304),
    (2304,),
    (768, 768),
    (768,),
    (768, 3072),
    (3072,),
    (3072, 768),
    (768,),
    (),
)
"""A layer's tensors, with fewer rows of the embedding."""
RULES = (
    "sgd",
    "adam",
    "adamw",
    "adamax",
    "radam",
    "adagrad",
    "adadelta",
    "rmsprop",
    "rprop",
    "lion",
    "adan",
    "ademamix",
)


def _host(rule: Any, dtypes: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    names = [n for n in dict.fromkeys((*rule.inputs, *rule.written)) if n not in rule.defaults and n != "t"]
    made = {n: [rng.standard_normal(s, np.float32) for s in GPT2] for n in names}
    positive = ("v", "u", "s", "delta", "size", "vmax")
    made = {n: [np.abs(x) + 0.01 if n in positive else x for x in one] for n, one in made.items()}
    return {n: [np.asarray(x).astype(dtypes.get(n, np.float32)) for x in one] for n, one in made.items()}


def _numbers(rule: Any) -> dict[str, Any]:
    return {"t": 3} if "t" in rule.inputs else {}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    import cupy as cp

    rule = bc.optimizer(name)
    host = _host(rule, {})
    device = {n: [cp.asarray(x) for x in one] for n, one in host.items()}
    wide = {n: [x.astype(np.float64) for x in one] for n, one in host.items()}
    rule(**device, **_numbers(rule))
    rule(**wide, **_numbers(rule))
    for n in rule.written:
        for a, b in zip(device[n], wide[n], strict=True):
            wrong = ~np.isclose(cp.asnumpy(a), b, rtol=2e-5, atol=2e-5)
            assert wrong.sum() <= (2 if name in ("lion", "rprop") else 0), n  # a sign beside 0 may be either


@pytest.mark.parametrize("place", ["stored", "rounded at random"])
def test_bfloat16(place: str) -> None:
    import cupy as cp
    import ml_dtypes

    rule = bc.optimizer("adamw", stochastic="" if place == "stored" else "p")
    host = _host(rule, dict.fromkeys("pg", ml_dtypes.bfloat16))
    more = {} if place == "stored" else {"seed": 3, "offset": 5}
    device = {n: [cp.asarray(x) for x in one] for n, one in host.items()}
    rule(**device, t=3, **more)
    rule(**host, t=3, **more)
    for a, b in zip(device["p"], host["p"], strict=True):
        got = cp.asnumpy(a).view(np.uint16).astype(int)
        assert np.mean(got != b.view(np.uint16)) < 2e-3 and np.max(np.abs(got - b.view(np.uint16))) <= 1


def test_codes_of_8_bits() -> None:
    import cupy as cp

    rule = bc.optimizer("adamw", states8bit={"m": "signed", "v": "unsigned"})
    rng = np.random.default_rng(0)
    p, g = ([np.asarray(rng.standard_normal(s, np.float32)) for s in GPT2] for _ in range(2))
    states = {n: [np.zeros(s, np.uint8) for s in GPT2] for n in "mv"}
    scales = {f"{n}_scale": [np.zeros(-(-x.size // 256), np.float32) for x in p] for n in "mv"}
    host = {"p": p, "g": g, **states, **scales}
    device = {n: [cp.asarray(x) for x in one] for n, one in host.items()}
    for t in (1, 2, 3):
        rule(**host, t=t, lr=0.1)
        rule(**device, t=t, lr=0.1)
    for n in "mv":
        got, want = (np.concatenate([cp.asnumpy(x).reshape(-1) for x in one[n]]).astype(int) for one in (device, host))
        assert np.mean(got != want) < 1e-3 and np.max(np.abs(got - want)) <= 2
    for a, b in zip(device["p"], host["p"], strict=True):
        assert np.mean(np.abs(cp.asnumpy(a) - b) > 1e-4) < 2e-3


def test_a_captured_step_follows_its_numbers() -> None:
    import cupy as cp

    rule = bc.optimizer("adamw")
    lists = {n: [cp.zeros(5000, np.float32) + 0.5 for _ in range(3)] for n in "pgmv"}
    numbers = {"t": cp.asarray(1), "lr": cp.zeros((), np.float32), "found_inf": cp.zeros((), np.float32)}
    rule(**lists, **numbers)
    before = [x.copy() for x in lists["p"]]
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        rule(**lists, **numbers, stream=stream)
        graph = stream.end_capture()
    graph.launch()
    cp.cuda.Device().synchronize()
    assert all(bool((a == b).all()) for a, b in zip(lists["p"], before, strict=True))
    numbers["lr"].fill(0.5)
    numbers["found_inf"].fill(1)
    graph.launch()
    cp.cuda.Device().synchronize()
    assert all(bool((a == b).all()) for a, b in zip(lists["p"], before, strict=True))
    numbers["found_inf"].fill(0)
    graph.launch()
    cp.cuda.Device().synchronize()
    assert all(bool((a != b).all()) for a, b in zip(lists["p"], before, strict=True))


def test_bits_do_not_depend_on_layout() -> None:
    import cupy as cp

    rule = bc.optimizer("adamw")
    base = {n: [cp.abs(cp.random.standard_normal(n_)).astype("f4") for n_ in (20_005, 7, 9000)] for n in "pgmv"}
    found = set()
    for view in (lambda x: x.copy(), lambda x: cp.concatenate([x[:1], x])[1:], lambda x: cp.repeat(x, 2)[::2]):
        lists = {n: [view(x) for x in one] for n, one in base.items()}
        rule(**lists, t=3)
        found.add(b"".join(x.get().tobytes() for n in "pmv" for x in lists[n]))
    assert len(found) == 1


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam", "ASGD", "Muon", "Lion8bit", "AdamW8bit", "LAMB"]
)
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    from baracuda_py.torch import optim

    def walked(where: Any, device: str, **given: Any) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        shapes = ((300, 200), (200, 64)) if name == "Muon" else ((300, 200), (4097,), (3,))
        params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(device)) for s in shapes]
        made = getattr(where, name)(params, lr=1e-3, **given)
        for _ in range(4):
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator).to(device)
            made.step()
        return [p.detach().cpu() for p in params]

    plain = hasattr(torch.optim, name)
    want = walked(torch.optim if plain else optim, "cpu")
    coarse = name == "Muon" or name.endswith("8bit")  # products of bfloat16; codes beside a border
    loose = {"rtol": 0.0, "atol": 9e-3} if coarse else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(walked(optim, "cuda"), want, **loose)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_those_of_numpy(kind: str) -> None:
    """At and beside every place where codes change, in whole chunks."""
    import cupy as cp

    table = np.unique(code_map(kind)[np.isfinite(code_map(kind))])
    middles = np.float32(0.5) * (table[:-1] + table[1:])
    values = np.concatenate([middles, np.nextafter(middles, -np.inf), np.nextafter(middles, np.inf), table])
    values = np.concatenate([values, -values, 2.0 ** np.linspace(-40, 0, 3000)]).astype(np.float32)
    blocks = np.ones((1024, 256), np.float32)
    blocks[:, 1:] = np.resize(values, (1024, 255))
    codes, scales = cp.zeros(blocks.shape, np.uint8), cp.zeros(1024, np.float32)
    bc.optimizer("m = g + 0 * m", states8bit={"m": kind})(g=[cp.asarray(blocks)], m=[codes], m_scale=[scales])
    np.testing.assert_array_equal(cp.asnumpy(codes), encoded(kind, blocks + 0)[0])  # no -0
    np.testing.assert_array_equal(cp.asnumpy(scales), 1)


@pytest.mark.parametrize("name", ["AdamW", "SGD", "RMSprop", "AdamW8bit", "Lion"])
def test_steps_of_many_tensors_are_launched_again(name: str) -> None:
    """A model's tensors, other gradients at each step: those at new addresses, too, and after a state was loaded."""
    torch = pytest.importorskip("torch")
    from baracuda_py.backends.cuda.again import Again
    from baracuda_py.torch import optim
    from baracuda_py.torch.optim.by_rule import rule

    generator = torch.Generator().manual_seed(0)
    shapes = [(768, 96), (768,), (96, 300), (3,), ()] * 30
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).cuda()) for s in shapes]
    host = [torch.nn.Parameter(p.detach().cpu()) for p in params[:5]]
    more = {"momentum": 0.9} if name == "SGD" else {}
    ours, theirs = (getattr(optim, name)(one, lr=1e-2, **more) for one in (params, host))
    held = []  # so that addresses change
    for step in range(5):
        for p in params:
            p.grad = torch.full_like(p, 0.5 - 0.2 * step).sub_(0.1 * p.detach())
        for p, q in zip(params, host, strict=False):
            q.grad = p.grad.cpu()
        held.append([p.grad for p in params])
        if step == 3:
            ours.load_state_dict(ours.state_dict())
        ours.step()
        theirs.step()
    coarse = name.endswith("8bit")
    want = [q.detach() for q in host]
    torch.testing.assert_close(
        [p.detach().cpu() for p in params[:5]], want, rtol=0.0 if coarse else 1e-4, atol=2e-2 if coarse else 1e-5
    )
    assert all(float(ours.state[p]["step"]) == 5 for p in params if "step" in ours.state[p])
    named = {"AdamW": ("adamw", {"amsgrad": False}), "Lion": ("lion", {})}
    if name in named:
        of, options = named[name]
        assert any(isinstance(one, Again) for one in rule(of, **options)._again.values())


def test_a_gradient_that_is_the_parameter_is_refused_at_every_step() -> None:
    torch = pytest.importorskip("torch")
    made = bc.optimizer("p = p - lr * g", lr=0.5)
    p, g = [torch.ones(8, device="cuda")], [torch.ones(8, device="cuda")]
    for _ in range(4):
        made(p, g)
    with pytest.raises(InvalidProblemError, match="overlaps"):
        made(p, [p[0]])
    with pytest.raises(InvalidProblemError, match="shape"):
        made(p, [torch.ones(9, device="cuda")])
    made(p, [torch.ones(8, device="cuda")])
    assert bool((p[0] == -1.5).all())
