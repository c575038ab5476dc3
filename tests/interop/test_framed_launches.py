"""What stft and spectrogram launch: one kernel where a block holds a frame, whatever the padding and the power."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py.testing import recording

torch = pytest.importorskip("torch")
from recorded_torch import on_gpu, pretend  # noqa: E402


def launches(function: Any, *args: Any, **given: Any) -> list[str]:
    """The kernels of a call."""
    with recording() as record:
        function(*args, **given)
    return [one.function.symbol for one in record.launches]


@pytest.mark.parametrize("mode", ["reflect", "constant", "replicate", "circular"])
@pytest.mark.parametrize("n", [400, 512])
def test_one_launch(n: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    x, window = on_gpu(torch.zeros(2, 3, 4000)), on_gpu(torch.zeros(n - 8))
    facts = {"hop_length": 160, "win_length": n - 8, "window": window, "pad_mode": mode}
    for one in (launches(bc.stft, x, n, **facts), *(launches(bc.spectrogram, x, n, power=p, **facts) for p in (1, 2))):
        assert len(one) == 1 and "framed" in one[0], one
    assert len(launches(bc.stft, x, n, hop_length=160)) == 1  # without a window


def test_a_gradient_is_asked_for_by_one_launch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    x = on_gpu(torch.zeros(2, 3000)).requires_grad_()
    window = on_gpu(torch.zeros(256))
    assert len(launches(bc.spectrogram, x, 256, 64, window=window)) == 1
