"""all_reduce_residual_rms_norm: the bits of all_reduce and rms_norm, by one kernel and by two calls."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from peers_stand_in import DEVICE, drawn, reaching, small

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.distributed import fused_norm, peer_kernels, peer_norm
from baracuda_py.distributed.descriptors import ReduceOp
from baracuda_py.distributed.tree import reduced
from baracuda_py.testing import pointer_view
from baracuda_py.testing.emulator import emulating

D = bc.distributed
CASES = [  # ranks, element, rows, columns, weight, eps, offset, in place, by the second kernel
    (2, "bfloat16", 5, 72, "bfloat16", 1e-6, 0.0, False, False),
    (3, "bfloat16", 7, 264, "float32", 1e-5, 1.0, True, True),
    (4, "float32", 9, 20, "float32", 0.0, 0.0, False, True),
    (2, "float16", 3, 1032, None, 1e-6, 0.0, True, False),
    (2, "float32", 2, 2052, "float32", 1e-6, 0.0, False, True),
]  # fmt: skip


def after_another(summed: np.ndarray, residual: np.ndarray, weight: Any, eps: float, offset: float) -> Any:
    """y and h by rms_norm's own kernel."""
    kind = ElementKind.of(summed.dtype)
    desc = bc.RMSNormDescriptor(
        batch_shape=summed.shape[0], normalized_shape=summed.shape[1], eps=eps, weight_offset=offset, element=kind,
        weight_element=kind if weight is None else ElementKind.of(weight.dtype),
    )  # fmt: skip
    y, h = np.zeros_like(summed), np.zeros_like(summed)
    views = {"x": summed, "weight": weight, "residual": residual, "y": y, "h": h}
    given = {name: None if one is None else pointer_view(one) for name, one in views.items()}
    bc.RMSNormPlan.select(desc, device=DEVICE)(**given)
    return y, h


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("size", "element", "rows", "cols", "weights", "eps", "offset", "inplace", "two"), CASES,
)  # fmt: skip
def test_one_kernel_has_the_bits_of_two(
    size: int, element: str, rows: int, cols: int, weights: Any, eps: float, offset: float, inplace: bool, two: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    small(monkeypatch, 1 << 16)
    monkeypatch.setattr(fused_norm, "allocating", lambda *facts: contextlib.nullcontext())
    monkeypatch.setitem(peer_kernels.ONE_SHOT, size, 0 if two else 1 << 16)
    kind = ElementKind.of(element)
    parts = [drawn(kind, (rows, cols), rank) for rank in range(size)]
    residual = drawn(kind, (rows, cols), 98)
    if kind is not ElementKind.F16:
        parts[0][1], residual[1] = 1e30, -1e25  # its squares leave float32
    parts[1][0], residual[0] = 0, 0
    weight = None if weights is None else drawn(ElementKind.of(weights), cols, 99)
    with emulating(3) as emulator:
        want = after_another(reduced(parts, ReduceOp.SUM, kind), residual, weight, eps, offset)
        reach, before = reaching(size), len(emulator.record.launches)

        def work(comm: Any) -> None:
            comm.reach(reach)
            for _ in range(3):
                x, other = pointer_view(parts[comm.rank].copy()), pointer_view(residual.copy())
                y, h = (x, other) if inplace else (pointer_view(np.full_like(residual, 9)) for _ in range(2))
                got = D.all_reduce_residual_rms_norm(
                    x, other, None if weight is None else pointer_view(weight), comm, eps=eps, weight_offset=offset,
                    out=(y, h), stream=0,
                )  # fmt: skip
                assert got[0] is y and got[1] is h
                assert seen(h, residual).tobytes() == want[1].tobytes()
                assert seen(y, residual).tobytes() == want[0].tobytes()

        D.run_ranks(work, size, timeout=60)
        assert len(emulator.record.launches) - before == 3 * size * (3 if two else 2)


def seen(view: Any, like: np.ndarray) -> np.ndarray:
    """The host memory under a view."""
    import ctypes

    held = (ctypes.c_ubyte * like.nbytes).from_address(view.data.ptr)
    return np.frombuffer(held, like.dtype).reshape(like.shape)


def test_which_problems_are_one_launch() -> None:
    half, single = ElementKind.BF16, ElementKind.F32
    rungs = {
        (4, 8192, half): True, (4, 16384, half): True, (4, 16392, half): False, (4, 8190, half): False,
        (4, 4096, single): True, (4, 8196, single): False, (0, 64, half): False, (2048, 8192, half): False,
    }  # fmt: skip
    for (rows, cols, kind), there in rungs.items():
        assert (peer_norm.Shape(rows, cols, kind, kind, 1e-6, 0.0).rung is not None) == there, (rows, cols)


def test_on_the_host_it_is_the_two_calls() -> None:
    def work(comm: Any) -> None:
        x, residual = drawn(ElementKind.F32, (4, 6), comm.rank), drawn(ElementKind.F32, (4, 6), 98)
        weight = drawn(ElementKind.F32, 6, 99)
        y, h = D.all_reduce_residual_rms_norm(x, residual, weight, comm, weight_offset=1)
        want = bc.rms_norm(D.all_reduce(x, comm), weight, residual, weight_offset=1, return_h=True)
        assert y.tobytes() == want[0].tobytes() and h.tobytes() == want[1].tobytes()
        total = sum(drawn(ElementKind.F32, (4, 6), rank).astype(float) for rank in range(3)) + residual
        exact = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6) * (weight.astype(float) + 1)
        np.testing.assert_allclose(y, exact, rtol=2e-5, atol=2e-5)

    D.run_ranks(work, 3, timeout=20)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")

    def work(comm: Any) -> None:
        x = torch.tensor(drawn(ElementKind.F64, (3, 4), comm.rank) / 50, requires_grad=True)
        residual = torch.tensor(drawn(ElementKind.F64, (3, 4), 98) / 50, requires_grad=True)
        y, h = D.all_reduce_residual_rms_norm(x, residual, None, comm)
        with torch.autograd.set_multithreading_enabled(False):
            (y.sum() + (h * h).sum()).backward()
        other = h.detach().clone().requires_grad_()
        made = torch.nn.functional.rms_norm(other, (4,), None, 1e-6)
        (made.sum() + (other * other).sum()).backward()
        torch.testing.assert_close(residual.grad, other.grad)
        torch.testing.assert_close(x.grad, 2 * other.grad)

    D.run_ranks(work, 2, timeout=20)


BAD = [
    ({"residual": None}, "residual is None"),
    ({"residual": np.ones((3, 4), np.float32)}, r"residual must have shape \(2, 4\)"),
    ({"residual": np.ones((2, 4))}, "residual must be float32, got float64"),
    ({"weight": np.ones(3, np.float32)}, r"weight must have shape \(4,\)"),
    ({"x": np.ones((2, 4), np.int32)}, "x must be .* of floats, got int32"),
    ({"eps": -1.0}, "eps must be a number from 0 on"),
    ({"comm": 3}, "comm must be a Communicator"),
    ({"out": np.ones((2, 4))}, "out= must give 2 arrays"),
    ({"out": (np.ones((2, 4), np.float32), np.ones((2, 3), np.float32))}, r"out \(h\) must be float32 of shape"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message for _, message in BAD])
def test_errors(wrong: dict[str, Any], message: str) -> None:
    def work(comm: Any) -> None:
        ones = np.ones((2, 4), np.float32)
        given = {"x": ones, "residual": ones, "weight": np.ones(4, np.float32), "comm": comm} | wrong
        with pytest.raises(bc.InvalidProblemError, match=message):
            D.all_reduce_residual_rms_norm(**given)

    D.run_ranks(work, 2, timeout=20)
