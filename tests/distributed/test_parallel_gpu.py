"""Layers over ranks on a device: ranks are threads that share one GPU, and have the bits of one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed_stand_in import linking, stood_in
from test_distributed_gpu import DeviceNccl

import baracuda_py as bc
from baracuda_py import distributed as D
from baracuda_py.backends import nccl
from baracuda_py.core.device import resolve_device

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu
ROWS, IN, OUT, CLASSES = 384, 2048, 1536, 32000


@pytest.fixture(autouse=True)
def _linked(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in(monkeypatch)
    monkeypatch.setitem(vars(nccl.NCCL), "bindings", DeviceNccl())


def on_device(function: Any, size: int, *args: Any) -> list[Any]:
    """function(comm, *args) on ranks that are threads, of arrays of the device; results on the host."""

    def work(comm: Any) -> Any:
        comm.attach(lambda comm: linking(comm, resolve_device(0)))
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
            made = function(comm, *args)
            held = [cupy.asnumpy(bc.cast(one, "float32")) for one in made]
            stream.synchronize()
        return held

    return D.run_ranks(work, size)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def part(x: np.ndarray, comm: Any, axis: int, element: str) -> Any:
    return bc.cast(cupy.asarray(np.ascontiguousarray(np.split(x, comm.size, axis)[comm.rank])), element)


def whole(x: np.ndarray, element: str) -> Any:
    return bc.cast(cupy.asarray(x), element)


def rounded(x: np.ndarray, element: str) -> np.ndarray:
    return bc.cast(bc.cast(x, element), "float64")


@pytest.mark.parametrize("element", ["bfloat16", "float16", "float32"])
def test_linear_layers(element: str) -> None:
    x, w, b, dy = numbers(0, ROWS, IN), numbers(1, OUT, IN), numbers(2, OUT), numbers(3, ROWS, OUT)

    def work(comm: Any) -> Any:
        row = (part(x, comm, 1, element), part(w, comm, 1, element), whole(b, element), comm)
        column = (whole(x, element), part(w, comm, 0, element), part(b, comm, 0, element), comm)
        back = D.row_parallel_linear_backward(whole(dy, element), *row, dweight_element="float32")
        forth = D.column_parallel_linear_backward(part(dy, comm, 1, element), *column)
        return D.row_parallel_linear(*row), *back, D.column_parallel_linear(*column), *forth

    axes = (None, 1, 1, None, 1, None, 0, 0)
    alone = on_device(work, 1)[0]
    for size in (2, 4, 8):
        made = on_device(work, size)
        for axis, want, *each in zip(axes, alone, *made, strict=True):
            got = each[-1] if axis is None else np.concatenate(each, axis)
            assert got.tobytes() == want.tobytes()
    x, w, b, dy = (rounded(one, element) for one in (x, w, b, dy))
    y, dx, dweight = x @ w.T + b, dy @ w, dy.T @ x
    eps = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-18}[element]
    for got, want in zip(alone, (y, dx, dweight, dy.sum(0), y, dx, dweight, dy.sum(0)), strict=True):
        assert np.abs(got - want).max() <= 2 * eps * np.abs(want).max()


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_vocabulary(element: str) -> None:
    logits, x, w = 4 * numbers(0, 128, CLASSES), numbers(1, 128, 256), numbers(2, 4096, 256) / 8
    targets, near = (np.random.default_rng(n).integers(0, n, 128) for n in (CLASSES, 4096))
    targets[5] = near[7] = -100

    def work(comm: Any) -> Any:
        table = part(w, comm, 0, element)
        given = cupy.asarray(targets), comm
        loss = D.vocab_parallel_cross_entropy(
            part(logits, comm, 1, element), *given, label_smoothing=0.1, z_loss=1e-3, return_dlogits=True
        )
        fused = D.vocab_parallel_linear_cross_entropy(
            whole(x, element), table, cupy.asarray(near), None, comm, return_dx=True, return_dweight=True
        )
        rows = D.vocab_parallel_embedding(cupy.asarray(near), table, comm)
        return *loss, *fused, rows, D.vocab_parallel_embedding_backward(rows, cupy.asarray(near), table, comm)

    axes = (None, 1, None, None, 0, None, 0)
    alone = on_device(work, 1)[0]
    for size in (2, 4, 8):
        made = on_device(work, size)
        for axis, want, *each in zip(axes, alone, *made, strict=True):
            got = each[-1] if axis is None else np.concatenate(each, axis)
            assert got.tobytes() == want.tobytes()
    z = rounded(logits, element)
    lse = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1)
    valid = targets >= 0
    hit = z[np.arange(128), np.where(valid, targets, 0)]
    want = (0.9 * (lse - hit) + 0.1 * (lse - z.mean(1)) + 1e-3 * lse**2)[valid].mean()
    assert abs(float(alone[0]) - want) <= 1e-4 * want
    z = rounded(x, element) @ rounded(w, element).T
    lse = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1)
    want = (lse - z[np.arange(128), np.where(near >= 0, near, 0)])[near >= 0].mean()
    assert abs(float(alone[2]) - want) <= (1e-2 if element == "bfloat16" else 1e-4) * want


def test_adam_by_parts() -> None:
    params, grads = (
        [numbers(n, *s) for n, s in enumerate(((1000, 333), (77,)))],
        [numbers(9, 1000, 333), numbers(8, 77)],
    )

    def work(comm: Any) -> Any:
        held = [whole(one, "bfloat16") for one in params]
        states = [cupy.zeros(D.zero_shard_size(held, comm), np.float32) for _ in "mv"]
        master = D.zero_shard(held, comm, element="float32")
        for step in (1, 2):
            slopes = D.all_reduce_gradients([cupy.asarray(one) for one in grads], comm)
            D.distributed_adam_step(held, slopes, *states, comm, lr=0.1, step=step, master=master)
        return held

    alone = on_device(work, 1)[0]
    for made in on_device(work, 4):
        assert [one.tobytes() for one in made] == [one.tobytes() for one in alone]
