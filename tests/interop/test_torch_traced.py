"""torch.compile over every op and every function: strides that are symbols, attributes, the plain layer's names."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py.core import BaracudaError, ElementKind
from baracuda_py.core.plan import Plan

torch = pytest.importorskip("torch")
from bridged import Problem, problems  # noqa: E402
from test_torch_cut import NAMES, call_of  # noqa: E402
from test_torch_ops import sample  # noqa: E402
from torch_leaves import leaf, same_gradients  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


def compiled(function: Callable[..., Any], backend: str = "aot_eager", **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, **options)  # type: ignore[no-any-return]


def bits(tensor: Any) -> Any:
    """The bytes of a tensor's values, for comparison: NaN is NaN, and -0 is not 0."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8) if plain.numel() else plain.to(torch.uint8)


def equal(ours: Any, theirs: Any) -> bool:
    a, b = list(tensors(ours)), list(tensors(theirs))
    alike = len(a) == len(b) and all((x.shape, x.dtype) == (y.shape, y.dtype) for x, y in zip(a, b, strict=True))
    return alike and all(torch.equal(bits(x), bits(y)) for x, y in zip(a, b, strict=True))


def tensors(value: Any) -> Iterator[Any]:
    """All tensors within arguments or results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(one)


def put(value: Any, items: Iterator[Any]) -> Any:
    """The same with other tensors."""
    if isinstance(value, torch.Tensor):
        return next(items)
    if isinstance(value, (list, tuple)):
        return type(value)([put(one, items) for one in value])
    return {name: put(one, items) for name, one in value.items()} if isinstance(value, dict) else value


# -- every op: symbols for strides ------------------------------------------------------------------------------------


def sliced(tensor: Any, axis: int) -> Any:
    """The values as a view of a tensor that is wider along an axis."""
    if tensor.dim() <= -axis - 1 or not tensor.numel():
        return tensor.clone()
    wide = tensor.new_zeros([n + 3 * (at == tensor.dim() + axis) for at, n in enumerate(tensor.shape)])
    view = wide.narrow(axis, 0, tensor.shape[axis])
    view.copy_(tensor)
    return view


def call_with(problem: Problem, axis: int | None) -> tuple[Callable[..., Any], list[Any]]:
    """A problem's call as a function of tensors, and those: dense, or views of wider ones."""
    arrays = problem.call.arrays
    held = [t.clone() if axis is None else sliced(t, axis) for t in tensors(arrays)]
    flags = {f"return_{s.name}": s.name in problem.call.wanted for s in problem.op.outputs if s.optional}
    facts = {**problem.call.attributes, **problem.call.scalars, **flags}

    def call(*given: Any) -> Any:
        return problem.op.function(**put(arrays, iter(given)), **facts)

    return call, held


@pytest.mark.parametrize(("plan", "kind", "element"), {item.values[0]: item for item in sample()}.values())
def test_views_of_wider_tensors_are_traced_with_symbols(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    """Rows, and matrices, a symbol apart; the op refuses what it refuses of memory."""
    problem = next(problems(plan, kind, element), None)
    if problem is None:
        return
    for axis in (-1, -2, None):
        call, held = call_with(problem, axis)
        try:
            want = [call(*[t.clone() if axis is None else sliced(t, axis) for t in held])]
        except BaracudaError:
            continue  # a layout that the op does not take
        got = [compiled(call, "eager", dynamic=True)(*held)]
        assert equal(got, want)
        return
    raise AssertionError("a dense call is refused")


def test_strides_are_symbols_in_either_mode_and_within_the_graph() -> None:
    for backend in ("aot_eager", "inductor"):
        for dynamic in (True, None):
            first = compiled(lambda x: bt.silu(x), backend, dynamic=dynamic)
            within = compiled(lambda x: bt.rms_norm(x[:, : x.shape[1] // 2]), backend, dynamic=dynamic)
            for n in (32, 48, 50):
                x = torch.randn(5, n)
                assert torch.allclose(first(x[:, :16]), F.silu(x[:, :16]))
                assert torch.allclose(within(x), F.rms_norm(x[:, : n // 2], (n // 2,), eps=1e-6), atol=1e-6)


# -- attributes that torch's schema spells otherwise -------------------------------------------------------------------


def test_attributes_arrive_whatever_they_are_called() -> None:
    x = torch.randn(2, 6, dtype=torch.float64)
    for mode in ("constant", "reflect", "replicate", "circular"):
        padded = compiled(lambda x, mode=mode: bt.pad(x, ((0, 0), (2, 1)), mode=mode))
        assert torch.equal(padded(x), F.pad(x, (2, 1), mode))
        same_gradients(padded, lambda x, mode=mode: F.pad(x, (2, 1), mode), leaf(2, 6))
    assert torch.equal(compiled(lambda x: bt.roll(x, 2, axis=1))(x), torch.roll(x, 2, 1))
    assert torch.equal(compiled(lambda x: bt.pad(x, 1))(x), F.pad(x, (1, 1, 1, 1)))  # one number for all axes
    images = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    assert torch.equal(compiled(lambda x: bt.im2col(x, kernel_size=2))(images), F.unfold(images, 2))


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_optimizer_keeps_its_mode(decoupled: bool) -> None:
    torch.manual_seed(0)
    start, gradient = torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    theirs = torch.nn.Parameter(start.clone())
    theirs.grad = gradient.clone()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    kind([theirs], lr=0.1, weight_decay=0.5).step()

    def step(p: Any, g: Any, m: Any, v: Any) -> Any:
        mode = "adamw" if decoupled else "adam"
        bt.adam_step([p], [g], [m], [v], lr=0.1, step=1, weight_decay=0.5, mode=mode)
        return p * 1

    zeros = torch.zeros(5, dtype=torch.float64)
    made = compiled(step)(start.clone(), gradient, zeros.clone(), zeros.clone())
    assert torch.allclose(made, theirs.detach())


# -- the plain layer's functions ---------------------------------------------------------------------------------------


def chosen() -> list[str]:
    """A twentieth of the functions, and of those written by hand a fifth; other ones in the random profile."""
    chance = random.Random(None if os.environ.get("HYPOTHESIS_PROFILE") == "random" else "names")
    own = [n for n in NAMES if not hasattr(getattr(bc, n), "entry")]
    rest = [n for n in NAMES if hasattr(getattr(bc, n), "entry")]
    return sorted(chance.sample(own, len(own) // 5) + chance.sample(rest, len(rest) // 20))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", chosen())
def test_a_function_of_the_plain_layer_is_an_op_of_the_graph(name: str) -> None:
    """Without a break, and with the bits of the call outside; what is updated in place is, too."""
    if name == "randperm":  # of no tensor
        return
    operands, facts = call_of(name)
    held = list(tensors([operands, facts]))

    def call(*given: Any) -> Any:
        items = iter(given)
        return getattr(bc, name)(*put(operands, items), **put(facts, items))

    plain, traced = ([t.clone() for t in held] for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert equal([call(*plain), plain], [compiled(call)(*traced), traced])


def test_the_plain_layer_is_recorded_in_a_graph() -> None:
    """Gradients, modules that call it, sizes given as symbols, and torch.export."""
    same_gradients(
        compiled(lambda x, w: bc.rms_norm(x, w)), lambda x, w: F.rms_norm(x, (8,), w, 1e-6), leaf(3, 8), leaf(8)
    )
    same_gradients(compiled(lambda x: bc.prelu(x, x[0, :1])), lambda x: F.prelu(x, x[0, :1]), leaf(3, 4))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(8))

        def forward(self, x: Any) -> Any:
            return bc.silu(bc.rms_norm(x, self.w)) + bc.swiglu(bc.cat([x, x], axis=1))

    net, x = Net(), torch.randn(3, 8)
    want = net(x)
    assert torch.allclose(compiled(net)(x), want)
    for strict in (True, False):
        program = torch.export.export(net, (x,), strict=strict)
        assert str(program.graph).count("torch.ops.baracuda") >= 3 and torch.allclose(program.module()(x), want)
    split = compiled(lambda x: bc.narrow(x, 1, 0, x.shape[1] // 2) * 1, dynamic=True)
    for n in (8, 12):
        y = torch.randn(3, n)
        assert torch.equal(split(y), y[:, : n // 2])
    rolled = compiled(lambda x, n: bc.roll(x, n, axis=1), dynamic=True)
    for n in (2, 3):
        assert torch.equal(rolled(x, n), torch.roll(x, n, 1))
