"""long_convolution: convolutions with filters as long as the signal, in one launch or by rfft and irfft."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import truth
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis
from ...calls.entries import entry
from ...schedules.stockham import REALS
from ..elementwise.binary_functions import mul
from ..elementwise.cast import cast
from ..fft.functions import irfft, rfft
from ..fft.long_convolution import LongConvolutionPlan, _long_convolution, in_one_launch
from ..layout.views import part
from .by_transform import fast_length
from .frames import formula


@entry(LongConvolutionPlan)
def long_convolution(
    x: Array, filter: Array, skip: Array | None = None, pre_gate: Array | None = None, post_gate: Array | None = None,
    circular: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = post_gate[t] (Σ_{s <= t} filter[s] u[t - s] + skip u[t]), u = x pre_gate, of each channel.

    The convolution of H3, Hyena and their like (their fftconv, FlashFFTConv). x, pre_gate, post_gate and y: [batch,
    channels, length] of one float, filter: [channels, taps] and skip: [channels], of float32, or float64 where x is.
    circular: t - s is modulo the length; taps is at most the length then. Of a causal filter what is longer than the
    signal reaches no output. Lengths up to 16384 (float64: 8192), of circular ones powers of two from 16 on, are two
    launches, one for the filters and one for all else; others rfft, a product, irfft, and the rest in a formula.
    Gradients of all operands.
    """
    options = {"stream": stream, "preference": preference}
    circular = truth("circular", circular)
    given = {"pre_gate": pre_gate, "post_gate": post_gate}
    length, taps = _checked(x, filter, skip, given, circular)
    if taps > length:
        filter = part(filter, 1, 0, length)
    kind = read(x, "x").element
    (out,) = each_of(out, 1)
    if in_one_launch(length, circular, kind):
        return _long_convolution(x, filter, skip=skip, **given, circular=circular, out=out, **options)
    n = length if circular else fast_length(length + min(taps, length) - 1)
    u, before, after = (_wide(one, options) for one in (x, pre_gate, post_gate))
    if before is not None:
        u = mul(u, before, **options)
    product = mul(rfft(u, n, **options), rfft(filter, n, **options), **options)
    made = part(irfft(product, n, **options), 2, 0, length)
    terms, operands = "y", {"y": made}
    if skip is not None:
        terms, operands = "(y + d * u)", operands | {"d": with_axis(skip, 1, "skip"), "u": u}
    if after is not None:
        terms, operands = f"{terms} * g", operands | {"g": after}
    last = kind.acc is kind
    if terms == "y":
        return cast(made, kind, out=out, **options)
    made = formula(terms)(**operands, out=out if last else None, **options)
    return made if last else cast(made, kind, out=out, **options)


def _wide(x: Any, options: Any) -> Any:
    """x in the element that its transform is computed in; None of None."""
    if x is None or (kind := read(x, "x").element) is kind.acc:
        return x
    return cast(x, kind.acc, **options)


def _checked(x: Any, filter: Any, skip: Any, gates: dict[str, Any], circular: bool) -> tuple[int, int]:
    """The length and the number of taps of operands that go together."""
    kind, shape, taps = read(x, "x").element, shape_of(x, "x"), shape_of(filter, "filter")
    if kind not in REALS:
        raise UnsupportedError(f'long_convolution takes x of a float, got {kind}; give cast(x, "float32")')
    if len(shape) != 3:
        raise InvalidProblemError(f"x must have shape [batch, channels, length], got {shape}")
    if len(taps) != 2 or taps[0] != shape[1]:
        raise InvalidProblemError(f"filter must have shape [channels, taps] with {shape[1]} channels, got {taps}")
    if circular and taps[1] > shape[2]:
        raise InvalidProblemError(
            f"filter must have at most as many taps as a circular convolution's length {shape[2]}, got {taps[1]}"
        )
    if skip is not None and shape_of(skip, "skip") != (shape[1],):
        raise InvalidProblemError(
            f"skip must have shape {(shape[1],)}, a number for each channel, got {shape_of(skip, 'skip')}"
        )
    for name, gate in gates.items():
        if gate is not None and shape_of(gate, name) != shape:
            raise InvalidProblemError(f"{name} must have x's shape {shape}, got {shape_of(gate, name)}")
    for name, one, wanted in (
        ("filter", filter, kind.acc),
        ("skip", skip, kind.acc),
        *((*g, kind) for g in gates.items()),
    ):
        if one is not None and read(one, name).element is not wanted:
            raise InvalidProblemError(
                f"{name} must hold {wanted} beside an x of {kind}, got {read(one, name).element}; "
                f'give cast({name}, "{wanted}")'
            )
    return shape[2], taps[1]
