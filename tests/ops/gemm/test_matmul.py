"""`matmul` and its relatives: NumPy's shapes, views that are not copied, `out=`, c that broadcasts."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

rng = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(np.float64)


SHAPES = [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((0, 2, 3), (3, 4)),
    ((5, 2, 0), (0, 4)), ((0,), (0,)), ((1, 1, 1), (1,)), ((7, 1, 2, 3), (1, 6, 3, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes_are_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = array(*left), array(*right)
    want = np.matmul(a, b)
    got = bc.matmul(a, b)
    assert isinstance(got, np.ndarray) and got.shape == want.shape and np.array_equal(got, want)
    out = np.full(want.shape, 7.0)
    assert bc.matmul(a, b, out=out) is out and np.array_equal(out, want)
    spread = np.full((*want.shape, 2), 7.0)[..., 0]
    assert bc.matmul(a, b, out=[spread]) is spread and np.array_equal(spread, want)


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_c_broadcasts_to_the_result(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = array(*left), array(*right)
    want = np.matmul(a, b)
    for keep in product((False, True), repeat=want.ndim):
        shape = tuple(n if kept else 1 for n, kept in zip(want.shape, keep, strict=True))
        for c in (array(*shape), array(*shape[1:]) if shape and shape[0] == 1 else array(*shape)):
            assert np.array_equal(bc.matmul(a, b, c, alpha=2.0, beta=-1.0), 2 * want - c)
            assert np.array_equal(bc.addmm(c, a, b, beta=3.0), want + 3 * c)


def test_against_torch() -> None:
    torch = pytest.importorskip("torch")
    for left, right in SHAPES:
        a, b = torch.from_numpy(array(*left)), torch.from_numpy(array(*right))
        got = bc.matmul(a, b)
        assert torch.is_tensor(got) and torch.equal(got, torch.matmul(a, b))
        assert got.shape == torch.matmul(a, b).shape
    x, weight, bias = (torch.from_numpy(array(*s)) for s in ((2, 5, 3), (4, 3), (4,)))
    linear = torch.nn.functional.linear
    assert torch.equal(bc.linear(x, weight, bias), linear(x, weight, bias))
    assert torch.equal(bc.linear(x, weight), linear(x, weight))
    assert torch.equal(bc.linear(x[0, 0], weight, bias), linear(x[0, 0], weight, bias))
    assert torch.equal(bc.linear(x, weight[0]), linear(x, weight[0]))
    y, a, b = (torch.from_numpy(array(*s)) for s in ((4,), (2, 3), (3, 4)))
    assert torch.equal(bc.addmm(y, a, b, beta=2, alpha=3), torch.addmm(y, a, b, beta=2, alpha=3))


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    a, b, c = (jax.numpy.asarray(array(*s).astype(np.float32)) for s in ((5, 2, 3), (3,), (2,)))
    got = bc.matmul(a, b, c)
    assert isinstance(got, jax.Array) and np.array_equal(np.asarray(got), np.asarray(a) @ np.asarray(b) + np.asarray(c))


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch, long_way: None) -> None:
    """What reaches the plan is the caller's memory, with a stride of 0 where it is shared."""
    seen: list[Any] = []
    run = bc.GemmPlan.run

    def watch(self: Any, args: Any, workspace: Any = None, stream: Any = None) -> None:
        seen.append(args)
        run(self, args, workspace, stream)

    monkeypatch.setattr(bc.GemmPlan, "run", watch)
    a, b = array(2, 3), array(5, 3, 4)
    bc.matmul(a, b)
    (args,) = seen
    assert args.a.ctypes.data == a.ctypes.data and args.a.strides[0] == 0 and args.b is b


@pytest.mark.parametrize(
    ("left", "right", "more", "says"),
    [
        ((), (3,), {}, "a must have an axis at least"),
        ((3,), (), {}, "b must have an axis at least"),
        ((2, 3), (2, 4), {}, "b must have shape|a has 3 columns"),
        ((2, 3), (4,), {}, "a has 3 columns and b 4 rows"),
        ((3, 2, 3), (2, 3, 4), {}, "do not broadcast together"),
        ((2, 3), (3,), {"out": np.empty((2, 1))}, r"out must have shape \(2,\), got \(2, 1\)"),
        ((2, 3), (3,), {"c": np.empty(3)}, r"c must broadcast to the result's shape \(2,\), got \(3,\)"),
        ((2, 3), (3,), {"dim": 1}, "unexpected keyword argument 'dim'"),
    ],
)
def test_what_is_refused(left: Any, right: Any, more: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says):
        bc.matmul(array(*left), array(*right), **more)


def test_raw_memory() -> None:
    a, b, y = array(2, 3), array(5, 3), np.empty((5, 2))
    refs = [bc.TensorRef(x.ctypes.data, x.shape, None, "float64", x.nbytes, device=-1) for x in (a, b, y)]
    bc.matmul(refs[0], bc.TensorRef(b.ctypes.data, (5, 3, 1), None, "float64", device=-1), out=bc.TensorRef(
        y.ctypes.data, (5, 2, 1), None, "float64", device=-1))  # fmt: skip
    assert np.array_equal(y, (a @ b[..., None])[..., 0])
    y = np.empty(2)
    bc.matmul(refs[0], bc.TensorRef(b.ctypes.data, (3,), None, "float64", device=-1), out=bc.TensorRef(
        y.ctypes.data, (2,), None, "float64", device=-1))  # fmt: skip
    assert np.array_equal(y, a @ b[0])


def test_a_bias_on_a_gpu_is_written_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """There c is the result itself, which holds the bias by then; one that has the result's shape is taken as it is."""
    seen: list[Any] = []
    module = sys.modules[bc.matmul.__module__]
    dense = module.dense_gemm

    def watch(a: Any, b: Any, c: Any = None, **more: Any) -> Any:
        seen.append((c, more["out"]))
        return dense(a, b, c, **more)

    for one in (module, sys.modules[bc.linear.__module__]):
        monkeypatch.setattr(one, "ordinal", lambda array: 0)
        monkeypatch.setattr(one, "dense_gemm", watch)
    x, weight, bias = array(2, 3), array(4, 3), array(4)
    want = x @ weight.T + bias
    assert np.array_equal(bc.linear(x, weight, bias), want) and seen[-1][0] is seen[-1][1] is not None
    out = np.empty((2, 4))
    assert bc.linear(x, weight, bias, out=out) is out and np.array_equal(out, want) and seen[-1][0] is out
    c = array(2, 4)
    assert np.array_equal(bc.linear(x, weight, c), x @ weight.T + c) and seen[-1][0] is c and seen[-1][1] is None
    assert np.array_equal(bc.matmul(x[0], weight.T, bias[:1]), (x @ weight.T)[0] + bias[:1])
