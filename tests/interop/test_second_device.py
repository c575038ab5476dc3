"""Several devices without a GPU: arrays on one of them while another is current, and arrays on both.

What a function of several calls makes for itself is the likeliest to be on the wrong one.
"""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import arrays
from baracuda_py.core.errors import DeviceMismatchError, InvalidProblemError, UnsupportedError
from baracuda_py.interop import cupy_streams, jax_arrays
from baracuda_py.jit import launch
from baracuda_py.jit.capture import Captured
from baracuda_py.testing import pointer_view
from baracuda_py.testing.layouts import aligned_bytes
from tests.interop.device_calls import CALLS
from tests.interop.hand_written import GIVEN
from tests.interop.second_device import STREAM, Devices, spread, two_devices

pytest.importorskip("cupy")
_NOT_HERE = {
    "orthogonal": "cuSOLVER, which needs a GPU, factors",
    "randperm": "has no operand: it is made on the current device",
}
NAMES = sorted(GIVEN.keys() - _NOT_HERE)
CASES = [*NAMES, *(name for name in CALLS if name not in GIVEN and CALLS[name].name not in _NOT_HERE)]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    with two_devices(monkeypatch) as found:
        yield found


def given_to(case: str) -> list[Any]:
    """Operands and facts of a function written by hand. Nothing is computed here, so that no iteration would end."""
    operands, facts = GIVEN[case]()
    return [operands, facts | {"niter": 2} if "niter" in facts else facts]


def call_of(case: str) -> tuple[str, Any]:
    """A function's name, and its operands and keywords."""
    if case in GIVEN:
        return case, given_to(case)
    return CALLS[case].name, [CALLS[case].operands, CALLS[case].facts]


@pytest.mark.parametrize("case", CASES)
def test_all_is_made_and_launched_where_the_operands_are(case: str, devices: Devices) -> None:
    """On the device's own current stream, or the one that is given."""
    name, call = call_of(case)
    function: Any = getattr(bc, name)
    streams = [None, 0x777] if "stream" in inspect.signature(function).parameters else [None]
    for here, there, stream in [(0, 1, at) for at in streams] + [(1, 0, None)]:
        devices.use(here)
        devices.forget()
        held = devices.array(call, there)
        made = function(*held[0], **held[1], **({} if stream is None else {"stream": stream}))
        assert devices.current == here
        assert {a.data.device_id for a in spread(made)} <= {there}
        assert devices.places() <= {(there, STREAM + there if stream is None else stream)}


@pytest.mark.parametrize("case", NAMES)
def test_copies_of_strided_operands_are_made_there_too(case: str, devices: Devices) -> None:
    """In the order of the stream that is given."""
    function: Any = getattr(bc, case)
    if "stream" not in inspect.signature(function).parameters:
        return
    given, facts = devices.array(given_to(case), 1, apart=2)
    with contextlib.suppress(InvalidProblemError, UnsupportedError):  # some refuse strides
        function(*given, **facts, stream=0x777)
    assert devices.current == 0 and devices.places() <= {(1, 0x777)}


def test_a_library_is_called_there_too(devices: Devices) -> None:
    devices.use(0)
    bc.addmm(*devices.array([ones(4, 5), ones(4, 6), ones(6, 5)], 1))
    assert devices.called == [(1, STREAM + 1)]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where arrays are within lists and dicts."""
    items = enumerate(value) if isinstance(value, (list, tuple)) else value.items() if isinstance(value, dict) else ()
    for key, item in items:
        yield from paths(item, (*path, key))
    if isinstance(value, np.ndarray):
        yield path


def put(devices: Devices, value: Any, odd: Any, path: tuple[Any, ...] = ()) -> Any:
    """The arrays on cuda:1, that at `odd` on cuda:0."""
    if isinstance(value, (list, tuple)):
        return type(value)(put(devices, one, odd, (*path, i)) for i, one in enumerate(value))
    if isinstance(value, dict):
        return {key: put(devices, one, odd, (*path, key)) for key, one in value.items()}
    return devices.array(value, 0 if path == odd else 1)


@pytest.mark.parametrize("case", CASES)
def test_operands_on_both_are_refused_before_anything_is_launched(case: str, devices: Devices) -> None:
    name, call = call_of(case)
    found = list(paths(call))
    for odd in found if len(found) > 1 else ():
        given, facts = put(devices, call, odd)
        with pytest.raises(DeviceMismatchError, match="is on cuda:"):
            getattr(bc, name)(*given, **facts)
        assert not devices.record.launches and not devices.called and devices.current == 0


def test_the_error_names_operands(devices: Devices) -> None:
    c, a, b = ones(4, 5), ones(2, 4, 6), ones(2, 6, 5)
    with pytest.raises(DeviceMismatchError, match=r"^b is on cuda:1, c is on cuda:0; copy the array there first$"):
        bc.addbmm(devices.array(c, 0), devices.array(a, 0), devices.array(b, 1))


# -- plans ----------------------------------------------------------------------------------------------------------


def test_preparing_makes_the_device_current(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may be measured then, on operands that are made where they are timed."""
    desc = bc.RMSNormDescriptor(batch_shape=(3,), normalized_shape=(8,), element="float32")
    plan, seen = bc.RMSNormPlan.select(desc, device=1), []
    layout = plan.plan_layout

    def noted(*given: Any, **more: Any) -> Any:
        seen.append(devices.current)
        return layout(*given, **more)

    monkeypatch.setattr(plan, "plan_layout", noted)
    x, weight, y = devices.array([ones(3, 8), ones(8), ones(3, 8)], 1)
    plan.prepare(bc.RMSNormArgs(x=x, weight=weight, y=y))
    assert set(seen) == {1} and devices.current == 0


# -- graphs ---------------------------------------------------------------------------------------------------------


def test_a_replay_is_on_the_current_stream_of_the_graphs_device(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    runtime = launch.runtime_for(devices.devices[1])
    captured = Captured(None, lambda at: seen.append((devices.current, at)), 0, None)
    monkeypatch.setattr(runtime, "capture", lambda *_: captured, raising=False)
    g = bc.graph(bc.exp, devices.array(ones(8), 1))
    g()
    g(5)
    devices.use(1)
    g()
    assert seen == [(1, STREAM + 1), (1, 5), (1, STREAM + 1)] and devices.current == 1


def test_a_captured_call_on_another_device_is_refused(devices: Devices) -> None:
    """It would be launched when the graph is made and never again."""
    x = devices.array(ones(8), 1)
    with pytest.raises(DeviceMismatchError, match=r"not become part of the graph.*cuda:0; give graph\(…, device=1\)"):
        bc.graph(lambda: bc.exp(x))
    assert not devices.record.launches
    devices.use(1)
    bc.graph(lambda: bc.exp(x))()
    assert {one.function.device.ordinal for one in devices.record.launches} == {1}


# -- CuPy and JAX ---------------------------------------------------------------------------------------------------


def test_a_device_that_another_package_leaves_current_keeps_its_stream(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy gives the stream that was before to the device that is current when the context of a stream ends."""
    ended: list[int] = []

    @contextlib.contextmanager
    def external(stream: int) -> Iterator[None]:
        yield
        ended.append(devices.current)

    monkeypatch.setattr(cupy_streams, "external_stream", external)
    with cupy_streams.on_stream(5, 1):
        devices.use(0)  # as JAX does
    assert ended == [1] and devices.current == 0


class JaxArray:
    """A JAX array on a CUDA device, as far as it is read and made."""

    shape, dtype = (8,), np.dtype("float32")

    def __init__(self, ordinal: int) -> None:
        self.device = SimpleNamespace(platform="cuda", local_hardware_id=ordinal)

    def devices(self) -> list[Any]:
        return [self.device]

    def is_deleted(self) -> bool:
        return False


def test_a_jax_array_is_read_and_made_with_its_device_current(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy exports an array in the order of the current device's stream, whichever device the array is on.

    JAX may leave another device current.
    """
    import cupy

    seen: list[tuple[int, int]] = []
    like = JaxArray(1)

    def left(made: Any) -> Any:
        seen.append((devices.current, devices.stream()))
        devices.use(0)
        return made

    jax = SimpleNamespace(dlpack=SimpleNamespace(from_dlpack=lambda export: left(like)))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setattr(jax_arrays, "locate", lambda a, stream: left(jax_arrays.Memory(64, None, 1, None)))
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=devices.stream()))
    buffer = pointer_view(aligned_bytes(32).view(np.float32), 1)
    assert jax_arrays.array(buffer, bc.ElementKind.F32, like) is like
    assert arrays._read_jax(like).device == 1
    assert seen == [(1, STREAM + 1)] * 2 and devices.current == 0


_ON_THE_SECOND = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp, numpy as np
import baracuda_py as bc
from baracuda_py.ops.indexing.key import number_like, numbers_like
from baracuda_py.ops.layout.made import from_host
from baracuda_py.ops.loss.composed_losses import places
x = jax.device_put(jnp.ones((4, 4)), jax.devices()[1])
for made in (numbers_like(x, range(3)), number_like(x, 2.0), from_host(np.ones(3), x), places(x, 3), bc.exp(x)):
    assert made.devices() == x.devices() == made[None].devices(), made.devices()
assert jax.jit(lambda x: places(x, 3) + numbers_like(x, range(3)))(x).shape == (3,)
"""


def test_what_is_made_beside_a_jax_array_is_on_its_device() -> None:
    pytest.importorskip("jax")
    found = subprocess.run([sys.executable, "-c", _ON_THE_SECOND], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
