"""BARACUDA_CHECK=1 on the emulator, where the word that kernels tell of wrong values by is NumPy's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends.cuda import runner


class _Words(np.ndarray):
    """An array whose `data` has a pointer, as CuPy's have."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


def check_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on runs are checked, but for what CuPy computes of them: whether numbers are finite."""
    cupy = pytest.importorskip("cupy")
    monkeypatch.setattr(cupy, "zeros", lambda count, dtype: np.zeros(count, dtype).view(_Words))
    monkeypatch.setattr(cupy.cuda.runtime, "streamSynchronize", lambda stream: None)
    monkeypatch.setattr(runner, "before", lambda *_: False)
    monkeypatch.setattr(runner, "after", lambda *_: None)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
