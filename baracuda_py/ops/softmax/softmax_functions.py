"""softmax, log_softmax and softmin with PyTorch's options: a temperature, and a dtype that x is cast to first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import Array, ElementKind
from ...calls.functional import functional
from ...core.checked import shown
from ...core.element import FLOATS, HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.numbers import plain
from ...calls.entries import entry
from ..elementwise.binary_numbers import element_of
from ..elementwise.cast import cast
from .masked_softmax import MaskedSoftmaxPlan, masked_log_softmax, masked_softmax
from .softmax import SoftmaxKind, SoftmaxPlan

_softmax = functional(SoftmaxPlan, "softmax", "", kind=SoftmaxKind.SOFTMAX)
_log_softmax = functional(SoftmaxPlan, "log_softmax", "", kind=SoftmaxKind.LOG_SOFTMAX)


def _scale(name: str, temperature: Any) -> float:
    """1 / temperature."""
    temperature = plain(temperature)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not temperature > 0:
        raise InvalidProblemError(
            f"{name}: temperature must be a number > 0, got {shown(temperature)}; masked_softmax takes its inverse as "
            f"scale=, which may be a 0-d device array"
        )
    return 1.0 / temperature


def _called(
    name: str, plain: Callable[..., Any], scaled: Callable[..., Any], x: Any, axis: int, scale: float, dtype: Any,
    rest: dict[str, Any],
) -> Any:  # fmt: skip
    """The plain function, or for another scale or a wider result the scaled one; else x is cast first."""
    if dtype is None:
        try:
            return plain(x, axis=axis, **rest) if scale == 1.0 else scaled(x, axis=axis, scale=scale, **rest)
        except UnsupportedError:
            _refuse_integers(name, x)
            raise
    target, source = ElementKind.of(dtype), element_of(x)
    if target not in FLOATS:
        raise UnsupportedError(
            f"{name}: dtype {target} is not supported; it may be one of {', '.join(map(str, FLOATS))}"
        )
    if source in HALVES and target is ElementKind.F32:
        return scaled(x, axis=axis, scale=scale, out_element=target, **rest)
    if source is not target:
        x = cast(x, target, stream=rest["stream"], preference=rest["preference"])
    return _called(name, plain, scaled, x, axis, scale, None, rest)


def _refuse_integers(name: str, x: Any) -> None:
    source = element_of(x)
    if not source.is_float and not source.is_complex:
        raise UnsupportedError(
            f"{name} of {source} has no {source} result; write {name}(x, dtype='float32'), or cast(x, 'float32') first"
        ) from None


@entry(SoftmaxPlan, kind=SoftmaxKind.SOFTMAX)
def softmax(
    x: Array, axis: int = -1, *, temperature: float = 1.0, dtype: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax of x / temperature along `axis` (torch.softmax); `dtype`: what x is cast to first, and the result's.

    A 16-bit x with dtype float32 is read as it is; any other cast is a launch of its own.
    """
    rest = {"out": out, "stream": stream, "preference": preference}
    return _called("softmax", _softmax, masked_softmax, x, axis, _scale("softmax", temperature), dtype, rest)


@entry(SoftmaxPlan, kind=SoftmaxKind.LOG_SOFTMAX)
def log_softmax(
    x: Array, axis: int = -1, *, temperature: float = 1.0, dtype: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """log_softmax of x / temperature along `axis` (torch.log_softmax); `dtype` as of `softmax`."""
    rest = {"out": out, "stream": stream, "preference": preference}
    scale = _scale("log_softmax", temperature)
    return _called("log_softmax", _log_softmax, masked_log_softmax, x, axis, scale, dtype, rest)


@entry(MaskedSoftmaxPlan, log=False)
def softmin(
    x: Array, axis: int = -1, *, dtype: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax of -x along `axis` (torch.nn.functional.softmin), in one launch; `dtype` as of `softmax`."""
    rest = {"out": out, "stream": stream, "preference": preference}
    return _called("softmin", _softmax, masked_softmax, x, axis, -1.0, dtype, rest)
