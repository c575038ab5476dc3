"""Files that no other user can have put there: folders of our own, written whole, read without following links.

A cubin is code. Whoever can write in the cache decides what the GPU runs, so a folder counts only where every
component of its path is ours or root's and nobody else may write in it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from . import config

_LINKS = 40  # as many symbolic links as Linux follows in one path
_SHARED = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
MAX_BYTES = 1 << 28  # no file of ours is larger


def distrust(folder: Path) -> str | None:
    """Why another user could decide what lies in `folder`, or None. What does not exist yet is no reason."""
    if not hasattr(os, "geteuid"):  # systems without owners as POSIX has them keep caches in the user's profile
        return None
    place, rest, links = "/", _parts(folder.absolute()), 0
    while True:
        try:
            found = os.lstat(place)
        except OSError:  # nothing there, or nothing we may look at: using it will fail and tell
            return None
        if found.st_uid not in (0, os.geteuid()) and not (rest and found.st_uid == _hidden_root()):
            return f"{place} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                return f"{place} is a chain of links"
            target = os.readlink(place)
            place = "/" if os.path.isabs(target) else os.path.dirname(place)
            rest += _parts(target)
            continue
        if _shared(found) and not (rest and found.st_mode & stat.S_ISVTX):
            # In a sticky folder such as /tmp others may add files, but not replace ours: the next component tells.
            return f"others may write in {place} (mode {stat.S_IMODE(found.st_mode):04o})"
        if not rest:
            return None
        name = rest.pop()
        place = os.path.dirname(place) if name == ".." else os.path.join(place, name)


def _parts(path: str | os.PathLike[str]) -> list[str]:
    """The components of a path, the last one first."""
    return [part for part in reversed(os.fspath(path).split("/")) if part not in ("", ".")]


@functools.cache
def _hidden_root() -> int | None:
    """The user that root's files belong to in a user namespace without root, such as Apptainer and bubblewrap make.

    Others' files belong to the same one there. It may own what stands above our folder: what lies in it is ours.
    """
    try:
        spans = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if any(first == 0 and count for first, _, count in spans):
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None


def _shared(found: os.stat_result) -> bool:
    """Whether others may write there. A group of the user's own name and without members is nobody else."""
    writable = found.st_mode & _SHARED
    return bool(writable) and (writable != stat.S_IWGRP or not _private_group(found.st_gid))


def _private_group(gid: int) -> bool:
    if gid == 0:
        return False
    try:
        import grp
        import pwd

        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except (ImportError, KeyError):
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, for us alone whatever the umask says."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file to read, and its status; ValueError where it is none, is not ours, or others may write it."""
    handle = os.open(path, _READ)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
            raise ValueError(f"it belongs to user {found.st_uid}")
        if _shared(found):
            raise ValueError(f"others may write it (mode {stat.S_IMODE(found.st_mode):04o})")
        yield file, found


def read_file(path: Path) -> tuple[bytes, os.stat_result]:
    """A file of ours as bytes, and its status; ValueError where `opened` raises it or it is larger than any of ours."""
    with opened(path) as (file, found):
        if found.st_size > MAX_BYTES:
            raise ValueError(f"it is of {found.st_size} bytes")
        return file.read(MAX_BYTES), found


def write_file(path: Path, data: bytes, durable: bool = True, private: bool = True) -> None:
    """Write a file that other processes see whole or not at all; `durable` also outlives a power cut.

    It is for its owner alone; with `private=False` all may read it, or whoever could read the file that it replaces.
    """
    try:
        _write_file(path, data, durable, private)
    except FileNotFoundError:  # the folder was deleted meanwhile
        _write_file(path, data, durable, private)


def _write_file(path: Path, data: bytes, durable: bool, private: bool) -> None:
    make_folder(path.parent)
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name[:16]}-", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            os.chmod(temporary, 0o600 if private else _shown(path))
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _shown(path: Path) -> int:
    """The mode of a file that is not for its owner alone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o644


@functools.cache
def private_folder(kept: bool = False) -> Path:
    """A temporary folder of this process, with a name that nobody can know beforehand; removed at exit unless kept."""
    folder, owner = tempfile.mkdtemp(prefix="baracuda-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child uses its parent's, and leaves it
            shutil.rmtree(folder, ignore_errors=True)

    if not kept:
        atexit.register(remove)
    return Path(folder)


def cache_folder() -> Path:
    """The folder that BARACUDA_CACHE_DIR names now, where kernels and measurements are kept."""
    named: Path | None = config.get("BARACUDA_CACHE_DIR")
    if named is not None:
        return named
    try:  # without a home
        return private_folder()
    except OSError:
        return Path(os.devnull, "no place to write")  # so they are kept in memory
