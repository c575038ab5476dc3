"""as_strided and its like on views: the offset counts from where the memory begins, as in torch, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
import baracuda_py.nn.functional as F
from baracuda_py.core.errors import InvalidProblemError

X = np.arange(40, dtype=np.float32)
FUNCTIONS = {"as_strided": F.as_strided, "as_strided_copy": bc.as_strided_copy}


def _torch(x: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(x)


def _numpy(x: np.ndarray) -> np.ndarray:
    return x


MAKERS: dict[str, Callable[[np.ndarray], Any]] = {"numpy": _numpy, "torch": _torch}


@pytest.mark.parametrize("package", MAKERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_offset_counts_from_where_the_memory_begins(name: str, package: str) -> None:
    view = MAKERS[package](X)[5:29].reshape(4, 6)
    seen = FUNCTIONS[name](view, (3, 2), (4, 1), 7)
    assert np.asarray(seen).tolist() == [[7, 8], [11, 12], [15, 16]]
    assert np.asarray(FUNCTIONS[name](view, (3, 2), (4, 1))).tolist() == [[5, 6], [9, 10], [13, 14]]
    assert np.asarray(FUNCTIONS[name](view, (2,), (23,), 5)).tolist() == [5, 28]


@pytest.mark.parametrize("package", MAKERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_lies_outside_of_the_view_is_refused(name: str, package: str) -> None:
    view = MAKERS[package](X)[5:29]
    with pytest.raises(InvalidProblemError, match="storage_offset 0 lies 5 elements before x"):
        FUNCTIONS[name](view, (2, 2), (1, 1), 0)
    for size, stride, offset in (((2,), (1,), 28), ((2,), (24,), None), ((30,), (1,), 5)):
        with pytest.raises(InvalidProblemError):
            FUNCTIONS[name](view, size, stride, offset)


@pytest.mark.parametrize("package", MAKERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_of_a_view_that_is_not_dense_are_refused(name: str, package: str) -> None:
    whole = MAKERS[package](X.reshape(5, 8))
    for view in (whole.T, whole[:, :3], whole[:, ::2], whole[0:1, 1::2]):
        with pytest.raises(InvalidProblemError, match="do not lie in memory as they follow each other"):
            FUNCTIONS[name](view, (2,), (1,))


def test_torch_agrees_wherever_there_is_an_answer() -> None:
    torch = pytest.importorskip("torch")
    whole, answered = torch.from_numpy(X), 0
    rng = np.random.default_rng(3)
    for _ in range(300):
        begin, length = (int(n) for n in rng.integers(0, 20, 2))
        view = whole[begin : begin + length]
        size = tuple(int(n) for n in rng.integers(0, 4, int(rng.integers(0, 3))))
        stride = tuple(int(n) for n in rng.integers(0, 5, len(size)))
        offset = None if rng.random() < 0.3 else int(rng.integers(0, 30))
        try:
            ours = F.as_strided(view, size, stride, offset)
        except InvalidProblemError:
            continue
        answered += 1
        assert torch.equal(ours, torch.as_strided(view, size, stride, offset)), (begin, length, size, stride, offset)
    assert answered > 50


def test_a_scatter_writes_where_the_memory_says() -> None:
    torch = pytest.importorskip("torch")
    view, src = torch.from_numpy(X)[5:17], torch.tensor([[-1.0, -2], [-3, -4]])
    assert torch.equal(
        bc.as_strided_scatter(view, src, (2, 2), (4, 1), 7), torch.as_strided_scatter(view, src, (2, 2), (4, 1), 7)
    )
    assert bc.as_strided_scatter(X[5:17], np.float32([9]), (1,), (1,), 6).tolist() == [5, 9, *range(7, 17)]
    for array in (view, X[5:17]):
        with pytest.raises(InvalidProblemError, match="before x"):
            bc.as_strided_scatter(array, src if array is view else src.numpy(), (2, 2), (4, 1), 0)


def test_a_gradient_reaches_the_view() -> None:
    torch = pytest.importorskip("torch")
    leaf = torch.arange(12.0, requires_grad=True)
    F.as_strided(leaf[3:], (2, 2), (3, 1), 4).sum().backward()
    assert leaf.grad.nonzero().flatten().tolist() == [4, 5, 7, 8]


def test_memory_of_cupy_begins_with_the_array_that_it_came_from() -> None:
    pytest.importorskip("cupy")
    from baracuda_py.core.views import storage_offset
    from baracuda_py.testing import pointer_view

    whole = pointer_view(X)
    assert storage_offset(whole) == 0
    assert storage_offset(whole[5:]) == 5
    assert storage_offset(whole[5:][2:].reshape(3, 11)) == 7
    assert storage_offset(X[::-1]) == 39  # counted from the lowest address
    assert storage_offset(X.view(np.int32)[3:]) == 3


def test_jax_arrays_begin_their_own_memory() -> None:
    jnp = pytest.importorskip("jax.numpy")
    view = jnp.asarray(X)[5:]
    assert np.asarray(bc.as_strided_copy(view, (2, 2), (2, 1), 0)).tolist() == [[5, 6], [7, 8]]
