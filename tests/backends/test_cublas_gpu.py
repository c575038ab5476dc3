"""cuBLASLt on a GPU: products against float64 NumPy, within the bound of the compute type's own arithmetic."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.backends import cublas
from baracuda_py.backends.cublas import Gemm, GemmProblem, Matrix, candidates, describe, prepare
from baracuda_py.core.device import Device, driver_device_count, resolve_device
from baracuda_py.core.errors import UnsupportedError

pytestmark = pytest.mark.gpu
DTYPE = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}  # half an ulp of 1
INPUT_UNIT = {"float32": 0.0, "tf32": 2.0**-10, "float64": 0.0}  # what the compute type may round its inputs by
ELEMENTS = [  # A and B, C and D, compute
    ("float16", "float16", "float32"), ("float16", "float32", "float32"), ("bfloat16", "bfloat16", "float32"),
    ("bfloat16", "float32", "float32"), ("float32", "float32", "float32"), ("float32", "float32", "tf32"),
    ("float64", "float64", "float64")]  # fmt: skip


@pytest.fixture(scope="module")
def device() -> Device:
    if (why := cublas.CUBLAS_LT.unavailable()) or not driver_device_count():
        why = why or "no CUDA device"
        pytest.skip(f"cuBLAS products not checked: {why}. On a GPU: python -m pytest tests/backends -m gpu")
    return resolve_device("cuda:0")


def test_the_real_library_takes_every_attribute(device: Device) -> None:
    """Numbers, sizes and types of what it is told, read back."""
    real = cublas.CUBLAS_LT.bindings
    problem = GemmProblem(m=3, n=5, k=7, batch=2, a=Matrix("float16", False, 8, 24), b=Matrix("bfloat16", True, 9),
                          d=Matrix("float64", False, 6, 18), compute="float64", device_scalars=True)  # fmt: skip
    op, layouts, preference = cublas._describe_to(real, problem)

    def read(descriptor: Any, attribute: int, dtype: Any) -> int:
        value, written = np.zeros(1, dtype), np.zeros(1, np.uint64)
        get = getattr(real, f"{descriptor._kind}_get_attribute")
        get(descriptor.pointer, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
        return int(value[0])

    layout = [(0, np.uint32), (2, np.uint64), (3, np.uint64), (4, np.int64), (5, np.int32), (6, np.int64)]
    assert [read(layouts["a"], *key) for key in layout] == [2, 7, 3, 8, 2, 24]
    assert [read(layouts["b"], *key) for key in layout] == [14, 7, 5, 9, 2, 0]
    assert [read(layouts["d"], *key) for key in layout] == [1, 5, 3, 6, 2, 18]
    assert [read(op, i, np.int32) for i in range(5)] == [70, 1, 1, 1, 0]
    assert [read(preference, i, np.uint32) for i in (3, 5, 6, 7, 8)] == [2, 16, 16, 16, 16]
    assert read(preference, 1, np.uint64) == 32 << 20
    assert real.get_status_name(15) == "CUBLAS_STATUS_NOT_SUPPORTED"


class Tensor:
    """A strided view in device memory, `shift` elements off its allocation; NaN fills what the view leaves out."""

    def __init__(self, value: np.ndarray, element: str, trans: bool = False, pad: int = 0, shift: int = 0,
                 same: bool = False) -> None:  # fmt: skip
        import cupy

        batch, rows, cols = value.shape
        self.same, self.element = same, element
        shape = (1 if same else batch, *((cols, rows + pad) if trans else (rows, cols + pad)))
        self.host = np.full(shift + int(np.prod(shape)), np.nan).astype(DTYPE[element])
        view = self.host[shift:].reshape(shape)
        self._view = (lambda x: x.transpose(0, 2, 1)[:, :rows]) if trans else (lambda x: x[:, :, :cols])
        self._view(view)[...] = value[:1] if same else value
        self._shape, self._shift = shape, shift
        self.memory = cupy.asarray(self.host.view(np.uint8))
        self.ptr = int(self.memory.data.ptr) + shift * self.host.itemsize
        strided = np.broadcast_to(self._view(view), (batch, rows, cols))
        found = describe(strided.shape, [s // view.itemsize for s in strided.strides], trans)
        assert found is not None
        self.matrix = Matrix(element, *found, alignment=min(self.ptr & -self.ptr, 16))

    def read(self) -> np.ndarray:
        """The values now in memory; what lies around them must still be NaN."""
        flat = self.memory.get().view(DTYPE[self.element])
        view = self._view(flat[self._shift :].reshape(self._shape))
        values = view.astype(np.float64)
        view[...] = np.nan
        assert np.isnan(flat.astype(np.float64)).all(), "written outside the view"
        return values


def random(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(DTYPE[element]).astype(np.float64)


def memory(nbytes: int) -> Any:
    import cupy

    return cupy.empty(max(nbytes, 1), cupy.uint8)


def launch(
    gemm: Gemm, a: Tensor, b: Tensor, c: Tensor | None, d: Tensor, alpha: Any, beta: Any, stream: Any = None
) -> Any:
    import cupy

    workspace = memory(gemm.workspace_size)
    stream = stream or cupy.cuda.get_current_stream()
    gemm.run(a.ptr, b.ptr, c.ptr if c else 0, d.ptr, alpha, beta, workspace.data.ptr, gemm.workspace_size, stream.ptr)
    return workspace


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: float, beta: float,
          element: str, compute: str, twice: bool = False) -> None:  # fmt: skip
    """The forward bound: k + 2 roundings in the accumulator, the inputs' own, one to the element of D.

    twice: the product alone is rounded to that element too.
    """
    want = alpha * (a @ b) + beta * c
    size = abs(alpha) * (abs(a) @ abs(b)) + abs(beta * c)
    unit = UNIT["float64" if compute == "float64" else "float32"]
    # Tensor cores may truncate where a sum is aligned, hence twice the unit.
    bound = (
        size * (2 * (a.shape[-1] + 2) * unit + 2 * INPUT_UNIT[compute]) + abs(want) * UNIT[element] * 1.01 + 2.0**-24
    )
    bound += abs(alpha * (a @ b)) * UNIT[element] if twice else 0
    assert np.isfinite(got).all()
    worst = float(np.max(abs(got - want) / bound))
    assert worst <= 1, f"error is {worst:.3g} of the bound"


def case(device: Device, io: str, out: str, compute: str, m: int, n: int, k: int, batch: int = 1, *,
         trans: tuple[bool, bool, bool] = (False, False, False), pad: int = 0, shift: int = 0, same: str = "",
         alpha: float = 1.0, beta: float = 0.0, in_place: bool = False, count: int = 1) -> None:  # fmt: skip
    rng = np.random.default_rng(m * 7919 + n * 131 + k)
    a, b, c = random(rng, io, batch, m, k), random(rng, io, batch, k, n), random(rng, out, batch, m, n)
    a, b = (np.broadcast_to(x[:1], x.shape) if name in same else x for name, x in (("a", a), ("b", b)))
    ta = Tensor(a, io, trans[0], pad, shift, "a" in same)
    tb = Tensor(b, io, trans[1], pad, shift, "b" in same)
    tc = None if in_place else Tensor(c, out, trans[2], pad, shift)
    start = c if in_place else np.full_like(c, np.nan)
    td = Tensor(start, out, trans[2], pad, shift)
    problem = GemmProblem(m=m, n=n, k=k, batch=batch, a=ta.matrix, b=tb.matrix, c=tc and tc.matrix, d=td.matrix,
                          compute=compute)  # fmt: skip
    for gemm in candidates(problem, device, count):
        td = Tensor(start, out, trans[2], pad, shift)
        launch(gemm, ta, tb, tc, td, alpha, beta)
        check(td.read(), a, b, c, alpha, beta, out, compute, twice=in_place and beta == 1)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
@pytest.mark.parametrize("trans", [(x, y, z) for x in (False, True) for y in (False, True) for z in (False, True)])
def test_elements_and_orders(device: Device, io: str, out: str, compute: str, trans: tuple[bool, bool, bool]) -> None:
    case(device, io, out, compute, 64, 96, 80, trans=trans)
    case(device, io, out, compute, 33, 17, 51, 3, trans=trans, pad=3, alpha=0.5, beta=-1.5)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
@pytest.mark.parametrize("same", ["a", "b", "ab"])
def test_inputs_repeated_over_the_batch(device: Device, io: str, out: str, compute: str, same: str) -> None:
    case(device, io, out, compute, 32, 48, 64, 5, same=same, beta=1.0)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_pointers_off_any_alignment(device: Device, io: str, out: str, compute: str, shift: int) -> None:
    case(device, io, out, compute, 128, 128, 128, shift=shift, in_place=True, beta=1.0)
    case(device, io, out, compute, 31, 128, 128, 3, shift=shift, pad=1)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 256, 512), (256, 1, 512), (1, 7, 3), (64, 64, 1), (64, 64, 16384)])
def test_thin_and_deep(device: Device, io: str, out: str, compute: str, m: int, n: int, k: int) -> None:
    case(device, io, out, compute, m, n, k, in_place=True, alpha=2.0, beta=1.0)
    case(device, io, out, compute, m, n, k, beta=0.5)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
def test_every_candidate_is_right(device: Device, io: str, out: str, compute: str) -> None:
    case(device, io, out, compute, 96, 64, 2048, 2, beta=0.5, count=8)


def test_tf32_is_taken_only_when_asked_for(device: Device) -> None:
    with pytest.raises(AssertionError, match="of the bound"):
        rng = np.random.default_rng(0)
        a, b = random(rng, "float32", 1, 512, 64), random(rng, "float32", 1, 64, 512)
        ta, tb, td = Tensor(a, "float32"), Tensor(b, "float32"), Tensor(np.zeros((1, 512, 512)), "float32")
        problem = GemmProblem(m=512, n=512, k=64, a=ta.matrix, b=tb.matrix, d=td.matrix, compute="tf32")
        launch(prepare(problem, device), ta, tb, None, td, 1.0, 0.0)
        check(td.read(), a, b, np.zeros((1, 512, 512)), 1.0, 0.0, "float32", "float32")


def test_what_the_library_has_no_algorithm_for(device: Device) -> None:
    half, single, double = (Matrix(e, False, 64) for e in ("float16", "float32", "float64"))
    for a, b, d in ((half, single, single), (double, double, single), (single, single, half)):
        with pytest.raises(UnsupportedError, match="no algorithm"):
            prepare(GemmProblem(m=64, n=64, k=64, a=a, b=b, d=d), device)


@pytest.mark.parametrize("io, out, compute", ELEMENTS)
def test_a_graph_reads_device_scalars_and_inputs_anew(device: Device, io: str, out: str, compute: str) -> None:
    """Captured in a thread that has no handle yet, with a workspace that stays; replayed with other values."""
    import cupy

    m, n, k = 48, 64, 4096
    rng = np.random.default_rng(1)
    a, b, c = random(rng, io, 1, m, k), random(rng, io, 1, k, n), random(rng, out, 1, m, n)
    ta, tb, td = Tensor(a, io), Tensor(b, io), Tensor(c, out)
    scalars = cupy.array([1.0, 1.0], np.float64 if compute == "float64" else np.float32)
    address, step = int(scalars.data.ptr), scalars.itemsize
    problem = GemmProblem(m=m, n=n, k=k, a=ta.matrix, b=tb.matrix, d=td.matrix, compute=compute, device_scalars=True)
    gemm, stream, held = prepare(problem, device), cupy.cuda.Stream(non_blocking=True), []
    held.append(memory(gemm.workspace_size))
    cupy.cuda.Device().synchronize()

    def capture() -> None:
        with cupy.cuda.Device(device.ordinal), stream:
            stream.begin_capture()
            gemm.run(
                ta.ptr, tb.ptr, 0, td.ptr, address, address + step, held[0].data.ptr, gemm.workspace_size, stream.ptr
            )
            held.append(stream.end_capture())

    thread = threading.Thread(target=capture)
    thread.start()
    thread.join()
    for alpha, beta in ((1.0, 0.0), (0.5, 2.0), (1.0, 1.0)):
        fresh = Tensor(random(rng, io, 1, m, k), io)
        ta.memory[...] = fresh.memory
        before = td.read()
        scalars[...] = cupy.array([alpha, beta])
        cupy.cuda.Device().synchronize()
        held[1].launch(stream)
        stream.synchronize()
        check(td.read(), ta.read(), b, before, alpha, beta, out, compute)


def test_eight_threads_share_a_gemm(device: Device) -> None:
    import cupy

    rng = np.random.default_rng(2)
    inputs = [(random(rng, "bfloat16", 1, 64, 2048), random(rng, "bfloat16", 1, 2048, 64)) for _ in range(8)]
    tensors = [
        (Tensor(a, "bfloat16"), Tensor(b, "bfloat16"), Tensor(np.zeros((1, 64, 64)), "float32")) for a, b in inputs
    ]
    a, b, d = tensors[0]
    gemm = prepare(GemmProblem(m=64, n=64, k=2048, a=a.matrix, b=b.matrix, d=d.matrix), device)
    cupy.cuda.Device().synchronize()
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            ta, tb, td = tensors[index]
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                for _ in range(50):
                    launch(gemm, ta, tb, None, td, float(index), 0.0, stream)
                stream.synchronize()
                check(td.read(), *inputs[index], np.zeros((1, 64, 64)), float(index), 0.0, "float32", "float32")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_the_same_bits_again(device: Device) -> None:
    rng = np.random.default_rng(3)
    a, b = (
        Tensor(random(rng, "float16", 1, 64, 8192), "float16"),
        Tensor(random(rng, "float16", 1, 8192, 64), "float16"),
    )
    d = Tensor(np.zeros((1, 64, 64)), "float16")
    gemm = prepare(GemmProblem(m=64, n=64, k=8192, a=a.matrix, b=b.matrix, d=d.matrix), device)
    results = set()
    for _ in range(50):
        launch(gemm, a, b, None, d, 1.0, 0.0)
        results.add(d.memory.get().tobytes())
    assert len(results) == 1
