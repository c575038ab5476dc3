"""On a GPU: BARACUDA_CHECK=1 poisons outputs and looks at results, calls are logged and failing ones replayed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda.checks import after, before
from baracuda_py.cli.replay import again, load
from baracuda_py.core import dump
from baracuda_py.core.errors import InvalidProblemError, NonFiniteWarning

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


@pytest.fixture
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "1")


@pytest.mark.usefixtures("_checked")
def test_what_is_not_finite_is_warned_of(cupy: Any) -> None:
    x = cupy.ones((33, 65), cupy.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NonFiniteWarning)
        for dtype in (cupy.float16, cupy.float32, cupy.float64):
            bc.log(x.astype(dtype))
            bc.log(x.astype(dtype).T[::2])
        bc.softmax(x)
        bc.add(x.astype(cupy.int32), 1)
        bc.silu(x, out=x)
    x[1, 2] = -1
    with pytest.warns(NonFiniteWarning, match=r"y: 1 of 2145 elements are NaN .* first at \(1, 2\)"):
        bc.log(x)
    y = cupy.zeros((33, 130), cupy.float32)[:, ::2]
    with pytest.warns(NonFiniteWarning, match="1 of 2145"):
        bc.log(x, out=y)
    np.testing.assert_allclose(y.get()[[0, 1], [0, 2]], np.log([1 / (1 + np.exp(-1)), np.nan]), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_outputs_are_poisoned_and_found_unwritten(cupy: Any, dtype: str) -> None:
    """What a kernel that writes nothing would leave; memory between a strided output's elements is left alone."""
    x, whole = cupy.ones((4, 6), dtype), cupy.zeros((4, 12), dtype)
    y = whole[:, ::2]
    chosen = bc.UnaryPlan.select(bc.UnaryDescriptor(kind="exp", shape=(4, 6), element="float32"), device=0)
    refs = [bc.TensorRef(a.data.ptr, a.shape, tuple(s // a.itemsize for s in a.strides), dtype) for a in (x, y)]
    args = chosen.args(x=refs[0], y=refs[1])
    assert before(chosen, args)
    assert np.isnan(y.get()).all() and not whole[:, 1::2].get().any()
    with pytest.warns(NonFiniteWarning, match="24 of 24 elements were not written"):
        after(chosen, args, True)
    y[...] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after(chosen, args, True)
    same = chosen.args(x=refs[0], y=refs[0])
    assert before(chosen, same) and (x.get() == 1).all(), "an output that is an input is left as it is"


def test_a_dump_comes_back_to_the_device(cupy: Any, tmp_path: Path) -> None:
    x = cupy.arange(24, dtype=cupy.float32).reshape(4, 6)
    for view in (x, x.T, x[::2, ::-1]):
        error = InvalidProblemError("then")
        call, arrays = load(dump.write(tmp_path, {"function": "sum"}, (view,), {"axis": 0}, error))
        got = again(call, arrays, "cuda:0")
        assert isinstance(got, cupy.ndarray) and np.array_equal(got.get(), view.get().sum(0))
        assert np.array_equal(again(call, arrays, "cpu"), view.get().sum(0))
