"""Reading arrays: pointer, shape, strides, element and device of every package at hand, and what cannot be read."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core import ElementKind, TensorRef, arrays
from baracuda_py.core.arrays import read, to_numpy
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.interop.packages import package_name
from baracuda_py.testing import pointer_view


def address(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "uint64",
        "bool",
        "complex64",
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
    ],
)
@pytest.mark.parametrize("wrap", [lambda a: a, pointer_view], ids=["numpy", "cupy"])
def test_every_dtype_and_stride(dtype: Any, wrap: Any) -> None:
    base = np.zeros((4, 6), dtype)
    for view in (
        base,
        base[1:, ::2],
        base[::-1, 1:],
        base.T,
        base[:, 0],
        base[2, 3],
        base[:0],
        np.broadcast_to(base[:1], (3, 6)),
    ):
        if not isinstance(view, np.ndarray):
            view = base[2:3, 3:4].reshape(())
        got = read(wrap(view))
        assert (got.ptr, got.shape) == (address(view), view.shape)
        assert got.strides == tuple(s // view.itemsize for s in view.strides)
        assert got.element is ElementKind.of(view.dtype)
        assert got.device == (-1 if wrap(view) is view else 0)


def test_read_only_arrays_say_so() -> None:
    a = np.zeros(3, np.float32)
    assert not read(a).readonly
    a.flags.writeable = False
    assert read(a).readonly


def test_a_stride_that_splits_elements_is_refused_by_name() -> None:
    record = np.zeros(4, np.dtype([("a", np.float32), ("b", np.int16)]))
    with pytest.raises(UnsupportedError, match="x: a stride of 6 bytes is not a multiple of the 4-byte element"):
        read(record["a"], "x")
    assert read(record["a"][:1]).shape == (1,)  # a stride nobody takes


@pytest.mark.parametrize("thing", [1.0, [1, 2], None, "abc", object(), np.float32(1)])
def test_what_is_no_array_is_refused_by_name(thing: Any) -> None:
    with pytest.raises(InvalidProblemError, match=r"x must be an array \(CuPy, torch, JAX, NumPy, TensorRef …\), got"):
        read(thing, "x")


@pytest.mark.parametrize("dtype", [">f4", "U3", "datetime64[s]", object])
def test_dtypes_nobody_computes_with_are_refused_by_name(dtype: Any) -> None:
    with pytest.raises(UnsupportedError, match="x: no element kind"):
        read(np.zeros(2, dtype), "x")


class Exporter:
    """Another package's device array: the CUDA array interface only."""

    def __init__(
        self, array: np.ndarray, strides: tuple[int, ...] | None = None, readonly: bool = False, **more: Any
    ) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (address(array), readonly), "version": 3,
            "strides": strides, **more,
        }  # fmt: skip


def test_the_cuda_array_interface_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_device_of", lambda pointer: 3)
    base = np.zeros((2, 4), np.float32)
    exporter = Exporter(base, readonly=True)
    got = read(exporter)
    assert (got.ptr, got.shape, got.strides, got.device, got.readonly) == (address(base), (2, 4), (4, 1), 3, True)
    assert got.owner is exporter
    assert read(Exporter(base, strides=(-16, 8))).strides == (-4, 2)


def test_a_producer_on_another_stream_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(arrays, "_device_of", lambda pointer: 0)
    monkeypatch.setattr(arrays, "_order_after", lambda *given: seen.append(given))
    read(Exporter(np.zeros(2, np.float32), stream=5))
    read(Exporter(np.zeros(2, np.float32)))
    assert seen == [(5, 0), (None, 0)]


def test_package_names() -> None:
    assert package_name(np.ndarray) == "numpy" and package_name(TensorRef) == "baracuda_py"
    assert package_name(type(pointer_view(np.zeros(1)))) == "cupy"
    jax = type("ArrayImpl", (), {"__module__": "jaxlib._jax"})
    assert package_name(jax) == "jax"


def test_tensor_refs_pass_through() -> None:
    base = np.arange(6, dtype=np.float32)
    ref = TensorRef(address(base), (2, 3), (1, 2), "float32", 24, -1)
    got = read(ref)
    assert (got.ptr, got.shape, got.strides, got.element, got.device) == (
        address(base),
        (2, 3),
        (1, 2),
        ElementKind.F32,
        -1,
    )
    assert to_numpy(ref).tolist() == [[0, 2, 4], [1, 3, 5]] and to_numpy(base) is base
