"""NCCL's rows over a stand-in on host memory: the bits of the ranks' own rows, for every layout, and who is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed_stand_in import linking, stood_in

import baracuda_py as bc
from baracuda_py.backends import nccl
from baracuda_py.backends.library import LibraryError
from baracuda_py.core.arrays import read
from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import TensorRef
from baracuda_py.distributed import world
from baracuda_py.distributed.device import Job, NativeJob
from baracuda_py.distributed.plan import PLANS
from baracuda_py.distributed.refs import Room

D = bc.distributed


@pytest.fixture(autouse=True)
def standing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in(monkeypatch)


def ref(array: Any, kind: ElementKind) -> TensorRef:
    at = read(array)
    return TensorRef.of_checked(at.ptr, at.shape, at.strides, kind, -1)


def launched(desc: Any, comm: Any, x: Any, y: Any, kind: type = Job) -> None:
    """A job with a workspace of the bytes that it counts, within two guards."""
    given = [None if one is None else ref(one, desc.element) for one in (x, y)]
    counting = Room(0, -1)
    getattr(kind(desc, comm.rank, *given, counting, None, 0), desc.collective)()
    held = np.full(counting.used + 512, 0xA5, np.uint8)
    room = Room(held.ctypes.data + 256, -1)
    getattr(kind(desc, comm.rank, *given, room, comm.link, 0), desc.collective)()
    assert room.used == counting.used
    assert (held[:256] == 0xA5).all() and (held[len(held) - 256 :] == 0xA5).all()


DENSE, STRIDED = (lambda a: a), (lambda a: a.swapaxes(0, -1)[..., ::2])
KIND: dict[str, tuple[type, Any]] = {
    "all_reduce": (D.AllReduceDescriptor, lambda r, n: {"op": "sum"}),
    "all_reduce of mean": (D.AllReduceDescriptor, lambda r, n: {"op": "mean"}),
    "all_reduce of max": (D.AllReduceDescriptor, lambda r, n: {"op": "max"}),
    "reduce": (D.ReduceDescriptor, lambda r, n: {"op": "prod", "root": n - 1}),
    "reduce_scatter": (D.ReduceScatterDescriptor, lambda r, n: {"axis": 0}),
    "reduce_scatter along 1": (D.ReduceScatterDescriptor, lambda r, n: {"axis": 1}),
    "all_gather": (D.AllGatherDescriptor, lambda r, n: {"axis": 0}),
    "all_gather along 1": (D.AllGatherDescriptor, lambda r, n: {"axis": -1}),
    "broadcast": (D.BroadcastDescriptor, lambda r, n: {"root": n - 1}),
    "all_to_all": (D.AllToAllDescriptor, lambda r, n: {}),
    "all_to_all across": (D.AllToAllDescriptor, lambda r, n: {"split_axis": 1, "concat_axis": 0}),
    "all_to_all_v": (
        D.AllToAllVDescriptor,
        lambda r, n: {"send_counts": [2 * n] + [0] * (n - 1), "receive_counts": [2 * n if r == 0 else 0] * n},
    ),
    "permute": (D.PermuteDescriptor, lambda r, n: {"pairs": [(i, i + 1) for i in range(n - 1)]}),
    "send_receive": (D.SendReceiveDescriptor, lambda r, n: {"to": (r + 1) % n, "source": (r - 1) % n}),
}  # fmt: skip


def compared(name: str, size: int, element: str, view: Any, wide: int = 1) -> None:
    """A device's job against the host's row on the same parts."""
    kind, facts = KIND[name]
    dtype = ElementKind.of(element).dtype

    def work(comm: Any) -> None:
        rng = np.random.default_rng(comm.rank)
        shape = (2 * size, 2 * size * wide)
        # Integers: their sums are exact, since formulas of NumPy's backend are evaluated in float64.
        base = rng.integers(-8, 9, (shape[1] * 2, shape[0]) if view is STRIDED else shape).astype(dtype)
        x = base.T[:, ::2] if view is STRIDED else base
        desc = kind(shape=x.shape, element=element, ranks=size, **facts(comm.rank, size))
        made = desc.output_shape(comm.rank)
        want, y = None, None
        if made is not None:
            want = np.zeros(made, dtype)
            room = np.zeros((made[1] * 2, made[0]) if view is STRIDED else made, dtype)
            y = room.T[:, ::2] if view is STRIDED else room
        before = x.copy()
        PLANS[kind].select(desc, comm)(x=x, y=want)
        comm.attach(linking)
        launched(desc, comm, x, y)
        assert x.tobytes() == before.tobytes()
        if y is not None:
            assert y.tobytes() == want.tobytes(), (comm.rank, y, want)
        comm.link.close()
        comm._link = None

    D.run_ranks(work, size, timeout=20)


@pytest.mark.parametrize("name", KIND)
def test_a_device_gives_the_bits_of_the_host(name: str) -> None:
    for size in (1, 2, 3):
        for view in (DENSE, STRIDED):
            compared(name, size, "float32", view)
    compared(name, 3, "bfloat16", DENSE)


def test_large_messages_and_many_ranks_have_the_same_order() -> None:
    compared("all_reduce", 3, "float16", DENSE, wide=300)
    compared("all_reduce", 11, "bfloat16", STRIDED)
    compared("reduce_scatter", 17, "float16", DENSE)
    compared("all_to_all", 3, "complex128", STRIDED)
    compared("permute", 2, "int64", STRIDED)
    compared("all_reduce", 3, "int8", STRIDED)


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_to_all", "permute", "send_receive", "all_gather"])
def test_in_place(name: str) -> None:
    kind, facts = KIND[name]

    def work(comm: Any) -> Any:
        comm.attach(linking)
        base = np.arange(36.0).reshape(6, 6) + 100 * comm.rank
        x = base[2 * comm.rank : 2 * comm.rank + 2] if name == "all_gather" else base
        desc = kind(shape=x.shape, element="float64", ranks=3, **facts(comm.rank, 3))
        want = np.zeros(desc.output_shape(comm.rank))
        launched(desc, comm, x.copy(), want)
        launched(desc, comm, x, base)
        return base.tolist() == want.tolist()

    assert D.run_ranks(work, 3, timeout=20) == [True] * 3


@pytest.mark.parametrize("name", KIND)
@pytest.mark.parametrize("native", [False, True])
def test_where_y_meets_x(name: str, native: bool) -> None:
    """y begins one place behind x, and either is read as it was."""
    kind, facts = KIND[name]
    job = NativeJob if native and name.partition("reduce")[1] else Job

    def work(comm: Any) -> Any:
        comm.attach(linking)
        base = np.arange(500.0) + 1000 * comm.rank
        x = base[:72].reshape(6, 12)
        desc = kind(shape=(6, 12), element="float64", ranks=3, **facts(comm.rank, 3))
        made = desc.output_shape(comm.rank)
        y, want = (None, None) if made is None else (base[1 : 1 + int(np.prod(made))].reshape(made), np.zeros(made))
        launched(desc, comm, x.copy(), want, job)
        launched(desc, comm, x, y, job)
        return y is None or y.tolist() == want.tolist()

    assert D.run_ranks(work, 3, timeout=20) == [True] * 3


@pytest.mark.parametrize(
    "name", ["all_reduce", "all_reduce of mean", "reduce", "reduce_scatter", "reduce_scatter along 1"]
)
def test_sums_by_nccl_itself(name: str) -> None:
    kind, facts = KIND[name]

    def work(comm: Any) -> None:
        comm.attach(linking)
        x = np.random.default_rng(comm.rank).standard_normal((6, 12))
        for view in (x, x[:, ::2]):
            desc = kind(shape=view.shape, element="float64", ranks=3, **facts(comm.rank, 3))
            made = desc.output_shape(comm.rank)
            y, want = (None, None) if made is None else (np.zeros((made[1], made[0])).T, np.zeros(made))
            launched(desc, comm, view, y, NativeJob)
            launched(desc, comm, view, want)
            if y is not None:
                np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-13)

    D.run_ranks(work, 3, timeout=20)


def test_rows_and_what_they_promise() -> None:
    def work(comm: Any) -> None:
        desc = D.AllReduceDescriptor(shape=(4096,), element="bfloat16", ranks=2)
        host = D.AllReducePlan.select(desc, comm)
        assert str(host.sku) == "distributed.all_reduce[sum]/ranks/bfloat16.float32/any/any/numpy"
        assert host.precision_guarantee.deterministic and host.workspace_size() == 0
        with pytest.raises(bc.UnsupportedError, match="is for engine nccl, this is threads"):
            D.AllReducePlan.select(desc, comm, bc.PlanPreference(prefer_backend="nccl"))
        comm.attach(linking)
        assert comm.engine == "nccl" and comm.device == 0
        plan = D.AllReducePlan.select(desc, comm)
        assert plan.sku.variant == "nccl_tree" and plan.sku.precision_guarantee.order == "tree of ranks"
        assert plan.workspace_size() == 8192
        fast = D.AllReducePlan.select(desc, comm, bc.PlanPreference(deterministic=False))
        assert fast.sku.variant == "nccl" and fast.workspace_size() == 0
        promise = fast.sku.precision_guarantee
        assert not promise.deterministic and promise.order == "NCCL's" and promise.accumulator == "bfloat16"
        assert "the order of sums is NCCL's" in plan.explain()
        gather = D.AllGatherDescriptor(shape=(4, 2), element="float8_e4m3fn", ranks=2)
        assert D.AllGatherPlan.select(gather, comm).sku.variant == "nccl"
        half = comm.split(0)
        assert half.engine == "nccl" and half.link is not comm.link
        x = np.ones(3)
        assert D.all_reduce(x, comm).tolist() == [2, 2, 2]  # arrays of the host take the host's row
        verdict = plan.can_implement(D.CollectiveArgs(x=x, y=x))
        assert not verdict and "x must be bfloat16" in verdict.reason

    D.run_ranks(work, 2, timeout=20)


def test_the_gpu_of_a_rank_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """LOCAL_RANK says it; what srun and mpirun set counts where a process sees several GPUs."""
    asked: list[Any] = []
    monkeypatch.setattr(world, "resolve_device", asked.append)
    for name in ("LOCAL_RANK", *world.LOCALS, *world.SIZES):
        monkeypatch.delenv(name, raising=False)
    for visible in (1, 8):
        monkeypatch.setattr(world, "driver_device_count", lambda visible=visible: visible)
        world._local_device()
        monkeypatch.setenv("SLURM_LOCALID", "3")
        monkeypatch.setenv("SLURM_NTASKS", "1")
        world._local_device()  # what this process starts itself is not placed by srun
        monkeypatch.setenv("SLURM_NTASKS", "8")
        world._local_device()
        monkeypatch.setenv("LOCAL_RANK", "5")
        world._local_device()
        monkeypatch.delenv("LOCAL_RANK")
        monkeypatch.delenv("SLURM_LOCALID")
    assert asked == [None, None, None, 5, None, None, 3, 5]
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(bc.InvalidProblemError, match="LOCAL_RANK must be an integer"):
        world._local_device()


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(nccl.NCCL), "unavailable")
    monkeypatch.setattr(
        nccl, "_search", lambda name, bindings, package, behind: f'pip install "baracuda_py[cu12]" {behind}'
    )
    monkeypatch.setattr(nccl, "cupy_major", lambda: 12)
    assert nccl.NCCL.unavailable() == 'pip install "baracuda_py[cu12,nccl12]" 10'


def test_a_failure_aborts_what_is_under_way() -> None:
    def work(comm: Any) -> None:
        comm.attach(linking)
        link = comm.link
        D.barrier(comm)
        if comm.rank == 1:
            comm.abort()
        with pytest.raises(D.AbortedError):
            D.barrier(comm)
        assert link.aborted

    D.run_ranks(work, 2, timeout=20)


def test_statuses_are_typed() -> None:
    def work(comm: Any) -> None:
        comm.attach(linking)
        link, piece = comm.link, nccl.Piece(np.zeros(4).ctypes.data, 4)
        with pytest.raises(LibraryError, match=r"ncclSend, ncclRecv failed: ncclInvalidArgument \(a stand-in\)"):
            comm.link.handle.gone = True
            link.exchange([piece], [piece], 0)
        comm.link.handle.gone = False

    D.run_ranks(work, 1, timeout=20)
