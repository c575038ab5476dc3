"""rope_frequencies: the angles a RoPE model was trained or extended with, from the words of its configuration.

All published schemes change the frequencies base^(-2j / d), and some the length of the rotated vectors:

    default       as they are (Su et al. 2021); "mrope" is its other name
    linear        frequency / factor: positions interpolated (Chen et al. 2023)
    ntk           base · factor^(d / (d - 2)): the slowest pair interpolated, the fastest kept (bloc97 2023)
    dynamic       ntk with the factor that the sequence at hand needs: factor · n / original - (factor - 1); with
                  `alpha` (Hunyuan) ntk with the factor alpha, whatever the sequence
    yarn          pairs by the turns they make in the original context: many, kept; few, interpolated; a ramp over the
                  pairs between (Peng et al. 2023, the authors' code); vectors times 0.1 ln(factor) + 1
    longrope      frequency / a searched factor of each pair, short or long (Ding et al. 2024); vectors times
                  short_mscale or long_mscale, without them sqrt(1 + ln(factor) / ln(original)); "su" is its old name
    llama3        by wavelength: long ones interpolated, short ones kept, a ramp over 1 / wavelength between (Meta 2024)
    proportional  the pairs from partial_rotary_factor · d / 2 on do not turn; frequency / factor (Gemma 4)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.checked import shown
from ....core import ElementKind
from ....core.errors import InvalidProblemError
from ....calls.exported import exported
from ....core.keywords import known_only, unexpected
from .rotary import FREQUENCIES

ALIASES = {"mrope": "default", "su": "longrope"}
COMMON = (  # what a configuration may carry beside any scheme
    "rope_theta", "max_position_embeddings", "original_max_position_embeddings", "partial_rotary_factor",
    "mrope_section", "mrope_interleaved", "finetuned", "llama_4_scaling_beta",
)  # fmt: skip


@exported
class RopeFrequencies(NamedTuple):
    """What `rope` takes: `inv_freq` [rotary_dim / 2] in radians a position, and the number `scale`."""

    inv_freq: np.ndarray
    scale: float


def _number(name: str, value: Any, minimum: float = 0.0, above: float = -math.inf) -> float:
    """A finite number, of Python or NumPy."""
    plain = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    good = isinstance(plain, (int, float, np.integer, np.floating)) and not isinstance(plain, bool)
    if not good or not math.isfinite(plain) or plain < minimum or plain <= above:
        span = f"> {above:g}" if above > -math.inf else f">= {minimum:g}"
        raise InvalidProblemError(f"{name} must be a number {span}, got {shown(value)}")
    return float(plain)


def _whole(name: str, value: Any) -> int:
    """An integer >= 0, of Python or NumPy."""
    try:
        found = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        found = -1
    if found < 0:
        raise InvalidProblemError(f"{name} must be an integer >= 0, got {shown(value)}")
    return found


class _Settings:
    """A configuration's entries by name; complains about what is missing or wrong."""

    def __init__(self, scheme: str, entries: Mapping[str, Any], dim: int, base: float, seq_len: int) -> None:
        self.scheme, self.entries, self.dim, self.base, self.seq_len = scheme, entries, dim, base, seq_len

    def number(self, name: str, default: float | None = None, *, above: float = 0.0) -> float:
        """An entry that must be a number above 0; without it the default, without one an error."""
        value = self.entries.get(name)
        if value is None and default is None:
            raise InvalidProblemError(f"rope scaling {self.scheme!r} needs {name}")
        return float(default or 0.0) if value is None else _number(name, value, above=above)

    def optional(self, name: str) -> float:
        """An entry that 0 turns off, as its absence does."""
        value = self.entries.get(name)
        return 0.0 if value is None else _number(name, value)

    def flag(self, name: str, default: bool) -> bool:
        """An entry that must be true or false."""
        value = self.entries.get(name)
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise InvalidProblemError(f"{name} must be True or False, got {shown(value)}")
        return default if value is None else bool(value)

    @property
    def original(self) -> float:
        """The context the model was first trained with."""
        name = "original_max_position_embeddings"
        return self.number(name if self.entries.get(name) is not None else "max_position_embeddings", above=1)

    @property
    def factor(self) -> float:
        """How many times longer the context became."""
        if self.entries.get("factor") is not None:
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
    if alpha := s.optional("alpha"):
        return RopeFrequencies(s.stretched(alpha), 1.0)
    factor, original = s.number("factor"), s.original
    length = max(original, s.seq_len)
    return RopeFrequencies(s.stretched(factor * length / original - (factor - 1)), 1.0)


def _yarn(s: _Settings) -> RopeFrequencies:
    factor, original = s.factor, s.original

    def pair(turns: float) -> float:  # the pair, as a real number, that makes so many turns in the original context
        return s.dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(s.base))

    low, high = pair(s.number("beta_fast", 32.0)), pair(s.number("beta_slow", 1.0))
    if s.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, s.dim - 1)
    slow = np.clip((np.arange(s.dim // 2) - low) / (high - low if high != low else 1e-3), 0, 1)
    fast = (1 - slow) * s.number("extrapolation_factor", 1.0)
    kept = s.inv_freq(s.base)
    scale = s.number("attention_factor", _yarn_scale(s) * s.number("attn_factor", 1.0))
    return RopeFrequencies(kept * fast + kept / factor * (1 - fast), scale)


def _yarn_scale(s: _Settings) -> float:
    """0.1 m ln(factor) + 1; models that scale the scores a second time give a second m to divide by."""

    def temper(m: float) -> float:
        return 0.1 * m * math.log(s.factor) + 1.0

    first, second = s.optional("mscale"), s.optional("mscale_all_dim")
    return temper(first) / temper(second) if first and second else temper(1.0)


def _longrope(s: _Settings) -> RopeFrequencies:
    side = "long" if s.seq_len > s.original else "short"
    factors = {}
    for name in ("short_factor", "long_factor"):
        value = s.entries.get(name)
        if value is None:
            raise InvalidProblemError(f"rope scaling {s.scheme!r} needs {name}")
        try:
            factors[name] = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            factors[name] = np.zeros(0)
        good = factors[name].shape == (s.dim // 2,) and np.isfinite(factors[name]).all() and (factors[name] > 0).all()
        if not good:
            raise InvalidProblemError(f"{name} must be {s.dim // 2} positive numbers, one a pair, got {shown(value)}")
    if (given := s.optional(f"{side}_mscale")) == 0 and s.entries.get("attention_factor") is None:
        given = math.sqrt(1 + math.log(s.factor) / math.log(s.original))
    inv_freq = s.inv_freq(s.base) / factors[f"{side}_factor"]
    return RopeFrequencies(inv_freq, given or s.number("attention_factor"))


def _llama3(s: _Settings) -> RopeFrequencies:
    factor, original = s.number("factor"), s.original
    low, high = s.number("low_freq_factor"), s.number("high_freq_factor")
    if high < low:
        raise InvalidProblemError(f"high_freq_factor must be >= low_freq_factor ({low:g}), got {high:g}")
    kept = s.inv_freq(s.base)
    turns = original * kept / (2 * math.pi)
    fast = np.clip((turns - low) / (high - low), 0, 1) if high > low else turns >= low  # equal: a step (Llama 4)
    return RopeFrequencies(kept * fast + kept / factor * (1.0 - fast), 1.0)


def _proportional(s: _Settings) -> RopeFrequencies:
    turning = int(s.number("partial_rotary_factor", 1.0) * s.dim // 2)
    kept = np.where(np.arange(s.dim // 2) < turning, s.inv_freq(s.base), 0.0)
    return RopeFrequencies(kept / s.number("factor", 1.0), 1.0)


class _Scheme(NamedTuple):
    """A scheme's formula and the entries it reads; `carried`: others that its checkpoints have and nothing reads."""

    formula: Callable[[_Settings], RopeFrequencies]
    entries: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


_TURNS = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
SCHEMES: dict[str, _Scheme] = {
    "default": _Scheme(_default),
    "linear": _Scheme(_linear, ("factor",)),
    "ntk": _Scheme(_ntk, ("factor",)),
    "dynamic": _Scheme(_dynamic, ("factor", "alpha"), _TURNS),
    "yarn": _Scheme(_yarn, ("factor", "attention_factor", "truncate", "extrapolation_factor", "attn_factor", *_TURNS)),
    "longrope": _Scheme(
        _longrope, ("factor", "attention_factor", "short_factor", "long_factor", "short_mscale", "long_mscale")
    ),
    "llama3": _Scheme(_llama3, ("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": _Scheme(_proportional, ("factor",)),
}


def _entries(scaling: Any, layer_type: str | None) -> dict[str, Any]:
    """The entries of one kind of layer."""
    if scaling is None:
        scaling = {}
    if not isinstance(scaling, Mapping):
        known = SCHEMES.get(ALIASES.get(scaling, scaling)) if isinstance(scaling, str) else None
        more = "".join(f', "{name}": …' for name in (known.entries if known else ()))
        name = scaling if known else "llama3"
        raise InvalidProblemError(
            f"scaling must be what a model's configuration has as rope_scaling or rope_parameters, such as "
            f'{{"rope_type": "{name}"{more}}}, got {shown(scaling)}'
        )
    if layer_type is not None and not isinstance(layer_type, str):
        raise InvalidProblemError(f"layer_type must be the name of a layer type, got {shown(layer_type)}")
    layers = {name: entries for name, entries in scaling.items() if isinstance(entries, Mapping)}
    if not layers:
        if layer_type is not None:
            raise InvalidProblemError(f"layer_type {layer_type!r} is given, but scaling has one set of entries for all")
        return dict(scaling)
    if any(entries is not None and name not in layers for name, entries in scaling.items()):
        raise InvalidProblemError(
            f"scaling mixes entries with those of layer types {list(layers)}; pass the one or the other"
        )
    if layer_type not in scaling:
        raise InvalidProblemError(
            f"scaling has entries per layer type: pass layer_type=, one of {list(scaling)}, got {shown(layer_type)}"
        )
    return dict(layers.get(layer_type, {}))


def _scheme(entries: dict[str, Any]) -> str:
    """The scheme named, taken out of the entries."""
    names = [entries.pop(key, None) for key in ("rope_type", "type")]
    given = [name for name in names if name is not None] or ["default"]
    schemes = [ALIASES.get(name, name) if isinstance(name, str) else None for name in given]
    if schemes[0] not in SCHEMES or len(set(schemes)) > 1:
        known = [*SCHEMES, *ALIASES]
        raise InvalidProblemError(f"rope_type must be one of {known}, got {' and '.join(map(repr, given))}")
    return str(schemes[0])


def _columns(rotary_dim: Any, head_dim: Any, scheme: str, partial: float) -> int:
    """How many columns turn, or, of "proportional", have a frequency."""
    if head_dim is not None:
        whole = _whole("head_dim", head_dim)
        found = whole if scheme == "proportional" else int(whole * partial)
        if rotary_dim is not None and rotary_dim != found:
            raise InvalidProblemError(
                f"rotary_dim must be {found}, partial_rotary_factor {partial:g} of head_dim {whole}, "
                f"got {shown(rotary_dim)}"
            )
        rotary_dim = found
    if rotary_dim is None:
        raise InvalidProblemError("give rotary_dim, the columns that turn, or head_dim")
    columns = _whole("rotary_dim", rotary_dim)
    if columns % 2:
        raise InvalidProblemError(f"rotary_dim must be even, got {shown(rotary_dim)}")
    return columns


def _parts(axes: Any) -> tuple[int, ...]:
    """The columns of each axis."""
    parts = tuple(_whole("axes", n) for n in axes) if isinstance(axes, (list, tuple)) else ()
    if not parts or any(n % 2 for n in parts):
        raise InvalidProblemError(f"axes must be even numbers of columns, one an axis, got {shown(axes)}")
    return parts


def _check_sections(s: _Settings) -> None:
    """mrope_section deals the pairs out to the positions in time, height and width."""
    sections = s.entries.get("mrope_section")
    s.flag("mrope_interleaved", False)
    if sections is None:
        return
    several = isinstance(sections, (list, tuple)) or getattr(sections, "ndim", 0) == 1
    counts = [_whole("mrope_section", n) for n in sections] if several else []
    if not counts or sum(counts) != s.dim // 2:
        raise InvalidProblemError(
            f"mrope_section must be sizes whose sum is {s.dim // 2}, half of the {s.dim} columns that turn "
            f"(partial_rotary_factor of head_dim), got {shown(sections)}"
        )


@exported
@known_only
def rope_frequencies(
    rotary_dim: int | None = None, *, head_dim: int | None = None, base: float = 10000.0,
    scaling: Mapping[str, Any] | None = None, layer_type: str | None = None, seq_len: int | None = None,
    max_position_embeddings: int | None = None, original_max_position_embeddings: int | None = None,
    dtype: Any = np.float32, axes: Sequence[int] | None = None, **unknown: Any,
) -> RopeFrequencies:  # fmt: skip
    """Inverse frequencies [rotary_dim / 2] and the scale of a model's RoPE, for `rope(x, inv_freq=…, scale=…)`.

    rotary_dim: the columns that turn. Or head_dim, of which they are the `partial_rotary_factor` in scaling.
    scaling: a model configuration's `rope_scaling` (or `rope_parameters`) as it stands, its `rope_type` (or `type`)
    one of default, linear, ntk, dynamic, yarn, longrope, llama3, proportional; `rope_theta` in it wins over `base`.
    None: default. Where it has entries per layer type (Gemma 3), layer_type names those to take.
    seq_len: the longest position in use + 1, which dynamic grows with and by which longrope takes its long factors.
    max_position_embeddings, original_max_position_embeddings: the configuration's, where `scaling` has none.
    dtype: float32, as models are trained with, or float64.

    axes: the columns that turn by each axis of a grid, in place of rotary_dim, of which they are the parts; every axis
    has the frequencies of a model of so many columns. `rope` takes half of each as `mrope_section`, and positions
    `np.indices(grid).reshape(len(grid), 1, -1)` (Flux: axes 16, 56, 56; Wan: 44, 42, 42, both interleaved pairs;
    vision towers of Qwen2-VL: 40, 40).

    `mrope_section` and `mrope_interleaved` (Qwen2-VL, Qwen3-VL) are checked and change nothing: all pairs' frequencies
    are returned, and `rope` and `qk_norm_rope` take both beside positions of several axes.

        inv_freq, scale = rope_frequencies(128, base=500000.0, scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})
    """
    if unknown:
        raise unexpected(rope_frequencies, unknown)
    entries = _entries(scaling, layer_type)
    name = _scheme(entries)
    scheme = SCHEMES[name]
    known = sorted({*scheme.entries, *scheme.carried, *COMMON})
    if strange := [str(entry) for entry in entries if entry not in known]:
        raise InvalidProblemError(f"rope scaling {name!r} knows no {', '.join(strange)}; it knows {', '.join(known)}")
    contexts = {
        "max_position_embeddings": max_position_embeddings,
        "original_max_position_embeddings": original_max_position_embeddings,
    }
    entries |= {n: value for n, value in contexts.items() if entries.get(n) is None}
    share = entries.get("partial_rotary_factor")
    partial = 1.0 if share is None else _number("partial_rotary_factor", share, above=0.0)
    if partial > 1:
        raise InvalidProblemError(f"partial_rotary_factor must be at most 1, got {partial:g}")
    theta = entries.get("rope_theta")
    base = _number("base" if theta is None else "rope_theta", base if theta is None else theta, above=1.0)
    parts = None if axes is None else _parts(axes)
    if parts is not None and rotary_dim is None and head_dim is None:
        rotary_dim = sum(parts)
    columns = _columns(rotary_dim, head_dim, name, partial)
    if parts is not None and sum(parts) != columns:
        raise InvalidProblemError(f"axes must have the {columns} columns that turn between them, got {shown(axes)}")
    length = 0 if seq_len is None else _whole("seq_len", seq_len)
    _check_sections(_Settings(name, entries, columns, base, length))
    kind = ElementKind.of(dtype)
    if kind not in FREQUENCIES:
        raise InvalidProblemError(f"dtype must be float32 or float64, got {kind}")
    with np.errstate(all="ignore"):
        try:
            made = [scheme.formula(_Settings(name, entries, n, base, length)) for n in parts or (columns,)]
            found = RopeFrequencies(np.concatenate([one.inv_freq for one in made]), made[0].scale)
        except OverflowError:
            raise InvalidProblemError(f"rope scaling {name!r}: the entries' numbers leave a float's range") from None
        inv_freq = found.inv_freq.astype(kind.dtype)
    if not np.isfinite(inv_freq).all() or not math.isfinite(found.scale):
        raise InvalidProblemError(f"rope scaling {name!r}: the entries give frequencies or a scale that are not finite")
    return RopeFrequencies(inv_freq, found.scale)
