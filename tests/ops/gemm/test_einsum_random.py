"""einsum over equations that nobody wrote: labels, extents with 0 and 1, layouts, ellipses, outputs; against NumPy."""

from __future__ import annotations

import string
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bc
from baracuda_py.ops.gemm.paths import greedy
from tests.steps_emulated import by_kernels

DTYPES = ("float64", "float32", "int32", "uint8", "int64", "complex128")


@dataclass
class Problem:
    """An equation and arrays of small integers, whose products every dtype holds exactly or wraps alike."""

    equation: str
    arrays: list[Any]

    @property
    def want(self) -> np.ndarray:
        """NumPy's result, in 64 bits and then the dtype; sums of one operand stay in 64 bits, as torch has them."""
        dtype = self.arrays[0].dtype
        wide = [x.astype(np.int64) if dtype.kind in "iu" else x for x in self.arrays]
        made = np.asarray(np.einsum(self.equation, *wide))
        return made if dtype.kind in "iu" and self.summed else made.astype(dtype)

    @property
    def summed(self) -> bool:
        """Whether it is of one operand, some of whose axes the result has not."""
        term, arrow, output = self.equation.partition("->")
        kept = output if arrow else "".join(label for label in term if term.count(label) == 1)
        return len(self.arrays) == 1 and not set(term) - set(".") <= set(kept)


def laid_out(draw: Any, x: np.ndarray) -> np.ndarray:
    """The same values in another layout: axes exchanged, padded, backwards, every second, or stride 0."""
    order = draw(st.permutations(range(x.ndim)))
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if x.ndim else x
    for axis in range(x.ndim):
        how = draw(st.sampled_from(("as it is", "as it is", "backwards", "second", "padded", "one")))
        place: list[slice] = [slice(None)] * x.ndim
        if how == "backwards":
            place[axis] = slice(None, None, -1)
            x = x[tuple(place)].copy(order="K")[tuple(place)]
        elif how == "second":
            x = np.repeat(x, 2, axis)
            place[axis] = slice(None, None, 2)
            x = x[tuple(place)]
        elif how == "padded":
            x = np.concatenate((x, x, x), axis)
            place[axis] = slice(0, x.shape[axis] // 3)
            x = x[tuple(place)]
        elif how == "one" and x.shape[axis]:
            place[axis] = slice(0, 1)
            x = np.broadcast_to(x[tuple(place)], x.shape)
    return x


def on_device(x: np.ndarray) -> Any:
    """The values of x on the GPU through the strides that x has."""
    import cupy

    low, high = np.lib.array_utils.byte_bounds(x)
    start = (x.ctypes.data - low) // x.itemsize
    memory = cupy.zeros((high - low) // x.itemsize, x.dtype)
    y = cupy.ndarray(x.shape, x.dtype, memory[start:].data, x.strides)
    y[...] = cupy.asarray(np.ascontiguousarray(x))
    return y


@st.composite
def problems(draw: Any, most: int = 4, labels: int = 6, dtypes: tuple[str, ...] = DTYPES) -> Problem:
    names = draw(st.permutations(string.ascii_letters))[:labels]
    extents = {name: draw(st.sampled_from((0, 1, 1, 2, 2, 3, 3, 4, 5))) for name in names}
    dtype = draw(st.sampled_from(dtypes))
    dots = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=2)) if draw(st.booleans()) else []
    terms, arrays, total = [], [], 0
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, most))):
        term = draw(st.lists(st.sampled_from(names), max_size=4))
        narrow = {name for name in names if term.count(name) == 1 and draw(st.integers(0, 7)) == 0}
        shape = [1 if name in narrow else extents[name] for name in term]
        if dots and draw(st.booleans()):
            covered = dots[draw(st.integers(0, len(dots))) :]
            at = draw(st.integers(0, len(term)))
            term[at:at] = ["..."]
            shape[at:at] = [1 if draw(st.integers(0, 3)) == 0 else n for n in covered]
            total = max(total, len(covered))
        values = rng.integers(-3, 4, shape) + (1j * rng.integers(-3, 4, shape) if dtype.startswith("c") else 0)
        terms.append("".join(term))
        arrays.append(laid_out(draw, np.asarray(values).astype(dtype)))
    equation = ",".join(terms)
    if draw(st.booleans()) and len(equation.split(",")) == len(arrays):
        used = sorted({name for name in names if name in equation.replace("...", "")})
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        at = draw(st.integers(0, len(kept)))
        kept[at:at] = ["..."] if "..." in equation else []
        equation += "->" + "".join(kept)
    return Problem(equation, arrays)


@given(problems(), st.data())
@settings(max_examples=400)
def test_random_equations_are_numpys(problem: Problem, data: st.DataObject) -> None:
    want = problem.want
    got = bc.einsum(problem.equation, *problem.arrays)
    assert isinstance(got, np.ndarray) and got.shape == want.shape and got.dtype == want.dtype
    assert np.array_equal(got, want), problem.equation
    out = laid_out(data.draw, np.full(want.shape, 7).astype(want.dtype))
    if out.flags.writeable and 0 not in out.strides:
        assert bc.einsum(problem.equation, *problem.arrays, out=out) is out and np.array_equal(out, want)


@given(problems(most=5, labels=5, dtypes=("float64",)), st.data())
@settings(max_examples=150)
def test_any_path_gives_the_same(problem: Problem, data: st.DataObject) -> None:
    """Sums of integers are exact, so every order is: a path drawn at random, opt_einsum's, and our own."""
    want, live, path = problem.want, len(problem.arrays), list[tuple[int, ...]]()
    while live > 1:
        count = data.draw(st.integers(1, min(live, 3)))
        path.append(tuple(data.draw(st.permutations(range(live)))[:count]))
        live += 1 - count
        if len(path) > 8:
            path.append(tuple(range(live)))
            break
    assert np.array_equal(bc.einsum(problem.equation, *problem.arrays, path=path), want)
    found = bc.einsum_path(problem.equation, *problem.arrays)
    assert np.array_equal(bc.einsum(problem.equation, *problem.arrays, path=found), want)


def test_our_own_path_takes_the_smallest_result_first() -> None:
    extents = {"a": 100, "b": 2, "c": 100, "d": 2}
    assert greedy([("a", "b"), ("b", "c"), ("c", "d")], "ad", extents) == ((1, 2), (0, 1))
    assert greedy([("a", "b"), ("a", "b"), ("b", "c")], "c", extents) == ((0, 1), (0, 1))


def test_without_opt_einsum_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.integers(-3, 4, s).astype(np.float64) for s in ((2, 30), (30, 4), (4, 5), (5, 2)))
    equation = "ij,jk,kl,li->il"
    monkeypatch.setitem(sys.modules, "opt_einsum", None)
    sizes = {"i": 2, "j": 30, "k": 4, "l": 5}
    assert bc.einsum_path(equation, a, b, c, d) == greedy(["ij", "jk", "kl", "li"], "il", sizes)  # type: ignore[list-item]
    assert np.array_equal(bc.einsum(equation, a, b, c, d), np.einsum(equation, a, b, c, d))


@given(problems(dtypes=("float64",)))
@settings(max_examples=150)
def test_random_equations_are_torchs(problem: Problem) -> None:
    torch = pytest.importorskip("torch")
    tensors = [
        torch.from_numpy(x if x.flags.writeable and all(s > 0 for s in x.strides) else x.copy()) for x in problem.arrays
    ]
    want = torch.einsum(problem.equation, *tensors)
    got = bc.einsum(problem.equation, *tensors)
    assert torch.is_tensor(got) and got.shape == want.shape and torch.equal(got, want)


@given(problems(dtypes=("float64",)))
@settings(max_examples=40)
def test_lists_of_integers_say_the_same(problem: Problem) -> None:
    left, arrow, right = problem.equation.partition("->")
    places = {name: i for i, name in enumerate(string.ascii_uppercase + string.ascii_lowercase)}

    def listed(term: str) -> list[Any]:
        return [Ellipsis if one == "." else places[one] for one in term.replace("...", ".")]

    given = [x for array, term in zip(problem.arrays, left.split(","), strict=True) for x in (array, listed(term))]
    output = [listed(right)] if arrow else []
    assert np.array_equal(bc.einsum(*given, *output), problem.want)


@pytest.mark.usefixtures("emulation")
@given(problems(dtypes=("float64", "float32", "float16", "int32")))
@settings(max_examples=40)
def test_random_equations_on_the_emulator(problem: Problem) -> None:
    """Each step by its kernels, on the views that it is given."""

    with by_kernels():
        got = bc.einsum(problem.equation, *problem.arrays)
    assert got.shape == problem.want.shape and np.array_equal(got, problem.want)


@pytest.mark.gpu
@given(problems(dtypes=("float64", "float32", "int32")))
@settings(max_examples=100)
def test_random_equations_on_a_gpu(problem: Problem) -> None:
    import cupy

    got = bc.einsum(problem.equation, *map(on_device, problem.arrays))
    assert isinstance(got, cupy.ndarray) and np.array_equal(got.get(), problem.want)
