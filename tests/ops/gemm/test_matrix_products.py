"""outer, kron, addr, addbmm, matvec, vecmat, bilinear, multi_dot, chain_matmul, matrix_power, matmul of integers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.gemm.chains import cheapest

torch = pytest.importorskip("torch")
rng = np.random.default_rng(5)


def array(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.from_numpy(np.asarray(rng.integers(-3, 4, shape)).astype(np.float64)).to(dtype)


def check(call: Callable[..., Any], want: Any, spread: bool = True) -> None:
    """The call gives what torch does, and writes it to an output of any strides."""
    got = call()
    assert got.shape == want.shape and got.dtype == want.dtype and torch.equal(got, want)
    out = torch.full((*want.shape, 2) if spread else want.shape, 7, dtype=want.dtype)
    out = out[..., 0] if spread else out
    assert call(out=out) is out and torch.equal(out, want)


DTYPES = [torch.float64, torch.float32, torch.int32, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (4, 5)), ((2,), (3, 4)), ((2, 3, 4), (5,)), ((), (2,)), ((2, 0), (3,))]
)
def test_kron(left: Any, right: Any, dtype: Any) -> None:
    a, b = array(*left, dtype=dtype), array(*right, dtype=dtype)
    check(lambda **o: bc.kron(a, b, **o), torch.kron(a, b))
    backwards = np.asarray(np.flip(a.numpy()))
    assert np.array_equal(bc.kron(backwards, b.numpy()), np.kron(backwards, b.numpy()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_outer(dtype: Any) -> None:
    a, b = array(3, dtype=dtype), array(4, dtype=dtype)
    check(lambda **o: bc.outer(a, b, **o), torch.outer(a, b))
    check(lambda **o: bc.ger(a[:0], b, **o), torch.outer(a[:0], b))


@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1), ()])
@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 1.0), (0.5, 2.0), (0, 1), (2, -1)])
def test_addr(shape: Any, beta: Any, alpha: Any) -> None:
    c, a, b = array(*shape), array(3), array(4)
    check(lambda **o: bc.addr(c, a, b, beta=beta, alpha=alpha, **o), torch.addr(c, a, b, beta=beta, alpha=alpha))
    if beta != 0.5:
        c, a, b = (x.int() for x in (c, a, b))
        want = torch.addr(c, a, b, beta=int(beta), alpha=int(alpha))
        check(lambda **o: bc.addr(c, a, b, beta=beta, alpha=alpha, **o), want)
    if beta == 0:
        assert torch.equal(
            bc.addr(array(*shape) * math.nan, array(3) * 0, array(4), beta=0), torch.zeros(3, 4).double()
        )


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("shape", [(2, 5), (5,), (2, 1)])
def test_addbmm(batch: int, shape: Any) -> None:
    c, a, b = array(*shape), array(batch, 2, 4), array(batch, 4, 5)
    want = torch.addbmm(c, a, b, beta=0.5, alpha=2)
    check(lambda **o: bc.addbmm(c, a, b, beta=0.5, alpha=2.0, **o), want)
    even, turned = a.transpose(0, 1).contiguous().transpose(0, 1), b.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(bc.addbmm(c, even, turned, beta=0.5, alpha=2.0), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (4,)), ((2, 3, 4), (4,)), ((3, 4), (2, 4)), ((5, 1, 3, 4), (2, 4))]
)
def test_matvec_and_vecmat(left: Any, right: Any, dtype: Any) -> None:
    a, x = array(*left, dtype=dtype), array(*right, dtype=dtype)
    check(lambda **o: bc.matvec(a, x, **o), torch.from_numpy(np.matvec(a.numpy(), x.numpy())))
    turned = a.transpose(-1, -2).contiguous()
    check(lambda **o: bc.vecmat(x, turned, **o), torch.from_numpy(np.vecmat(x.numpy(), turned.numpy())))
    z = np.vecmat(1j * x.numpy(), turned.numpy()) if dtype.is_complex else None
    assert z is None or np.array_equal(bc.vecmat(1j * x, turned), z)


@pytest.mark.parametrize("lead", [(), (6,), (2, 3), (0,)])
@pytest.mark.parametrize("extents", [(5, 3, 4), (2, 4, 3), (1, 4, 1), (3, 3, 0), (0, 2, 2)])
def test_bilinear(lead: Any, extents: Any) -> None:
    outs, i, j = extents
    a, b, weight = array(*lead, i), array(*lead, j), array(outs, i, j)
    wide = torch.zeros(outs, i, j + 2, dtype=torch.float64)[..., :j]
    wide.copy_(weight)
    for bias, w in product((None, array(outs)), (weight, wide)):
        want = torch.einsum("...i,oij,...j->...o", a, weight, b) + (0 if bias is None else bias)
        check(lambda bias=bias, w=w, **o: bc.bilinear(a, b, w, bias, **o), want)
    far = torch.zeros(*lead, 2 * i, dtype=torch.float64)[..., ::2]
    far.copy_(a)
    assert torch.equal(bc.bilinear(far, b, weight), torch.einsum("...i,oij,...j->...o", a, weight, b))


CHAINS = [((3, 5), (5, 2), (2, 7), (7, 4)), ((3, 5), (5, 2)), ((30, 2), (2, 40), (40, 3)), ((2, 0), (0, 3), (3, 4))]


@pytest.mark.parametrize("shapes", CHAINS)
def test_chains(shapes: Any) -> None:
    matrices = [array(*shape) for shape in shapes]
    want = torch.linalg.multi_dot(matrices)
    check(lambda **o: bc.multi_dot(matrices, **o), want)
    check(lambda **o: bc.chain_matmul(*matrices, **o), want)
    ends = [matrices[0][0], *matrices[1:-1], matrices[-1][:, 0]]
    check(lambda **o: bc.multi_dot(ends, **o), torch.linalg.multi_dot(ends))
    check(lambda **o: bc.multi_dot([matrices[0][0], *matrices[1:]], **o), want[0])
    check(lambda **o: bc.chain_matmul(matrices[0], **o), matrices[0])
    whole = [x.int() for x in matrices]
    assert torch.equal(bc.multi_dot(whole), want.int())


def test_the_order_of_a_chain_costs_least() -> None:
    """Against every way to put the parentheses."""
    for seed in range(40):
        sizes = [int(n) for n in np.random.default_rng(seed).integers(1, 30, 3 + seed % 5)]

        def least(i: int, j: int, sizes: list[int] = sizes) -> int:
            if i == j:
                return 0
            return min(least(i, k) + least(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j))

        cuts = cheapest(sizes)

        def cost(i: int, j: int, cuts: Any = cuts, sizes: list[int] = sizes) -> int:
            if i == j:
                return 0
            k = cuts[i, j]
            return cost(i, k) + cost(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1]

        assert cost(0, len(sizes) - 2) == least(0, len(sizes) - 2)


@pytest.mark.parametrize("n", range(10))
def test_matrix_power(n: int, monkeypatch: pytest.MonkeyPatch, long_way: None) -> None:
    a = array(2, 3, 3).clamp(-1, 1)
    want = torch.linalg.matrix_power(a, n)
    check(lambda **o: bc.matrix_power(a, n, **o), want)
    assert torch.equal(bc.matrix_power(a.int(), n), want.int())
    assert torch.equal(bc.matrix_power(torch.complex(a, a), n), torch.linalg.matrix_power(torch.complex(a, a), n))
    assert torch.equal(bc.matrix_power(a[..., :0, :0], n), a[..., :0, :0])
    seen: list[Any] = []
    run = bc.GemmPlan.run
    monkeypatch.setattr(bc.GemmPlan, "run", lambda self, *args: (seen.append(1), run(self, *args))[1])
    bc.matrix_power(a, n)
    assert len(seen) == max(n.bit_length() + n.bit_count() - 2, 0)


def test_a_power_of_nan_is_no_identity_but_the_first() -> None:
    a = torch.full((2, 2), math.nan)
    assert torch.equal(bc.matrix_power(a, 0), torch.eye(2)) and bool(torch.isnan(bc.matrix_power(a, 2)).all())


INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 6)), ((1, 1), (1, 1)),
    ((2, 3, 0), (0, 4)), ((2, 3, 1), (2, 1, 4)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.complex64, torch.complex128])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_of_integers_and_complex_numbers(left: Any, right: Any, dtype: Any) -> None:
    a, b = array(*left, dtype=dtype), array(*right, dtype=dtype)
    want = torch.from_numpy(np.asarray(np.matmul(a.numpy(), b.numpy(), dtype=a.numpy().dtype)))
    check(lambda **o: bc.matmul(a, b, **o), want)


def test_matmul_of_integers_into_wider_ones() -> None:
    a, b = array(3, 70, dtype=torch.int8) * 40, array(70, 2, dtype=torch.int8) * 40
    got = bc.matmul(a, b, out_element="int32")
    assert got.dtype is torch.int32 and torch.equal(got, a.int() @ b.int())


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: bc.outer(array(2, 2), array(2)), bc.InvalidProblemError, r"a must have 1 axes, got shape \(2, 2\)"),
    (lambda: bc.outer(array(2), array(2).int()), bc.InvalidProblemError, "a is float64 and b is int32"),
    (lambda: bc.kron(array(2), array(2), out=array(5)), bc.InvalidProblemError, r"out must have shape \(4,\)"),
    (lambda: bc.addr(array(2, 2), array(3), array(2)), bc.InvalidProblemError, r"broadcast to shape \(3, 2\)"),
    (lambda: bc.addr(*[array(2).int()] * 3, alpha=0.5), bc.InvalidProblemError, "alpha must be an integer"),
    (lambda: bc.addbmm(array(2), array(2, 3, 4), array(3, 4, 2)), bc.InvalidProblemError, r"a must be \[i, m, k\]"),
    (lambda: bc.addbmm(array(2), array(3, 4), array(3, 4, 2)), bc.InvalidProblemError, "a must have 3 axes"),
    (lambda: bc.matvec(array(3), array(3)), bc.InvalidProblemError, "a must be […, m, k]"),
    (lambda: bc.vecmat(array(3), array(3)), bc.InvalidProblemError, "b […, k, n]"),
    (lambda: bc.bilinear(array(2, 3), array(3, 4), array(5, 3, 4)), bc.InvalidProblemError, "for the weight"),
    (lambda: bc.bilinear(array(2, 3), array(2, 4), array(5, 3, 4), array(4)), bc.InvalidProblemError, "bias must"),
    (lambda: bc.multi_dot([array(2, 3)]), bc.InvalidProblemError, "two matrices at least"),
    (lambda: bc.multi_dot([array(2, 3), array(3), array(3, 2)]), bc.InvalidProblemError, r"matrices\[1\] must be a"),
    (lambda: bc.chain_matmul(array(3), array(3, 2)), bc.InvalidProblemError, r"matrices\[0\] must be a matrix, got"),
    (lambda: bc.chain_matmul(array(2, 3), array(4, 2)), bc.InvalidProblemError, "does not fit"),
    (lambda: bc.chain_matmul(), bc.InvalidProblemError, "a matrix at least"),
    (lambda: bc.matrix_power(array(2, 3), 2), bc.InvalidProblemError, "square"),
    (lambda: bc.matrix_power(np.zeros((2, 2)), -2), bc.SingularMatrixError, "inv"),
    (lambda: bc.matrix_power(array(2, 2), 0.5), bc.InvalidProblemError, "must be an integer"),
    (lambda: bc.matmul(array(2, 2).int(), array(2, 2).int(), array(2, 2).int()), bc.UnsupportedError, "takes no c"),
    (lambda: bc.matmul(array(2, 2).int(), array(2, 2).int(), alpha=2), bc.UnsupportedError, "cast"),
    (lambda: bc.matmul(array(2, 2).bool(), array(2, 2).bool()), bc.UnsupportedError, "bool, which has no products"),
    (lambda: bc.matmul(array(2, 3).int(), array(1, 3).int()), bc.InvalidProblemError, "do not fit"),
    (lambda: bc.matmul(array(2, 3).int(), array(3, 2)), bc.UnsupportedError, "operand 1 is float64"),
]


@pytest.mark.parametrize(("call", "kind", "says"), ERRORS)
def test_wrong_calls(call: Callable[[], Any], kind: type[Exception], says: str) -> None:
    with warnings.catch_warnings(), pytest.raises(kind, match=says.replace("[…", r"\[…").replace("k]", r"k\]")):
        call()


@pytest.mark.parametrize("dtype", ["int8", "int32", "complex64", "float32"])
@pytest.mark.parametrize("extents", [(3, 4, 5), (5, 4, 3)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_bilinear_of_any_numbers(extents: tuple[int, int, int], dtype: str, with_bias: bool) -> None:
    i, j, o = extents
    a, b, w, bias = (rng.integers(-2, 3, s).astype(dtype) for s in ((6, i), (6, j), (o, i, j), (o,)))
    want = np.einsum("ni,oij,nj->no", a, w, b) + (bias if with_bias else 0)
    out = np.empty_like(want)
    assert np.array_equal(bc.bilinear(a, b, w, bias if with_bias else None, out=out), want)
    assert np.array_equal(out, want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "complex64"])
def test_on_a_gpu(dtype: str) -> None:
    import cupy

    def both(*shape: int) -> tuple[Any, Any]:
        x = np.asarray(rng.integers(-2, 3, shape)).astype(dtype)
        return x, cupy.asarray(x)

    (a, ga), (b, gb), (u, gu), (v, gv) = both(33, 70), both(70, 17), both(70), both(17)
    assert np.array_equal(bc.matmul(ga, gb).get(), a @ b) and np.array_equal(
        bc.matmul(ga, gb[:, ::-1]).get(), a @ b[:, ::-1]
    )
    assert np.array_equal(bc.matvec(ga, gu).get(), a @ u) and np.array_equal(bc.vecmat(gu, gb).get(), np.vecmat(u, b))
    assert np.array_equal(bc.kron(ga, gv).get(), np.kron(a, v)) and np.array_equal(
        bc.outer(gu, gv).get(), np.outer(u, v)
    )
    square, g = both(2, 5, 5)
    assert np.array_equal(bc.matrix_power(g, 3).get(), square @ square @ square)
    assert np.array_equal(bc.matrix_power(g, 0).get(), np.broadcast_to(np.eye(5, dtype=dtype), (2, 5, 5)))
    assert np.array_equal(bc.multi_dot([gu, gb, gv]).get(), u @ b @ v)
    (x, gx), (y, gy), (w, gw) = both(6, 3), both(6, 4), both(5, 3, 4)
    assert np.array_equal(bc.bilinear(gx, gy, gw).get(), np.einsum("ni,oij,nj->no", x, w, y))
    assert np.array_equal(bc.bilinear(gx, gy, gw[:2]).get(), np.einsum("ni,oij,nj->no", x, w[:2], y))
    if dtype in ("float32", "float16"):
        (c, gc), (p, gp), (q, gq) = both(5), both(3, 4, 6), both(3, 6, 5)
        assert np.array_equal(bc.addbmm(gc, gp, gq, beta=2.0).get(), 2 * c + (p @ q).sum(0))
        assert np.array_equal(
            bc.addr(gv, gu, gv, beta=0.5, alpha=2.0).get(), v * v.dtype.type(0.5) + 2 * np.outer(u, v)
        )
