"""The functional layer's direct path: taken when it may be, left when it may not, with the same results."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda import direct, hotpath
from baracuda_py.core.args import arrays_of
from baracuda_py.core.registry import plans


def test_it_is_generated_for_every_plan_of_plain_inputs_and_outputs():
    for plan in plans().values():
        if all(s.role in ("in", "out") and not s.many for s in arrays_of(plan.args)):
            for package in ("cupy", "torch"):
                compile(direct.source(plan.args, package), plan.__name__, "exec")


def test_its_key_is_the_one_that_run_uses():
    names = [s.name for s in arrays_of(bc.RMSNormArgs)]
    x = np.ones((2, 4), np.float32)
    given = dict.fromkeys(names) | {"x": Fake(x), "y": Fake(x)}
    key, alignment = hotpath.layout_key(bc.RMSNormArgs, "cupy", given)
    assert len(key) == 3 * len(names) and len(alignment) == len(names)
    assert key[:3] == (x.shape, x.strides, x.dtype) and key[3:6] == (None, None, None)
    assert alignment[0] == given["x"].data.ptr & 15


class Fake:
    """What the key reads of a CuPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.data = type("Pointer", (), {"ptr": array.__array_interface__["data"][0]})


@pytest.fixture
def calls(monkeypatch):
    """How often a call went through `plan.run`: each such call is learned from."""
    count = [0]
    learn = direct.Direct.learn

    def counted(self, arrays):
        count[0] += 1
        learn(self, arrays)

    monkeypatch.setattr(direct.Direct, "learn", counted)
    return count


def same(got, x, weight):
    x, weight = x.get().astype(np.float64), weight.get().astype(np.float64)
    want = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(got.get(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_the_second_call_is_direct_and_right(calls):
    import cupy

    weight = cupy.random.standard_normal(96, dtype=cupy.float32)
    for expected in (1, 1, 1):
        x = cupy.random.standard_normal((5, 96), dtype=cupy.float32)
        same(bc.rms_norm(x, weight), x, weight)
        assert calls[0] == expected


@pytest.mark.gpu
def test_other_strides_and_alignments_are_looked_at_again(calls):
    import cupy

    buffer = cupy.random.standard_normal(5 * 97 + 1, dtype=cupy.float32)
    weight = cupy.random.standard_normal(96, dtype=cupy.float32)
    dense, pitched = buffer[: 5 * 96].reshape(5, 96), buffer[: 5 * 97].reshape(5, 97)[:, :96]
    unaligned = buffer[1 : 5 * 96 + 1].reshape(5, 96)
    for view in (dense, pitched, unaligned, pitched, dense, unaligned):
        same(bc.rms_norm(view, weight), view, weight)
    assert calls[0] >= 3


@pytest.mark.gpu
def test_wanted_outputs_out_and_streams():
    import cupy

    x, weight = cupy.ones((3, 64), cupy.float32), cupy.ones(64, cupy.float32)
    for _ in range(3):
        y, rstd = bc.rms_norm(x, weight, return_rstd=True)
        assert y.shape == x.shape and rstd.shape == (3,) and abs(float(rstd[0]) - 1) < 1e-5
        assert bc.rms_norm(x, weight, out=y) is y
    stream = cupy.cuda.Stream(non_blocking=True)
    y = bc.rms_norm(x, weight, stream=stream)
    stream.synchronize()
    same(y, x, weight)


@pytest.mark.gpu
@pytest.mark.parametrize("package", ["cupy", "torch"])
def test_no_entry_keeps_an_array_alive(package):
    made = pytest.importorskip(package)
    x = made.ones((3, 72), **({"device": "cuda"} if package == "torch" else {"dtype": "float32"}))
    bc.rms_norm(x)
    bc.rms_norm(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.gpu
def test_scalars_of_another_type_take_the_long_way():
    import cupy

    x = cupy.arange(8, dtype=cupy.float32)
    for alpha in (2.0, 2, np.float32(2), cupy.asarray(2.0, cupy.float32), 2.0):
        assert bc.affine(x, alpha=alpha, beta=1.0).get().tolist() == [2.0 * v + 1 for v in range(8)]
