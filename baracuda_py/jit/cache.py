"""Compiled kernels on disk, shared by every process of a user.

An entry is `<dir>/v2/<key[:2]>/<key>.cubin`, with `.cu` (the flattened source, to read) beside it. The `.cubin` holds
the image, what is known of it as JSON, and a digest of both and of the key; tools that read cubins do not mind what
stands behind the image. It appears whole by one rename, so processes that race on one key cannot mix their files, and
a torn or damaged entry is seen on reading and made again. The bytes that were verified are the bytes that are loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from baracuda_py.core import config, lock
from baracuda_py.core.storage import cache_folder, distrust, make_folder, private_folder, read_file, write_file
from baracuda_py.core.unit import Cubin, KernelInfo
from baracuda_py.jit.fingerprints import Fingerprint, Fingerprints, of_type

FORMAT = "2"  # part of every key and of the folder's name: raise it when an entry's meaning changes
_STALE_SECONDS = 3600  # a temporary file older than this belongs to no living writer
_TOUCH_SECONDS = 60  # a use is noted once in so long
_RETRY_SECONDS = 30.0  # until a folder that could not be written is tried again for an entry that is asked for
_FILLED_TO = 0.75  # of the cap, after entries had to go
_VERSION = re.compile(r"v\d+")
_FOOTER = struct.Struct("<Q32s8s")  # bytes of JSON, digest, mark
_MARK = b"baracuda"

log = logging.getLogger("baracuda_py.jit")


@dataclass(frozen=True)
class _Unwritten:
    """An entry that the disk did not take."""

    source: str
    cubin: Cubin
    facts: dict[str, Any]


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
        self._memory: dict[str, _Unwritten] = {}
        self._try_at = 0.0  # when they may be tried again
        self._fingerprints = Fingerprints(self._read_fingerprints, self._write_fingerprints)
        self._room = -1  # bytes that may be written before the folder is measured again
        self._said = False

    def lookup(self, key: str, quiet: bool = False) -> Cubin | None:
        """The entry, verified against its digest; None where it is missing or damaged (told, unless `quiet`)."""
        held = self._memory.get(key)
        if held is not None:
            self._write_held()
            return Cubin(None, held.cubin.image, held.cubin.kernels, held.cubin.seconds, cached=True)
        path = self._path(key, "cubin")
        if not self._trusted(path.parent):
            return None
        try:
            data, found = read_file(path)
            cubin = unpack(key, path, data)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            level = logging.DEBUG if quiet else logging.WARNING
            log.log(level, "cache entry %s is damaged (%s: %s); building it again", path, type(error).__name__, error)
            return None
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return cubin

    def store(self, key: str, source: str, cubin: Cubin, facts: dict[str, Any]) -> Cubin:
        """Publish an entry and return it with its path; kept in memory where the disk takes no more."""
        try:
            path = self._write(key, _Unwritten(source, cubin, facts))
        except OSError as error:
            self._say(f"cannot be written ({error})")
            self._memory[key] = _Unwritten(source, cubin, facts)
            self._try_at = time.monotonic() + _RETRY_SECONDS
            return cubin
        self._try_at = 0.0
        self._write_held()
        return Cubin(path, cubin.image, cubin.kernels, cubin.seconds, cached=False)

    def _write(self, key: str, entry: _Unwritten) -> Path:
        cap = config.get("BARACUDA_CACHE_MAX_BYTES")
        path, data = self._path(key, "cubin"), _pack(key, entry.cubin, entry.facts)
        self._make(path.parent)
        write_file(self._path(key, "cu"), entry.source.encode(), durable=False)
        write_file(path, data)
        self._keep_cap(cap, len(entry.source) + len(data))
        return path

    def entries(self) -> list[str]:
        """The keys of the entries on disk, in order."""
        return sorted(path.stem for path, _ in self._files() if path == self._path(path.stem, "cubin"))

    def entry(self, key: str) -> bytes | None:
        """An entry's bytes as they are on disk; None where it is missing or damaged."""
        path = self._path(key, "cubin")
        if not self._trusted(path.parent):
            return None
        try:
            data, _ = read_file(path)
            unpack(key, path, data)
        except (OSError, ValueError, RecursionError):
            return None
        return data

    def adopt(self, key: str, data: bytes) -> bool:
        """Publish an entry's bytes, which `unpack` has verified; whether it was missing. OSError where it cannot be."""
        if self.entry(key) is not None:
            return False
        path = self._path(key, "cubin")
        self._make(path.parent)
        write_file(path, data)
        self._keep_cap(config.get("BARACUDA_CACHE_MAX_BYTES"), len(data))
        return True

    def _write_held(self) -> None:
        """Write what is held in memory, where the folder may take it by now: a full disk does not stay full."""
        if not self._memory or time.monotonic() < self._try_at:
            return
        try:
            for key, entry in list(self._memory.items()):
                self._write(key, entry)
                self._memory.pop(key, None)
        except OSError:
            self._try_at = time.monotonic() + _RETRY_SECONDS

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """While the context lasts, other processes that claim `key` wait, where the folder and its system allow it."""
        with contextlib.ExitStack() as stack:
            if self._usable(self.root / key[:2]):
                stack.enter_context(lock.exclusive(self._path(key, "lock")))
            yield

    def folder(self, name: str) -> Path:
        """A folder for files of another kind beside the kernels; one of this process where the cache is not trusted."""
        folder = self.dir / name if self._usable(self.dir / name) else private_folder() / name
        make_folder(folder)
        return folder

    def save_failure(self, key: str, source: str, text: str) -> Path | None:
        """Keep the source that did not compile, beside its log, for the error to point to."""
        for ours in (True, False):
            with contextlib.suppress(OSError):
                folder = self.root / "failed" if ours else private_folder(kept=True)
                if not ours or self._usable(folder):
                    write_file(folder / f"{key}.log", text.encode(), durable=False)
                    write_file(folder / f"{key}.cu", source.encode(), durable=False)
                    return folder / f"{key}.cu"
        return None

    def fingerprint(self, path: Path) -> Fingerprint:
        """Content hash of a toolkit file, and what it includes."""
        return self._fingerprints.of(path)

    def stats(self) -> CacheStats:
        """Entries and bytes, those of earlier formats included; 0 where nothing was ever written."""
        files = list(self._files())
        return CacheStats(self.dir, sum(p.suffix == ".cubin" for p, _ in files), sum(s.st_size for _, s in files))

    def clear(self) -> CacheStats:
        """Delete every entry and return what was there. Files that other processes are writing now are left."""
        before, removed = self.stats(), 0
        for path, found in self._files():
            if not _busy(path, found):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed += found.st_size
        self._memory.clear()
        self._fingerprints.forget()
        self._room = -1
        return CacheStats(self.dir, before.entries, removed)

    def refusal(self, folder: Path | None = None) -> str | None:
        """Why the cache (or one of its folders) is neither read nor written: another user could put kernels there."""
        return distrust(self.root) or (distrust(folder) if folder else None)

    def _path(self, key: str, suffix: str) -> Path:
        return self.root / key[:2] / f"{key}.{suffix}"

    def _trusted(self, folder: Path | None = None) -> bool:
        why = self.refusal(folder)
        if why is not None:
            self._say(f"is not used, since another user could put kernels there: {why}")
        return why is None

    def _make(self, folder: Path) -> None:
        """Make a folder of the cache; OSError where that cannot be, or where it is not ours alone."""
        for made in (False, True):
            why = self.refusal(folder)
            if why is not None:
                raise PermissionError(why)
            if not made:
                make_folder(folder)

    def _usable(self, folder: Path) -> bool:
        try:
            self._make(folder)
        except OSError:
            return False
        return True

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        if not self._trusted():
            return
        with contextlib.suppress(OSError):
            for version in sorted(name for name in os.listdir(self.dir) if _VERSION.fullmatch(name)):
                for folder, _, names in os.walk(self.dir / version):
                    for name in names:
                        with contextlib.suppress(OSError):
                            yield (path := Path(folder, name)), path.lstat()

    def _keep_cap(self, cap: int, written: int) -> None:
        """Where the cap may be passed: sweep what nobody finished, then drop what was not used for longest."""
        self._room -= written
        if self._room >= 0:
            return
        entries: dict[str, list[tuple[Path, os.stat_result]]] = {}
        total = 0
        for path, found in self._files():
            if _stale(path, found):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix not in (".tmp", ".lock") and path.name != "files.json":
                entries.setdefault(os.path.join(path.parent, path.name.partition(".")[0]), []).append((path, found))
                total += found.st_size
        if 0 < cap < total:
            for files in sorted(entries.values(), key=lambda files: max(found.st_mtime for _, found in files)):
                if total <= cap * _FILLED_TO:
                    break
                for path, found in files:
                    with contextlib.suppress(OSError):
                        path.unlink()
                    total -= found.st_size
            log.info("the kernel cache %s passed its cap of %d bytes; %d are left", self.dir, cap, total)
        # Other processes write, too: measured again long before the cap, and without a cap for the sweep's sake.
        self._room = max(cap - total, 0) // 8 if cap else 1 << 30

    def _say(self, what: str) -> None:
        level = logging.DEBUG if self._said else logging.WARNING
        self._said = True
        log.log(
            level, "the kernel cache %s %s; kernels are kept in memory and compiled again by the next process. Set "
            "BARACUDA_CACHE_DIR to a folder that you own and that only you may write (chmod 700)", self.dir, what,
        )  # fmt: skip

    def _read_fingerprints(self) -> bytes:
        return read_file(self.root / "files.json")[0] if self._trusted() else b"{}"

    def _write_fingerprints(self, data: bytes) -> None:
        self._make(self.root)
        write_file(self.root / "files.json", data, durable=False)


def default_cache() -> Cache:
    """The cache that BARACUDA_CACHE_DIR names now; one object a directory."""
    directory = cache_folder()
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


def _pack(key: str, cubin: Cubin, facts: dict[str, Any]) -> bytes:
    kernels = {name: asdict(info) for name, info in cubin.kernels.items()}
    meta = json.dumps({"seconds": float(cubin.seconds), "kernels": kernels, **facts}).encode()
    return cubin.image + meta + _FOOTER.pack(len(meta), _digest(key, cubin.image, meta), _MARK)


def unpack(key: str, path: Path | None, data: bytes) -> Cubin:
    """An entry's bytes as a Cubin; ValueError where anything about them is not as `_pack` writes it."""
    size = len(data) - _FOOTER.size
    if size < 0:
        raise ValueError("it is cut off")
    length, digest, mark = _FOOTER.unpack_from(data, size)
    if mark != _MARK or length > size:
        raise ValueError("it does not end as entries do")
    image, text = data[: size - length], data[size - length : size]
    if digest != _digest(key, image, text):
        raise ValueError("it does not match its digest")
    meta = of_type(dict, json.loads(text))
    kernels = {name: _info(info) for name, info in of_type(dict, meta.get("kernels")).items()}
    seconds = of_type(float, meta.get("seconds"))
    if not 0 <= seconds < math.inf:
        raise ValueError(f"it says that compiling took {seconds} s")
    return Cubin(path, image, kernels, seconds, cached=True)


def _digest(key: str, image: bytes, meta: bytes) -> bytes:
    state = hashlib.sha256(f"{key} {len(image)} ".encode())
    state.update(image)
    state.update(meta)
    return state.digest()


def _info(value: Any) -> KernelInfo:
    facts = of_type(dict, value)
    found = {f.name: of_type(bool if f.name == "serialised" else int, facts.get(f.name)) for f in fields(KernelInfo)}
    if not all(0 <= number < 1 << 31 for number in found.values()):
        raise ValueError(f"no kernel has {found}")
    return KernelInfo(**found)


def _busy(path: Path, found: os.stat_result) -> bool:
    """Whether another process may be writing the file or hold it; a lock that nobody holds is deleted here."""
    if path.suffix == ".lock":
        lock.remove_stale(path)
        return True
    return path.suffix == ".tmp" and time.time() - found.st_mtime < _STALE_SECONDS


def _stale(path: Path, found: os.stat_result) -> bool:
    """Whether its writer must have died: a temporary file, a lock, or a source whose cubin never came."""
    if time.time() - found.st_mtime < _STALE_SECONDS or path.parent.name == "failed":
        return False
    if path.suffix == ".cu":
        return not path.with_suffix(".cubin").exists()
    return path.suffix in (".tmp", ".lock") and not _busy(path, found)
