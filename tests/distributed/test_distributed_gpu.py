"""Ranks that are threads and share one GPU: the kernels' sums have the bits of the host's rows; NCCL of one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed_stand_in import linking, stood_in

import baracuda_py as bc
from baracuda_py.backends import nccl
from baracuda_py.core.device import resolve_device
from baracuda_py.core.element import ElementKind
from baracuda_py.distributed.plan import PLANS
from baracuda_py.testing.libraries.nccl import HostNccl

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu
D = bc.distributed


class DeviceNccl(HostNccl):
    """The stand-in over memory of the device, staged on the host."""

    def read(self, ptr: int, nbytes: int, stream: int) -> Any:
        runtime = cupy.cuda.runtime
        runtime.setDevice(0)
        runtime.streamSynchronize(stream)
        held = np.empty(nbytes, np.uint8)
        if nbytes:
            runtime.memcpy(held.ctypes.data, ptr, nbytes, runtime.memcpyDeviceToHost)
        return held

    def write(self, ptr: int, data: Any, stream: int) -> None:
        runtime, held = cupy.cuda.runtime, np.ascontiguousarray(data)
        runtime.setDevice(0)
        runtime.streamSynchronize(stream)
        if held.nbytes:
            runtime.memcpy(ptr, held.ctypes.data, held.nbytes, runtime.memcpyHostToDevice)
            runtime.deviceSynchronize()


class Placed:
    """An array of the device, of any dtype, byte for byte; strided: every second place of a buffer twice as wide."""

    def __init__(self, x: np.ndarray, strided: bool) -> None:
        self.x, self.step = x, 2 if strided else 1
        self.buffer = cupy.asarray(np.repeat(x, self.step, -1).reshape(-1).view(np.uint8))
        strides = *(step * self.step for step in x.strides[:-1]), x.itemsize * self.step
        self.array = cupy.ndarray(x.shape, x.dtype, self.buffer.data, strides)

    def bits(self) -> bytes:
        held = self.buffer.get().view(self.x.dtype).reshape(*self.x.shape[:-1], -1)
        return np.ascontiguousarray(held[..., :: self.step]).tobytes()


def bits(array: Any) -> bytes:
    return cupy.asnumpy(array).tobytes()


CASES = [  # ranks, element, descriptor, facts, shape
    (8, "bfloat16", D.AllReduceDescriptor, {}, (128, 4096)),
    (4, "float32", D.AllReduceDescriptor, {"op": "mean"}, (1000, 333)),
    (8, "float16", D.AllReduceDescriptor, {}, (8192,)),
    (11, "float16", D.ReduceDescriptor, {"root": 2}, (4097,)),
    (4, "bfloat16", D.ReduceScatterDescriptor, {"axis": 1}, (64, 4096)),
    (4, "float32", D.AllGatherDescriptor, {"axis": 1}, (64, 1024)),
    (4, "bfloat16", D.AllToAllDescriptor, {"split_axis": 1, "concat_axis": 0}, (64, 32, 128)),
    (3, "float32", D.PermuteDescriptor, {"pairs": ((0, 1), (1, 0))}, (5, 7)),
]  # fmt: skip


@pytest.mark.parametrize(("size", "element", "kind", "facts", "shape"), CASES)
@pytest.mark.parametrize("strided", [False, True])
def test_ranks_that_share_a_gpu(
    size: int, element: str, kind: Any, facts: Any, shape: Any, strided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_in(monkeypatch)
    monkeypatch.setitem(vars(nccl.NCCL), "bindings", DeviceNccl())
    dtype = ElementKind.of(element).dtype

    def work(comm: Any) -> None:
        x = (np.random.default_rng(comm.rank).standard_normal(shape) * 50).astype(dtype)
        desc = kind(shape=shape, element=element, ranks=size, **facts)
        made = desc.output_shape(comm.rank)
        want = None if made is None else np.zeros(made, dtype)
        PLANS[kind].select(desc, comm)(x=x, y=want)
        comm.attach(lambda comm: linking(comm, resolve_device(0)))
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
            given = Placed(x, strided)
            y = None if made is None else Placed(np.zeros(made, dtype), strided)
            stream.synchronize()
            PLANS[kind].select(desc, comm)(x=given.array, y=None if y is None else y.array)
            stream.synchronize()
            if y is not None:
                assert y.bits() == want.tobytes()
            assert given.bits() == x.tobytes()

    D.run_ranks(work, size, timeout=60)


def test_functions_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in(monkeypatch)
    monkeypatch.setitem(vars(nccl.NCCL), "bindings", DeviceNccl())

    def work(comm: Any) -> None:
        comm.attach(lambda comm: linking(comm, resolve_device(0)))
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
            x = cupy.arange(10000, dtype=cupy.float32) + comm.rank
            y = D.all_reduce(x, comm)
            assert isinstance(y, cupy.ndarray)
            np.testing.assert_array_equal(cupy.asnumpy(y), 3 * np.arange(10000, dtype=np.float32) + 3)
            assert D.all_reduce(x, comm, out=x) is x
            fast = D.all_reduce(y, comm, "max", preference=bc.PlanPreference(deterministic=False))
            np.testing.assert_array_equal(cupy.asnumpy(fast), cupy.asnumpy(y))
            assert D.reduce_scatter(y[:9999], comm).shape == (3333,)
            assert D.broadcast(x, comm, 1).shape == x.shape
            with pytest.raises(bc.InvalidProblemError, match="out must be float32"):
                D.all_reduce(x, comm, out=cupy.zeros(10000))

    D.run_ranks(work, 3, timeout=60)


def test_tensors_of_torch_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    stood_in(monkeypatch)
    monkeypatch.setitem(vars(nccl.NCCL), "bindings", DeviceNccl())

    def work(comm: Any) -> None:
        comm.attach(lambda comm: linking(comm, resolve_device(0)))
        x = torch.full((64, 100), comm.rank + 1.0, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = D.all_reduce(x, comm)
        assert y.dtype is torch.bfloat16 and (y == 3).all()
        with torch.autograd.set_multithreading_enabled(False):  # else both go back on the one thread of the device
            (y * (comm.rank + 1)).sum().backward()
        assert (x.grad == 3).all()

    D.run_ranks(work, 2, timeout=60)


def test_nccl_of_one_rank() -> None:
    if why := nccl.NCCL.unavailable():
        pytest.skip(why)
    with D.communicator(rank=0, size=1, engine="nccl") as comm:
        x = cupy.random.default_rng(1).standard_normal(100_003, dtype=cupy.float32)
        for preference in (None, bc.PlanPreference(deterministic=False)):
            for y in (
                D.all_reduce(x, comm, preference=preference), D.reduce_scatter(x, comm, preference=preference),
                D.reduce(x, comm, preference=preference), D.all_gather(x, comm), D.broadcast(x, comm),
                D.all_to_all(x, comm), D.permute(x, comm, [(0, 0)]),
            ):  # fmt: skip
                assert bits(y) == bits(x)
        assert not cupy.asnumpy(D.permute(x, comm, [])).any()
