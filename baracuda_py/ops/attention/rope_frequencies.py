"""rope_frequencies: the angles a RoPE model was trained or extended with, from the words of its configuration.

All published schemes change the frequencies base^(-2j / d), and two of them the length of the rotated vectors:

    default    as they are (Su et al. 2021)
    linear     frequency / factor: positions interpolated (Chen et al. 2023)
    ntk        base · factor^(d / (d - 2)): the slowest pair interpolated, the fastest kept ("NTK-aware", bloc97 2023)
    dynamic    ntk with the factor that the sequence at hand needs: factor · n / original - (factor - 1)
    yarn       pairs by the turns they make in the original context: many, kept; few, interpolated; a ramp over the
               pairs between (Peng et al. 2023, the authors' code); vectors times 0.1 ln(factor) + 1
    longrope   frequency / a searched factor of each pair, short or long (Ding et al. 2024);
               vectors times sqrt(1 + ln(factor) / ln(original))
    llama3     by wavelength: long ones interpolated, short ones kept, a ramp over 1 / wavelength between (Meta 2024)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import InvalidProblemError


class RopeFrequencies(NamedTuple):
    """What `rope` takes: `inv_freq` [rotary_dim / 2] in radians a position, and the number `scale`."""

    inv_freq: np.ndarray
    scale: float


class _Settings:
    """A configuration's entries by name; complains about what is missing, wrong, or never looked at."""

    def __init__(self, scheme: str, entries: Mapping[str, Any], dim: int, base: float, seq_len: int | None) -> None:
        self.scheme, self.entries, self.dim, self.base, self.seq_len = scheme, dict(entries), dim, base, seq_len
        self.known: set[str] = set()

    def number(self, name: str, default: float | None = None, above: float = 0.0) -> float:
        """An entry that must be a finite number; without it the default, without one an error."""
        self.known.add(name)
        value = self.entries.get(name)
        if value is None:
            if default is None:
                raise InvalidProblemError(f"rope scaling {self.scheme!r} needs {name}")
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= above:
            raise InvalidProblemError(f"{name} must be a number > {above:g}, got {value!r}")
        return float(value)

    def has(self, name: str) -> bool:
        """Whether an entry is given."""
        self.known.add(name)
        return self.entries.get(name) is not None

    @property
    def original(self) -> float:
        """The context the model was first trained with."""
        name = "original_max_position_embeddings"
        self.known |= {name, "max_position_embeddings"}
        return self.number(name if self.has(name) else "max_position_embeddings", above=1)

    @property
    def factor(self) -> float:
        """How many times longer the context became."""
        if self.has("factor"):
            return max(1.0, self.number("factor"))
        return max(1.0, self.number("max_position_embeddings") / self.original)

    def inv_freq(self, base: float) -> np.ndarray:
        """base^(-2j / d) in float64."""
        return base ** (-np.arange(0, self.dim, 2, dtype=np.float64) / max(self.dim, 1))

    def stretched(self, factor: float) -> np.ndarray:
        """The frequencies of the base that slows the last pair by `factor` and leaves the first."""
        return self.inv_freq(self.base * factor ** (self.dim / max(self.dim - 2, 1)))


def _default(s: _Settings) -> RopeFrequencies:
    return RopeFrequencies(s.inv_freq(s.base), 1.0)


def _linear(s: _Settings) -> RopeFrequencies:
    return RopeFrequencies(s.inv_freq(s.base) / s.number("factor"), 1.0)


def _ntk(s: _Settings) -> RopeFrequencies:
    return RopeFrequencies(s.stretched(s.number("factor")), 1.0)


def _dynamic(s: _Settings) -> RopeFrequencies:
    factor, original = s.number("factor"), s.original
    length = max(original, s.seq_len or 0)
    return RopeFrequencies(s.stretched(factor * length / original - (factor - 1)), 1.0)


def _yarn(s: _Settings) -> RopeFrequencies:
    factor, original = s.factor, s.original

    def pair(turns: float) -> float:  # the pair, as a real number, that makes so many turns in the original context
        return s.dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(s.base))

    low, high = pair(s.number("beta_fast", 32.0)), pair(s.number("beta_slow", 1.0))
    if not (s.has("truncate") and s.entries["truncate"] is False):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, s.dim - 1)
    slow = np.clip((np.arange(s.dim // 2) - low) / (high - low if high != low else 1e-3), 0, 1)
    kept = s.inv_freq(s.base)
    return RopeFrequencies(kept * (1 - slow) + kept / factor * slow, s.number("attention_factor", _yarn_scale(s)))


def _yarn_scale(s: _Settings) -> float:
    """0.1 m ln(factor) + 1; models that scale the scores a second time give a second m to divide by."""

    def temper(m: float) -> float:
        return 0.1 * m * math.log(s.factor) + 1.0

    first, second = s.number("mscale", 0.0), s.number("mscale_all_dim", 0.0)
    return temper(first) / temper(second) if first and second else temper(1.0)


def _longrope(s: _Settings) -> RopeFrequencies:
    longer = (s.seq_len or 0) > s.original
    factors = {}
    for name in ("short_factor", "long_factor"):
        if not s.has(name):
            raise InvalidProblemError(f"rope scaling {s.scheme!r} needs {name}")
        factors[name] = np.asarray(s.entries[name], np.float64)
        if factors[name].shape != (s.dim // 2,) or not (factors[name] > 0).all():
            raise InvalidProblemError(f"{name} must be {s.dim // 2} positive numbers, one a pair")
    scale = math.sqrt(1 + math.log(s.factor) / math.log(s.original))
    inv_freq = s.inv_freq(s.base) / factors["long_factor" if longer else "short_factor"]
    return RopeFrequencies(inv_freq, s.number("attention_factor", scale))


def _llama3(s: _Settings) -> RopeFrequencies:
    factor, original = s.number("factor"), s.original
    low, high = s.number("low_freq_factor"), s.number("high_freq_factor")
    if high <= low:
        raise InvalidProblemError(f"high_freq_factor must be > low_freq_factor ({low:g}), got {high:g}")
    kept = s.inv_freq(s.base)
    turns = original * kept / (2 * math.pi)
    fast = np.clip((turns - low) / (high - low), 0, 1)
    return RopeFrequencies(kept * fast + kept / factor * (1 - fast), 1.0)


SCHEMES: dict[str, Callable[[_Settings], RopeFrequencies]] = {
    "default": _default, "linear": _linear, "ntk": _ntk, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope,
    "llama3": _llama3,
}  # fmt: skip


def rope_frequencies(
    rotary_dim: int, *, base: float = 10000.0, scaling: Mapping[str, Any] | None = None, seq_len: int | None = None,
    max_position_embeddings: int | None = None, dtype: Any = np.float32,
) -> RopeFrequencies:  # fmt: skip
    """Inverse frequencies [rotary_dim / 2] and the scale of a model's RoPE, for `rope(x, inv_freq=…, scale=…)`.

    scaling: a model configuration's `rope_scaling` (or `rope_parameters`) as it stands, its `rope_type` (or `type`)
    one of default, linear, ntk, dynamic, yarn, longrope, llama3; `rope_theta` in it wins over `base`. None: default.
    seq_len: the longest position in use + 1, which dynamic grows with and by which longrope takes its long factors.
    max_position_embeddings: the configuration's, where `scaling` names no original context or factor.
    dtype: float32, as models are trained with, or float64.

        inv_freq, scale = rope_frequencies(128, base=500000.0, scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})
    """
    if (
        isinstance(rotary_dim, bool)
        or not isinstance(rotary_dim, (int, np.integer))
        or rotary_dim < 0
        or rotary_dim % 2
    ):
        raise InvalidProblemError(f"rotary_dim must be an even integer >= 0, got {rotary_dim!r}")
    entries = {**(scaling or {})}
    names = [entries.pop(key) for key in ("rope_type", "type") if key in entries] or ["default"]
    scheme = names[0]
    if scheme not in SCHEMES or any(name != scheme for name in names):
        raise InvalidProblemError(f"rope_type must be one of {list(SCHEMES)}, got {' and '.join(map(repr, names))}")
    if max_position_embeddings is not None:
        entries.setdefault("max_position_embeddings", max_position_embeddings)
    settings = _Settings(scheme, entries, int(rotary_dim), float(base), seq_len)
    settings.base = settings.number("rope_theta", settings.base)
    if not settings.base > 1 or not math.isfinite(settings.base):
        raise InvalidProblemError(f"base must be a finite number > 1, got {settings.base!r}")
    found = SCHEMES[scheme](settings)
    unknown = sorted(set(entries) - settings.known - {"max_position_embeddings", "original_max_position_embeddings"})
    if unknown:
        raise InvalidProblemError(f"rope scaling {scheme!r} knows no {', '.join(unknown)}: {sorted(settings.known)}")
    return RopeFrequencies(found.inv_freq.astype(dtype), found.scale)
