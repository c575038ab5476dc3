"""How each row of a batch is drawn, as the arrays that `adjust_logits` and `sample` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..core.checked import Checked
from ..core.descriptor import integer, number
from ..core.errors import InvalidProblemError
from ..ops.random.adjust_logits import adjust_logits
from ..ops.random.sampling_functions import sample

_CUTS = {
    "temperature": np.float32, "top_k": np.int64, "top_p": np.float32, "min_p": np.float32,
}  # fmt: skip
_PENALTIES = ("repetition", "frequency", "presence")


@dataclass(frozen=True, kw_only=True)
class SamplingParams(Checked):
    """How the tokens of one request are drawn; the defaults draw from the softmax of the logits.

    temperature 0 takes the most likely token. top_k 0, top_p 1 and min_p 0 cut nothing off. repetition divides positive
    logits of tokens that prompt or text have and multiplies negative ones; frequency, times their number, and presence
    are subtracted for tokens of the text. seed: a text is drawn alike whenever it is served, and with whom.
    """

    temperature: float = number(1.0, minimum=0.0)
    top_k: int = integer(0, minimum=0)
    top_p: float = number(1.0, above=0.0, maximum=1.0)
    min_p: float = number(0.0, minimum=0.0, maximum=1.0)
    repetition: float = number(1.0, above=0.0)
    frequency: float = number(0.0)
    presence: float = number(0.0)
    seed: int = integer(0, minimum=-(2**63))

    @property
    def penalizes(self) -> bool:
        """Whether the tokens so far matter."""
        return any(getattr(self, name) != _DEFAULTS[name] for name in _PENALTIES)


_DEFAULTS = {field.name: getattr(SamplingParams(), field.name) for field in fields(SamplingParams)}


def mixed(seeds: Any, positions: Any) -> Any:
    """A seed for each pair of seed and position: int64, by the last steps of splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.asarray(seeds, np.int64).view(np.uint64) + np.asarray(positions, np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


def padded(rows: Sequence[Sequence[int]]) -> Any:
    """Lists of tokens as an array int64 [rows, longest], -1 behind the shorter ones."""
    made = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    for to, row in zip(made, rows, strict=True):
        to[: len(row)] = row
    return made


class Samplers:
    """The sampling parameters of a batch's rows, ready to draw a token for each row of logits.

    params: of each row. positions: the place in its text that each row's token will have; with the seed it says what
    is drawn, so neither other rows nor the step of the loop change it. prompts, texts: tokens of each row's prompt and
    of what was generated, where penalties need them. place: makes an array of the logits' package of a NumPy array. A
    parameter that all rows have at its default is left out. O(rows + tokens where penalties are asked for).
    """

    def __init__(
        self, params: Sequence[SamplingParams], positions: Sequence[int], *, prompts: Sequence[Sequence[int]] = (),
        texts: Sequence[Sequence[int]] = (), place: Callable[[Any], Any] = np.asarray,
    ) -> None:  # fmt: skip
        if len(params) != len(positions):
            raise InvalidProblemError(f"params are of {len(params)} rows, positions of {len(positions)}")

        def rows(names: Any) -> dict[str, Any]:
            found = {name: [getattr(one, name) for one in params] for name in names}
            return {name: of for name, of in found.items() if any(value != _DEFAULTS[name] for value in of)}

        self.cuts = {name: place(np.array(of, _CUTS[name])) for name, of in rows(_CUTS).items()}
        self.cuts["seed"] = place(mixed([one.seed for one in params], positions))
        self.penalties = {name: place(np.array(of, np.float32)) for name, of in rows(_PENALTIES).items()}
        self.history: tuple[Any, ...] = ()
        if self.penalties:
            if not len(prompts) == len(texts) == len(params):
                raise InvalidProblemError("penalties need the prompts and texts of all rows")
            self.history = (place(padded(texts)), place(padded(prompts)))

    def __call__(self, logits: Any, *, bias: Any = None, mask: Any = None, **options: Any) -> Any:
        """What `sample` returns for logits [rows, vocab]: ids, and what `options` (top_n, return_logprob, …) ask for.

        bias and mask are those of `adjust_logits`.
        """
        if self.penalties or bias is not None or mask is not None:
            logits = adjust_logits(logits, *self.history, bias=bias, mask=mask, **self.penalties)
        return sample(logits, **self.cuts, **options)
