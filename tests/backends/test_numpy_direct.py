"""The functional layer's direct path on host memory: the bits of the long way, and the long way where it must be."""

from __future__ import annotations

import gc
import sys
from functools import partial

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends import numpy_direct
from baracuda_py.backends.numpy_direct import Direct
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.errors import BaracudaError
from baracuda_py.core.execution import MISS, nothing
from baracuda_py.core.registry import plans
from baracuda_py.testing.draw import SeededDraw, combinations, make_case
from baracuda_py.testing.operands import operands

SEEDS = range(3)


def served():
    found = [p for p in plans().values() if all(s.role in ("in", "out") and not s.many for s in arrays_of(p.args))]
    return [p for p in found if any(s.role == "in" for s in arrays_of(p.args))]


def test_every_plan_gives_the_bits_of_the_long_way_whatever_lies_where():
    wrong, taken = [], 0
    for plan in served():
        for seed in SEEDS:
            kind, element = combinations(plan)[seed % len(combinations(plan))]
            draw = SeededDraw(seed, element, kind)
            case = make_case(plan, draw, special=seed == 1)
            ready = operands(case, draw)
            chosen = plan.select(case.desc, device="cpu")
            given = ready.fields()
            if not chosen.can_implement(plan.args(**given)):
                continue
            outs = [s for s in arrays_of(plan.args) if s.role == "out"]
            likes = [given[s.name] for s in outs]
            makers = tuple(nothing if a is None else partial(np.empty, a.shape, a.dtype) for a in likes)
            made = {s.name: make() for s, make in zip(outs, makers, strict=True)}
            chosen.run(plan.args(**given | made))
            direct = Direct(chosen, makers)
            call = [given[s.name] for s in arrays_of(plan.args) if s.reads] + [
                given[s.name] for s in scalars_of(plan.args)
            ]
            first = direct.call(*call)
            direct.learn({s.name: (given | made)[s.name] for s in arrays_of(plan.args)})
            got = direct.call(*call)
            if got is MISS:
                continue
            taken += 1
            got = got if isinstance(got, tuple) else (got,)
            want = [one for one in made.values() if one is not None]
            if first is not MISS or [a.tobytes() for a in got] != [a.tobytes() for a in want]:
                wrong.append(str(case))
    assert not wrong, "\n".join(wrong[:5])
    assert taken > 2 * len(served())


def test_what_a_call_takes_is_asked_each_time():
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)[:, ::2]
    y = np.ones((2, 4, 2), np.float32)
    for _ in range(3):
        for alpha in (0.5, 2, np.float32(4), np.asarray(0.25, np.float32)):
            assert np.allclose(bc.matmul(x, y, alpha=alpha), np.matmul(x, y) * alpha)
        with pytest.raises(BaracudaError, match="alpha"):
            bc.matmul(x, y, alpha="half")
    bytes_ = np.zeros(4 * 8 + 1, np.uint8)
    odd = bytes_[1:].view(np.float32)
    bc.silu(np.zeros(8, np.float32)), bc.silu(np.zeros(8, np.float32))
    with pytest.raises(BaracudaError, match="x is at address"):
        bc.silu(odd)
    pairs = np.zeros(5, np.float32)[1:].view(np.complex64)
    for z in (np.zeros(2, np.complex64), np.zeros(2, np.complex64), pairs):
        if z.__array_interface__["data"][0] % 8:
            with pytest.raises(BaracudaError, match="copy it"):
                bc.conj_physical(z)
        else:
            bc.conj_physical(z)


def test_checks_asked_for_later_are_made(monkeypatch):
    x = np.ones((2, 4), np.float32)
    indices = np.array([9])
    for _ in range(2):
        bc.take(x, np.array([1]), axis=0), bc.take(x, indices % 2, axis=0)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(BaracudaError, match="an index must lie"):
        bc.take(x, indices, axis=0)


def test_memory_that_cannot_be_had_is_our_error(monkeypatch):
    x = np.ones((3, 5), np.float32)
    bc.silu(x), bc.silu(x)

    def lacking(self, arrays):
        raise MemoryError

    monkeypatch.setattr(numpy_direct.Evaluation, "run", lacking)
    with pytest.raises(bc.OutOfMemoryError, match="NumPy backend"):
        bc.silu(x)


def frames(call):
    """How many Python functions a call enters."""
    for _ in range(4):
        call()
    count = [0]

    def seen(frame, event, argument):
        count[0] += event == "call"

    before = sys.getprofile()
    gc.disable()  # what is collected may have functions of its own
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count[0]


def test_a_call_in_the_steady_state_is_short():
    a = np.ones((4, 4), np.float32)
    weight = np.ones(4, np.float32)
    assert frames(lambda: bc.silu(a)) <= 40
    assert frames(lambda: bc.rms_norm(a, weight)) <= 60
    assert frames(lambda: bc.matmul(a, a)) <= 60


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_recorded_call_is_short(self, torch):
        x, weight = torch.ones(4, 4, requires_grad=True), torch.ones(4, requires_grad=True)
        assert frames(lambda: bc.silu(x)) <= 60
        assert frames(lambda: bc.rms_norm(x, weight)) <= 80
        assert frames(lambda: bc.matmul(x, x)) <= 80

    def test_what_torch_follows_goes_the_long_way(self, torch):
        x = torch.randn(3, 4)
        want = torch.nn.functional.silu(x)
        for _ in range(3):
            assert torch.allclose(bc.silu(x), want, atol=1e-6)
        grown = x.clone().requires_grad_()
        (bc.silu(grown).sum() + bc.silu(grown).sum()).backward()
        twice = x.clone().requires_grad_()
        torch.nn.functional.silu(twice).mul(2).sum().backward()
        assert torch.allclose(grown.grad, twice.grad, atol=1e-5)
        with torch.no_grad():
            assert not bc.silu(grown).requires_grad
        assert torch.allclose(torch.func.vmap(bc.silu)(x), want, atol=1e-6)
        ours, theirs = (torch.func.jvp(f, (x,), (want,)) for f in (bc.silu, torch.nn.functional.silu))
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))
        for one in (x, x[0, 0], x[0, 0].requires_grad_()):  # of a 0-d tensor the shape is no number of the trace
            bc.silu(one), bc.silu(one)
            with pytest.raises(BaracudaError, match="trace"):
                torch.jit.trace(bc.silu, one, check_trace=False)

    def test_lazy_bits_and_layouts(self, torch):
        z = torch.randn(3, 4, dtype=torch.complex64)
        for one in (z, z, z.conj().resolve_conj(), z.t().contiguous().t()):
            assert torch.allclose(bc.exp(one), torch.exp(one), atol=1e-5)
        with pytest.raises(BaracudaError, match="resolve_conj"):
            bc.exp(z.conj())
        with pytest.raises(BaracudaError, match="resolve_conj"):
            bc.exp(z.conj().imag)

    def test_elements_that_numpy_has_not(self, torch):
        x = torch.randn(4, 8).bfloat16()
        want = torch.nn.functional.silu(x.float()).bfloat16()
        for _ in range(3):
            assert torch.equal(bc.silu(x), want) and bc.silu(x).dtype == torch.bfloat16
            assert torch.equal(bc.silu(x.t()), want.t())
