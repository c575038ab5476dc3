"""The context in which outputs are made: what CUDA says of a device is ours, any other error is whose it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py.core import outputs
from baracuda_py.core.outputs import allocating


class CUDARuntimeError(RuntimeError):  # as CuPy calls it
    pass


class Entered:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __enter__(self) -> None:
        if self.error is not None:
            raise self.error

    def __exit__(self, *_: Any) -> None:
        pass


@pytest.fixture(params=["device", "stream"])
def entering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context of device 3, by the device or by a stream of it, which raises what it is told."""

    def enter(error: Exception | None) -> Any:
        monkeypatch.setitem(__import__("sys").modules, "cupy", SimpleNamespace(
            cuda=SimpleNamespace(Device=lambda device: Entered(error))
        ))  # fmt: skip
        monkeypatch.setattr(outputs, "on_stream", lambda at, device: Entered(error))
        return allocating("cupy", 3, None if request.param == "device" else 7)

    return enter


@pytest.mark.parametrize(
    "error",
    [CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal"), RuntimeError("CUDA error: invalid device")],
)
def test_a_device_that_cuda_does_not_know_is_named(entering: Any, error: Exception) -> None:
    says = r"cuda:3, where an array says it is, cannot be used .*nvalid"
    with pytest.raises(bc.DeviceMismatchError, match=says), entering(error):
        pass


@pytest.mark.parametrize(
    "error", [RuntimeError("of somebody else"), CUDARuntimeError("out of memory"), ValueError("no")]
)
def test_other_errors_pass_as_they_are(entering: Any, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, entering(error):
        pass
    assert caught.value is error
    inside = CUDARuntimeError("of what runs inside")
    with pytest.raises(CUDARuntimeError) as caught, entering(None):
        raise inside
    assert caught.value is inside
