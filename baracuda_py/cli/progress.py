"""A line on a terminal that says how far long work is: tqdm's bar where it is installed, else a counter."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """`with Progress(total, "bench") as step: …; step("rms_norm")`."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done, self._shown = total, label, 0, 0.0
        self.visible = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self.visible:
            try:
                from tqdm import tqdm

                self._bar = tqdm(total=self.total, desc=self.label, leave=False)
            except ImportError:
                pass
        return self

    def __call__(self, name: str) -> None:
        """One piece of the work, by this name, is done."""
        self.done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(name[:60], refresh=False)
            self._bar.update()
            return
        now = time.perf_counter()
        if self.visible and (now - self._shown > 0.1 or self.done == self.total):
            self._shown = now
            print(f"\r{self.done}/{self.total} {name:<70.70}", end="", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self.visible and self.done:
            print(file=sys.stderr, flush=True)
