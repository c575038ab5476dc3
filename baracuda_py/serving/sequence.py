"""A request, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..core.checked import whole
from ..core.errors import InvalidProblemError
from .samplers import SamplingParams


def token_list(tokens: Any) -> list[int]:
    """Token ids of a list, a tuple, bytes or an array of the host, as Python's integers."""
    return list(tokens.tolist() if hasattr(tokens, "tolist") else tokens)


@dataclass(frozen=True)
class Request:
    """A text to go on with, and for how long.

    prompt: token ids, at least one. max_tokens: how many to generate at most. params: how they are drawn. stop: ids of
    which each ends the text, and is its last one.
    """

    prompt: Iterable[int]
    max_tokens: int = 16
    params: SamplingParams = field(default_factory=SamplingParams)
    stop: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        prompt = tuple(whole("prompt", token, 0) for token in token_list(self.prompt))
        if not prompt:
            raise InvalidProblemError("prompt must have at least one token")
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "max_tokens", whole("max_tokens", self.max_tokens, 1))
        object.__setattr__(self, "stop", frozenset(whole("stop", token, 0) for token in self.stop))


class Sequence:
    """A request on its way: its tokens so far, the pages it holds, and how many tokens these have the keys of.

    finished: None while it goes on, else "length" (it has max_tokens), "stop" (its last token is one of request.stop)
    or "aborted". logprobs: those of the generated tokens, where `Scheduler.update` is told them.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.params = request.params
        self.tokens: list[int] = list(request.prompt)
        self.prompt_length = len(self.tokens)
        self.pages: list[int] = []
        self.cached = 0
        self.logprobs: list[float] = []
        self.finished: str | None = None

    @property
    def generated(self) -> list[int]:
        """The tokens behind the prompt."""
        return self.tokens[self.prompt_length :]

    @property
    def pending(self) -> int:
        """Tokens whose keys are in no page yet: a forward pass has to see them before the next one is drawn."""
        return len(self.tokens) - self.cached

    def append(self, token: int) -> None:
        """Take a drawn token, and see whether it is the last."""
        self.tokens.append(whole("token", token, 0))
        if self.tokens[-1] in self.request.stop:
            self.finished = "stop"
        elif len(self.tokens) - self.prompt_length >= self.request.max_tokens:
            self.finished = "length"
