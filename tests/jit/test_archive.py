"""The kernel cache as one file: what is written is read, and a file that was not so written leaves nothing behind."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cache import fresh

from baracuda_py.cli.main import main
from baracuda_py.core.errors import BaracudaError
from baracuda_py.core.storage import MAX_BYTES
from baracuda_py.jit import Cache, archive
from baracuda_py.jit.archive import ArchiveError
from baracuda_py.jit.cache import FORMAT, make_key

KEYS = sorted(make_key((f"kernel {i}",)) for i in range(5))


@pytest.fixture
def held(tmp_path: Path) -> Cache:
    """A cache with entries of several lengths."""
    made = Cache(tmp_path / "held")
    for i, key in enumerate(KEYS):
        made.store(key, f"source {i}", fresh(b"\x7fELF" * (1 + 300 * i)), {"unit": f"u{i}"})
    return made


@pytest.fixture
def empty(tmp_path: Path) -> Cache:
    """Another cache, in which nothing is."""
    return Cache(tmp_path / "empty")


def test_there_and_back(held: Cache, empty: Cache, tmp_path: Path) -> None:
    path = tmp_path / "kernels.tar"
    assert archive.write(held, path) == (5, path.stat().st_size)
    assert archive.read(empty, path) == (5, 5)
    for key in KEYS:
        found, there = Cache(empty.dir).lookup(key), held.lookup(key)
        assert found is not None and there is not None
        assert (found.image, found.kernels, found.cached) == (there.image, there.kernels, True)
    assert archive.read(empty, path) == (5, 0), "what is there already is left"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "empty", tmp_path / "held", path]


def test_any_tar_reads_it_and_the_same_entries_make_the_same_bytes(held: Cache, empty: Cache, tmp_path: Path) -> None:
    first, second = tmp_path / "a.tar", tmp_path / "b.tar"
    archive.write(held, first)
    with tarfile.open(first, "r:") as file:
        assert file.getnames() == [f"v{FORMAT}/{key}.cubin" for key in KEYS]
        assert all(one.isreg() and one.mtime == 0 and one.uname == "" for one in file)
    archive.read(empty, first)
    archive.write(empty, second)
    assert first.read_bytes() == second.read_bytes()


def test_damaged_entries_are_left_out_and_earlier_formats(held: Cache, tmp_path: Path) -> None:
    held._path(KEYS[0], "cubin").write_bytes(b"torn")
    (held.dir / "v1" / "ab").mkdir(parents=True)
    (held.dir / "v1" / "ab" / f"{KEYS[1]}.cubin").write_bytes(b"old")
    assert archive.write(held, tmp_path / "a.tar")[0] == 4


def test_a_damaged_entry_is_replaced(held: Cache, tmp_path: Path) -> None:
    archive.write(held, tmp_path / "a.tar")
    held._path(KEYS[0], "cubin").write_bytes(b"torn")
    assert archive.read(held, tmp_path / "a.tar") == (5, 1) and held.lookup(KEYS[0]) is not None


def entry(held: Cache, i: int = 0) -> bytes:
    data = held.entry(KEYS[i])
    assert data is not None
    return data


def tarred(*members: tuple[str, bytes | dict[str, object]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar archive of files, and of members whose header has some fields set."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as file:
        for name, what in members:
            info = tarfile.TarInfo(name)
            if isinstance(what, dict):
                data = what.pop("data", b"")
                for field, value in what.items():
                    setattr(info, field, value)
            else:
                data = what
            assert isinstance(data, bytes)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    made = stream.getvalue().rstrip(b"\0")
    return made + bytes(-len(made) % 512 + 1024)


def name(key: str, version: str = FORMAT) -> str:
    return f"v{version}/{key}.cubin"


def sized(size: int) -> Callable[[Cache], bytes]:
    def make(held: Cache) -> bytes:
        info = tarfile.TarInfo(name(KEYS[0]))
        info.size = size
        return info.tobuf(tarfile.GNU_FORMAT if size < 0 or size >= 8**11 else tarfile.USTAR_FORMAT) + bytes(1024)

    return make


HOSTILE: dict[str, Callable[[Cache], bytes]] = {
    "empty": lambda held: b"",
    "zeros": lambda held: bytes(512),
    "text": lambda held: b"a kernel" * 200,
    "gzip": lambda held: b"\x1f\x8b" + bytes(1000),
    "absolute path": lambda held: tarred(("/" + name(KEYS[0]), entry(held))),
    "traversal": lambda held: tarred((f"v{FORMAT}/../../{KEYS[0]}.cubin", entry(held))),
    "another folder": lambda held: tarred((f"x/{name(KEYS[0])}", entry(held))),
    "another suffix": lambda held: tarred((f"v{FORMAT}/{KEYS[0]}.cu", entry(held))),
    "a newline": lambda held: tarred((name(KEYS[0]) + "\n", entry(held))),
    "upper case": lambda held: tarred((name(KEYS[0].upper()), entry(held))),
    "symbolic link": lambda held: tarred((name(KEYS[0]), {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
    "hard link": lambda held: tarred((name(KEYS[0]), {"type": tarfile.LNKTYPE, "linkname": name(KEYS[1])})),
    "folder": lambda held: tarred((f"v{FORMAT}", {"type": tarfile.DIRTYPE})),
    "device": lambda held: tarred((name(KEYS[0]), {"type": tarfile.CHRTYPE})),
    "pipe": lambda held: tarred((name(KEYS[0]), {"type": tarfile.FIFOTYPE})),
    "sparse file": lambda held: tarred((name(KEYS[0]), {"type": tarfile.GNUTYPE_SPARSE, "data": entry(held)})),
    "extended header": lambda held: tarred(
        (name(KEYS[0]), {"pax_headers": {"path": "/tmp/x"}, "data": entry(held)}), form=tarfile.PAX_FORMAT
    ),
    "long name": lambda held: tarred(("v2/" + "a" * 300, entry(held)), form=tarfile.GNU_FORMAT),
    "twice": lambda held: tarred((name(KEYS[0]), entry(held)), (name(KEYS[0]), entry(held))),
    "another key": lambda held: tarred((name(KEYS[1]), entry(held))),
    "wrong digest": lambda held: tarred((name(KEYS[0]), b"X" + entry(held)[1:])),
    "no entry": lambda held: tarred((name(KEYS[0]), b"")),
    "another format": lambda held: tarred((name(KEYS[0], "1"), entry(held))),
    "cut off": lambda held: tarred((name(KEYS[3]), entry(held, 3)))[:1024],
    "no end": lambda held: tarred((name(KEYS[0]), entry(held)))[:-1024],
    "more behind the end": lambda held: tarred((name(KEYS[0]), entry(held))) + tarred((name(KEYS[1]), entry(held, 1))),
    "behind an entry": lambda held: tarred((name(KEYS[0]), entry(held)))[:-1025] + b"x" + bytes(1024),
    "header damaged": lambda held: b"w" + tarred((name(KEYS[0]), entry(held)))[1:],
    "oversize": sized(MAX_BYTES + 1),
    "far oversize": sized(2**62),
    "negative size": sized(-512),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("after_a_good_one", [False, True])
def test_hostile_archives(case: str, after_a_good_one: bool, held: Cache, empty: Cache, tmp_path: Path) -> None:
    """A typed error that names the file, and nothing written, not even of the entries before it."""
    data = HOSTILE[case](held)
    if after_a_good_one:
        data = tarred((name(KEYS[4]), entry(held, 4)))[:-1024] + data
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    path.chmod(0o600)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError, match=r"a\.tar was not taken: "):
        archive.read(empty, path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_others_may_write(held: Cache, empty: Cache, tmp_path: Path) -> None:
    path, link = tmp_path / "a.tar", tmp_path / "link.tar"
    archive.write(held, path)
    link.symlink_to(path)
    with pytest.raises(OSError):
        archive.read(empty, link)
    path.chmod(0o666)
    with pytest.raises(ArchiveError, match="others may write it"):
        archive.read(empty, path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="no regular file"):
        archive.read(empty, tmp_path / "pipe")
    assert not empty.dir.exists()


def test_a_cache_that_is_not_trusted(held: Cache, tmp_path: Path) -> None:
    archive.write(held, tmp_path / "a.tar")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for act in (archive.read, archive.write):
        with pytest.raises(ArchiveError, match="others could put kernels there"):
            act(Cache(shared / "cache"), tmp_path / "a.tar")
    assert not list(shared.iterdir())


def test_an_export_that_fails_leaves_what_was_there(
    held: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError):
        archive.write(held, path)
    assert path.read_bytes() == b"before" and sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "held"]


def test_the_command(
    held: Cache, empty: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar"
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(held.dir))
    assert main(["cache", "--export", str(path)]) == 0
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(empty.dir))
    assert main(["cache", "--import", str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{path}: 5 entries, ") and said[1] == f"{empty.dir}: 5 of 5 entries were new"
    path.write_bytes(b"x")
    assert main(["cache", "--import", str(path)]) == 1
    assert main(["cache", "--export", str(tmp_path / "none" / "a.tar")]) == 1
    assert main(["cache", "--import", str(tmp_path / "none")]) == 1
    err = capsys.readouterr().err
    assert err.count("error: ") == err.count("\n") == 3


def test_the_error_is_typed() -> None:
    assert issubclass(ArchiveError, BaracudaError)
