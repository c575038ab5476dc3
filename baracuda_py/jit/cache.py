"""Compiled kernels on disk, shared by every process of a user.

An entry is `<dir>/v1/<key[:2]>/<key>` + `.cu` (the flattened source, to read), `.<digest>.cubin` and `.json`. Every
file appears whole by one rename; the `.json` comes last and names the cubin by digest, so that processes racing
on one key cannot mix their files, and a torn or damaged entry is seen on reading and made again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from baracuda_py.core import config
from baracuda_py.jit.cubin import Cubin, KernelInfo

FORMAT = "1"  # part of every key and of the folder's name: raise it when an entry's meaning changes
_STALE_SECONDS = 3600  # a temporary file older than this belongs to no living writer
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)

log = logging.getLogger("baracuda_py.jit")


@dataclass(frozen=True)
class Fingerprint:
    """A file's content hash and, for a header, the names it includes."""

    digest: str
    includes: tuple[str, ...]


@dataclass(frozen=True)
class CacheStats:
    """What the cache holds: kernel units and bytes on disk."""

    dir: Path
    entries: int
    bytes: int


class Cache:
    """One cache directory. Nothing is made or read before the first lookup."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.root = directory / f"v{FORMAT}"
        self._memory: dict[str, Cubin] = {}  # entries that could not be written
        self._memo: dict[str, tuple[int, int, Fingerprint]] | None = None
        self._said_unwritable = False

    def lookup(self, key: str) -> Cubin | None:
        """The entry, verified against its digest; None where it is missing or damaged."""
        if key in self._memory:
            return self._memory[key]
        meta_path = self._path(key, "json")
        try:
            meta = json.loads(meta_path.read_bytes())
            path = self._path(key, f"{meta['sha256'][:16]}.cubin")
            image = path.read_bytes()
            if hashlib.sha256(image).hexdigest() != meta["sha256"]:
                raise ValueError("the cubin does not match its digest")
            kernels = {name: KernelInfo(**info) for name, info in meta["kernels"].items()}
            return Cubin(path, image, kernels, float(meta["seconds"]), cached=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if _absent(error) and not meta_path.exists():
                return None
            log.warning("cache entry %s is damaged (%s: %s); building it again", meta_path, type(error).__name__, error)
            return None

    def store(self, key: str, source: str, cubin: Cubin, facts: dict[str, Any]) -> Cubin:
        """Publish an entry and return it with its path; kept in memory where the disk takes no more."""
        digest = hashlib.sha256(cubin.image).hexdigest()
        kernels = {name: asdict(info) for name, info in cubin.kernels.items()}
        meta = {"sha256": digest, "seconds": cubin.seconds, "kernels": kernels, **facts}
        path = self._path(key, f"{digest[:16]}.cubin")
        try:
            publish(self._path(key, "cu"), source.encode(), durable=False)
            publish(path, cubin.image)
            publish(self._path(key, "json"), json.dumps(meta, indent=1).encode())
        except OSError as error:
            self._say_unwritable(error)
            self._memory[key] = Cubin(None, cubin.image, cubin.kernels, cubin.seconds, cached=True)
            return cubin
        return Cubin(path, cubin.image, cubin.kernels, cubin.seconds, cached=False)

    def save_failure(self, key: str, source: str, text: str) -> Path | None:
        """Keep the source that did not compile, beside its log, for the error to point to."""
        for folder in (self.root / "failed", Path(tempfile.gettempdir(), "baracuda_py-failed")):
            with contextlib.suppress(OSError):
                publish(folder / f"{key}.log", text.encode(), durable=False)
                publish(folder / f"{key}.cu", source.encode(), durable=False)
                return folder / f"{key}.cu"
        return None

    def fingerprint(self, path: Path) -> Fingerprint:
        """Content hash of a toolkit file, remembered by size and time: NVRTC is 100 MB, 0.1-0.3 s to hash."""
        if self._memo is None:
            self._memo = self._load_memo()
        stat = path.stat()
        known = self._memo.get(str(path))
        if known is not None and known[:2] == (stat.st_size, stat.st_mtime_ns):
            return known[2]
        made = _fingerprint(path)
        # Replaced, not changed in place: another thread may be writing the old one out.
        self._memo = {**self._memo, str(path): (stat.st_size, stat.st_mtime_ns, made)}
        self._save_memo(self._memo)
        return made

    def stats(self) -> CacheStats:
        """Entries and bytes; 0 where nothing was ever written."""
        files = list(self._files())
        entries = sum(path.suffix == ".json" and path.parent != self.root for path, _ in files)
        return CacheStats(self.dir, entries, sum(size for _, size in files))

    def clear(self) -> CacheStats:
        """Delete every entry and return what was there. Files that other processes are writing now are left."""
        before, removed = self.stats(), 0
        for path, size in self._files():
            if path.suffix == ".tmp" and time.time() - _mtime(path) < _STALE_SECONDS:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                removed += size
        self._memory.clear()
        self._memo = None
        return CacheStats(self.dir, before.entries, removed)

    def _path(self, key: str, suffix: str) -> Path:
        return self.root / key[:2] / f"{key}.{suffix}"

    def _files(self) -> Iterator[tuple[Path, int]]:
        for folder, _, names in os.walk(self.root):
            for name in names:
                with contextlib.suppress(OSError):
                    yield (path := Path(folder, name)), path.stat().st_size

    def _say_unwritable(self, error: OSError) -> None:
        level = logging.DEBUG if self._said_unwritable else logging.WARNING
        self._said_unwritable = True
        log.log(
            level, "cannot write the kernel cache %s (%s); kernels are kept in memory and compiled again by the next "
            "process. Set BARACUDA_CACHE_DIR to a writable directory", self.dir, error,
        )  # fmt: skip

    def _load_memo(self) -> dict[str, tuple[int, int, Fingerprint]]:
        try:
            rows = json.loads((self.root / "files.json").read_bytes())
            return {path: (size, mtime, Fingerprint(sha, tuple(inc))) for path, (size, mtime, sha, inc) in rows.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _save_memo(self, memo: dict[str, tuple[int, int, Fingerprint]]) -> None:
        rows = {path: (size, mtime, fp.digest, fp.includes) for path, (size, mtime, fp) in memo.items()}
        with contextlib.suppress(OSError):  # only speed is lost, and store() speaks up
            publish(self.root / "files.json", json.dumps(rows).encode(), durable=False)


def default_cache() -> Cache:
    """The cache that BARACUDA_CACHE_DIR names now; one object a directory."""
    directory = config.get("BARACUDA_CACHE_DIR")
    cache = _caches.get(directory)
    if cache is None:
        config.apply_log_level()
        cache = _caches.setdefault(directory, Cache(directory))
    return cache


def stats() -> CacheStats:
    """What the cache in force holds."""
    return default_cache().stats()


def clear() -> CacheStats:
    """Empty the cache in force; returns what was removed."""
    return default_cache().clear()


_caches: dict[Path, Cache] = {}


def make_key(parts: Iterable[str]) -> str:
    """One hash over parts of any content; lengths are hashed too, so that no two lists run together."""
    state = hashlib.sha256()
    for part in (FORMAT, *parts):
        data = part.encode()
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.hexdigest()


def publish(path: Path, data: bytes, durable: bool = True) -> None:
    """Write a file that other processes see whole or not at all; `durable` also outlives a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name[:16]}-", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _fingerprint(path: Path) -> Fingerprint:
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    if not path.suffix.startswith(".h"):  # only headers (.h, .hpp) include others; the library is not text
        return Fingerprint(state.hexdigest(), ())
    names = dict.fromkeys(name.decode(errors="replace") for name in _INCLUDE.findall(path.read_bytes()))
    return Fingerprint(state.hexdigest(), tuple(names))


def _absent(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()
