"""Text for the example: the source of the Python standard library, or a folder, as bytes."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


class TextError(Exception):
    """The text cannot be used; the message says why in one line."""


@dataclass(frozen=True)
class Corpus:
    """Training and held-out bytes."""

    train: np.ndarray
    held_out: np.ndarray
    source: str

    def batch(self, rng: np.random.Generator, batch: int, context: int) -> tuple[np.ndarray, np.ndarray]:
        """Random windows of the training text and the bytes that follow each position: int32 [batch, context]."""
        starts = rng.integers(0, len(self.train) - context, batch)
        windows = np.stack([self.train[s : s + context + 1] for s in starts]).astype(np.int32)
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])

    def evaluation(self, batch: int, context: int, batches: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Fixed windows spread evenly over the held-out text."""
        count = batch * batches
        starts = np.linspace(0, len(self.held_out) - context - 1, count).astype(np.int64)
        windows = np.stack([self.held_out[s : s + context + 1] for s in starts]).astype(np.int32)
        for i in range(0, count, batch):
            part = windows[i : i + batch]
            yield np.ascontiguousarray(part[:, :-1]), np.ascontiguousarray(part[:, 1:])


def load(folder: str | None, context: int) -> Corpus:
    """The corpus: `folder`'s text files, or the standard library's modules (no tests, no site-packages).

    Files are taken in path order; every tenth is held out.
    """
    root = Path(folder) if folder else Path(sysconfig.get_paths()["stdlib"])
    try:
        if not root.is_dir():
            raise TextError(f"{root} is not a folder that can be read")
        texts = [
            text for path in _files(root, "" if folder else ".py") if (text := path.read_bytes()) and b"\0" not in text
        ]
    except OSError as error:
        raise TextError(f"cannot read {error.filename}: {error.strerror}") from error
    held_out = b"".join(texts[9::10])
    train = b"".join(text for i, text in enumerate(texts) if i % 10 != 9)
    need = context + 2
    if len(train) < need or len(held_out) < need:
        raise TextError(
            f"{root} holds too little text: {len(texts)} files, {len(train)} bytes to train on and {len(held_out)} "
            f"held out (every tenth file); at least {need} bytes of each are needed"
        )
    return Corpus(np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8), str(root))


def _files(root: Path, suffix: str) -> list[Path]:
    """Regular files under root, in path order; an unreadable folder is an error, not an omission."""

    def refuse(error: OSError) -> None:
        raise error

    found = []
    for at, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        found += [path for name in names if name.endswith(suffix) and (path := Path(at, name)).is_file()]
    return sorted(found)
