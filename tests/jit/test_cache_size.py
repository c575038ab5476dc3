"""The cap on the cache's size: what was not used for longest goes, with what nobody finished."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cache import fresh

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.jit import Cache
from baracuda_py.jit import cache as cache_module

IMAGE = 10_000


def key(n: int) -> str:
    return cache_module.make_key((str(n),))


def store(cache: Cache, n: int, age: float = 0.0) -> None:
    """Entry `n`, last used `age` seconds ago."""
    made = cache.store(key(n), "s", fresh(b"x" * IMAGE), {})
    if age and made.path is not None and made.path.exists():
        then = time.time() - age
        for path in (made.path, made.path.with_suffix(".cu")):
            os.utime(path, (then, then))


def kept(cache: Cache, count: int) -> list[int]:
    return [n for n in range(count) if cache._path(key(n), "cubin").exists()]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_was_not_used_for_longest_goes(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(8):
        store(cache, n, age=10_000 - 1000 * n)
    assert cache.lookup(key(0)) is not None  # used now
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", str(6 * IMAGE))
    Cache(cache.dir).store(key(8), "s", fresh(b"x" * IMAGE), {})
    assert kept(cache, 9) == [0, 6, 7, 8]
    assert size(cache.dir) <= 6 * IMAGE
    assert all(cache._path(key(n), "cu").exists() == (n in (0, 6, 7, 8)) for n in range(9))


@pytest.mark.parametrize("cap", [4, 20])
def test_the_cap_holds_through_a_long_run(cache: Cache, cap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", str(cap * IMAGE))
    for n in range(60):
        store(cache, n)
        assert size(cache.dir) <= cap * IMAGE and cache.lookup(key(n)) is not None


def test_the_folder_is_not_measured_for_every_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = [0]
    real = Cache._files

    def counting(self: Cache) -> Iterator[tuple[Path, os.stat_result]]:
        walks[0] += 1
        return real(self)

    monkeypatch.setattr(Cache, "_files", counting)
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", str(100 * IMAGE))
    for n in range(80):
        store(cache, n)
    assert kept(cache, 80) == list(range(80)) and walks[0] < 25


def test_two_writers_share_the_cap(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", str(40 * IMAGE))
    others = [Cache(cache.dir) for _ in range(3)]
    for n in range(120):
        store(others[n % 3], n)
        assert size(cache.dir) <= 56 * IMAGE


@pytest.mark.parametrize("cap", ["0", ""])
def test_without_a_cap_everything_stays(cache: Cache, cap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", cap)
    for n in range(20):
        store(cache, n)
    assert kept(cache, 20) == list(range(20))


def test_a_cap_below_one_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", "10")
    store(cache, 0)
    assert size(cache.dir) <= 10 and cache.lookup(key(0)) is None


@pytest.mark.parametrize("text", ["-1", "2GB", "1.5", "many"])
def test_a_cap_that_is_no_number_is_told_before_anything_is_written(
    cache: Cache, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", text)
    with pytest.raises(InvalidProblemError, match=f"MAX_BYTES: got '{text}'; it takes a number of bytes"):
        store(cache, 0)
    assert not cache.dir.exists()


def test_what_nobody_finished_is_swept(cache: Cache) -> None:
    folder = cache.root / "ab"
    folder.mkdir(parents=True)
    old = [folder / name for name in ("a-x.tmp", "a.lock", "a.cu")]
    new = [folder / name for name in ("b-x.tmp", "b.lock", "b.cu")]
    for path in (*old, *new):
        path.write_text("x")
    for path in old:
        os.utime(path, (0, time.time() - 7200))
    cache.save_failure("bad", "s", "log")
    store(cache, 0, age=10_000)
    store(Cache(cache.dir), 1)
    assert not any(path.exists() for path in old) and all(path.exists() for path in new)
    assert kept(cache, 2) == [0, 1] and (cache.root / "failed" / "bad.cu").exists()
    assert cache._path(key(0), "cu").exists(), "the source of an old entry is no orphan"


def test_entries_of_earlier_formats_count_and_go_first(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    old = cache.dir / "v1" / "ab"
    old.mkdir(parents=True)
    for name in ("k.cu", "k.0123.cubin", "k.json"):
        (old / name).write_bytes(b"x" * IMAGE)
        os.utime(old / name, (0, time.time() - 7200))
    assert cache.stats().entries == 1 and cache.stats().bytes == 3 * IMAGE
    (cache.dir / "emulator").mkdir()
    (cache.dir / "emulator" / "a.so").write_bytes(b"x" * IMAGE)
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", str(3 * IMAGE))
    store(cache, 0)
    assert not any(path.is_file() for path in old.parent.rglob("*")) and kept(cache, 1) == [0]
    cache.clear()
    assert (cache.dir / "emulator" / "a.so").exists() and cache.stats().entries == 0
