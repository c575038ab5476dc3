"""`Again`: lists of torch tensors that lie as earlier ones are launched; of others nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda.again import Again
from baracuda_py.backends.numpy import NumpyRunner
from baracuda_py.expressions.update_plan import update_plan_of
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

torch = pytest.importorskip("torch")

SHAPES = ((3, 5), (4,), (0, 2), (9, 2), ())


def tensors(seed: int, dtype: Any = torch.float32, shapes: Any = SHAPES) -> list[Any]:
    """At addresses of whole 16 bytes, as torch's allocators give them."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, dict[str, list[Any]]]]:
    """What runs p = p - lr * g again, on host memory in the place of a device's, and lists."""
    plan = update_plan_of(bc.optimizer("p = p - lr * g").plan(lr=float).shape)
    lists = {"p": [torch.nn.Parameter(x) for x in tensors(0)], "g": tensors(1)}
    desc = plan.descriptor(shapes=SHAPES, element="float32")
    with emulating(1), torch.no_grad():
        runner: Any = plan.select(desc, device=emulated_device(9.0)).runner
        views = {n: [pointer_view(x.detach().numpy()) for x in one] for n, one in lists.items()}
        monkeypatch.setattr(runner, "refs", lambda args: ([], plan.args(**views, lr=0.5)))
        args = plan.args(**lists, lr=0.5)
        assert Again.serves(runner, args)
        made = Again(runner, args)
        made.device = lambda tensor: runner.ordinal
        made.torch["CURRENT"] = lambda ordinal: 0
        yield made, lists


NUMBERS = {"lr": 0.5, "grad_scale": 2.0, "found_inf": 0.0}


def test_other_tensors_that_lie_alike(held: Any) -> None:
    again, lists = held
    for seed in range(3):
        g = tensors(seed + 5)
        want = [p.detach() - x for p, x in zip(lists["p"], g, strict=True)]
        before = [p._version for p in lists["p"]]
        assert again.run({"p": lists["p"], "g": g}, NUMBERS, ("p",) if seed else ())
        torch.testing.assert_close([p.detach() for p in lists["p"]], want, rtol=1e-6, atol=1e-6)
        assert all(p._version > v for p, v in zip(lists["p"], before, strict=True))
    assert again.run({"p": lists["p"], "g": tensors(1)}, {**NUMBERS, "lr": 1, "found_inf": 1})  # numbers of other types
    torch.testing.assert_close([p.detach() for p in lists["p"]], want, rtol=0, atol=0)


class Mine(torch.Tensor):  # type: ignore[misc]
    """Of another type."""


def otherwise() -> dict[str, list[Any]]:
    wide = torch.zeros(3, 10)[:, ::2]
    return {
        "shape": tensors(1, shapes=((3, 5), (4,), (0, 2), (18,), ())),
        "strides": [wide, *tensors(1)[1:]],
        "dtype": tensors(1, torch.float16),
        "one dtype": [*tensors(1)[:4], tensors(1, torch.float64)[4]],
        "a subclass": [*tensors(1)[:3], torch.zeros(9, 2).as_subclass(Mine), tensors(1)[4]],
        "addresses": [torch.zeros(16)[1:].as_strided((3, 5), (5, 1)), *tensors(1)[1:]],
        "a negative bit": [*tensors(1)[:4], torch.complex(torch.ones(2), torch.ones(2)).conj().imag[0]],
        "sparse": [*tensors(1)[:3], torch.zeros(9, 2).to_sparse(), tensors(1)[4]],
        "no memory": [*tensors(1)[:3], torch.zeros(9, 2, device="meta"), tensors(1)[4]],
    }  # fmt: skip


@pytest.mark.parametrize("what", otherwise())
def test_lists_that_are_otherwise_are_left_alone(held: Any, what: str) -> None:
    again, lists = held
    assert again.run(lists, NUMBERS)
    before = [p.detach().clone() for p in lists["p"]]
    assert not again.run({"p": lists["p"], "g": otherwise()[what]}, NUMBERS)
    assert all(map(torch.equal, before, lists["p"]))


def test_memory_that_is_written_and_read_is_left_alone(held: Any) -> None:
    again, lists = held
    g = lists["g"]
    assert again.run(lists, NUMBERS, ("p",))
    assert not again.run({"p": lists["p"], "g": [lists["p"][0].detach(), *g[1:]]}, NUMBERS, ("p",))
    twice = [lists["p"][0], *lists["p"][1:3], lists["p"][0].detach().reshape(-1)[:8].reshape(4, 2), lists["p"][4]]
    assert not again.run({"p": twice, "g": g}, NUMBERS)


def test_a_kept_list_that_was_moved_is_looked_at(held: Any) -> None:
    again, lists = held
    assert again.run(lists, NUMBERS, ("p",))
    lists["p"][1].data = torch.ones(4)
    assert again.run(lists, NUMBERS, ("p",))
    torch.testing.assert_close(lists["p"][1].detach(), 1 - lists["g"][1])
    lists["p"][1].data = torch.ones(4, dtype=torch.float64)
    assert not again.run(lists, NUMBERS, ("p",))


def test_what_autograd_records_is_left_alone(held: Any) -> None:
    again, lists = held
    assert again.run(lists, NUMBERS)
    with torch.enable_grad():
        assert not again.run(lists, NUMBERS, ("p",))


def test_other_packages_have_none() -> None:
    plan = bc.optimizer("p = p - lr * g").plan(lr=float)
    x = [np.zeros(3, np.float32)]
    chosen = plan.select(plan.descriptor(shapes=((3,),), element="float32"), device="cpu")
    assert chosen.runner.again(plan.args(p=x, g=x, lr=0.5)) is None
    with emulating(1):
        device: Any = plan.select(plan.descriptor(shapes=((3,),), element="float32"), device=emulated_device(9.0))
        views = {n: [pointer_view(np.zeros(3, np.float32))] for n in "pg"}
        assert device.runner.again(plan.args(**views, lr=0.5)) is None


def test_a_call_that_was_seen_twice_is_made_ready_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third call on one object runs them; where it does nothing the full way is taken, and counted anew."""
    ready: list[Any] = []

    class Ready:
        def __init__(self) -> None:
            self.runs, self.serves = 0, True
            ready.append(self)

        def run(self, lists: Any, numbers: Any, kept: Any = ()) -> bool:
            self.runs += 1
            return self.serves

    made = bc.optimizer("p = p - lr * g", lr=0.5)
    with torch.no_grad():
        p = tensors(0)
        monkeypatch.setattr(NumpyRunner, "again", lambda self, args: Ready())
        for _ in range(6):
            made(p, tensors(1))
    assert [one.runs for one in ready] == [4]
    torch.testing.assert_close(p, [x - g for x, g in zip(tensors(0), tensors(1), strict=True)])
    ready[0].serves = False
    for _ in range(3):
        made(p, tensors(1))
    assert [one.runs for one in ready] == [5]
    torch.testing.assert_close(p, [x - 2.5 * g for x, g in zip(tensors(0), tensors(1), strict=True)])
