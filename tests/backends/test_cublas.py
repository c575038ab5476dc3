"""cuBLASLt without a GPU: what it is told, against a recording library, and what it makes of a failure."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cublas import FakeCublas, install, run

from baracuda_py.backends import cublas, cusolver, library
from baracuda_py.backends.cublas import GemmProblem, Matrix, candidates, prepare
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import DeviceMismatchError, InvalidProblemError, UnsupportedError, WorkspaceTooSmallError

DEVICE = fake_device(9.0)
F32 = Matrix("float32", False, 8)


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    fake = FakeCublas()
    fake.runtime = install(fake, monkeypatch)  # type: ignore[attr-defined]
    return fake


def square(**change: Any) -> GemmProblem:
    return GemmProblem(**({"m": 8, "n": 8, "k": 8, "a": F32, "b": F32, "d": F32} | change))


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
    a = {"kind": "matrix_layout", "args": (2, 5, 2, 6), "batch": 4, "batch_stride": 20}
    b = {"kind": "matrix_layout", "args": (14, 5, 3, 7), "batch": 4, "batch_stride": 0}
    inner, outer = (2, 3) if trans_d else (3, 2)
    assert call.c_layout == {"kind": "matrix_layout", "args": (0, inner, outer, 9), "batch": 4, "batch_stride": 30}
    assert call.d_layout == {"kind": "matrix_layout", "args": (0, inner, outer, 10), "batch": 4, "batch_stride": 40}
    assert (call.a, call.a_layout, call.b, call.b_layout) == ((1, a, 2, b) if trans_d else (2, b, 1, a))
    ops = {"op_a": 1, "op_b": 0}  # row-major A under a column-major D is transposed; so is B, stored by columns, else
    assert call.op == {"kind": "matmul_desc", "args": (77, 0), "pointer_mode": 0} | ops
    align = {"align_a": 2, "align_b": 4} if trans_d else {"align_a": 4, "align_b": 2}
    want = {"kind": "matmul_preference", "args": (), "workspace": 1 << 20, "reduction": 2, "align_c": 8, "align_d": 16}
    assert lib.preference == want | align
    assert (call.alpha, call.beta) == (0.5, 0.25)
    assert (call.c, call.d, call.workspace, call.nbytes, call.stream, call.algo) == (3, 4, 4 << 12, 4096, 5, 100)


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
    assert host.alpha == ctype(0.1).value
    assert (device.alpha, device.beta) == (0x500, 0x504)


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


def test_an_offer_that_came_with_an_error_is_passed_over(lib: FakeCublas) -> None:
    lib.offers, lib.states[0] = [64, 128], 15
    (gemm,) = candidates(square(), DEVICE, 2)
    run(gemm)
    assert (gemm.workspace_size, lib.calls[0].algo) == (128, 101)


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


@pytest.mark.parametrize(
    ("activation", "beside", "number"),
    [
        ("none", ("bias",), 4),
        ("relu", (), 2),
        ("relu", ("bias",), 6),
        ("gelu_tanh", (), 32),
        ("gelu_tanh", ("bias",), 36),
    ],
)
def test_epilogues(lib: FakeCublas, activation: str, beside: tuple[str, ...], number: int) -> None:
    """A bias that is elsewhere in the next call is told the operation before it."""
    gemm = prepare(square(activation=activation, beside=beside), DEVICE)
    for place in (0x700, 0x900, 0x900):
        run(gemm, beside=(place,) if beside else ())
    assert [call.op["epilogue"] for call in lib.calls] == [number] * 3
    assert [call.op.get("bias") for call in lib.calls] == ([0x700, 0x900, 0x900] if beside else [None] * 3)


@pytest.mark.parametrize("lines", [False, True])
def test_scales_of_fp8_go_with_their_operand(lib: FakeCublas, lines: bool) -> None:
    """b is the library's first operand where D is row-major; an fp8 D has a C of 16 bits, which is not read."""
    a, b, d = (
        Matrix(e, trans, 16) for e, trans in (("float8_e4m3fn", False), ("float8_e5m2", True), ("float8_e4m3fn", False))
    )
    problem = GemmProblem(m=4, n=16, k=16, a=a, b=b, d=d, beside=("scale_a", "scale_b", "scale_d"), scaled_lines=lines)
    run(prepare(problem, DEVICE), beside=(1, 2, 3))
    (call,) = lib.calls
    assert (call.op["scale_a"], call.op["scale_b"], call.op["scale_d"]) == (2, 1, 3) and "epilogue" not in call.op
    assert (call.op.get("scale_a_mode"), call.op.get("scale_b_mode")) == ((3, 3) if lines else (None, None))
    assert (call.op["op_a"], call.op["op_b"]) == (1, 0)
    assert [layout["args"][0] for layout in (call.a_layout, call.b_layout, call.c_layout, call.d_layout)] == [
        29,
        28,
        14,
        28,
    ]


@pytest.mark.parametrize("trans", [False, True])
def test_an_fp8_result_has_a_c_elsewhere(lib: FakeCublas, trans: bool) -> None:
    """Which is A, not read, or what the caller says; the library refuses D's address, and none."""
    matrix = {name: Matrix("float8_e4m3fn", trans if name == "d" else name == "b", 48) for name in "abd"}
    gemm = prepare(GemmProblem(m=32, n=16, k=16, **matrix), DEVICE)
    run(gemm)
    run(gemm, c=5 << 12)
    assert [call.c for call in lib.calls] == [1 << 12, 5 << 12]
    inner, outer = (32, 16) if trans else (16, 32)
    for call in lib.calls:
        assert (call.c_layout["args"], call.d_layout["args"]) == ((14, inner, outer, inner), (28, inner, outer, 48))
    with pytest.raises(library.LibraryError, match="CUBLAS_STATUS_INVALID_VALUE"):
        run(gemm, c=3 << 12)


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
    assert len({call.handle for call in lib.calls}) == 3
    late = threading.Thread(target=run, args=(gemm,))
    late.start()
    late.join()
    assert len(lib.handles) == 4, "a thread takes over the handle of one that ended"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_takes_no_handle_of_its_parent(lib: FakeCublas) -> None:
    gemm = prepare(square(), DEVICE)
    done = threading.Thread(target=run, args=(gemm,))
    done.start()
    done.join()  # leaves a free handle behind, which the child must not take either
    child = os.fork()
    if not child:
        code = 1
        try:
            run(gemm)
        except DeviceMismatchError:  # CUDA does not work in a forked child, and it is told so
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(gemm)
    assert lib.calls[-1].handle == lib.handles[0]


# --- the choice


@pytest.mark.parametrize(
    ("change", "cc", "waves", "taken"),
    [
        ({}, 9.0, (15.5, 15.5, 22.6, 28.5), 2),  # 256x128, 128x256, 176x128, 128x… tiles: the first of the small ones
        ({}, 9.0, (15.5, 15.5, 20.7), 0),  # 192x128 at the smallest
        ({}, 9.0, (1.9, 28.5), 0),  # the first is done before a second turn
        ({}, 8.0, (15.5, 28.5), 0),
        ({"k": 8192}, 9.0, (15.5, 28.5), 0),
        ({"d": Matrix("float32", False, 8192)}, 9.0, (15.5, 28.5), 0),
    ],
)
def test_small_tiles_where_their_stores_overlap(
    lib: FakeCublas, change: dict[str, Any], cc: float, waves: tuple[float, ...], taken: int
) -> None:
    """8192 x 8192 outputs on 132 multiprocessors: waves say the tile; the rule looks at nothing else."""
    half = Matrix("bfloat16", False, 8192)
    problem = GemmProblem(**({"m": 8192, "n": 8192, "k": 512, "a": half, "b": half, "d": half} | change))
    lib.offers, lib.waves = [0] * len(waves), list(waves)
    run(prepare(problem, fake_device(cc)))
    assert lib.calls[-1].algo == 100 + taken


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
    with pytest.raises(library.LibraryError, match="cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED") as info:
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
        ({"a": Matrix("int16", False, 8)}, "a.element must be one of"),
        ({"k": 9}, "a.ld must be at least 9, got 8"),
        ({"b": Matrix("float32", True, 7)}, "b.ld must be at least 8, got 7"),
        ({"batch": 2}, "d.batch_stride must be at least 1, got 0"),
        ({"c": Matrix("float32", False, 8, -1)}, "c.batch_stride must be at least 0, got -1"),
        ({"a": Matrix("float32", False, 8, 0, 12)}, "a.alignment must be a power of two, got 12"),
        ({"activation": "silu"}, "activation must be one of none, relu, gelu_tanh, got 'silu'"),
        ({"beside": ("scale_a", "bias")}, "beside must be some of bias, scale_a, scale_b, scale_d in order"),
        ({"beside": ("bias",), "d": Matrix("float32", True, 8)}, "a bias of D's columns needs a row-major D"),
    ],
)
def test_invalid(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        square(**change)


# --- the library itself


@pytest.fixture
def fresh_search() -> Iterator[None]:
    library._search.cache_clear()
    yield
    library._search.cache_clear()


def _located(monkeypatch: pytest.MonkeyPatch, path: str | Exception, major: int | None, bindings: bool = True) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def find(name: str) -> SimpleNamespace:
        if isinstance(path, Exception):
            raise path
        return SimpleNamespace(abs_path=path)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", find)
    monkeypatch.setattr(library, "cupy_major", lambda: major)
    monkeypatch.setattr(library, "_is_installed", lambda package: bindings)


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
    assert bool(cublas.CUBLAS_LT.unavailable()) == bool(reason)
    if reason:
        with pytest.raises(UnsupportedError, match=reason):
            _ = cublas.CUBLAS_LT.bindings
        with pytest.raises(UnsupportedError, match=reason):
            prepare(square(), DEVICE)


@pytest.mark.usefixtures("fresh_search")
def test_missing_bindings_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _located(monkeypatch, RuntimeError("the library is not asked for"), 12, bindings=False)
    reason = r'nvmath-python, through which cublasLt is called, was not found; .*pip install ".*\[cu12\]"'
    with pytest.raises(UnsupportedError, match=reason):
        prepare(square(), DEVICE)


@pytest.mark.parametrize("version, major, reason", [(11, 12, ""), (12, 13, ""), (11, 13, "is of CUDA 12; install it")])
@pytest.mark.usefixtures("fresh_search")
def test_cusolver_counts_its_own_versions(
    monkeypatch: pytest.MonkeyPatch, version: int, major: int, reason: str
) -> None:
    _located(monkeypatch, f"/opt/x/libcusolver.so.{version}", major)
    found = cusolver.CUSOLVER.unavailable()
    assert reason in found and bool(found) == bool(reason)
