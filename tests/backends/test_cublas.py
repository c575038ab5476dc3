"""cuBLASLt without a GPU: what it is told, against a recording library; and with one: the products themselves."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from baracuda_py.backends import _library, cublas
from baracuda_py.backends.cublas import Gemm, GemmProblem, Matrix, candidates, describe, prepare
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError, WorkspaceTooSmallError
from baracuda_py.jit import launch

DEVICE = fake_device(9.0)
F32 = Matrix("float32", False, 8)
KINDS = ("MatrixLayout", "MatmulDesc", "MatmulPreference")
ATTRIBUTE = {  # number -> (name, C type), read from cublasLt.h
    "MatrixLayout": {5: ("batch", ctypes.c_int32), 6: ("batch_stride", ctypes.c_int64)},
    "MatmulDesc": {2: ("pointer_mode", ctypes.c_int32), 3: ("op_a", ctypes.c_int32), 4: ("op_b", ctypes.c_int32)},
    "MatmulPreference": {
        1: ("workspace", ctypes.c_uint64),
        3: ("reduction", ctypes.c_uint32),
        5: ("align_a", ctypes.c_uint32),
        6: ("align_b", ctypes.c_uint32),
        7: ("align_c", ctypes.c_uint32),
        8: ("align_d", ctypes.c_uint32),
    },
}


class FakeCublas:
    """Records descriptors, attributes and calls; answers the heuristic with `offers` (workspace bytes of each)."""

    def __init__(self) -> None:
        self.numbers = itertools.count(0x1000)
        self.live: dict[int, dict[str, Any]] = {}
        self.calls: list[SimpleNamespace] = []
        self.handles: list[int] = []
        self.offers = [4096]
        self.heuristic_status = self.matmul_status = 0
        for kind in KINDS:
            setattr(self, f"cublasLt{kind}Create", self._creator(kind))
            setattr(self, f"cublasLt{kind}SetAttribute", self._setter(kind))
            setattr(self, f"cublasLt{kind}Destroy", lambda pointer: int(self.live.pop(pointer.value) is None))

    def _creator(self, kind: str) -> Any:
        def create(out: Any, *args: int) -> int:
            out._obj.value = next(self.numbers)
            self.live[out._obj.value] = {"kind": kind, "args": args}
            return 0

        return create

    def _setter(self, kind: str) -> Any:
        def set_attribute(pointer: Any, attribute: int, value: Any, size: int) -> int:
            name, ctype = ATTRIBUTE[kind][attribute]
            assert type(value._obj) is ctype and size == ctypes.sizeof(ctype)
            self.live[pointer.value][name] = value._obj.value
            return 0

        return set_attribute

    def cublasLtCreate(self, out: Any) -> int:
        out._obj.value = next(self.numbers)
        self.handles.append(out._obj.value)
        return 0

    def cublasLtGetStatusName(self, status: int) -> bytes:
        return {13: b"CUBLAS_STATUS_EXECUTION_FAILED", 15: b"CUBLAS_STATUS_NOT_SUPPORTED"}.get(status, b"CUBLAS_?")

    def cublasLtMatmulAlgoGetHeuristic(self, *args: Any) -> int:
        *_, preference, count, results, found = args
        self.preference = dict(self.live[preference.value])
        offers = self.offers[:count]
        for i, workspace in enumerate(offers):
            results._obj[i].workspace_size, results._obj[i].algo[0] = workspace, 100 + i
        found._obj.value = len(offers)
        return self.heuristic_status

    def cublasLtMatmul(self, *args: Any) -> int:
        names = [
            "handle",
            "op",
            "alpha",
            "a",
            "a_layout",
            "b",
            "b_layout",
            "beta",
            "c",
            "c_layout",
            "d",
            "d_layout",
            "algo",
            "workspace",
            "nbytes",
            "stream",
        ]
        call = SimpleNamespace(**dict(zip(names, args, strict=True)))
        for name in ("op", "a_layout", "b_layout", "c_layout", "d_layout"):
            setattr(call, name, dict(self.live[getattr(call, name).value]))
        call.algo = ctypes.c_uint64.from_address(call.algo.value).value
        self.calls.append(call)
        return self.matmul_status


class FakeRuntime:
    """The part of a CUDA runtime that a library needs: which device is current."""

    def __init__(self) -> None:
        self.device = 7
        self.visited: list[int] = []

    def current_device(self) -> int:
        return self.device

    def use_device(self, ordinal: int) -> None:
        self.device = ordinal
        self.visited.append(ordinal)


def _install(lib: FakeCublas, patch: pytest.MonkeyPatch) -> FakeRuntime:
    runtime = FakeRuntime()
    patch.setattr(cublas, "_cublas", lambda: lib)
    patch.setattr(cublas, "_free_handles", {})
    patch.setattr(cublas, "_leases", cublas._Leases())
    patch.setattr(launch, "_fake", runtime)
    return runtime


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    fake = FakeCublas()
    fake.runtime = _install(fake, monkeypatch)  # type: ignore[attr-defined]
    return fake


def square(**change: Any) -> GemmProblem:
    return GemmProblem(**({"m": 8, "n": 8, "k": 8, "a": F32, "b": F32, "d": F32} | change))


def run(gemm: Gemm, **change: Any) -> None:
    args = {"a": 1 << 12, "b": 2 << 12, "c": 0, "d": 3 << 12, "alpha": 1.0, "beta": 0.0, "workspace": 4 << 12}
    gemm.run(**(args | {"workspace_bytes": gemm.workspace_size, "stream": 5} | change))


# --- describe


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """A 2-D or 3-D view of a 1-D array: sliced, transposed, reversed, broadcast."""
    shape = draw(st.lists(st.integers(0, 4), min_size=2, max_size=3))
    array = np.arange(int(np.prod([2 * n + 1 for n in shape])), dtype=np.float32).reshape([2 * n + 1 for n in shape])
    view = array[tuple(slice(draw(st.integers(0, 1)), None, draw(st.sampled_from([1, 1, 1, 2, -1]))) for _ in shape)]
    view = view[tuple(slice(0, n) for n in shape)]
    view = view.transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        axis = draw(st.integers(0, view.ndim - 1))
        keep = view[tuple(slice(0, 1) if i == axis else slice(None) for i in range(view.ndim))]
        view = np.broadcast_to(keep, view.shape) if keep.shape[axis] else view
    return view


def _elements(view: np.ndarray) -> tuple[int, ...]:
    return tuple(s // view.itemsize for s in view.strides)


@given(views(), st.sampled_from([None, False, True]))
@settings(max_examples=400, deadline=None)
@example(np.zeros((1, 1), np.float32), None)
def test_describe_names_exactly_the_views_it_can(view: np.ndarray, trans: bool | None) -> None:
    rows, cols = view.shape[-2:]
    found = describe(view.shape, _elements(view), trans)
    readings = []
    for reading, inner, outer in ((False, -1, -2), (True, -2, -1)):
        n, step = view.shape[inner], _elements(view)[inner]
        pitch = _elements(view)[outer]
        if (n <= 1 or step == 1) and (view.shape[outer] <= 1 or pitch >= max(n, 1)) and trans in (None, reading):
            readings.append(reading)
    forward = view.ndim == 2 or view.shape[0] <= 1 or view.strides[0] >= 0
    assert (found is not None) == bool(readings and forward)
    if found is None:
        return
    reading, ld, batch_stride = found
    assert reading in readings and ld >= max(1, rows if reading else cols)
    if view.size:
        strides = (batch_stride, *((1, ld) if reading else (ld, 1)))
        rebuilt = as_strided(view, (*view.shape[:-2], rows, cols), [s * 4 for s in strides[-view.ndim :]])
        assert np.array_equal(rebuilt, view)


def test_describe_reads_a_vector_along_its_contiguous_axis_unless_told() -> None:
    assert describe((5, 1), (1, 1)) == (True, 5, 0)
    assert describe((5, 1), (1, 1), trans=False) == (False, 1, 0)
    assert describe((5, 1), (3, 99)) == (False, 3, 0)
    assert describe((1, 5), (-7, 1)) == (False, 5, 0)


@pytest.mark.parametrize(
    "strides",
    [(0, 1), (16, 2), (-8, 1), (3, 1), (1, 1)],
    ids=["repeated", "stepped", "reversed", "overlapping", "hankel"],
)
def test_describe_refuses(strides: tuple[int, int]) -> None:
    assert describe((4, 8), strides) is None


# --- what the library is told


@pytest.mark.parametrize("trans_d", [False, True])
def test_descriptors_and_call(lib: FakeCublas, trans_d: bool) -> None:
    problem = GemmProblem(
        m=2, n=3, k=5, batch=4, compute="tf32", max_workspace=1 << 20,
        a=Matrix("float16", False, 6, 20, alignment=2), b=Matrix("bfloat16", True, 7, 0, alignment=4),
        c=Matrix("float32", trans_d, 9, 30, alignment=8), d=Matrix("float32", trans_d, 10, 40))  # fmt: skip
    gemm = prepare(problem, DEVICE)
    run(gemm, a=1, b=2, c=3, d=4, alpha=0.5, beta=0.25)
    (call,) = lib.calls
    a = {"kind": "MatrixLayout", "args": (2, 5, 2, 6), "batch": 4, "batch_stride": 20}
    b = {"kind": "MatrixLayout", "args": (14, 5, 3, 7), "batch": 4, "batch_stride": 0}
    inner, outer = (2, 3) if trans_d else (3, 2)
    assert call.c_layout == {"kind": "MatrixLayout", "args": (0, inner, outer, 9), "batch": 4, "batch_stride": 30}
    assert call.d_layout == {"kind": "MatrixLayout", "args": (0, inner, outer, 10), "batch": 4, "batch_stride": 40}
    assert (call.a, call.a_layout, call.b, call.b_layout) == ((1, a, 2, b) if trans_d else (2, b, 1, a))
    ops = {"op_a": 1, "op_b": 0}  # row-major A under a column-major D is transposed; so is B, stored by columns, else
    assert call.op == {"kind": "MatmulDesc", "args": (77, 0), "pointer_mode": 0} | ops
    align = {"align_a": 2, "align_b": 4} if trans_d else {"align_a": 4, "align_b": 2}
    want = {"kind": "MatmulPreference", "args": (), "workspace": 1 << 20, "reduction": 2, "align_c": 8, "align_d": 16}
    assert lib.preference == want | align
    assert (call.alpha._obj.value, call.beta._obj.value, type(call.alpha._obj)) == (0.5, 0.25, ctypes.c_float)
    assert (call.c, call.d, call.workspace, call.nbytes, call.stream, call.algo) == (3, 4, 4 << 12, 4096, 5, 100)


def _column_major(array: np.ndarray, layout: dict[str, Any]) -> np.ndarray:
    """What cuBLASLt sees at an array's first element: (batch, rows, cols), columns `ld` apart."""
    _, rows, cols, ld = layout["args"]
    strides = [s * array.itemsize for s in (layout["batch_stride"], 1, ld)]
    return as_strided(array, (layout["batch"], rows, cols), strides)


def _strided(rows: int, cols: int, batch: int, trans: bool, pad: int, broadcast: bool) -> tuple[np.ndarray, Matrix]:
    shape = (batch, cols, rows + pad) if trans else (batch, rows, cols + pad)
    data = np.random.default_rng(rows * 31 + cols).integers(-4, 5, shape).astype(np.float32)
    view = data.transpose(0, 2, 1)[:, :rows] if trans else data[:, :, :cols]
    view = np.broadcast_to(view[:1], view.shape) if broadcast else view
    found = describe(view.shape, _elements(view), trans)
    assert found is not None
    return view, Matrix("float32", *found)


@given(st.tuples(*[st.integers(1, 5)] * 4), st.tuples(*[st.booleans()] * 3), st.tuples(*[st.integers(0, 3)] * 3),
       st.tuples(st.booleans(), st.booleans()), st.booleans())  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_the_column_major_problem_is_the_row_major_one(
    sizes: Any, trans: Any, pads: Any, broadcasts: Any, in_place: bool
) -> None:
    m, n, k, batch = sizes
    a, a_matrix = _strided(m, k, batch, trans[0], pads[0], broadcasts[0])
    b, b_matrix = _strided(k, n, batch, trans[1], pads[1], broadcasts[1])
    c, c_matrix = _strided(m, n, batch, trans[2], 1, False)
    d, d_matrix = _strided(m, n, batch, trans[2], pads[2], False)
    with pytest.MonkeyPatch.context() as patch:
        lib = FakeCublas()
        _install(lib, patch)
        gemm = prepare(GemmProblem(m=m, n=n, k=k, batch=batch, a=a_matrix, b=b_matrix, d=d_matrix,
                                   c=None if in_place else c_matrix), DEVICE)  # fmt: skip
        arrays = {x.ctypes.data: x for x in (a, b, c, d)}
        run(gemm, a=a.ctypes.data, b=b.ctypes.data, c=0 if in_place else c.ctypes.data, d=d.ctypes.data)
    want = a @ b + 2 * (d if in_place else c)
    (call,) = lib.calls
    x, y, z, out = (_column_major(arrays[getattr(call, i)], getattr(call, f"{i}_layout")) for i in "abcd")
    op = [(lambda v: v.transpose(0, 2, 1)) if call.op[f"op_{i}"] else (lambda v: v) for i in "ab"]
    out[...] = op[0](x) @ op[1](y) + 2 * z
    assert np.array_equal(d, want)


@pytest.mark.parametrize(
    "compute, number, scale, ctype",
    [("float32", 68, 0, ctypes.c_float), ("tf32", 77, 0, ctypes.c_float), ("float64", 70, 1, ctypes.c_double)],
)
def test_compute_types_and_scalars(lib: FakeCublas, compute: str, number: int, scale: int, ctype: Any) -> None:
    run(prepare(square(compute=compute), DEVICE), alpha=0.1)
    run(prepare(square(compute=compute, device_scalars=True), DEVICE), alpha=0x500, beta=0x504)
    host, device = lib.calls
    assert host.op["args"] == device.op["args"] == (number, scale)
    assert (host.op["pointer_mode"], device.op["pointer_mode"]) == (0, 1)
    assert type(host.alpha._obj) is ctype and host.alpha._obj.value == ctype(0.1).value
    assert (device.alpha.value, device.beta.value) == (0x500, 0x504)


def test_c_is_d_where_there_is_none(lib: FakeCublas) -> None:
    run(prepare(square(), DEVICE), beta=1.0)
    (call,) = lib.calls
    assert call.c == call.d and call.c_layout == call.d_layout


def test_candidates_keep_the_order_and_their_own_algorithm(lib: FakeCublas) -> None:
    lib.offers = [64, 0, 128]
    gemms = candidates(square(), DEVICE, 3)
    assert [g.workspace_size for g in gemms] == [64, 0, 128]
    for gemm in gemms:
        run(gemm)
    assert [call.algo for call in lib.calls] == [100, 101, 102]


def test_descriptors_live_as_long_as_a_gemm_that_uses_them(lib: FakeCublas) -> None:
    lib.offers = [0, 0]
    first, second = candidates(square(), DEVICE, 2)
    gc.collect()
    held = len(lib.live)
    del first
    run(second)
    assert held == len(lib.live) == 5  # the operation and four layouts; the preference is gone
    del second
    gc.collect()
    assert not lib.live


# --- handles


def test_one_handle_a_thread_and_device_made_with_the_device_current(lib: FakeCublas) -> None:
    other = fake_device(9.0, ordinal=3)
    gemm = prepare(square(), DEVICE)
    run(gemm)
    run(gemm)
    assert len(lib.handles) == 1
    prepare(square(), other)
    assert len(lib.handles) == 2 and 3 in lib.runtime.visited and lib.runtime.device == 7  # type: ignore[attr-defined]
    ready, done = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        ready.wait()
        run(gemm)
        done.wait()  # both threads live at once, so each holds its own

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    done.wait()
    for thread in threads:
        thread.join()
    assert len(lib.handles) == 4
    assert len({call.handle.value for call in lib.calls}) == 3
    late = threading.Thread(target=run, args=(gemm,))
    late.start()
    late.join()
    assert len(lib.handles) == 4, "a thread takes over the handle of one that ended"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own_handle(lib: FakeCublas) -> None:
    gemm = prepare(square(), DEVICE)
    done = threading.Thread(target=run, args=(gemm,))
    done.start()
    done.join()  # leaves a free handle behind, which the child must not take either
    child = os.fork()
    if not child:
        run(gemm)
        mine = lib.calls[-1].handle.value
        os._exit(0 if len(lib.handles) == 3 and mine == lib.handles[2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(gemm)
    assert lib.calls[-1].handle.value == lib.handles[0]


# --- errors


def test_workspace_too_small(lib: FakeCublas) -> None:
    gemm = prepare(square(), DEVICE)
    with pytest.raises(WorkspaceTooSmallError) as info:
        run(gemm, workspace_bytes=4095)
    assert (info.value.needed, info.value.got) == (4096, 4095) and not lib.calls


@pytest.mark.parametrize("status, offers", [(0, []), (7, []), (15, [])])
def test_no_algorithm_is_unsupported(lib: FakeCublas, status: int, offers: list[int]) -> None:
    lib.heuristic_status, lib.offers = status, offers
    with pytest.raises(UnsupportedError, match=r"no algorithm.*m=8"):
        prepare(square(), DEVICE)


def test_statuses_are_typed_errors(lib: FakeCublas) -> None:
    gemm = prepare(square(), DEVICE)
    lib.matmul_status = 13
    with pytest.raises(_library.LibraryError, match="cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED") as info:
        run(gemm)
    assert info.value.status == "CUBLAS_STATUS_EXECUTION_FAILED"
    lib.matmul_status = 15
    with pytest.raises(UnsupportedError, match="NOT_SUPPORTED"):
        run(gemm)


@pytest.mark.parametrize(
    "change",
    [
        {"k": 0},
        {"m": 0},
        {"batch": 0},
        {"batch": 1 << 31, "d": Matrix("float32", False, 8, 64)},
        {"c": Matrix("float16", False, 8)},
        {"c": Matrix("float32", True, 8)},
    ],
)
def test_unsupported(lib: FakeCublas, change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="cuBLAS"):
        prepare(square(**change), DEVICE)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"compute": "float16"}, "compute must be one of float32"),
        ({"a": Matrix("int8", False, 8)}, "a.element must be one of"),
        ({"k": 9}, "a.ld must be at least 9, got 8"),
        ({"b": Matrix("float32", True, 7)}, "b.ld must be at least 8, got 7"),
        ({"batch": 2}, "d.batch_stride must be at least 1, got 0"),
        ({"c": Matrix("float32", False, 8, -1)}, "c.batch_stride must be at least 0, got -1"),
        ({"a": Matrix("float32", False, 8, 0, 12)}, "a.alignment must be a power of two, got 12"),
    ],
)
def test_invalid(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        square(**change)


# --- the library itself


@pytest.fixture
def fresh_search() -> Iterator[None]:
    _library._find.cache_clear()
    yield
    _library._find.cache_clear()


def _located(monkeypatch: pytest.MonkeyPatch, path: str | Exception, major: int | None) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def find(name: str) -> SimpleNamespace:
        if isinstance(path, Exception):
            raise path
        return SimpleNamespace(abs_path=path)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", find)
    monkeypatch.setattr(_library, "cupy_major", lambda: major)


@pytest.mark.parametrize(
    "path, major, reason",
    [
        ("/opt/x/libcublasLt.so.13", 13, ""),
        ("/opt/x/libcublasLt.so.12", None, ""),
        ("/opt/x/libcublasLt.so.12", 13, r'CUDA 13, but .*so.12 is of CUDA 12; install it with: pip .*\[cu13\]"'),
        (
            RuntimeError("No such file\nmore"),
            12,
            r'cublasLt was not found \(No such file\); .*pip install ".*\[cu12\]"',
        ),
    ],
)
@pytest.mark.usefixtures("fresh_search")
def test_availability(monkeypatch: pytest.MonkeyPatch, path: Any, major: int | None, reason: str) -> None:
    _located(monkeypatch, path, major)
    assert cublas.available() == (not reason)
    assert bool(cublas.unavailable_reason()) == bool(reason)
    if reason:
        with pytest.raises(UnsupportedError, match=reason):
            _library.load("cublasLt", {})


def test_the_real_library_takes_every_attribute() -> None:
    """Descriptors are host memory: numbers, sizes and types are checked by the library, with no GPU."""
    if not cublas.available():
        pytest.skip(f"not checked: {cublas.unavailable_reason()} Then: pytest {__file__}")
    real = cublas._cublas()
    problem = GemmProblem(m=3, n=5, k=7, batch=2, a=Matrix("float16", False, 8, 24), b=Matrix("bfloat16", True, 9),
                          d=Matrix("float64", False, 6, 18), compute="float64", device_scalars=True)  # fmt: skip
    op, layouts, preference = cublas._describe_to(real, problem)

    def read(descriptor: Any, attribute: int, ctype: Any) -> int:
        value, written = ctype(), ctypes.c_size_t()
        get = getattr(real, f"cublasLt{descriptor._kind}GetAttribute")
        size = ctypes.c_size_t(ctypes.sizeof(value))
        assert get(descriptor.pointer, attribute, ctypes.byref(value), size, ctypes.byref(written)) == 0
        return int(value.value)

    layout = [(0, ctypes.c_uint32), (2, ctypes.c_uint64), (3, ctypes.c_uint64), (4, ctypes.c_int64)]
    layout += [(5, ctypes.c_int32), (6, ctypes.c_int64)]
    assert [read(layouts["a"], *key) for key in layout] == [2, 7, 3, 8, 2, 24]
    assert [read(layouts["b"], *key) for key in layout] == [14, 7, 5, 9, 2, 0]
    assert [read(layouts["d"], *key) for key in layout] == [1, 5, 3, 6, 2, 18]
    assert [read(op, i, ctypes.c_int32) for i in range(5)] == [70, 1, 1, 1, 0]
    assert [read(preference, i, ctypes.c_uint32) for i in (3, 5, 6, 7, 8)] == [2, 16, 16, 16, 16]
    assert read(preference, 1, ctypes.c_uint64) == 32 << 20
    assert cublas._status_name(real, 15) == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert ctypes.sizeof(cublas._Heuristic) == 96
