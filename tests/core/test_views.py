"""Views of a caller's arrays: each package's has the place, shape and strides that NumPy's has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baracuda_py.core import ElementKind
from baracuda_py.core.arrays import read
from baracuda_py.core.tensor import TensorRef
from baracuda_py.core.views import (
    broadcast,
    constant,
    diagonal,
    permuted,
    reshaped,
    transposed,
    with_axis,
    without_axes,
)  # fmt: skip

BASE = np.arange(4 * 6 * 6 * 2, dtype=np.float32).reshape(4, 6, 6, 2)


def _cupy(x: np.ndarray) -> Any:
    """A CuPy array over the host's memory: it is never read."""
    cupy = pytest.importorskip("cupy")
    low = BASE.ctypes.data
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(low, BASE.nbytes, None, 0), x.ctypes.data - low)
    return cupy.ndarray(x.shape, x.dtype, memory, x.strides)


def _torch(x: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(x)


def _ref(x: np.ndarray) -> TensorRef:
    strides = tuple(s // x.itemsize for s in x.strides)
    return TensorRef(x.ctypes.data, x.shape, strides, ElementKind.F32, device=-1)


PACKAGES = {"cupy": _cupy, "torch": _torch, "ref": _ref, "numpy": lambda x: x}
LAYOUTS = {
    "dense": BASE, "turned": BASE.transpose(3, 1, 0, 2), "backwards": BASE[::-1, :, ::-1], "second": BASE[:, ::2, ::2],
    "padded": BASE[:, :5, :5, 1:], "one": BASE[:, :1, :1], "nothing": BASE[:, :0, :0],
}  # fmt: skip
MADE: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "permuted": (lambda x: permuted(x, (2, 0, 3, 1), "x"), lambda x: x.transpose(2, 0, 3, 1)),
    "with_axis": (lambda x: with_axis(x, -2, "x"), lambda x: x[:, :, :, None]),
    "transposed": (lambda x: transposed(x, "x"), lambda x: x.swapaxes(-1, -2)),
    "diagonal": (lambda x: diagonal(x, 1, 2, "x"), lambda x: np.einsum("aiib->aib", x)),
    "broadcast": (lambda x: broadcast(x, (3, *x.shape), "x"), lambda x: np.broadcast_to(x, (3, *x.shape))),
    "without_axes": (lambda x: without_axes(with_axis(x, 1, "x"), [1], "x"), lambda x: x),
}


def same(got: Any, want: np.ndarray) -> bool:
    found = read(got, "got")
    strides = tuple(s // want.itemsize for s in want.strides)
    steps = [(a, b) for n, a, b in zip(want.shape, found.strides, strides, strict=True) if n > 1]
    place = found.ptr == want.ctypes.data or not want.size
    return tuple(found.shape) == want.shape and place and all(a == b for a, b in steps if want.size)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("made", MADE)
def test_a_view_is_numpys(made: str, package: str, layout: str) -> None:
    x, (ours, theirs) = LAYOUTS[layout], MADE[made]
    if made == "diagonal" and x.shape[1] != x.shape[2]:
        x = x.transpose(0, 1, 3, 2) if x.shape[1] == x.shape[3] else x[:, :4, :4]
    if package == "torch" and any(s < 0 for s in x.strides):
        pytest.skip("torch has no negative strides")
    assert same(ours(PACKAGES[package](x)), theirs(x))


SHAPES = [(24, 12), (4, 36, 2), (4, 6, 12), (24, 6, 2), (2, 2, 6, 6, 2), (288,), (4, 6, 1, 6, 2), (4, -1), (0,), (7,)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("shape", SHAPES)
def test_another_shape_is_a_view_or_none(shape: Any, package: str, layout: str) -> None:
    x = LAYOUTS[layout]
    if np.prod(shape) != x.size or (package == "torch" and any(s < 0 for s in x.strides)):
        return
    got = reshaped(PACKAGES[package](x), shape, "x")
    try:
        want = np.reshape(x, shape, copy=False)
    except ValueError:
        assert got is None
        return
    assert same(got, want)


def test_no_axis_is_left() -> None:
    x = np.ones((1, 1))
    assert isinstance(without_axes(x, [0, 1], "x"), np.ndarray) and without_axes(x, [0, 1], "x").shape == ()


def test_jax_has_the_values() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(BASE)
    for made in ("permuted", "with_axis", "transposed", "diagonal", "without_axes"):
        ours, theirs = MADE[made]
        assert np.array_equal(ours(x), theirs(BASE))
    assert np.array_equal(reshaped(x, (24, 12), "x"), BASE.reshape(24, 12))


def test_a_constant_has_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, requires_grad=True)
    assert not constant(x).requires_grad and constant(x).data_ptr() == x.data_ptr() and constant(BASE) is BASE
    jax = pytest.importorskip("jax")
    assert float(jax.grad(lambda a: (constant(a) * a).sum())(jax.numpy.float32(3.0))) == 3.0
