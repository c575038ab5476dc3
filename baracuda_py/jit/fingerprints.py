"""Content hashes of toolkit files, remembered between processes: they are in the key of every kernel."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Stamp = tuple[int, int, int, int]  # size, inode, and nanoseconds at which content and inode changed last


@dataclass(frozen=True)
class Fingerprint:
    """A file's content hash and, for a header, the names it includes."""

    digest: str
    includes: tuple[str, ...]


class Fingerprints:
    """Fingerprints by path. `load` gives the bytes that `save` took in this or another process."""

    def __init__(self, load: Callable[[], bytes], save: Callable[[bytes], None]) -> None:
        self._load, self._save = load, save
        self._memo: dict[str, tuple[_Stamp, Fingerprint]] | None = None

    def of(self, path: Path) -> Fingerprint:
        """A file's, made again where the file changed: NVRTC is 100 MB, 0.1-0.3 s to hash."""
        memo = self._memo  # read once: another thread may have everything forgotten
        if memo is None:
            memo = self._memo = self._loaded()
        stamp = _stamp(path.stat())
        known = memo.get(str(path))
        if known is not None and known[0] == stamp:
            return known[1]
        made = _fingerprint(path)
        # Replaced, not changed in place: another thread may be writing the old one out.
        memo = self._memo = {**memo, str(path): (stamp, made)}
        rows = {path: (*stamp, fp.digest, fp.includes) for path, (stamp, fp) in memo.items()}
        with contextlib.suppress(OSError):  # only speed is lost, and what stores a kernel speaks up
            self._save(json.dumps(rows).encode())
        return made

    def forget(self) -> None:
        """Load them again when one is asked for."""
        self._memo = None

    def _loaded(self) -> dict[str, tuple[_Stamp, Fingerprint]]:
        try:
            return {of_type(str, path): _row(row) for path, row in json.loads(self._load()).items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}


def of_type(kind: type, value: Any) -> Any:
    """`value`, which JSON gave, where it is exactly of that type."""
    if type(value) is not kind:
        raise ValueError(f"{kind.__name__} expected, got {type(value).__name__}")
    return value


def _row(row: Any) -> tuple[_Stamp, Fingerprint]:
    *stamp, digest, includes = of_type(list, row)
    names = tuple(of_type(str, name) for name in of_type(list, includes))
    if not _DIGEST.fullmatch(of_type(str, digest)) or not all(map(str.isprintable, names)) or len(stamp) != 4:
        raise ValueError("it is no row of this format")
    size, inode, mtime, ctime = (of_type(int, number) for number in stamp)
    return (size, inode, mtime, ctime), Fingerprint(digest, names)


def _stamp(found: os.stat_result) -> _Stamp:
    """What changes with a file's content. Tools that restore the time of a change cannot restore the last number."""
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _fingerprint(path: Path) -> Fingerprint:
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    if not path.suffix.startswith(".h"):  # only headers (.h, .hpp) include others; the library is not text
        return Fingerprint(state.hexdigest(), ())
    names = dict.fromkeys(name.decode(errors="replace") for name in _INCLUDE.findall(path.read_bytes()))
    return Fingerprint(state.hexdigest(), tuple(names))
