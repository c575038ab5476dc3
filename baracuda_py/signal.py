"""Signal processing by the names of scipy.signal, scipy.fft's cosine transforms and torchaudio.functional.

`baracuda_py.signal.welch(x)` is the package's function of that name. Where a name means something else there, the
function of signals is here under its own: `hilbert` is `analytic_signal`, `taylor` is `taylor_window`.
"""

from __future__ import annotations

from typing import Any

from ._absent import AbsentName
from ._exports import EXPORTS

_ELSEWHERE = (
    "bartlett", "blackman", "convolve", "convolve2d", "correlate", "correlate2d", "cosine", "detrend",
    "exponential_window", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall",
    "unwrap",
)  # fmt: skip
_OTHERWISE = {"hilbert": "analytic_signal", "taylor": "taylor_window"}
__all__ = sorted(
    {name for name, module in EXPORTS.items() if module.startswith("ops.signal.") or name in _ELSEWHERE} | {*_OTHERWISE}
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AbsentName(__name__, name, __all__)
    from importlib import import_module

    own = _OTHERWISE.get(name, name)
    value = globals()[name] = getattr(import_module(f"baracuda_py.{EXPORTS[own]}"), own)
    return value


def __dir__() -> list[str]:
    return __all__
