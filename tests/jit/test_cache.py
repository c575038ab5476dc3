"""The disk cache alone; no compiler is needed."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.core import storage
from baracuda_py.jit import Cache, Cubin, KernelInfo, fingerprints
from baracuda_py.jit import cache as cache_module
from baracuda_py.jit.cache import make_key

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
    assert made.path is not None and made.path.read_bytes().startswith(made.image)
    assert cache._path(KEY, "cu").read_text() == "source"
    assert not list(cache.dir.rglob("*.tmp"))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flip": lambda data: b"X" + data[1:],
    "flip behind the image": lambda data: data[:20] + b"X" + data[21:],
    "flip in the digest": lambda data: data[:-12] + bytes([data[-12] ^ 1]) + data[-11:],
    "a length beyond all": lambda data: data[:-48] + b"\xff" * 8 + data[-40:],
    "truncate": lambda data: data[:-1],
    "a few bytes": lambda data: data[:7],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "image alone": lambda data: b"\x7fELF image",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_a_miss_with_one_warning(
    cache: Cache, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(cache).path
    assert path is not None
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert cache.lookup(KEY) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "damaged" in caplog.text
    assert cache.lookup(KEY, quiet=True) is None and len(caplog.records) == 1
    stored(cache)
    assert cache.lookup(KEY) is not None


def test_an_entry_of_another_key_is_damaged(cache: Cache) -> None:
    other = make_key(("another",))
    cache.store(other, "s", fresh(b"another kernel"), {})
    stored(cache)
    cache._path(other, "cubin").replace(cache._path(KEY, "cubin"))
    assert cache.lookup(KEY) is None


def good(**change: Any) -> dict[str, Any]:
    info = {"registers": 24, "spill_stores": 0, "spill_loads": 0, "stack": 0, "static_smem": 128, "serialised": False}
    return {"seconds": 0.25, "kernels": {"k": {**info, **change}}}


NOT_META: list[Any] = [
    None, [], {}, 3, "text", True, [good()], {"meta": good()},
    *({**good(), "seconds": v} for v in (None, "1", True, [], -1.0, float("nan"), float("inf"), 10**400)),
    *({**good(), "kernels": v} for v in (None, [], 3, {"k": None}, {"k": []}, {"k": [24, 0, 0, 0, 128]}, {"k": {}})),
    *(good(registers=v) for v in (None, "24", 24.0, True, -1, 10**30, float("nan"), [24], {"n": 24})),
    *(good(serialised=v) for v in (None, 0, 1, "no")),
]  # fmt: skip


@pytest.mark.parametrize("meta", NOT_META, ids=lambda meta: repr(meta)[:60])
def test_meta_of_any_other_form_is_a_miss_with_one_warning(
    cache: Cache, meta: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where its digest is right, as a later version might write it."""
    assert write_meta(cache, json.dumps(good()).encode()) is not None, "the test writes entries as the cache does"
    assert write_meta(cache, json.dumps(meta).encode()) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    stored(cache)
    assert cache.lookup(KEY) is not None


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b'{"a": 1e999}'])
def test_meta_that_is_no_json_is_a_miss(cache: Cache, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert write_meta(cache, text) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]


def write_meta(cache: Cache, meta: bytes) -> Cubin | None:
    """Store an entry with this JSON and a right digest, and look it up."""
    footer = cache_module._FOOTER.pack(len(meta), cache_module._digest(KEY, b"image", meta), cache_module._MARK)
    storage.write_file(cache._path(KEY, "cubin"), b"image" + meta + footer)
    return cache.lookup(KEY)


def test_racing_writers_with_other_bits_leave_a_whole_entry(cache: Cache) -> None:
    cache.store(KEY, "s", fresh(b"one"), {})
    cache.store(KEY, "s", fresh(b"two"), {})
    found = cache.lookup(KEY)
    assert found is not None and found.image == b"two"
    assert [p.suffix for p in sorted(cache.root.rglob("*")) if p.is_file()] == [".cu", ".cubin"]


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
        ("replace", errno.EACCES, 0),
        ("replace", errno.ENOSPC, 1),
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
        patch.setattr(storage, "open", Full, raising=False)
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
        patch.setattr(fingerprints, "_fingerprint", lambda path: pytest.fail("hashed again"))
        assert Cache(cache.dir).fingerprint(header) == first
    header.write_text("edited")
    assert Cache(cache.dir).fingerprint(header).digest != first.digest


def test_a_file_of_the_same_size_and_time_is_another_file(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("int a;")
    found, first = header.stat(), cache.fingerprint(header)
    header.write_text("int b;")
    os.utime(header, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert header.stat().st_mtime_ns == found.st_mtime_ns
    for one in (cache, Cache(cache.dir)):
        assert one.fingerprint(header).digest != first.digest


def test_a_cache_that_is_cleared_beside_a_compile(cache: Cache, tmp_path: Path) -> None:
    """Another thread may clear it between any two steps of a fingerprint."""
    header = tmp_path / "a.h"
    header.write_text("int a;")
    load, save = cache._fingerprints._load, cache._fingerprints._save

    def cleared(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            made = act(*args)
            cache.clear()
            return made

        return run

    cache._fingerprints._load, cache._fingerprints._save = cleared(load), cleared(save)
    for text in ("int a;", "int b;", "int b;"):
        header.write_text(text)
        assert len(cache.fingerprint(header).digest) == 64


def test_a_full_disk_is_tried_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [KEY, make_key(("another",)), make_key(("a third",))]
    with monkeypatch.context() as patch:
        refuse("replace", errno.ENOSPC, patch)
        for key in keys[:2]:
            cache.store(key, "source", fresh(), {})
    assert cache.lookup(KEY).path is None, "not at every look"
    assert Cache(cache.dir).lookup(KEY) is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert cache.lookup(KEY) is not None
    assert all(Cache(cache.dir).lookup(key) is not None for key in keys[:2])
    with monkeypatch.context() as patch:
        refuse("replace", errno.ENOSPC, patch)
        cache.store(keys[2], "source", fresh(), {})
    cache.store(make_key(("one that is written",)), "source", fresh(), {})
    assert Cache(cache.dir).lookup(keys[2]) is not None, "what has room again has room for the others"


HEX = "0" * 64
ROW = [1, 2, 3, 4, HEX, []]
NOT_FILES: list[Any] = [
    None, [], 3, [ROW], {"/a.h": None}, {"/a.h": []}, {"/a.h": [1, 2, 3, 4, 5, []]}, {"/a.h": [1, 2, 3, 4, HEX, None]},
    {"/a.h": ["1", 2, 3, 4, HEX, []]}, {"/a.h": [1.0, 2, 3, 4, HEX, []]}, {"/a.h": [1, 2, 3, 4, HEX, [3]]},
    {"/a.h": [*ROW, 5]}, {"/a.h": {"size": 1}}, {"/a.h": [True, 2, 3, 4, HEX, []]}, {"/a.h": [1, 2, HEX, []]},
    {"/a.h": [1, 2, 3, 4, "\ud800" * 64, []]}, {"/a.h": [1, 2, 3, 4, HEX, ["\udc80.h"]]},
    {"/a.h": [1, 2, 3, 4, "digest", []]},
]  # fmt: skip


@pytest.mark.parametrize("text", ["{torn", "[" * 100_000, *map(json.dumps, NOT_FILES)], ids=lambda text: text[:40])
def test_fingerprints_of_any_other_form_are_made_again(cache: Cache, tmp_path: Path, text: str) -> None:
    header = tmp_path / "a.h"
    header.write_text("#include <b.h>\n")
    stat = header.stat()
    cache.fingerprint(header)
    stamp = ", ".join(map(str, fingerprints._stamp(stat)))
    text = text.replace("/a.h", str(header)).replace("[1, 2, 3, 4,", f"[{stamp},")
    (cache.root / "files.json").write_text(text)
    assert Cache(cache.dir).fingerprint(header) == cache.fingerprint(header)


def test_stats_and_clear(cache: Cache, tmp_path: Path) -> None:
    stored(cache)
    (tmp_path / "x.h").touch()
    cache.fingerprint(tmp_path / "x.h")
    cache.save_failure("bad", "source", "log")
    mine, theirs = cache.root / "ab", cache.root / KEY[:2] / "live.tmp"
    storage.write_file(mine / "old.tmp", b"")
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
