"""cuBLASLt: one matrix product, D = act(alpha A B + beta C + bias), its algorithm and workspace fixed when prepared.

Matrices are row-major with any leading dimension, or transposed. cuBLASLt is column-major, where the same memory
reads as the transpose; so a row-major D is computed as Dᵀ = Bᵀ Aᵀ, which costs nothing and, unlike
CUBLASLT_ORDER_ROW, reaches every kernel. It is called through nvmath-python's bindings (docs/design/libraries.md).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import addressof, c_double, c_float, c_int32
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from baracuda_py.backends.library import Library, current
from baracuda_py.core.device import Device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError, WorkspaceTooSmallError

from .._forking import Mutex
from ..core.checked import shown

CUBLAS_LT = Library(
    "cublasLt", bindings="nvmath.bindings.cublasLt", package="nvmath-python", error="cuBLASLtError",
    unsupported=("CUBLAS_STATUS_ARCH_MISMATCH", "CUBLAS_STATUS_NOT_SUPPORTED"),
)  # fmt: skip
_NO_ALGORITHM = ("CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_NOT_SUPPORTED")  # what the heuristic says of none

_CUDA_TYPE = {
    "float32": 0, "float64": 1, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29, "int8": 3,
    "int32": 10,
}  # cudaDataType of library_types.h  # fmt: skip
_HALVES, _FP8 = ("float16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2")
_BIAS, _ACTIVATIONS = 4, {"none": 0, "relu": 2, "gelu_tanh": 32}  # bits of cublasLtEpilogue_t
_OF_ROWS_AND_COLUMNS = 3  # cublasLtMatmulMatrixScale_t: a scale for each row of A, or column of B
_ROWS_AND_COLUMNS_SINCE = 120900  # the version of the library that has it
_SOMEWHERE = 1 << 20  # stands for a pointer that is known only when the product runs
BESIDE = ("bias", "scale_a", "scale_b", "scale_d")  # vectors and numbers on the device, in the order `run` takes them
_COMPUTE = {
    "float32": (68, "float32"), "tf32": (77, "float32"), "float64": (70, "float64"), "int32": (72, "int32"),
}  # type, and of the scalars  # fmt: skip
_SCALAR: dict[str, Any] = {"float32": c_float, "float64": c_double, "int32": c_int32}
_OP_N, _OP_T = 0, 1
_POINTER_MODE_HOST, _POINTER_MODE_DEVICE = 0, 1
_REDUCE_IN_COMPUTE_TYPE = 2  # of partial sums over k; the other schemes round them to D's element on the way
_CHOICES = 8  # that the library is asked for where `prepare` picks among them
_SHORT_K = 4096  # beyond, a tile's store is too small a part of it to matter
_LEAST_WAVES = 2.0
_OVERLAPPED_TILE = 176 * 128 + 64  # outputs; what one warpgroup's accumulators hold, and slack for rounding


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

    beside: those of `BESIDE` that there are, in this order. bias: a number for each column of D, in D's element, added
    before the activation ("none", "relu" or "gelu_tanh"); a row-major D is needed for it. scale_a, scale_b: of fp8,
    float32, one number, or with `scaled_lines` one for each row of A and each column of B; scale_d: what an fp8 D is
    multiplied by before it is rounded.

    compute: "float32" (strict for f32 operands), "tf32", "float64" or "int32", of int8 operands and an int32 D; alpha
    and beta are float64 for "float64", int32 for "int32", else float32. device_scalars: alpha and beta are device
    pointers, read when the kernel runs.
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
    beside: tuple[str, ...] = ()
    activation: str = "none"
    scaled_lines: bool = False

    def __post_init__(self) -> None:
        if self.compute not in _COMPUTE:
            raise InvalidProblemError(f"compute must be one of {', '.join(_COMPUTE)}, got {shown(self.compute)}")
        if self.activation not in _ACTIVATIONS:
            raise InvalidProblemError(
                f"activation must be one of {', '.join(_ACTIVATIONS)}, got {shown(self.activation)}"
            )
        if self.beside != tuple(name for name in BESIDE if name in self.beside):
            raise InvalidProblemError(f"beside must be some of {', '.join(BESIDE)} in order, got {shown(self.beside)}")
        if "bias" in self.beside and self.d.trans:
            raise InvalidProblemError("a bias of D's columns needs a row-major D, got one that is kept by columns")
        for name, matrix in (("a", self.a), ("b", self.b), ("c", self.c), ("d", self.d)):
            if matrix is not None:
                rows, cols = self.shape(name)
                self._check_matrix(name, matrix, rows if matrix.trans else cols)

    def shape(self, name: str) -> tuple[int, int]:
        """(rows, cols) of an operand."""
        return {"a": (self.m, self.k), "b": (self.k, self.n)}.get(name, (self.m, self.n))

    def _check_matrix(self, name: str, matrix: Matrix, contiguous: int) -> None:
        if matrix.element not in _CUDA_TYPE:
            raise InvalidProblemError(
                f"{name}.element must be one of {', '.join(_CUDA_TYPE)}, got {shown(matrix.element)}"
            )
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


def scales_lines() -> bool:
    """Whether the library's version scales rows of A and columns of B, or there is none of too old a version."""
    return bool(CUBLAS_LT.unavailable()) or int(CUBLAS_LT.bindings.get_version()) >= _ROWS_AND_COLUMNS_SINCE


def prepare(problem: GemmProblem, device: Device) -> Gemm:
    """The algorithm of a problem, by rules alone, so the same on every run; UnsupportedError when there is none.

    It is the library's first choice, except for 16-bit products on 9.0 whose tiles take several turns. There its small
    tiles, two of them in turn on a multiprocessor so that one is stored while the next is computed, beat the large
    ones it puts first: bf16 on an H200, 32768 x 2816 x 512 in 124 µs against 150, 32768 x 1408 x 512 in 67 against 81,
    32768 x 1024 x 512 in 52 against 58, 4096^3 in 174 against 179.
    """
    short = problem.k <= _SHORT_K and problem.a.element in _HALVES and problem.d.element in _HALVES
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
    lib = CUBLAS_LT.bindings
    op, layouts, preference = _describe_to(lib, problem)
    first, second = ("a", "b") if problem.d.trans else ("b", "a")
    results, found = np.zeros(count, lib.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
    why = ""
    with current(device):
        try:
            lib.matmul_algo_get_heuristic(
                CUBLAS_LT.handle(device), op.pointer, layouts[first].pointer, layouts[second].pointer,
                layouts["c"].pointer, layouts["d"].pointer, preference.pointer, count, results.ctypes.data,
                found.ctypes.data)  # fmt: skip
        except CUBLAS_LT.error as error:
            why = CUBLAS_LT.status_name(error)
            if why not in _NO_ALGORITHM:
                raise CUBLAS_LT.failure(error, "cublasLtMatmulAlgoGetHeuristic") from None
    each = [results[i : i + 1] for i in range(0 if why else int(found[0]))]
    usable = [choice for choice in each if choice["state"][0] == 0]
    if not usable:
        raise UnsupportedError(f"cuBLAS has no algorithm{why and f' ({why})'} for {problem}")
    beside = _Beside(op, _pointers(lib, problem)) if problem.beside else None
    return [Gemm(lib, problem, device, op, layouts, choice, beside) for choice in usable]


class Gemm:
    """A prepared product, from `prepare`. `run` may be called from many threads at once and under graph capture."""

    def __init__(self, lib: Any, problem: GemmProblem, device: Device, op: _Descriptor,
                 layouts: dict[str, _Descriptor], choice: Any, beside: _Beside | None) -> None:  # fmt: skip
        self.problem = problem
        self.device = device
        self.workspace_size = int(choice["workspace_size"][0])
        self.waves = float(choice["waves_count"][0])  # tiles a multiprocessor
        self._scalar = None if problem.device_scalars else _SCALAR[_COMPUTE[problem.compute][1]]
        self._swapped = not problem.d.trans
        self._keep = (op, layouts, choice)
        self._matmul, self._error = lib.matmul, CUBLAS_LT.error
        self._op = op.pointer
        self._beside = beside
        self._apart = problem.d.element in _FP8  # whether D cannot stand for C
        self._a, self._b, self._c, self._d = (layouts[name].pointer for name in "abcd")
        self._algo = int(choice.ctypes.data) + choice.dtype.fields["algo"][1]

    def run(self, a: int, b: int, c: int, d: int, alpha: Any, beta: Any,
            workspace: int, workspace_bytes: int, stream: int, beside: Sequence[int] = ()) -> None:  # fmt: skip
        """D = act(alpha A B + beta C + bias) on `stream`; the device must be the current one.

        Pointers are addresses; c may be 0 where the problem has no C; beside: those of `problem.beside`. alpha and beta
        are numbers, or device addresses when the problem says so. Where beta is 0, C is not read. Never allocates on
        the device or waits.

        An fp8 D has no C and beta is 0, but the library refuses a null C and D's own address, whose layout is another:
        it is told A's, and does not read it. It might where beta is on the device: there c is m x n zeros of bfloat16.

        Where c is d and beta is the number 1, Hopper's kernels add in memory: a 16-bit D is then rounded twice, the
        product and the sum (cuBLASLt 13.1, H200). With C elsewhere, or device scalars, it is rounded once.
        """
        if workspace_bytes < self.workspace_size:
            raise WorkspaceTooSmallError(self.workspace_size, workspace_bytes)
        c = c or (a if self._apart else d)
        if self._swapped:
            a, a_layout, b, b_layout = b, self._b, a, self._a
        else:
            a_layout, b_layout = self._a, self._b
        if self._scalar is not None:
            held = self._scalar(alpha), self._scalar(beta)
            alpha, beta = addressof(held[0]), addressof(held[1])
        call = (
            CUBLAS_LT.handle(self.device), self._op, alpha, a, a_layout, b, b_layout, beta, c, self._c, d, self._d,
            self._algo, workspace, workspace_bytes, stream)  # fmt: skip
        try:
            if self._beside is None:
                self._matmul(*call)
            else:
                self._beside.launch(self._matmul, call, tuple(beside))
        except self._error as error:
            raise CUBLAS_LT.failure(error, "cublasLtMatmul") from None


class _Beside:
    """Pointers that the library reads of the operation itself, which one thread at a time may therefore launch."""

    def __init__(self, op: _Descriptor, attributes: Sequence[Any]) -> None:
        self._op, self._attributes = op, attributes
        self._now: tuple[int, ...] = ()
        self._lock = Mutex()

    def launch(self, matmul: Any, call: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        """matmul(*call), for which the operation has these pointers."""
        with self._lock():
            if pointers != self._now:
                for attribute, pointer in zip(self._attributes, pointers, strict=True):
                    self._op.set(attribute, pointer)
                self._now = pointers
            matmul(*call)


class _Descriptor:
    """A cuBLASLt descriptor of some kind ("matrix_layout"): host memory, freed when collected, from whatever thread."""

    def __init__(self, lib: Any, kind: str, *args: int) -> None:
        self._lib, self._kind = lib, kind
        with CUBLAS_LT.calling(f"{kind}_create"):
            self.pointer: int = getattr(lib, f"{kind}_create")(*args)
        weakref.finalize(self, getattr(lib, f"{kind}_destroy"), self.pointer).atexit = False

    def set(self, attribute: Any, value: int) -> None:
        """`attribute` is of the kind's enum; the bindings know its C type, and the library checks the size."""
        held = np.array([value], getattr(self._lib, f"get_{self._kind}_attribute_dtype")(attribute))
        with CUBLAS_LT.calling(f"{self._kind}_set_attribute"):
            getattr(self._lib, f"{self._kind}_set_attribute")(self.pointer, attribute, held.ctypes.data, held.nbytes)


def _describe_to(lib: Any, problem: GemmProblem) -> tuple[_Descriptor, dict[str, _Descriptor], _Descriptor]:
    """The operation, the four layouts and the preference, in cuBLASLt's column-major terms."""
    compute, scalar = _COMPUTE[problem.compute]
    absent = problem.d  # the library reads a C's layout all the same
    if absent.element in _FP8:
        absent = replace(absent, element="bfloat16", ld=problem.m if absent.trans else problem.n)
    matrices = {"a": problem.a, "b": problem.b, "c": problem.c or absent, "d": problem.d}
    first, second = ("a", "b") if problem.d.trans else ("b", "a")

    op, of = _Descriptor(lib, "matmul_desc", compute, _CUDA_TYPE[scalar]), lib.MatmulDescAttribute
    op.set(of.POINTER_MODE, _POINTER_MODE_DEVICE if problem.device_scalars else _POINTER_MODE_HOST)
    for attribute, name in ((of.TRANSA, first), (of.TRANSB, second)):
        op.set(attribute, _OP_N if matrices[name].trans == problem.d.trans else _OP_T)
    epilogue = _ACTIVATIONS[problem.activation] | (_BIAS if "bias" in problem.beside else 0)
    if epilogue:
        op.set(of.EPILOGUE, epilogue)
    for attribute in _pointers(lib, problem):
        op.set(attribute, _SOMEWHERE)
    if problem.scaled_lines:
        op.set(of.A_SCALE_MODE, _OF_ROWS_AND_COLUMNS)
        op.set(of.B_SCALE_MODE, _OF_ROWS_AND_COLUMNS)

    layouts, of = {}, lib.MatrixLayoutAttribute
    for name, matrix in matrices.items():
        rows, cols = problem.shape(name)
        inner, outer = (rows, cols) if matrix.trans else (cols, rows)
        layout = _Descriptor(lib, "matrix_layout", _CUDA_TYPE[matrix.element], inner, outer, matrix.ld)
        layout.set(of.BATCH_COUNT, problem.batch)
        layout.set(of.STRIDED_BATCH_OFFSET, matrix.batch_stride)
        layouts[name] = layout

    preference, of = _Descriptor(lib, "matmul_preference"), lib.MatmulPreferenceAttribute
    preference.set(of.MAX_WORKSPACE_BYTES, problem.max_workspace)
    preference.set(of.REDUCTION_SCHEME_MASK, _REDUCE_IN_COMPUTE_TYPE)
    for place, name in zip("ABCD", (first, second, "c", "d"), strict=True):
        preference.set(of[f"MIN_ALIGNMENT_{place}_BYTES"], matrices[name].alignment)
    return op, layouts, preference


def _pointers(lib: Any, problem: GemmProblem) -> list[Any]:
    """The attributes of the operation that hold the pointers of `problem.beside`."""
    of = lib.MatmulDescAttribute
    first, second = ("A", "B") if problem.d.trans else ("B", "A")
    names = {"bias": "BIAS_POINTER", "scale_a": f"{first}_SCALE_POINTER", "scale_b": f"{second}_SCALE_POINTER",
             "scale_d": "D_SCALE_POINTER"}  # fmt: skip
    return [of[names[name]] for name in problem.beside]
