"""cuFFT's plans: shared, bounded, destroyed where that may wait, kept where a graph may read them; layouts it takes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends import cufft, library
from baracuda_py.backends.cufft import CUFFT, FORWARD, Fft, Strided, Transform, fft_of
from baracuda_py.backends.library import LibraryError
from baracuda_py.core import PlanPreference
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem, fit
from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Backward
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.tensor import TensorRef, View
from baracuda_py.ops.fft.fft import FftPlan
from baracuda_py.ops.fft.irfft import IrfftPlan
from baracuda_py.schedules.fourier import fitted
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.libraries import HostError, HostFft
from baracuda_py.testing.places import call

DENSE = Strided((8,), 1, 8)
EIGHT = Transform("c2c", "float64", (8,), DENSE, DENSE, 3)
DEVICE = emulated_device(9.0)


@pytest.fixture
def host() -> Iterator[HostFft]:
    with emulating():
        yield CUFFT.bindings


def _run(fft: Fft, x: np.ndarray) -> np.ndarray:
    y, area = np.empty_like(x), np.empty(fft.workspace, np.uint8)
    fft.run([(x.ctypes.data, y.ctypes.data)], area.ctypes.data, 0, FORWARD)
    return y


def test_equal_transforms_share_a_plan(host: HostFft) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)) + 0j
    fft = fft_of(EIGHT, DEVICE)
    assert fft_of(replace(EIGHT), DEVICE) is fft and len(host.plans) == 1
    assert fft_of(replace(EIGHT, batch=2), DEVICE) is not fft
    np.testing.assert_allclose(_run(fft, x), np.fft.fft(x))


def test_plans_are_bounded_and_destroyed_with_the_next(host: HostFft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cufft, "KEPT", 2)
    held = fft_of(EIGHT, DEVICE)
    for batch in range(4, 8):
        fft_of(replace(EIGHT, batch=batch), DEVICE)
        gc.collect()
    # Two are kept, one is held, and the last one that fell out waits for the next to be made.
    assert len(host.plans) == 4 and len(CUFFT.graves[DEVICE.ordinal]) == 1
    _run(held, np.zeros((3, 8), complex))
    del held
    fft_of(replace(EIGHT, batch=9), DEVICE)
    gc.collect()
    assert len(host.plans) == 3


def test_a_captured_plan_stays(host: HostFft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cufft, "KEPT", 0)
    fft = fft_of(EIGHT, DEVICE)
    monkeypatch.setattr(type(fft._runtime), "capturing", lambda runtime, stream: True)
    _run(fft, np.zeros((3, 8), complex))
    del fft
    gc.collect()
    fft_of(replace(EIGHT, batch=4), DEVICE)
    assert len(host.plans) == 2 and not list(CUFFT.graves[DEVICE.ordinal])[1:]


def test_a_child_has_none_of_its_parents_plans(host: HostFft) -> None:
    fft = fft_of(EIGHT, DEVICE)
    CUFFT.forget()
    del fft
    gc.collect()
    assert not CUFFT.kept and not CUFFT.graves and len(host.plans) == 1


def test_a_failed_call_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        raise HostError

    for n, method, said in ((11, "xt_exec", "cufftXtExec"), (13, "xt_make_plan_many", "cufftXtMakePlanMany")):
        desc = FftPlan.descriptor(shape=(3, n), axis=1, element="complex64")
        with monkeypatch.context() as patched:
            patched.setattr(HostFft, method, fails)
            with pytest.raises(LibraryError, match=f"{said} failed: CUFFT_SETUP_FAILED"):
                call(FftPlan, desc, {"y"}, "emulator", PlanPreference(prefer_backend="cufft"), x=np.zeros((3, n)))


def test_problems_are_checked() -> None:
    for wrong in ({"kind": "r2r"}, {"part": "float16"}, {"lengths": ()}, {"lengths": (0,)}, {"batch": 0}):
        with pytest.raises(InvalidProblemError):
            replace(EIGHT, **wrong)


def _view(shape: tuple[int, ...], strides: tuple[int, ...], ptr: int = 0, real: bool = False) -> View:
    return View(ptr, shape, strides, ElementKind.F32 if real else ElementKind.C64)


def test_layouts_that_cufft_takes() -> None:
    """Steps, embedding and batch, as its manual counts them."""
    part, dense = ElementKind.F32, _view((4, 5, 6), (30, 6, 1))
    last = fitted("c2c", dense, dense, (2,), part)
    assert last and last.transform == Transform("c2c", "float32", (6,), Strided((6,), 1, 6), Strided((6,), 1, 6), 20)
    first = fitted("c2c", dense, dense, (0,), part)
    assert first and first.transform.source == Strided((4,), 30, 1) and first.transform.batch == 30
    middle = fitted("c2c", dense, dense, (1,), part)  # a call for each of four matrices
    assert middle and middle.transform.batch == 6 and middle.starts == tuple((240 * i, 240 * i) for i in range(4))
    padded = _view((4, 5, 6), (80, 16, 2))
    both = fitted("c2c", padded, dense, (0, 1), part)
    assert both and both.transform.source == Strided((4, 5), 16, 2)
    turned = _view((4, 5, 6), (1, 4, 20))  # of complex numbers the axes change places
    three = fitted("c2c", turned, turned, (0, 1, 2), part)
    assert three and three.transform.lengths == (6, 5, 4) and three.transform.source == Strided((6, 5, 4), 1, 1)
    assert fitted("c2c", dense, turned, (0, 1, 2), part) is None
    assert fitted("c2c", _view((4, 6), (6, -1), 80), _view((4, 6), (6, 1)), (1,), part) is None
    assert fitted("c2c", _view((4, 6), (7, 3)), _view((4, 6), (6, 1)), (0, 1), part) is None
    many = _view((9, 5, 10), (50, 10, 1))
    assert fitted("c2c", many, many, (1,), part) is None  # nine calls are more than two copies
    real, half = _view((4, 6), (6, 1), real=True), _view((4, 4), (4, 1))
    found = fitted("r2c", real, half, (1,), part)
    assert found and found.transform.lengths == (6,) and found.transform.batch == 4
    assert fitted("r2c", replace(real, ptr=4), half, (1,), part) is None  # not aligned to a complex number


def test_geometry_without_a_library() -> None:
    """A fake device tells launches and a bound of the workspace: a copy's piece where cuFFT cannot have the layout."""
    desc = FftPlan.descriptor(shape=(64, 121), axis=1, element="complex64")
    plan = FftPlan.select(desc, device=fake_device(9.0))
    dense, backwards = TensorRef(1 << 20, (64, 121), element="complex64"), (121, -1)
    loose = TensorRef((1 << 20) + 120 * 8, (64, 121), backwards, element="complex64")
    y = TensorRef(1 << 30, (64, 121), element="complex64")
    sizes = [plan.workspace_size(FftPlan.args(x=x, y=y)) for x in (dense, loose)]
    assert sizes[1] - sizes[0] == 64 * 121 * 8
    assert str(plan.sku).endswith("/contiguous/sm80/cufft")
    assert isinstance(plan.precision_guarantee.error, Backward) and not plan.precision_guarantee.batch_invariant


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real device is refused in words that say what to install; a fake one answers all the same."""
    monkeypatch.setattr(library, "_search", lambda *of: "cufft was not found; install it with: pip install …")
    desc, device = IrfftPlan.descriptor(shape=(3, 11), axis=1, element="float32"), fake_device(9.0)
    row = next(one for one in IrfftPlan.variants if one.name == "cufft")
    for one, refused in ((device, False), (replace(device, fake=False), True)):
        found = fit(row, dense_problem(IrfftPlan, desc, one), PlanPreference())
        assert isinstance(found, str) == refused and (not refused or "pip install" in found)
