"""DLPack's exchange API: arrays of a type that has the table, without a capsule; and streams by their protocol."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import arrays, exchange
from baracuda_py.core.arrays import read
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.exchange import Managed, exchange_of
from baracuda_py.core.intake import stream_pointer

_CODES = {element: code for code, element in exchange._ELEMENTS.items()}
_capsule = ctypes.pythonapi["PyCapsule_New"]  # a function of its own: JAX declares other arguments of the shared one
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_EXPORT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
_DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def producer(major: int = 1, previous: Any = None, export: bool = True) -> type:
    """An array type with a table of its own, made of what a NumPy array is."""
    alive: dict[int, Any] = {}

    class Array:
        """No protocol but the exchange API."""

        freed = 0
        asked: list[tuple[int, int]] = []  # noqa: RUF012

        def __init__(
            self, array: np.ndarray, device: tuple[int, int] = (1, 0), dense: bool = False, **more: Any
        ) -> None:
            self.array, self.device, self.dense, self.more = array, device, dense, more

    @_DELETER
    def give_back(at: Any) -> None:
        Array.freed += 1
        alive.pop(at)

    @_EXPORT
    def exported(array: Any, out: Any) -> int:
        if array.more.get("fails"):
            return -1
        made, x = Managed(), array.array
        kind = ElementKind.of(x.dtype)
        t = made.tensor
        offset = array.more.get("offset", 0)
        t.data, t.byte_offset = x.ctypes.data - offset, offset
        (t.device_type, t.device_id), t.ndim = array.device, x.ndim
        t.code, t.bits = array.more.get("code", _CODES[kind])
        t.lanes = array.more.get("lanes", 1)
        shape = (ctypes.c_int64 * x.ndim)(*x.shape)
        strides = (ctypes.c_int64 * x.ndim)(*(s // x.itemsize for s in x.strides))
        t.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        if not array.dense:
            t.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        made.flags, made.version.major = int(not x.flags.writeable), 1
        made.deleter = ctypes.cast(give_back, ctypes.c_void_p)
        at = ctypes.addressof(made)
        alive[at] = (made, shape, strides, x)
        out[0] = at
        return 0

    @_STREAM
    def current(device_type: int, device_id: int, out: Any) -> int:
        Array.asked.append((device_type, device_id))
        out[0] = 77
        return 0

    table = exchange._Table()
    table.header.version.major, table.header.previous = major, previous
    table.export = ctypes.cast(exported, ctypes.c_void_p) if export else None
    table.stream = ctypes.cast(current, ctypes.c_void_p)
    Array.table, Array.kept, Array.alive = table, (give_back, exported, current), alive  # type: ignore[attr-defined]
    Array.__dlpack_c_exchange_api__ = _capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)  # type: ignore[attr-defined]
    return Array


@pytest.mark.parametrize("element", [str(e) for e in _CODES])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[::2, ::-1], lambda a: a[1:, 3]])
def test_every_element_and_layout(element: str, view: Any) -> None:
    kind = ElementKind.of(element)
    x = view(np.arange(24).reshape(4, 6).astype(kind.dtype))
    got = read(producer()(x))
    assert (got.ptr, got.shape, got.element, got.device, got.readonly) == (x.ctypes.data, x.shape, kind, -1, False)
    assert got.strides == tuple(s // x.itemsize for s in x.strides)
    assert got.owner.dtype == x.dtype and got.owner.tobytes() == x.tobytes() and got.owner.strides == x.strides


def test_functions_read_and_write_such_arrays() -> None:
    made = producer()
    x, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    assert np.array_equal(np.asarray(bc.silu(made(x))), bc.silu(x))
    bc.silu(made(x), out=made(out))
    assert np.array_equal(out, bc.silu(x))
    plan = bc.SoftmaxPlan.select(bc.SoftmaxDescriptor(kind="softmax", shape=(2, 3), element="float32"), device="cpu")
    plan(x=made(x), y=made(out))
    assert np.array_equal(out, bc.softmax(x))


def test_memory_is_kept_and_given_back() -> None:
    made = producer()
    got = read(made(np.ones(3)))
    assert made.freed == 0 and len(made.alive) == 1  # type: ignore[attr-defined]
    held = got.owner[1:]
    del got
    gc.collect()
    assert made.freed == 0 and held.sum() == 2  # type: ignore[attr-defined]
    del held
    gc.collect()
    assert made.freed == 1 and not made.alive  # type: ignore[attr-defined]


def test_read_only_memory_is_no_output() -> None:
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    made = producer()
    assert read(made(x)).readonly
    with pytest.raises(InvalidProblemError, match="y is read-only"):
        bc.silu(np.ones(3, np.float32), out=made(x))


def test_dense_arrays_and_offsets() -> None:
    x = np.arange(6.0).reshape(2, 3)
    got = read(producer()(x, dense=True, offset=64))
    assert got.strides == (3, 1) and got.ptr == x.ctypes.data


def test_a_device_array_orders_our_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(arrays, "_order_after", lambda *given: waited.append(given))
    made = producer()
    got = read(made(np.ones(3), device=(2, 1)))
    assert got.device == 1 and waited == [(77, 1)] and made.asked == [(2, 1)]  # type: ignore[attr-defined]
    assert read(made(np.ones(3), device=(13, 0))).device == 0
    read(made(np.ones(3), device=(3, 0)))
    assert len(waited) == 2, "pinned memory of the host has no stream"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fails": True}, "x: a Array was not exported through DLPack"),
        ({"code": (3, 64)}, r"no element kind for DLPack's data type \(code 3, 64 bits, 1 lanes\)"),
        ({"lanes": 4}, "4 lanes"),
        ({"device": (8, 0)}, "on a device of DLPack type 8"),
    ],
)
def test_what_is_refused(more: dict[str, Any], says: str) -> None:
    made = producer()
    with pytest.raises(UnsupportedError, match=says):
        read(made(np.ones(3), **more), "x")
    gc.collect()
    assert not made.alive  # type: ignore[attr-defined]


def test_versions() -> None:
    """A newer major version is followed to an older table, if it has one; without one the type is read otherwise."""
    old = producer()
    assert exchange_of(producer(2, ctypes.addressof(old.table))) is not None  # type: ignore[attr-defined]
    assert exchange_of(producer(2)) is None and exchange_of(producer(export=False)) is None
    assert exchange_of(np.ndarray) is None and exchange_of(int) is None

    class Fallback(producer(2)):  # type: ignore[misc]
        """Has `__dlpack__`, too."""

        def __dlpack__(self, **more: Any) -> Any:
            return self.array.__dlpack__(**more)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert read(Fallback(np.ones(3))).shape == (3,)


def test_torchs_table() -> None:
    """torch's own, over all that a tensor may be: the same as by its attributes."""
    torch = pytest.importorskip("torch")
    table = exchange_of(torch.Tensor)
    if table is None:
        pytest.skip("this torch has no exchange API")
    x = torch.arange(24.0).reshape(4, 6)
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.uint8, torch.bool, torch.complex64)
    for dtype in (*dtypes, torch.float8_e4m3fn, torch.float8_e5m2):
        for tensor in (x.to(dtype), x.to(dtype).T, x.to(dtype)[1:, ::2], x.to(dtype)[0, 0]):
            want, got = read(tensor), table.export(tensor)
            assert (got.ptr, got.shape, got.element) == (want.ptr, want.shape, want.element)
            assert got.strides is None or got.strides == want.strides or 1 in want.shape
            assert got.device == (1, 0) and got.stream is None and not got.readonly


# -- streams ----------------------------------------------------------------------------------------------------------


class Stream:
    """What cuda.core, Numba and others give."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


@pytest.mark.parametrize("pointer", [0, 1, 2, 2**63])
def test_streams_by_protocol(pointer: int) -> None:
    assert stream_pointer(Stream((0, pointer))) == pointer
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(bc.softmax(x, stream=Stream((0, pointer))), bc.softmax(x))


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((1, 5), UnsupportedError, "version 1 of the __cuda_stream__ protocol"),
        ((0, -1), InvalidProblemError, "stream must be an integer"),
        ((0, 2**64), InvalidProblemError, "stream must be an integer"),
        ((0, "5"), InvalidProblemError, "stream must be an integer"),
        (5, InvalidProblemError, "cannot be read"),
        ((0, 1, 2), InvalidProblemError, "cannot be read"),
    ],
)
def test_streams_that_are_none(answer: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        stream_pointer(Stream(answer))


def test_streams_of_numba() -> None:
    """Those of releases that have not the protocol yet are numbers by `int()`."""

    class Numba:
        def __int__(self) -> int:
            return 7

    with pytest.raises(InvalidProblemError, match="stream must be a CuPy or torch stream"):
        stream_pointer(Numba())
    Numba.__module__ = "numba.cuda.cudadrv.driver"
    assert stream_pointer(Numba()) == 7


def test_streams_of_packages() -> None:
    cupy = pytest.importorskip("cupy")
    assert stream_pointer(cupy.cuda.Stream.null) == 0
    assert stream_pointer(cupy.cuda.ExternalStream(64)) == 64
