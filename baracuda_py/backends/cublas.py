"""cuBLASLt: one matrix product, D = alpha A B + beta C, its algorithm and workspace fixed when it is prepared.

Matrices are row-major with any leading dimension, or transposed. cuBLASLt is column-major, where the same memory
reads as the transpose; so a row-major D is computed as Dᵀ = Bᵀ Aᵀ, which costs nothing and, unlike
CUBLASLT_ORDER_ROW, reaches every kernel. Numbers below are those of cublasLt.h and library_types.h, equal in
CUDA 12 and 13; a test asks the library.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any

from baracuda_py.backends import _library
from baracuda_py.core.device import Device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError, WorkspaceTooSmallError
from baracuda_py.jit.launch import runtime_for

_CUDA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
_COMPUTE = {"float32": (68, "float32"), "tf32": (77, "float32"), "float64": (70, "float64")}  # type, and of the scalars
_SCALAR = {"float32": c_float, "float64": c_double}

_DESC_POINTER_MODE, _DESC_TRANSA, _DESC_TRANSB = 2, 3, 4
_LAYOUT_BATCH_COUNT, _LAYOUT_BATCH_STRIDE = 5, 6
_PREF_WORKSPACE, _PREF_REDUCTION = 1, 3
_PREF_ALIGNMENT = {"a": 5, "b": 6, "c": 7, "d": 8}
_OP_N, _OP_T = 0, 1
_POINTER_MODE_HOST, _POINTER_MODE_DEVICE = 0, 1
_REDUCE_IN_COMPUTE_TYPE = 2  # of partial sums over k; the other schemes round them to D's element on the way
_CHOICES = 8  # that the library is asked for where `prepare` picks among them
_SHORT_K = 4096  # beyond, a tile's store is too small a part of it to matter
_LEAST_WAVES = 2.0
_OVERLAPPED_TILE = 176 * 128 + 64  # outputs; what one warpgroup's accumulators hold, and slack for rounding
_INVALID_VALUE, _ARCH_MISMATCH, _NOT_SUPPORTED = 7, 8, 15

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (c_void_p,),
    "cublasLtGetStatusName": (c_int,),
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulPreferenceCreate": (c_void_p,),
    **{f"cublasLt{kind}SetAttribute": (c_void_p, c_int, c_void_p, c_size_t) for kind in
       ("MatrixLayout", "MatmulDesc", "MatmulPreference")},
    **{f"cublasLt{kind}Destroy": (c_void_p,) for kind in ("MatrixLayout", "MatmulDesc", "MatmulPreference")},
    "cublasLtMatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, c_void_p, c_void_p),
    "cublasLtMatmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}  # fmt: skip


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t; the algorithm comes first, so its address is the result's own."""

    _fields_ = (
        ("algo", c_uint64 * 8),
        ("workspace_size", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True)
class Matrix:
    """One operand: `trans` False where rows are contiguous and `ld` apart, True where columns are.

    `ld` and `batch_stride` are in elements; an input may repeat over the batch (batch_stride 0). `alignment`
    is a power of two that every pointer `run` is given divides by, in bytes; no algorithm that needs more is taken.
    """

    element: str
    trans: bool
    ld: int
    batch_stride: int = 0
    alignment: int = 16


@dataclass(frozen=True, kw_only=True)
class GemmProblem:
    """A is m×k, B k×n, C and D m×n, each `batch` times; without `c`, beta scales D itself.

    compute: "float32" (strict for f32 operands), "tf32" or "float64"; alpha and beta are float64 for "float64",
    else float32. device_scalars: alpha and beta are device pointers, read when the kernel runs.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    d: Matrix
    c: Matrix | None = None
    batch: int = 1
    compute: str = "float32"
    device_scalars: bool = False
    max_workspace: int = 32 << 20

    def __post_init__(self) -> None:
        if self.compute not in _COMPUTE:
            raise InvalidProblemError(f"compute must be one of {', '.join(_COMPUTE)}, got {self.compute!r}")
        for name, matrix in (("a", self.a), ("b", self.b), ("c", self.c), ("d", self.d)):
            if matrix is not None:
                rows, cols = self.shape(name)
                self._check_matrix(name, matrix, rows if matrix.trans else cols)

    def shape(self, name: str) -> tuple[int, int]:
        """(rows, cols) of an operand."""
        return {"a": (self.m, self.k), "b": (self.k, self.n)}.get(name, (self.m, self.n))

    def _check_matrix(self, name: str, matrix: Matrix, contiguous: int) -> None:
        if matrix.element not in _CUDA_TYPE:
            raise InvalidProblemError(f"{name}.element must be one of {', '.join(_CUDA_TYPE)}, got {matrix.element!r}")
        if matrix.ld < max(contiguous, 1):
            raise InvalidProblemError(f"{name}.ld must be at least {max(contiguous, 1)}, got {matrix.ld}")
        least = 1 if name == "d" and self.batch > 1 else 0
        if matrix.batch_stride < least:
            raise InvalidProblemError(f"{name}.batch_stride must be at least {least}, got {matrix.batch_stride}")
        if matrix.alignment < 1 or matrix.alignment & (matrix.alignment - 1):
            raise InvalidProblemError(f"{name}.alignment must be a power of two, got {matrix.alignment}")


def describe(shape: Sequence[int], strides: Sequence[int], trans: bool | None = None) -> tuple[bool, int, int] | None:
    """(trans, ld, batch_stride) of a (rows, cols) or (batch, rows, cols) view with strides in elements, or None.

    A vector can be read both ways and is read along its contiguous axis, unless `trans` asks for one reading:
    C must have D's.
    """
    rows, cols = shape[-2:]
    row_stride, col_stride = strides[-2:]
    batch_stride = strides[0] if len(shape) == 3 and shape[0] > 1 else 0
    readings = [(False, cols, col_stride, rows, row_stride), (True, rows, row_stride, cols, col_stride)]
    for reading, inner, inner_stride, outer, outer_stride in sorted(readings, key=lambda r: -r[1]):
        contiguous = inner <= 1 or inner_stride == 1
        apart = outer <= 1 or outer_stride >= max(inner, 1)
        if contiguous and apart and batch_stride >= 0 and trans in (None, reading):
            return reading, outer_stride if outer > 1 else max(inner, 1), batch_stride
    return None


def available() -> bool:
    """Whether cuBLASLt can be loaded; makes no handle and asks no device."""
    return not unavailable_reason()


def unavailable_reason() -> str:
    """Why not, with what to type; empty when it is available."""
    return _library.unavailable("cublasLt")


def prepare(problem: GemmProblem, device: Device) -> Gemm:
    """The algorithm of a problem, by rules alone, so the same on every run; UnsupportedError when there is none.

    It is the library's first choice, except for 16-bit products on 9.0 whose tiles take several turns. There its small
    tiles, two of them in turn on a multiprocessor so that one is stored while the next is computed, beat the large
    ones it puts first: bf16 on an H200, 32768 x 2816 x 512 in 124 µs against 150, 32768 x 1408 x 512 in 67 against 81,
    32768 x 1024 x 512 in 52 against 58, 4096^3 in 174 against 179.
    """
    short = problem.k <= _SHORT_K and problem.d.element in ("float16", "bfloat16")
    found = candidates(problem, device, _CHOICES if short and device.cc == (9, 0) else 1)
    return next((gemm for gemm in found if _overlaps(gemm, found[0])), found[0])


def _overlaps(gemm: Gemm, first: Gemm) -> bool:
    """Whether an algorithm stores a tile behind the next one's products, in turns enough to gain by it."""
    problem, sms = gemm.problem, gemm.device.sms
    tile = problem.m * problem.n * problem.batch / max(gemm.waves * sms, 1e-9)
    return first.waves >= _LEAST_WAVES and gemm.waves >= _LEAST_WAVES and tile <= _OVERLAPPED_TILE


def candidates(problem: GemmProblem, device: Device, count: int) -> list[Gemm]:
    """Up to `count` algorithms, the one expected to be fastest first; an autotuner times them."""
    if min(problem.m, problem.n, problem.k, problem.batch) < 1:
        raise UnsupportedError(f"cuBLAS takes no empty extents: {problem}")
    if problem.batch >= 1 << 31:
        raise UnsupportedError(f"cuBLAS counts a batch in 31 bits: {problem}")
    if problem.c is not None and (problem.c.element, problem.c.trans) != (problem.d.element, problem.d.trans):
        raise UnsupportedError(f"cuBLAS needs C in D's element and order: {problem}")
    lib = _cublas()
    op, layouts, preference = _describe_to(lib, problem)
    first, second = ("a", "b") if problem.d.trans else ("b", "a")
    results = (_Heuristic * count)()
    found = c_int()
    with _current(device):
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            _handle(device), op.pointer, layouts[first].pointer, layouts[second].pointer, layouts["c"].pointer,
            layouts["d"].pointer, preference.pointer, count, byref(results), byref(found))  # fmt: skip
    if status not in (0, _INVALID_VALUE, _NOT_SUPPORTED):
        _check(lib, status, "cublasLtMatmulAlgoGetHeuristic")
    usable = [result for result in results[: found.value] if result.state == 0] if status == 0 else []
    if not usable:
        why = f" ({_status_name(lib, status)})" if status else ""
        raise UnsupportedError(f"cuBLAS has no algorithm{why} for {problem}")
    return [Gemm(lib, problem, device, op, layouts, result) for result in usable]


class Gemm:
    """A prepared product, from `prepare`. `run` may be called from many threads at once and under graph capture."""

    def __init__(self, lib: Any, problem: GemmProblem, device: Device, op: _Descriptor,
                 layouts: dict[str, _Descriptor], choice: _Heuristic) -> None:  # fmt: skip
        self.problem = problem
        self.device = device
        self.workspace_size = int(choice.workspace_size)
        self.waves = float(choice.waves)  # tiles a multiprocessor
        scalar = _SCALAR[_COMPUTE[problem.compute][1]]
        self._scalar: Callable[[Any], Any] = c_void_p if problem.device_scalars else lambda value: byref(scalar(value))
        self._swapped = not problem.d.trans
        self._keep = (op, layouts, choice)
        self._lib = lib
        self._matmul = lib.cublasLtMatmul
        self._op = op.pointer
        self._a, self._b, self._c, self._d = (layouts[name].pointer for name in "abcd")
        self._algo = c_void_p(ctypes.addressof(choice))

    def run(self, a: int, b: int, c: int, d: int, alpha: float, beta: float,
            workspace: int, workspace_bytes: int, stream: int) -> None:  # fmt: skip
        """D = alpha A B + beta C on `stream`; the device must be the current one.

        Pointers are addresses; c may be 0 where the problem has no C. alpha and beta are numbers, or device
        addresses when the problem says so. Where beta is 0, C is not read. Never allocates on the device or waits.

        Where c is d and beta is the number 1, Hopper's kernels add in memory: a 16-bit D is then rounded twice, the
        product and the sum (cuBLASLt 13.1, H200). With C elsewhere, or device scalars, it is rounded once.
        """
        if workspace_bytes < self.workspace_size:
            raise WorkspaceTooSmallError(self.workspace_size, workspace_bytes)
        if self._swapped:
            a, a_layout, b, b_layout = b, self._b, a, self._a
        else:
            a_layout, b_layout = self._a, self._b
        status = self._matmul(
            _handle(self.device), self._op, self._scalar(alpha), a, a_layout, b, b_layout, self._scalar(beta), c or d,
            self._c, d, self._d, self._algo, workspace, workspace_bytes, stream)  # fmt: skip
        if status:
            _check(self._lib, status, "cublasLtMatmul")


class _Descriptor:
    """A cuBLASLt descriptor of some kind: host memory only, freed when collected, from whatever thread."""

    def __init__(self, lib: Any, kind: str, *args: int) -> None:
        self.pointer = c_void_p()
        self._lib, self._kind = lib, kind
        _check(lib, getattr(lib, f"cublasLt{kind}Create")(byref(self.pointer), *args), f"cublasLt{kind}Create")
        weakref.finalize(self, getattr(lib, f"cublasLt{kind}Destroy"), self.pointer).atexit = False

    def set(self, attribute: int, value: Any) -> None:
        """`value` is of the attribute's own C type; the library checks its size."""
        call = f"cublasLt{self._kind}SetAttribute"
        _check(self._lib, getattr(self._lib, call)(self.pointer, attribute, byref(value), sizeof(value)), call)


def _describe_to(lib: Any, problem: GemmProblem) -> tuple[_Descriptor, dict[str, _Descriptor], _Descriptor]:
    """The operation, the four layouts and the preference, in cuBLASLt's column-major terms."""
    compute, scalar = _COMPUTE[problem.compute]
    matrices = {"a": problem.a, "b": problem.b, "c": problem.c or problem.d, "d": problem.d}
    first, second = ("a", "b") if problem.d.trans else ("b", "a")

    op = _Descriptor(lib, "MatmulDesc", compute, _CUDA_TYPE[scalar])
    op.set(_DESC_POINTER_MODE, c_int32(_POINTER_MODE_DEVICE if problem.device_scalars else _POINTER_MODE_HOST))
    for attribute, name in ((_DESC_TRANSA, first), (_DESC_TRANSB, second)):
        op.set(attribute, c_int32(_OP_N if matrices[name].trans == problem.d.trans else _OP_T))

    layouts = {}
    for name, matrix in matrices.items():
        rows, cols = problem.shape(name)
        inner, outer = (rows, cols) if matrix.trans else (cols, rows)
        layout = _Descriptor(lib, "MatrixLayout", _CUDA_TYPE[matrix.element], inner, outer, matrix.ld)
        layout.set(_LAYOUT_BATCH_COUNT, c_int32(problem.batch))
        layout.set(_LAYOUT_BATCH_STRIDE, c_int64(matrix.batch_stride))
        layouts[name] = layout

    preference = _Descriptor(lib, "MatmulPreference")
    preference.set(_PREF_WORKSPACE, c_uint64(problem.max_workspace))
    preference.set(_PREF_REDUCTION, c_uint32(_REDUCE_IN_COMPUTE_TYPE))
    for place, name in zip("abcd", (first, second, "c", "d"), strict=True):
        preference.set(_PREF_ALIGNMENT[place], c_uint32(matrices[name].alignment))
    return op, layouts, preference


class _Lease:
    """A handle lent to one thread, and to the next when that thread ends. None is destroyed: that may synchronise."""

    def __init__(self, device: Device) -> None:
        _watch_forks()
        free = _free_handles.setdefault(device.ordinal, deque())
        try:
            self.handle = free.pop()
        except IndexError:
            self.handle = _create(device)
        weakref.finalize(self, free.append, self.handle).atexit = False


class _Leases(threading.local):
    def __init__(self) -> None:
        self.by_ordinal: dict[int, _Lease] = {}


_free_handles: dict[int, deque[c_void_p]] = {}
_leases = _Leases()


def _handle(device: Device) -> c_void_p:
    """This thread's handle for the device."""
    lease = _leases.by_ordinal.get(device.ordinal)
    if lease is None:
        lease = _leases.by_ordinal[device.ordinal] = _Lease(device)
    return lease.handle


@functools.cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_handles)


def _forget_handles() -> None:
    """In a forked child, which cannot use its parent's."""
    global _free_handles, _leases
    _free_handles, _leases = {}, _Leases()


def _create(device: Device) -> c_void_p:
    lib, handle = _cublas(), c_void_p()
    with _current(device):
        _check(lib, lib.cublasLtCreate(byref(handle)), "cublasLtCreate")
    return handle


@contextmanager
def _current(device: Device) -> Iterator[None]:
    runtime = runtime_for(device)
    previous = runtime.current_device()
    runtime.use_device(device.ordinal)
    try:
        yield
    finally:
        runtime.use_device(previous)


@functools.cache
def _cublas() -> Any:
    library = _library.load("cublasLt", _SIGNATURES)
    library.cublasLtGetStatusName.restype = ctypes.c_char_p
    return library


def _status_name(lib: Any, status: int) -> str:
    return str(lib.cublasLtGetStatusName(status).decode())


def _check(lib: Any, status: int, call: str) -> None:
    if status in (_ARCH_MISMATCH, _NOT_SUPPORTED):
        raise UnsupportedError(f"{call}: {_status_name(lib, status)}")
    if status:
        raise _library.LibraryError(call, _status_name(lib, status))
