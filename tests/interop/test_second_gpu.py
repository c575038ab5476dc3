"""Arrays on one of two GPUs while the other is current: the bits, the place and the streams of CuPy, torch and JAX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave the GPUs' memory to the other tests

import baracuda_py as bc
from baracuda_py.core.device import driver_device_count
from baracuda_py.core.errors import DeviceMismatchError
from tests.interop.device_calls import CALLS, Call, made
from tests.interop.second_device import moved, spread

pytestmark = pytest.mark.gpu
BOTH = ((0, 1), (1, 0))  # (the current device, that of the arrays)


@pytest.fixture(autouse=True)
def _two() -> Iterator[None]:
    """JAX and failed tests leave any GPU current: each test says which before what it looks at."""
    if (count := driver_device_count()) < 2:
        pytest.skip(f"needs two CUDA devices, the driver reports {count}")
    from cupy.cuda import runtime

    runtime.setDevice(0)
    yield
    runtime.setDevice(0)


def current() -> int:
    from cupy.cuda import runtime

    return int(runtime.getDevice())


def use(ordinal: int) -> None:
    from cupy.cuda import runtime

    runtime.setDevice(ordinal)


# -- the packages ---------------------------------------------------------------------------------------------------


def to_cupy(array: np.ndarray, ordinal: int) -> Any:
    import cupy

    with cupy.cuda.Device(ordinal):
        made = cupy.asarray(array)
        cupy.cuda.get_current_stream().synchronize()  # other streams read it, too
    return made


def to_torch(array: np.ndarray, ordinal: int) -> Any:
    import torch

    return torch.from_numpy(np.array(array)).to(f"cuda:{ordinal}")


def to_jax(array: np.ndarray, ordinal: int) -> Any:
    import jax

    devices = [d for d in jax.local_devices(backend="cuda") if d.local_hardware_id == ordinal]
    return jax.device_put(array, devices[0])


def host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def place(array: Any) -> int:
    if hasattr(array, "get_device"):
        return int(array.get_device())
    if hasattr(array, "devices"):
        (device,) = array.devices()
        return int(device.local_hardware_id)
    return int(array.data.device_id)


PACKAGES: dict[str, Callable[[np.ndarray, int], Any]] = {"cupy": to_cupy, "torch": to_torch, "jax": to_jax}


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> str:
    """Those that are there and have two devices."""
    pytest.importorskip(request.param)
    if request.param == "torch":
        import torch

        found = torch.cuda.device_count()
    elif request.param == "jax":
        import jax

        try:
            found = len(jax.local_devices(backend="cuda"))
        except RuntimeError:
            found = 0
    else:
        found = 2
    if found < 2:
        pytest.skip(f"{request.param} has {found} CUDA devices")
    return str(request.param)


def run(call: Call, package: str, here: int, there: int, stream: Any = None) -> list[Any]:
    """What the call returns, and what it writes of what it is given, with the device `here` current.

    JAX's own functions, which a call may have to use, leave the device current that they ran on.
    """
    given, facts = moved([call.operands, dict(call.facts)], lambda a: PACKAGES[package](a, there))
    use(here)
    more = {} if stream is None else {"stream": stream}
    result = getattr(bc, call.name)(*given, **facts, **more)
    now = current()
    assert package == "jax" or now == here, f"cuda:{now} is left current"
    return [*spread(result), *spread(given)]


def same(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        a, b = host(one), host(other)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_bits_and_places(name: str, package: str) -> None:
    """The second call is the prepared one."""
    call = CALLS[name]
    if package == "jax" and not call.jax:
        pytest.skip("JAX arrays are not written, or not made of this element")
    want = run(call, package, 0, 0)
    for here, there in BOTH * 2:
        got = run(call, package, here, there)
        assert {place(one) for one in got} == {there}
        same(got, want)


@pytest.mark.parametrize("name", CALLS)
def test_on_both_is_refused(name: str) -> None:
    call = CALLS[name]
    arrays = [a for a in spread([call.operands, call.facts]) if isinstance(a, np.ndarray)]
    for odd in arrays if len(arrays) > 1 else ():
        given, facts = moved([call.operands, dict(call.facts)], lambda a, odd=odd: to_cupy(a, 0 if a is odd else 1))
        use(0)
        with pytest.raises(DeviceMismatchError, match="cuda:"):
            getattr(bc, call.name)(*given, **facts)
        assert current() == 0


@pytest.mark.parametrize("name", ["rms_norm", "index_fill", "load_balancing_loss", "sort, long", "gated"])
def test_a_stream_of_the_device(name: str) -> None:
    import cupy

    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
    want = run(CALLS[name], "cupy", 0, 0)
    got = run(CALLS[name], "cupy", 0, 1, stream)
    stream.synchronize()
    same(got, want)


# -- current streams, graphs, formulas --------------------------------------------------------------------------------


def test_each_device_has_a_current_stream(package: str) -> None:
    """What is launched waits for work on its own device's current stream, not the current device's."""
    if package == "jax":
        pytest.skip("XLA has streams of its own")
    import cupy

    x = to_cupy(made(1 << 20), 1)
    with cupy.cuda.Device(1):
        cupy.cuda.Device(1).synchronize()
        side = cupy.cuda.Stream(non_blocking=True)
        previous = cupy.cuda.get_current_stream()
        side.use()
    try:
        if package == "torch":
            import torch

            other = torch.cuda.ExternalStream(side.ptr, device=1)
            x = torch.as_tensor(x, device="cuda:1")
            use(0)
            with torch.cuda.stream(other):
                use(0)
                y = bc.exp(bc.exp(x))
        else:
            use(0)
            y = bc.exp(bc.exp(x))
        assert current() == 0
        side.synchronize()
        np.testing.assert_allclose(host(y), np.exp(np.exp(host(x))), rtol=1e-5)
    finally:
        with cupy.cuda.Device(1):
            previous.use()


@pytest.mark.parametrize(("here", "there"), BOTH)
def test_graphs(here: int, there: int) -> None:
    import cupy

    x, w = to_cupy(made(33, 256), there), to_cupy(made(256, seed=1), there)
    a = to_cupy(made(256, 64, seed=2), there)

    def function(x: Any) -> Any:
        return bc.matmul(bc.softmax(bc.rms_norm(x, w)), a)

    use(here)
    g = bc.graph(function, x)
    assert current() == here and place(g.outputs) == there
    with cupy.cuda.Device(there):
        x[...] = cupy.asarray(made(33, 256, seed=5))
        want = function(x).get()
    use(here)
    g()
    assert current() == here
    with cupy.cuda.Device(there):
        cupy.cuda.Device(there).synchronize()
    assert g.outputs.get().tobytes() == want.tobytes()
    use(here)
    with pytest.raises(DeviceMismatchError, match="not become part of the graph"):
        bc.graph(lambda: bc.exp(x))
    assert current() == here


@pytest.mark.parametrize(("here", "there"), BOTH)
def test_plans_are_prepared_bound_and_tuned(here: int, there: int) -> None:
    import cupy

    desc = bc.RMSNormDescriptor(batch_shape=(65,), normalized_shape=(512,), element="float32")
    plan = bc.RMSNormPlan.select(desc, device=there)
    x, weight, y = (to_cupy(a, there) for a in (made(65, 512), made(512, seed=1), made(65, 512)))
    args, want = bc.RMSNormArgs(x=x, weight=weight, y=y), run(CALLS["rms_norm"], "cupy", 0, 0)[0]
    use(here)
    with bc.autotune(rounds=1):
        plan.prepare(args)
        assert current() == here
    bound = plan.bind(args)
    bound()
    assert current() == here
    same([y], [want])
    with cupy.cuda.Device(there):
        y.fill(0)
    use(here)
    plan.run(args)
    same([y], [want])


@pytest.mark.parametrize(("here", "there"), BOTH)
def test_formulas_and_gradients(here: int, there: int, package: str) -> None:
    formula = bc.elementwise("x * w + tanh(x)")
    x, w = made(40, 60), made(60, seed=1)
    put = PACKAGES[package]
    want = host(formula(x=put(x, 0), w=put(w, 0)))
    use(here)
    got = formula(x=put(x, there), w=put(w, there))
    assert place(got) == there and host(got).tobytes() == want.tobytes()
    with pytest.raises(DeviceMismatchError, match="cuda:"):
        formula(x=put(x, 0), w=put(w, 1))


@pytest.mark.parametrize(("here", "there"), BOTH)
def test_torch_trains(here: int, there: int) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("torch has fewer than two CUDA devices")
    import baracuda_py.torch as bt

    found = []
    for at in (0, there):
        x, w = (to_torch(a, at).requires_grad_() for a in (made(64, 256), made(256, seed=1)))
        use(here)
        grads = torch.autograd.grad(bt.silu(bt.rms_norm(x, w)).sum(), (x, w))
        assert current() == here and {g.get_device() for g in grads} == {at}
        found.append([g.cpu().numpy().tobytes() for g in grads])
    assert found[0] == found[1]


@pytest.mark.parametrize(("here", "there"), BOTH)
def test_jax_compiles(here: int, there: int) -> None:
    jax = pytest.importorskip("jax")
    try:
        if len(jax.local_devices(backend="cuda")) < 2:
            pytest.skip("JAX has fewer than two CUDA devices")
    except RuntimeError:
        pytest.skip("this JAX has no CUDA backend")
    step = jax.jit(lambda x, w: bc.jax.silu(bc.jax.rms_norm(x, w)))
    want = host(step(to_jax(made(64, 256), 0), to_jax(made(256, seed=1), 0)))
    x, w = to_jax(made(64, 256), there), to_jax(made(256, seed=1), there)
    use(here)
    got = step(x, w)
    assert place(got) == there and host(got).tobytes() == want.tobytes()
