"""Entries of the kernel cache as one file: a tar archive of cubins, so that an image starts with no compile.

A member is `v2/<key>.cubin`, an entry's bytes as `cache.py` has them, digest included. The archive is plain POSIX tar,
sorted and without times or owners: the same entries make the same bytes. A cubin is code, so an archive is read as the
cache is: from a file that is ours or root's and that nobody else may write. All of it is checked before anything is
written, and nothing in it names a place: the key alone decides where an entry lies.
"""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from ..core.errors import BaracudaError
from ..core.storage import MAX_BYTES, opened
from .cache import FORMAT, Cache, unpack

_BLOCK = tarfile.BLOCKSIZE
_NAME = re.compile(r"v(\d{1,9})/([0-9a-f]{64})\.cubin")


class ArchiveError(BaracudaError):
    """A file that is no archive of kernels as `write` makes them, or none to be trusted. Nothing of it was taken."""


def write(cache: Cache, path: Path) -> tuple[int, int]:
    """Write the cache's entries to a file, which appears whole; returns how many, and bytes. Damaged ones are left."""
    _check(cache)
    count = 0
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:16]}-", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            for key in cache.entries():
                data = cache.entry(key)
                if data is None:
                    continue
                info = tarfile.TarInfo(f"v{FORMAT}/{key}.cubin")
                info.size, info.mode = len(data), 0o600
                file.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % _BLOCK))
                count += 1
            file.write(bytes(2 * _BLOCK))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return count, path.stat().st_size


def read(cache: Cache, path: Path) -> tuple[int, int]:
    """Put the entries of an archive into the cache; returns how many it has, and how many of them were new."""
    _check(cache)
    try:
        with opened(path) as (file, _):
            for _ in _entries(file):
                pass
            file.seek(0)
            total = new = 0
            for key, data in _entries(file):  # checked again, so what is written is what was checked
                new += cache.adopt(key, data)
                total += 1
    except ValueError as error:
        raise ArchiveError(f"{path} was not taken: {error}") from None
    return total, new


def _check(cache: Cache) -> None:
    why = cache.refusal()
    if why is not None:
        raise ArchiveError(f"the kernel cache {cache.dir} is not used, since others could put kernels there: {why}")


def _entries(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Each entry's key and bytes, verified; ValueError where anything is not as `write` makes it.

    Read block by block: what tar has beyond plain files (links, extended headers, sparse files) is refused unread.
    """
    seen: set[str] = set()
    while True:
        head = file.read(_BLOCK)
        if head == bytes(_BLOCK):
            if file.read(_BLOCK) != head or file.read(1):
                _refuse("it does not end as archives do")
            return
        key, size = _member(head)
        if key in seen:
            _refuse(f"{key} is there twice")
        seen.add(key)
        data, rest = file.read(size), file.read(-size % _BLOCK)
        if len(data) < size or len(rest) < -size % _BLOCK:
            _refuse("it is cut off")
        if any(rest):
            _refuse(f"{key} is followed by something else")
        try:
            unpack(key, None, data)
        except (ValueError, RecursionError) as error:
            _refuse(f"{key}: {error}")
        yield key, data


def _member(head: bytes) -> tuple[str, int]:
    """The key and size that a header names."""
    try:
        info = tarfile.TarInfo.frombuf(head, "ascii", "strict")
    except (tarfile.TarError, ValueError) as error:
        _refuse(f"it is no tar archive, or damaged ({error})")
    name = _NAME.fullmatch(info.name)
    if info.type != tarfile.REGTYPE or name is None or info.linkname:
        _refuse(f"{info.name!r} is no kernel of a cache")
    if name[1] != FORMAT:
        _refuse(f"its kernels are of format {name[1]}, this version reads {FORMAT}")
    if not 0 <= info.size <= MAX_BYTES:
        _refuse(f"{name[2]} is said to have {info.size} bytes")
    return name[2], info.size


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)
