"""Decibels, and samples as codes of mu-law: what is done with magnitudes and samples element by element."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind, registry
from ...core.arrays import read
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import each_of
from ...core.views import shape_of
from ...calls.entries import entry
from ..elementwise.unary import UnaryPlan
from ..layout.made import kind_of
from ..layout.moves import copy
from ..reduce.reduce import ReducePlan
from .frames import formula


@entry(ReducePlan)
def amplitude_to_db(
    x: Array, multiplier: float = 10.0, amin: float = 1e-10, db_multiplier: float = 0.0, top_db: float | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """multiplier (log10(max(x, amin)) - db_multiplier): decibels (torchaudio.functional.amplitude_to_DB).

    x: any shape, floats. multiplier: 10 of powers, 20 of magnitudes. db_multiplier: log10 of what 0 dB is. top_db: what
    is that far and further below the largest of the last three axes (channels, frequencies, frames) is raised to it.
    One launch, three with top_db. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    least, factor = float(real("amin", amin)), float(real("multiplier", multiplier))
    if not least > 0:
        raise InvalidProblemError(f"amin must be above 0, whose logarithm is finite, got {shown(amin)}")
    numbers = {"k": factor, "least": least, "zero": float(real("db_multiplier", db_multiplier))}
    decibels = formula("k * (log10(maximum(x, least)) - zero)")
    (out,) = each_of(out, 1)
    if top_db is None:
        return decibels(x=x, **numbers, out=out, **options)
    reach = float(real("top_db", top_db))
    if not reach >= 0:
        raise InvalidProblemError(f"top_db must be 0 at least, got {shown(top_db)}")
    made = decibels(x=x, **numbers, **options)
    if 0 in shape_of(made, "x"):
        return made if out is None else copy(made, out=out, **options)
    rank = len(shape_of(made, "x"))
    highest = registry.public("amax")(made, axis=tuple(range(max(rank - 3, 0), rank)), keepdims=True, **options)
    return formula("maximum(y, h - reach)")(y=made, h=highest, reach=reach, out=out, **options)


@entry(UnaryPlan)
def db_to_amplitude(
    x: Array, ref: float = 1.0, power: float = 1.0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """ref 10^(0.1 power x): decibels back (torchaudio.functional.DB_to_amplitude).

    power: 1 gives powers, ½ magnitudes. Gradient of x.
    """
    numbers = {"ref": float(real("ref", ref)), "k": 0.1 * float(real("power", power))}
    return formula("ref * exp2(k * x * 3.321928094887362)")(
        x=x, **numbers, out=out, stream=stream, preference=preference
    )


@entry(UnaryPlan)
def mu_law_encoding(
    x: Array, quantization_channels: int = 256, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Samples from -1 to 1 as int64 codes below quantization_channels, finer near 0 (ITU-T G.711; torchaudio).

    ⌊½ + (s + 1) mu / 2⌋, s = sign(x) log(1 + mu |x|) / log(1 + mu), mu = quantization_channels - 1. x: any shape,
    floats; values beyond ±1 give the code of the nearest.
    """
    mu = whole("quantization_channels", quantization_channels, 2) - 1
    real_like(x, "mu_law_encoding")
    text = "_x = clamp(x, -1, 1); y = int64((sign(_x) * log1p(mu * abs(_x)) / log1p(mu + 0 * _x) + 1) * (mu / 2) + 0.5)"
    return formula(text)(x=x, mu=float(mu), out=out, stream=stream, preference=preference)


@entry(UnaryPlan)
def mu_law_decoding(
    x: Array, quantization_channels: int = 256, element: Any = "float32", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The samples of codes that `mu_law_encoding` made, in `element` (torchaudio.functional.mu_law_decoding).

    sign(s) ((1 + mu)^|s| - 1) / mu, s = 2 x / mu - 1. x: any shape, integers, or floats, which keep their element and
    have a gradient.
    """
    mu = whole("quantization_channels", quantization_channels, 2) - 1
    found = read(x, "x").element
    kind = found if found.is_float else kind_of(element, ElementKind.F32)
    text = f"_s = 2 * {kind}(x) / mu - 1; y = {kind}(sign(_s) * expm1(abs(_s) * log1p(mu + 0 * _s)) / mu)"
    return formula(text)(x=x, mu=float(mu), out=out, stream=stream, preference=preference)


def real_like(x: Any, name: str) -> None:
    """Refuses what is not of floats."""
    if not read(x, "x").element.is_float:
        raise UnsupportedError(f'{name} takes floats, got {read(x, "x").element}; give cast(x, "float32")')
