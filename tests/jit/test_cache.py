"""The disk cache alone; no compiler is needed."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from pathlib import Path

import pytest

from baracuda_py.jit import Cache, Cubin, KernelInfo
from baracuda_py.jit import cache as cache_module
from baracuda_py.jit.cache import make_key, publish

INFO = KernelInfo(registers=24, spill_stores=0, spill_loads=0, stack=0, static_smem=128)
KEY = make_key(("a test",))


def fresh(image: bytes = b"\x7fELF image") -> Cubin:
    return Cubin(None, image, {"k": INFO}, 0.25, cached=False)


def stored(cache: Cache) -> Cubin:
    return cache.store(KEY, "source", fresh(), {"unit": "u"})


def test_round_trip(cache: Cache) -> None:
    assert cache.lookup(KEY) is None
    assert not cache.dir.exists(), "looking must not make directories"
    made = stored(cache)
    again = Cache(cache.dir).lookup(KEY)
    assert again == Cubin(made.path, made.image, {"k": INFO}, 0.25, cached=True)
    assert made.path is not None and made.path.read_bytes() == made.image
    assert cache._path(KEY, "cu").read_text() == "source"
    assert not list(cache.dir.rglob("*.tmp"))
    with again.load_path() as path:
        assert path == made.path


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove"])
def test_a_damaged_cubin_is_a_miss_with_one_warning(
    cache: Cache, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(cache).path
    assert path is not None
    image = path.read_bytes()
    bad = {"flip": b"X" + image[1:], "truncate": image[:-1], "empty": b""}
    path.unlink() if damage == "remove" else path.write_bytes(bad[damage])
    assert cache.lookup(KEY) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "damaged" in caplog.text
    stored(cache)
    assert cache.lookup(KEY) is not None


@pytest.mark.parametrize("text", ["", "{", '{"sha256": 1}', "[]", '{"sha256": null, "kernels": 3}'])
def test_a_damaged_meta_is_a_miss_with_one_warning(cache: Cache, text: str, caplog: pytest.LogCaptureFixture) -> None:
    stored(cache)
    cache._path(KEY, "json").write_text(text)
    assert cache.lookup(KEY) is None
    assert len(caplog.records) == 1
    stored(cache)
    assert cache.lookup(KEY) is not None


def test_racing_writers_with_other_bits_leave_a_whole_entry(cache: Cache) -> None:
    first, second = fresh(b"one"), fresh(b"two")
    cache.store(KEY, "s", first, {})
    meta = cache._path(KEY, "json").read_bytes()
    cache.store(KEY, "s", second, {})
    cache._path(KEY, "json").write_bytes(meta)  # the first writer's meta lands last
    found = cache.lookup(KEY)
    assert found is not None and found.image == b"one"


def refuse(name: str, code: int, monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """Let `os.<name>` fail with `code` from call number `after` on."""
    real, calls = getattr(os, name), iter(range(10**6))

    def call(*args: object, **kwargs: object) -> object:
        if next(calls) >= after:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize(
    ("name", "code", "after"),
    [
        ("mkdir", errno.EROFS, 0),
        ("mkdir", errno.EACCES, 0),
        ("open", errno.EACCES, 0),
        ("fsync", errno.ENOSPC, 0),
        ("fsync", errno.ENOSPC, 1),
        ("replace", errno.EACCES, 0),
        ("replace", errno.ENOSPC, 1),
        ("replace", errno.EROFS, 2),
    ],
)
def test_an_unwritable_cache_keeps_kernels_in_memory_and_says_so_once(
    cache: Cache, name: str, code: int, after: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse(name, code, patch, after)
        made = stored(cache)
        cache.store(make_key(("another",)), "source", fresh(), {})
    assert made.path is None
    found = cache.lookup(KEY)
    assert found is not None and found.cached and found.image == made.image
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert "BARACUDA_CACHE_DIR" in caplog.text
    assert not list(cache.dir.rglob("*.tmp")), "what was begun is taken away"
    assert Cache(cache.dir).lookup(KEY) is None, "and no half entry is taken for a whole one"
    with made.load_path() as path:
        assert path.read_bytes() == made.image
    assert not path.exists()


def test_a_disk_full_while_writing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, handle: int, mode: str) -> None:
            self.file = os.fdopen(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            self.file.write(data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "open", Full, raising=False)
        assert stored(cache).path is None
    assert cache.lookup(KEY) is not None
    assert not list(cache.dir.rglob("*.tmp"))


def test_a_file_where_the_directory_should_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("in the way")
    cache = Cache(tmp_path / "cache")
    assert cache.lookup(KEY) is None and not caplog.records
    assert stored(cache).path is None
    assert cache.lookup(KEY) is not None
    assert len(caplog.records) == 1
    assert cache.stats().entries == 0 and cache.clear().entries == 0


def test_fingerprints_are_remembered_on_disk_and_follow_edits(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "a.h"
    header.write_text('#include <b.h>\n  # include "c.h"\n// #include <no.h>\n')
    first = cache.fingerprint(header)
    assert first.includes == ("b.h", "c.h")
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "_fingerprint", lambda path: pytest.fail("hashed again"))
        assert Cache(cache.dir).fingerprint(header) == first
    header.write_text("edited")
    assert Cache(cache.dir).fingerprint(header).digest != first.digest
    (cache.root / "files.json").write_text("{torn")
    assert Cache(cache.dir).fingerprint(header).includes == ()


def test_stats_and_clear(cache: Cache, tmp_path: Path) -> None:
    stored(cache)
    (tmp_path / "x.h").touch()
    cache.fingerprint(tmp_path / "x.h")
    cache.save_failure("bad", "source", "log")
    mine, theirs = cache.root / "ab", cache.root / KEY[:2] / "live.tmp"
    publish(mine / "old.tmp", b"")
    os.utime(mine / "old.tmp", (0, time.time() - 7200))
    theirs.touch()
    before = cache.stats()
    assert before.entries == 1 and before.bytes > 0 and before.dir == cache.dir
    assert cache.clear() == before
    assert cache.lookup(KEY) is None
    assert [p for p in cache.dir.rglob("*") if p.is_file()] == [theirs], "a file being written is left alone"


def test_key_parts_do_not_run_together() -> None:
    assert make_key(("ab", "c")) != make_key(("a", "bc"))
    assert json.dumps(make_key(())) != json.dumps(make_key(("",)))
