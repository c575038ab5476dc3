"""Windows at indices by dimension numbers against JAX's, index_take, trim_zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(31)
X = RNG.standard_normal((3, 4, 5))


def test_windows_of_a_matrix() -> None:
    x = np.arange(12.0).reshape(3, 4)
    indices = np.array([[0, 1], [1, 2], [2, 0], [-1, 0]])
    facts: dict[str, Any] = {"offset_dims": (1, 2), "start_index_map": (0, 1), "slice_sizes": (2, 2)}
    want = np.stack([x[0:2, 1:3], x[1:3, 2:4], np.zeros((2, 2)), np.zeros((2, 2))])
    np.testing.assert_array_equal(bc.gather_slices(x, indices, **facts), want)
    want[2:] = x[1:3, 0:2], x[0:2, 0:2]
    np.testing.assert_array_equal(bc.gather_slices(x, indices, mode="clip", **facts), want)
    want[2:] = 7
    np.testing.assert_array_equal(bc.gather_slices(x, indices, fill_value=7, **facts), want)
    y = bc.scatter_slices(
        x, indices, np.ones((4, 2, 2)), "add", update_window_dims=(1, 2), scatter_dims_to_operand_dims=(0, 1)
    )
    added = np.zeros((3, 4))
    added[0:2, 1:3] += 1
    added[1:3, 2:4] += 1
    np.testing.assert_array_equal(y, x + added)


CASES = (  # offset_dims, collapsed, map, sizes, batching of x and of the indices, shape of the indices
    ((1,), (0, 2), (0, 2), (1, 4, 1), (), (), (6, 2)),
    ((0, 2), (1,), (1,), (3, 1, 2), (), (), (4, 1)),
    ((1, 3), (0,), (2, 0), (1, 2, 3), (), (), (2, 3, 2)),
    ((2,), (2,), (2,), (1, 3, 1), (0,), (1,), (2, 3, 1)),
    ((0, 1, 2), (), (1,), (2, 2, 5), (), (), (1,)),
)


@pytest.mark.parametrize("offset, gone, parts, sizes, batching, own, shape", CASES)
def test_against_jax(offset: Any, gone: Any, parts: Any, sizes: Any, batching: Any, own: Any, shape: Any) -> None:
    lax = pytest.importorskip("jax.lax")
    x, indices = X.astype(np.float32), RNG.integers(-1, 5, shape).astype(np.int32)
    numbers = lax.GatherDimensionNumbers(offset, gone, parts, batching, own)
    facts: dict[str, Any] = {"operand_batching_dims": batching}
    said = {"offset_dims": offset, "collapsed_slice_dims": gone, "start_index_map": parts, "slice_sizes": sizes}
    for mode in ("clip", "fill"):
        want = np.asarray(lax.gather(x, indices, numbers, sizes, mode=mode, fill_value=0))
        y = bc.gather_slices(x, indices, mode=mode, start_indices_batching_dims=own, **said, **facts)
        np.testing.assert_array_equal(y, want)
    update = RNG.standard_normal(want.shape).astype(np.float32)
    there = lax.ScatterDimensionNumbers(offset, gone, parts, batching, own)
    said = {"update_window_dims": offset, "inserted_window_dims": gone, "scatter_dims_to_operand_dims": parts}
    facts["scatter_indices_batching_dims"] = own
    for name, function in (("add", lax.scatter_add), ("max", lax.scatter_max)):
        want = np.asarray(function(x, indices, update, there, mode="clip"))
        y = bc.scatter_slices(x, indices, update, name, mode="clip", **said, **facts)
        np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    x, update = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((4, 5), (3, 2, 2)))
    indices = torch.tensor([[0, 1], [2, 2], [3, 3]])

    def gathered(x: Any) -> Any:
        return bc.gather_slices(x, indices, offset_dims=(1, 2), start_index_map=(0, 1), slice_sizes=(2, 2), mode="clip")

    def added(x: Any, update: Any) -> Any:
        axes: Any = {"update_window_dims": (1, 2), "scatter_dims_to_operand_dims": (0, 1)}
        return bc.scatter_slices(x, indices, update, "add", **axes)

    assert torch.autograd.gradcheck(gathered, (x,)) and torch.autograd.gradcheck(added, (x, update))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"slice_sizes": (2, 5)}, "slice_sizes must have a length for each axis"),
        ({"offset_dims": (1,)}, "offset_dims must have an axis"),
        ({"start_index_map": (0,)}, "must have an axis for each of the 2 numbers"),
        ({"collapsed_slice_dims": (0,)}, "slice_sizes must be 1 along collapsed_slice_dims"),
        ({"mode": "wrap"}, "mode must be one of"),
        ({"offset_dims": (2, 1)}, "ascending"),
    ],
)
def test_wrong_numbers(changed: Any, message: str) -> None:
    facts: dict[str, Any] = {"offset_dims": (1, 2), "start_index_map": (0, 1), "slice_sizes": (2, 2), **changed}
    with pytest.raises(InvalidProblemError, match=message):
        bc.gather_slices(np.zeros((3, 4)), np.zeros((2, 2), int), **facts)


def test_index_take() -> None:
    i, j = np.array([[0], [2]]), np.array([3, -1])
    np.testing.assert_array_equal(bc.index_take(X, (i, j), (0, 2)), X[i, :, j])


@pytest.mark.parametrize("trim", ["f", "b", "fb"])
@pytest.mark.parametrize("row", [[0, 0, 1, 0, 2, 0], [0, 0], [], [1, 0], [0, np.nan], [3]])
def test_zeros_trimmed(row: Any, trim: str) -> None:
    x = np.array(row, float)
    values, number = bc.trim_zeros(x, trim)
    want = np.trim_zeros(x, trim)
    assert int(number) == len(want) and len(values) == len(x)
    np.testing.assert_array_equal(values, np.pad(want, (0, len(x) - len(want))))


def test_zeros_trimmed_to_a_size() -> None:
    x = np.array([0, 0, 1, 0, 2, 0])
    for size, want in ((2, [1, 0]), (5, [1, 0, 2, 0, 0])):
        values, number = bc.trim_zeros(x, size=size)
        assert values.tolist() == want and int(number) == 3
    with pytest.raises(InvalidProblemError, match="trim"):
        bc.trim_zeros(x, "x")
