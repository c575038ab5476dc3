"""Memory that cannot be had: one error of this package and of the array's, which names the bytes, on every package."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.memory import lacking
from baracuda_py.core.outputs import maker

LONG = np.ones(1 << 24, np.float32)
NBYTES = 4 << 48  # of a matrix of as many rows and columns


def _torch(x: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(x)


def _jax(x: np.ndarray) -> Any:
    return pytest.importorskip("jax.numpy").asarray(x)


@pytest.mark.parametrize("to", [lambda x: x, _torch, _jax], ids=["numpy", "torch", "jax"])
def test_an_output_names_its_bytes(to: Any) -> None:
    x = to(LONG)
    with pytest.raises(bc.OutOfMemoryError, match=str(NBYTES)) as said:
        bc.outer(x, x)
    assert isinstance(said.value, bc.BaracudaError) and isinstance(said.value, MemoryError)
    assert said.value.nbytes == NBYTES


def test_it_is_of_the_package_too() -> None:
    torch = pytest.importorskip("torch")
    caught = lacking(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "an output", 2 << 30)
    assert isinstance(caught, (torch.OutOfMemoryError, RuntimeError)) and isinstance(caught, bc.OutOfMemoryError)
    assert str(2 << 30) in str(caught) and "CUDA out of memory" in str(caught)


def test_cupys_is_one() -> None:
    memory = pytest.importorskip("cupy.cuda.memory")
    caught = lacking(memory.OutOfMemoryError(1 << 40, 1 << 20), "an output", 1 << 40)
    assert isinstance(caught, memory.OutOfMemoryError) and isinstance(caught, bc.OutOfMemoryError)
    assert str(1 << 40) in str(caught) and caught.nbytes == 1 << 40


def test_cupys_allocator_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    from baracuda_py.testing import pointer_view

    def empty(*_: Any) -> Any:
        raise cupy.cuda.memory.OutOfMemoryError(1 << 44, 0)

    like = pointer_view(LONG[:4])
    monkeypatch.setattr("cupy.cuda.runtime.getDevice", lambda: 0)
    monkeypatch.setattr(cupy, "ndarray", empty)
    with pytest.raises(bc.OutOfMemoryError, match="17592186044416 bytes for an output"):
        maker(like, (1 << 42,), ElementKind.F32, 0)()


def test_xlas_words_are_known() -> None:
    caught = lacking(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."), "an output", 9)
    assert isinstance(caught, bc.OutOfMemoryError) and isinstance(caught, RuntimeError)


def test_other_errors_are_left_alone() -> None:
    for error in (RuntimeError("an illegal memory access was encountered"), ValueError("x"), KeyError("memory")):
        assert lacking(error, "an output", 9) is None


def test_it_can_be_sent_and_copied() -> None:
    torch = pytest.importorskip("torch")
    for error in (MemoryError("no"), torch.OutOfMemoryError("no"), RuntimeError("out of memory")):
        caught = lacking(error, "an output", 9)
        for again in (pickle.loads(pickle.dumps(caught)), copy.copy(caught)):
            assert isinstance(again, bc.OutOfMemoryError) and again.nbytes == 9 and str(again) == str(caught)


@pytest.mark.parametrize("name", ["dft", "helmert", "hadamard"])
def test_matrices_that_the_host_makes(name: str) -> None:
    with pytest.raises(bc.OutOfMemoryError, match=str(16 << 80)):
        getattr(bc, name)(1 << 40)


@pytest.mark.parametrize("name", ["pascal", "invpascal", "invhilbert"])
@pytest.mark.parametrize("n", [600, 10**9])
def test_numbers_beyond_a_float(name: str, n: int) -> None:
    with pytest.raises(bc.InvalidProblemError, match=r"^n "):
        getattr(bc, name)(n)
    assert np.isfinite(getattr(bc, name)(50, element="float64")).all()


def test_the_largest_triangles_are_of_finite_numbers() -> None:
    assert np.isfinite(bc.pascal(515, element="float64")).all()
    assert np.isfinite(bc.pascal(1030, "lower", element="float64")[-1]).all()
    with pytest.raises(bc.InvalidProblemError, match="515"):
        bc.pascal(516)


def test_what_the_backend_computes_with() -> None:
    wide = np.broadcast_to(np.float32(1), (1 << 22, 1 << 22))
    with pytest.raises(bc.OutOfMemoryError, match=r"bytes for what the NumPy backend computes reduce\.reduce with"):
        bc.sum(wide, axis=0)


@pytest.mark.parametrize("make", [bc.zeros, bc.ones, bc.empty, bc.arange, lambda n: bc.linspace(0, 1, n)])
def test_arrays_of_nothing_but_numbers(make: Any) -> None:
    with pytest.raises(bc.OutOfMemoryError, match="bytes for an output"):
        make(1 << 52)


def test_a_workspace_names_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is launched, and the next call, which finds memory, runs."""
    cupy = pytest.importorskip("cupy")
    from baracuda_py.testing import pointer_view
    from baracuda_py.testing.recording import Recorder, recording

    def empty(*_: Any) -> Any:
        raise cupy.cuda.memory.OutOfMemoryError(1 << 44, 0)

    plan = bc.SortPlan.select(bc.SortPlan.descriptor(shape=(1 << 22,), element="float32"), device=fake_device(9.0))
    args = plan.args(**{name: pointer_view(np.empty(1 << 22, kind)) for name, kind in (("x", "f4"), ("y", "f4"))})
    with recording() as record:
        with monkeypatch.context() as during:
            during.setattr(Recorder, "allocate", empty)
            with pytest.raises(bc.OutOfMemoryError, match=r"\d+ bytes for the workspace of sort\.sort") as said:
                plan.run(args)
        assert isinstance(said.value, cupy.cuda.memory.OutOfMemoryError) and not record.launches
        plan.run(args)
        assert record.launches
