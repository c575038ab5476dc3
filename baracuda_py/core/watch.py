"""BARACUDA_LOG: a line a call, with operands, kernel, stream and host time; BARACUDA_DUMP: a plan's call that fails.

`watched` puts a `Watched` runner in the place of a plan's own while a variable asks for it, which is read when the plan
is made; otherwise nothing stands between a plan and its runner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import config, dump
from .args import Args, arrays_of, scalars_of
from .arrays import read
from .checked import shown
from .execution import Makers, Runner, Views
from .memo import memo
from .tensor import dense_strides

_RAW, _LOG = config.raw("BARACUDA_LOG")


def watched(plan: Any, runner: Runner) -> Runner:
    """The runner, or one that logs what it does."""
    target = config.get("BARACUDA_LOG") if _RAW(_LOG) else None
    logged = target == "calls" or isinstance(target, Path)
    return Watched(plan, runner, _logger(target) if logged else None) if logged or dump.wanted() else runner


@memo()
def _logger(target: Any) -> logging.Logger:
    """The logger of calls to stderr, or to a file."""
    logger = logging.getLogger("baracuda_py.calls" if target == "calls" else f"baracuda_py.calls.{target}")
    handler = logging.StreamHandler() if target == "calls" else logging.FileHandler(target, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


class Watched:
    """A runner that logs each call of another, where there is a logger, and has those written that fail."""

    def __init__(self, plan: Any, runner: Runner, logger: logging.Logger | None) -> None:
        self.plan, self._inner, self._logger = plan, runner, logger
        plan.run = self.run  # a runner puts its own code there, also when it runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prepare(self, args: Args) -> None:
        """As the plan's own runner does."""
        self._inner.prepare(args)

    def direct(self, makers: Makers, lead: Any, views: Views = None) -> None:
        """None: every call goes through `run`."""

    def again(self, args: Args) -> None:
        """None, for the same reason."""

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Run, and log it, or what it raises."""
        try:
            self._logged(lambda: self._inner.run(args, workspace, stream), args, stream)
        finally:
            self.plan.run = self.run

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """The bound call, which logs each time."""
        try:
            call = self._inner.bind(args, workspace, stream)
        except Exception as error:
            dump.of_plan(self.plan, args, error)
            raise
        return lambda: self._logged(call, args, stream)

    def _logged(self, call: Callable[[], None], args: Args, stream: Any) -> None:
        start = time.perf_counter_ns()
        try:
            call()
        except Exception as error:
            if self._logger is not None:
                self._logger.error("%s  %s: %s", described(self.plan, args), type(error).__name__, error)
            dump.of_plan(self.plan, args, error)
            raise
        if self._logger is None:
            return
        took = (time.perf_counter_ns() - start) / 1e3
        verdict = self.plan.can_implement(args)
        at = "current" if stream is None else shown(stream)
        self._logger.info("%s  %s  stream %s  %.1f us", described(self.plan, args), verdict.sku, at, took)


def described(plan: Any, args: Any) -> str:
    """A call in words: the op, each operand's element, shape and strides, and the numbers."""
    kind = getattr(plan, "kind", None)
    words = [f"{plan.op}{f'[{kind.value}]' if kind is not None else ''}"]
    for spec in arrays_of(plan.args):
        value = getattr(args, spec.name, None)
        if value is not None:
            many = isinstance(value, (list, tuple))
            words.append(f"{spec.name}={'[' + ', '.join(map(_array, value)) + ']' if many else _array(value)}")
    for spec in scalars_of(plan.args):
        value = getattr(args, spec.name, None)
        words.append(f"{spec.name}={value if isinstance(value, (int, float, type(None))) else _array(value)}")
    return " ".join(words)


def _array(value: Any) -> str:
    """`float32[3,4]`, with its strides where it is not dense."""
    try:
        got = read(value)
    except Exception:  # what is wrong with it is said by the call
        return type(value).__name__
    text = f"{got.element}[{','.join(map(str, got.shape))}]"
    return text if got.strides == dense_strides(got.shape) else f"{text} strides ({','.join(map(str, got.strides))})"
