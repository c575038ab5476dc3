"""einsum, tensordot and dot_general: which plans a call is made of, what is copied, errors, packages, options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.plan import Plan

rng = np.random.default_rng(11)


def array(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(rng.integers(-4, 5, shape)).astype(dtype)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, long_way: None) -> list[tuple[str, Any]]:
    """The plans that run, each with its operands."""
    seen: list[tuple[str, Any]] = []
    run = Plan.run

    def watch(self: Any, args: Any, workspace: Any = None, stream: Any = None) -> None:
        seen.append((self.op.partition(".")[2], args))
        run(self, args, workspace, stream)

    monkeypatch.setattr(Plan, "run", watch)
    return seen


VIEWS = [  # equations of one matrix product on views, whatever the order of the axes
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 4)), ("ji,kj->ik", (3, 2), (4, 3)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)), ("bij,jk->bik", (5, 2, 3), (3, 4)), ("bij,jk->kbi", (5, 2, 3), (3, 4)),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)), ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)), ("abcd,cdef->efab", (2, 3, 4, 5), (4, 5, 2, 3)),
    ("iij,jk->ik", (3, 3, 4), (4, 2)), ("i,ij->j", (3,), (3, 4)), ("ij,j->i", (3, 4), (4,)), ("ij,jk", (3, 1), (1, 4)),
    ("...ij,jk->...ik", (2, 5, 3, 4), (4, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "left", "right"), VIEWS)
def test_one_matrix_product_of_views(steps: Any, equation: str, left: Any, right: Any) -> None:
    a, b = array(*left), array(*right)
    want = np.einsum(equation, a, b)
    assert np.array_equal(bc.einsum(equation, a, b), want)
    ((name, args),) = steps
    assert name == ("binary" if 1 in left else "gemm")
    for x in (args.a, args.b):
        assert np.shares_memory(x, a) or np.shares_memory(x, b)
    del steps[:]
    out = np.full(want.shape, 7.0)
    assert bc.einsum(equation, a, b, out=out) is out and np.array_equal(out, want)
    ((_, args),) = steps
    assert np.shares_memory(args.y, out)


STEPS = [
    ("ij->i", ["reduce"], (3, 4)), ("ii->", ["reduce"], (3, 3)), ("ij->ji", [], (3, 4)), ("ii->i", [], (3, 3)),
    ("i,j->ij", ["binary"], (3,), (4,)), ("ij,ij->", ["vecdot"], (3, 4), (3, 4)),
    ("bi,bi->b", ["vecdot"], (3, 4), (3, 4)), ("ijk,jl->il", ["reduce", "gemm"], (2, 3, 4), (3, 5)),
    ("ij,jk,kl->il", ["gemm", "gemm"], (2, 3), (3, 4), (4, 5)),
    ("aibj,bkaj->ik", ["unary", "unary", "gemm"], (3, 2, 2, 4), (2, 5, 3, 4)),
    ("ij,jk->ik", ["gemm"], (2, 0), (0, 3)), (",i->i", ["binary"], (), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("case", STEPS, ids=lambda case: case[0])
def test_each_step_is_a_plan(steps: Any, case: Any) -> None:
    equation, names, *shapes = case
    arrays = [array(*shape) for shape in shapes]
    got = bc.einsum(equation, *arrays)
    assert np.array_equal(got, np.einsum(equation, *arrays)) and [name for name, _ in steps] == names
    if not names:
        assert np.shares_memory(got, arrays[0])


def test_an_operand_without_even_axes_is_copied_once(steps: Any) -> None:
    wide = array(4, 3, 7)[:, :, :5]
    b = array(3, 5, 6)
    assert np.array_equal(bc.einsum("ijk,jkl->il", wide, b), np.einsum("ijk,jkl->il", wide, b))
    assert [name for name, _ in steps] == ["unary", "gemm"]
    del steps[:]
    out = np.full((4, 6, 7), 9.0)[:, :, :5]
    a, b = array(4, 2), array(2, 6, 5)
    bc.einsum("ij,jkl->ikl", a, b, out=out)
    assert np.array_equal(out, np.einsum("ij,jkl->ikl", a, b))
    assert [name for name, _ in steps] == ["gemm", "unary"]


def test_a_batch_that_is_no_one_axis_is_copied_where_that_pays(steps: Any) -> None:
    equation = "bqhd,bkhd->bhqk"
    for dtype, keys, names in (
        ("float32", 70, ["unary", "gemm"]), ("float32", 3, ["gemm"]), ("float16", 70, ["gemm"]),
        ("float64", 70, ["unary", "gemm"]),
    ):  # fmt: skip
        a, b = array(2, 3, 4, 5, dtype=dtype), array(2, keys, 4, 5, dtype=dtype)
        assert np.array_equal(bc.einsum(equation, a, b), np.einsum(equation, a, b))
        assert [name for name, _ in steps] == names
        del steps[:]
    a, b = array(4, 2, 3, 5), array(4, 2, 5, 70)
    assert np.array_equal(bc.einsum("hbij,hbjk->bhik", a, b), np.einsum("hbij,hbjk->bhik", a, b))
    assert [name for name, _ in steps] == ["gemm"] and steps[0][1].a is a


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64", "complex64", "complex128"])
def test_integers_and_complex_numbers(dtype: str) -> None:
    a, b = array(5, 6, dtype=dtype), array(6, 4, dtype=dtype)
    for equation in ("ij,jk->ik", "ij,jk->ki", "ij,jk->", "ij,jk->ijk"):
        got, want = bc.einsum(equation, a, b), np.einsum(equation, a, b)
        assert got.dtype == want.dtype and np.array_equal(got, want)
    wide = "int64" if a.dtype.kind in "iu" and dtype != "uint64" else dtype  # a sum of one operand is `sum`
    got = bc.einsum("ij->i", a)
    assert got.dtype == wide and np.array_equal(got, np.einsum("ij->i", a.astype(wide)))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in ((5, 70), (70, 4)))
    want = (a.astype(np.uint64)[:, :, None] * b.astype(np.uint64)).sum(1).astype(dtype)
    assert np.array_equal(bc.einsum("ij,jk->ik", a, b), want) and np.array_equal(bc.matmul(a, b), want)


ERRORS: list[tuple[str, tuple[tuple[int, ...], ...], str, str]] = [
    ("ij,jk->iz", ((2, 3), (3, 4)), "label z of the result is in no operand", "z"),
    ("ij,jk->iik", ((2, 3), (3, 4)), "a label stands once in the result, got i again", "i"),
    ("ij,j1->i", ((2, 3), (3, 4)), "labels are letters, got '1'", "1"),
    ("ij,jk>ik", ((2, 3), (3, 4)), "the arrow is -> and stands once, got '>'", ">"),
    ("ij->ji->ij", ((2, 3),), "the arrow is -> and stands once, got '-'", "-"),
    ("ij,jk->ik,i", ((2, 3), (3, 4)), "there is one result, got ','", ","),
    ("i..j", ((2, 3),), "an ellipsis is three dots, got '.'", "."),
    ("...i...", ((2, 3),), "an operand has one ellipsis, got ... again", "..."),
    ("ijk,jk", ((2, 3), (3, 4)), "operand 0 has shape (2, 3), and 3 axes are named", "ijk"),
    ("i,jk", ((2, 3), (3, 4)), "operand 0 has shape (2, 3), and 1 axes are named", "i"),
    ("...ijk,jk", ((2, 3), (3, 4)), "operand 0 has shape (2, 3), and at least 3 axes are named", "...ijk"),
    ("ij,kj", ((2, 3), (3, 4)), "j is 3 before, and 4 in operand 1 of shape (3, 4)", "j"),
    ("ii", ((2, 3),), "operand 0 of shape (2, 3) has no diagonal: i is 2, then 3", "i"),
    ("ii", ((1, 3),), "has no diagonal: i is 1, then 3", "i"),
    ("...i,...i", ((2, 3), (4, 3)), "axis -1 of the ellipsis is 2 before, and 4 in operand 1", "..."),
    ("ij", ((2, 3), (3, 4)), "1 operands are named, 2 given", "ij"),
    ("ij,jk,kl", ((2, 3), (3, 4)), "3 operands are named, 2 given", "kl"),
]


@pytest.mark.parametrize(("equation", "shapes", "says", "at"), ERRORS)
def test_an_error_points_at_the_characters(equation: str, shapes: Any, says: str, at: str) -> None:
    with pytest.raises(bc.ExpressionError) as raised:
        bc.einsum(equation, *(array(*shape) for shape in shapes))
    message, line, pointer = str(raised.value).split("\n")
    assert says in message and line == f"  {equation}"
    start = pointer.index("^")
    assert line[start : start + pointer.count("^")] == at


def test_an_error_of_lists_points_at_the_label() -> None:
    with pytest.raises(bc.ExpressionError) as raised:
        bc.einsum(array(2, 3), [0, 11], array(4, 5), [11, ...], [0, ...])
    message, line, pointer = str(raised.value).split("\n")
    assert "11 is 3 before, and 4 in operand 1" in message and line == "  [0, 11], [11, ...] -> [0, ...]"
    assert line.index("11", 8) == pointer.index("^") and pointer.count("^") == 2


CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: bc.einsum("ij,jk", array(2, 3), array(3, 4, dtype=np.int32)), bc.UnsupportedError, "operand 1 is int32"),
    (lambda: bc.einsum("i,i", *[array(3) > 0] * 2), bc.UnsupportedError, "operand 0 is bool, which has no products"),
    (lambda: bc.einsum(array(2, 3), array(2, 3)), bc.InvalidProblemError, "first stands an equation"),
    (lambda: bc.einsum(array(2, 3), [0, -1]), bc.InvalidProblemError, "a label in a list"),
    (lambda: bc.einsum(array(2, 3), [0, 1.5]), bc.InvalidProblemError, "a label in a list"),
    (lambda: bc.einsum("ij->i", array(2, 3), out=np.empty(3)), bc.InvalidProblemError, r"out must have shape \(2,\)"),
    (lambda: bc.einsum("ij->i", [1.0, 2.0]), bc.InvalidProblemError, "operand 0 must be an array"),
    (lambda: bc.einsum("i,i", array(2), array(2), path=[(0, 2)]), bc.InvalidProblemError, "a place"),
    (lambda: bc.einsum("i,i", array(2), array(2), path=[]), bc.InvalidProblemError, "leaves 2"),
    (lambda: bc.einsum("i,i", array(2), array(2), path=[(0, 0)]), bc.InvalidProblemError, "different places"),
    (lambda: bc.einsum("i,i", array(2), array(2), optimize=True), bc.UnknownKeywordError, "did you mean path="),
    (lambda: bc.einsum("ij,jk", array(2, 3), array(3, 4), math_precision="tf32"), bc.InvalidProblemError, "tf32"),
    (lambda: bc.tensordot(array(2, 3), array(4, 5)), bc.InvalidProblemError, "axis 0 of a .* not as long"),
    (lambda: bc.tensordot(array(2, 3), array(4, 5), 3), bc.InvalidProblemError, r"\[0, 2\]"),
    (lambda: bc.tensordot(array(2, 3), array(3, 2), ((0, 0), (1, 1))), bc.InvalidProblemError, "different axes"),
    (lambda: bc.tensordot(array(2, 3), array(3, 2), ((0,), (1, 0))), bc.InvalidProblemError, "1 axes .* with 2"),
    (lambda: bc.tensordot(array(2, 3), array(3, 2), (1,)), bc.InvalidProblemError, "a number, or axes"),
    (lambda: bc.dot_general(array(2, 3), array(3, 2), ((1,), (0,))), bc.InvalidProblemError, "dimension_numbers"),
    (lambda: bc.dot_general(array(2, 3), array(1, 2), (((1,), (0,)), ((), ()))), bc.InvalidProblemError, "as long"),
    (
        lambda: bc.dot_general(array(2, 3), array(3, 2), (((1,), (0,)), ((1,), (0,)))),
        bc.InvalidProblemError,
        "summed and batch",
    ),
]


@pytest.mark.parametrize(("call", "kind", "says"), CALLS)
def test_wrong_calls(call: Callable[[], Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call()


def test_a_path_of_numpy_is_taken() -> None:
    arrays = [array(*s) for s in ((2, 3), (3, 4), (4, 5), (5, 2))]
    path = np.einsum_path("ij,jk,kl,lm->im", *arrays)[0][1:]
    want = np.einsum("ij,jk,kl,lm->im", *arrays)
    assert np.array_equal(bc.einsum("ij,jk,kl,lm->im", *arrays, path=path), want)
    shapes = [x.shape for x in arrays]
    assert bc.einsum_path("ij,jk,kl,lm->im", *shapes) == bc.einsum_path("ij,jk,kl,lm->im", *arrays)


def test_the_operands_may_be_a_list() -> None:
    a, b = array(2, 3), array(3, 4)
    assert np.array_equal(bc.einsum("ij,jk", [a, b]), a @ b)


def test_the_preferred_backend_is_that_of_the_products() -> None:
    """A sum has no cuBLAS, so the wish does not reach it."""
    a, b = array(2, 3, 4), array(3, 5)
    preference = bc.PlanPreference(prefer_backend="numpy")
    assert np.array_equal(bc.einsum("ijk,jl->il", a, b, preference=preference), np.einsum("ijk,jl->il", a, b))
    with pytest.raises(bc.UnsupportedError, match="cublas"):
        bc.einsum("ijk,jl->il", a, b, preference=bc.PlanPreference(prefer_backend="cublas"))


DOTS = [
    ((((1,), (0,)), ((), ())), (2, 3), (3, 4)), ((((), ()), ((), ())), (2, 3), (4,)),
    ((((3, 2), (0, 2)), ((0,), (1,))), (2, 3, 4, 5), (5, 2, 4, 6)), ((((0,), (0,)), ((), ())), (3,), (3,)),
    ((((2,), (2,)), ((0, 1), (0, 1))), (2, 3, 4), (2, 3, 4)), ((((1,), (1,)), ((0,), (0,))), (0, 3), (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "left", "right"), DOTS)
def test_dot_general_is_jaxs(numbers: Any, left: Any, right: Any) -> None:
    jax = pytest.importorskip("jax")
    a, b = array(*left, dtype=np.float32), array(*right, dtype=np.float32)
    want = np.asarray(jax.lax.dot_general(a, b, numbers))
    got = bc.dot_general(a, b, numbers)
    assert got.shape == want.shape and got.dtype == want.dtype and np.array_equal(got, want)
    made = bc.dot_general(jax.numpy.asarray(a), jax.numpy.asarray(b), numbers)
    assert isinstance(made, jax.Array) and np.array_equal(made, want)
    for dtype, wide in ((np.int8, np.int32), (np.float16, np.float32)):
        narrow = a.astype(dtype), b.astype(dtype)
        got = bc.dot_general(*narrow, numbers, out_element=wide)
        want = np.asarray(jax.lax.dot_general(*narrow, numbers, preferred_element_type=wide))
        assert got.dtype == want.dtype == wide and np.array_equal(got, want)


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 1), (1, 0)), ((-1,), (-2,)), ([1], [0]), (1, 0)])
def test_tensordot_is_numpys(axes: Any) -> None:
    a, b = array(3, 3), array(3, 3, 2)
    assert np.array_equal(bc.tensordot(a, b, axes), np.tensordot(a, b, axes))


def test_torch_and_jax_get_their_own_arrays() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    a, b = array(2, 3, dtype=np.float32), array(3, 4, dtype=np.float32)
    for make, kind in ((torch.from_numpy, torch.Tensor), (jax.numpy.asarray, jax.Array)):
        for equation in ("ij,jk->ki", "ij,jk->", "ij,jk->ijk"):
            got = bc.einsum(equation, make(a), make(b))
            assert isinstance(got, kind) and np.array_equal(np.asarray(got), np.einsum(equation, a, b))
        for equation in ("ij->ji", "ij->", "ij->j"):
            assert np.array_equal(np.asarray(bc.einsum(equation, make(a))), np.einsum(equation, a))
        square = make(array(3, 3, 2, dtype=np.float32))
        assert np.array_equal(np.asarray(bc.einsum("iij->ji", square)), np.einsum("iij->ji", np.asarray(square)))


def test_memory_without_a_package() -> None:
    a, b, y = array(2, 3, 3), array(3, 4), np.full((4, 2), 7.0)
    given = [bc.TensorRef(x.ctypes.data, x.shape, element="float64", device=-1) for x in (a, b, y)]
    bc.einsum("ijj,jk->ki", *given[:2], out=given[2])
    assert np.array_equal(y, np.einsum("ijj,jk->ki", a, b))


def test_sixteen_bit_floats_are_rounded_once_a_step() -> None:
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((8, 300), (300, 8)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    got = bc.einsum("ij,jk->ki", a, b).T
    assert np.all(np.abs(got - want) <= np.spacing(np.abs(want).astype(np.float16)).astype(np.float64) * 0.51)


@pytest.mark.gpu
@pytest.mark.parametrize(("equation", "left", "right"), VIEWS)
def test_on_a_gpu(equation: str, left: Any, right: Any) -> None:
    import cupy

    a, b = array(*left, dtype=np.float32), array(*right, dtype=np.float32)
    want = np.einsum(equation, a, b)
    got = bc.einsum(equation, cupy.asarray(a), cupy.asarray(b))
    assert isinstance(got, cupy.ndarray) and np.array_equal(got.get(), want)
    out = cupy.full(want.shape, 7.0, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.asarray(a), cupy.asarray(b)
    stream.synchronize()
    assert bc.einsum(equation, *given, out=out, stream=stream) is out
    stream.synchronize()
    assert np.array_equal(out.get(), want)
