"""Whose files the cache believes: our own and root's, where nobody else may write. Another user plants nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_cache import KEY, fresh, stored

from baracuda_py.core import config, storage
from baracuda_py.core.storage import distrust
from baracuda_py.jit import Cache
from baracuda_py.jit import cache as cache_module

ROOT = Path(config.__file__).parents[2]
STRANGER = 54321


def foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `path` belong to another user: given away where we are root, else we are another one."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refused(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is read, nothing written, kernels work from memory, and it is said once what to do."""
    before = sorted(p for p in cache.dir.rglob("*"))
    assert cache.lookup(KEY) is None
    assert stored(cache).path is None
    cache.store("another", "s", fresh(), {})
    found = cache.lookup(KEY)
    assert found is not None and found.image == fresh().image and found.path is None
    assert sorted(p for p in cache.dir.rglob("*")) == before
    said = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(said) == 1 and "another user" in said[0].getMessage() and "BARACUDA_CACHE_DIR" in said[0].getMessage()
    assert cache.dir not in cache.folder("more").parents and mode(cache.folder("more")) == 0o700
    failed = cache.save_failure("k", "source", "log")
    assert failed is not None and cache.dir not in failed.parents and mode(failed.parent) == 0o700
    assert cache.stats().entries == 0 and cache.clear().bytes == 0


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277, 0o777])
def test_folders_and_files_are_ours_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    cache = Cache(tmp_path / "a" / "b" / "cache")
    with umask(mask):
        stored(cache)
        with cache.claim("ab"):
            assert mode(cache._path("ab", "lock")) == 0o600
        cache.folder("more")
        cache.save_failure("bad", "s", "log")
        (tmp_path / "x.h").write_text("")
        os.chmod(tmp_path / "x.h", 0o600)
        cache.fingerprint(tmp_path / "x.h")
    found = Cache(cache.dir).lookup(KEY)
    assert found is not None and found.path is not None
    for path in (tmp_path / "a").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(tmp_path / "a") == 0o700


@pytest.mark.parametrize("which", ["", "v2", "..", "v2/{}"])
def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "up" / "cache")
    stored(cache)
    foreign(cache.dir / which.format(KEY[:2]), monkeypatch)
    if which == "v2/{}":  # a root that is ours lets nobody make one
        assert Cache(cache.dir).lookup(KEY) is None and stored(Cache(cache.dir)).path is None
        assert "belongs to user" in caplog.text
    else:
        refused(Cache(cache.dir), caplog)


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o720, 0o702, 0o1777])
@pytest.mark.parametrize("which", ["", "v2", ".."])
def test_a_folder_that_others_may_write_is_not_used(
    tmp_path: Path, which: str, bits: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sticky one may stand above ours, as /tmp does."""
    monkeypatch.setattr(storage, "_private_group", lambda gid: False)  # whoever runs the tests may have one
    cache = Cache(tmp_path / "up" / "cache")
    stored(cache)
    os.chmod(cache.dir / which, bits)
    if bits == 0o1777 and which != "v2":
        assert Cache(cache.dir).lookup(KEY) is not None and not caplog.records
    else:
        refused(Cache(cache.dir), caplog)


def test_a_group_of_the_users_own_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions that give every user a group make folders with umask 002."""
    import grp
    import pwd

    members: list[str] = []
    user = pwd.struct_passwd(("ann", "x", os.getuid(), 77, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, members)))
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        found = list(real(path))
        found[5] = 77 if str(path).startswith(str(tmp_path)) else found[5]
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", lstat)
    tmp_path.chmod(0o775)
    name = "ann"
    assert distrust(tmp_path) is None
    members = ["ann"]
    assert distrust(tmp_path) is None
    members = ["ann", "bob"]
    assert "others may write" in (distrust(tmp_path) or "")
    members, name = [], "users"
    assert "others may write" in (distrust(tmp_path) or "")
    name = "ann"
    tmp_path.chmod(0o777)
    assert "others may write" in (distrust(tmp_path) or "")


def test_a_namespace_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There root's folders, and other users', belong to nobody: above ours that is no reason, for ours it is."""
    above, ours = tmp_path / "above", tmp_path / "above" / "ours"
    ours.mkdir(parents=True)
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        found = list(real(path))
        found[4] = os.geteuid() if str(path) == str(owned) else 65534
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", lstat)
    owned = ours
    assert "/ belongs to user 65534" in (distrust(ours) or "")
    monkeypatch.setattr(storage, "_hidden_root", lambda: 65534)
    assert distrust(ours) is None
    above.chmod(0o777)
    assert "others may write" in (distrust(ours) or "")
    above.chmod(0o755)
    owned = above
    assert f"{ours} belongs to user 65534" in (distrust(ours) or "")


def test_links_in_the_path_are_followed_where_they_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, open_ = tmp_path / "real", tmp_path / "open"
    real.mkdir(mode=0o700)
    open_.mkdir()
    open_.chmod(0o777)
    (tmp_path / "link").symlink_to("./real/../real")
    (tmp_path / "absolute").symlink_to(real / ".." / "link")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "into").symlink_to(open_ / "cache")
    (tmp_path / "up").symlink_to("open/..")
    for name in ("link", "absolute"):
        assert distrust(tmp_path / name / "cache") is None
        assert stored(Cache(tmp_path / name)).path is not None
    assert "chain of links" in (distrust(tmp_path / "round") or "")
    assert "others may write" in (distrust(tmp_path / "into" / "x") or "")
    assert "others may write" in (distrust(tmp_path / "up" / "real") or ""), "what a link passes through counts"
    open_.chmod(0o1777)
    assert "others may write" in (distrust(tmp_path / "open") or "")
    foreign(tmp_path / "link", monkeypatch)
    assert "belongs to user" in (distrust(tmp_path / "link") or "")


def plant_link(path: Path, _: pytest.MonkeyPatch) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def plant_pipe(path: Path, _: pytest.MonkeyPatch) -> None:
    path.unlink()
    os.mkfifo(path)


def plant_huge(path: Path, _: pytest.MonkeyPatch) -> None:
    os.truncate(path, storage.MAX_BYTES + 1)


def plant_foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        foreign(path, monkeypatch)
    else:
        plant_link(path, monkeypatch)


@pytest.mark.parametrize(
    "plant", [plant_link, plant_pipe, plant_huge, plant_foreign, lambda path, _: path.chmod(0o666)]
)
def test_an_entry_that_is_no_file_of_ours_is_built_again(
    cache: Cache, plant: Callable[[Path, pytest.MonkeyPatch], None], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = stored(cache).path
    assert path is not None
    plant(path, monkeypatch)
    assert cache.lookup(KEY) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING] and "damaged" in caplog.text
    stored(cache)
    found = cache.lookup(KEY)
    assert found is not None and path.is_file() and not path.is_symlink()
    elsewhere = path.with_suffix(".elsewhere")
    assert not elsewhere.exists() or elsewhere.read_bytes() == path.read_bytes(), "what a link named is not written"


def test_a_link_planted_for_a_write_is_replaced(cache: Cache, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    stored(cache)
    for name in (cache._path(KEY, "cu"), cache._path(KEY, "cubin"), cache.root / "files.json"):
        name.unlink(missing_ok=True)
        name.symlink_to(victim)
    with contextlib.suppress(OSError), cache.claim(KEY):
        stored(cache)
    cache.fingerprint(victim)
    assert victim.read_text() == "precious"
    lock = cache._path(KEY, "lock")
    lock.symlink_to(tmp_path / "made by a link")
    with cache.claim(KEY):
        assert not (tmp_path / "made by a link").exists()


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, with nothing in its environment but `environ`."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        env=environ, text=True, capture_output=True, timeout=60, check=True, cwd="/",
    )  # fmt: skip


NO_HOME = """
import os, stat
from baracuda_py.jit import cache, Cubin
from baracuda_py.core import config
made = cache.default_cache()
assert config.get("BARACUDA_CACHE_DIR") is None and made is cache.default_cache()
assert stat.S_IMODE(made.dir.stat().st_mode) == 0o700 and made.dir.stat().st_uid == os.getuid()
assert made.store("ab", "s", Cubin(None, b"image", {}, 0.1, False), {}).path
if os.fork() == 0:
    sys.exit(0 if made.lookup("ab").image == b"image" else 1)
assert os.wait()[1] == 0 and made.dir.is_dir(), "a child leaves its parent's folder"
print(made.dir)
"""


@pytest.mark.parametrize("home", ["", "relative", "/no/such/home"])
def test_without_a_home_the_cache_is_a_private_temporary_folder(tmp_path: Path, home: str) -> None:
    found = [run(NO_HOME, HOME=home, TMPDIR=str(tmp_path)).stdout.strip() for _ in range(2)]
    assert found[0] != found[1] and all(Path(name).parent == tmp_path for name in found)
    assert not any(tmp_path.iterdir()), "removed at exit"


def test_with_no_place_at_all_kernels_are_kept_in_memory(tmp_path: Path) -> None:
    script = """
import tempfile; tempfile.tempdir = "/no/such/folder"
from baracuda_py.jit import cache, Cubin
made = cache.default_cache()
assert made.store("ab", "s", Cubin(None, b"image", {}, 0.1, False), {}).path is None
assert made.lookup("ab").image == b"image" and made.save_failure("k", "s", "l") is None
"""
    assert run(script, HOME="").stderr.count("kept in memory") == 1


def as_stranger(check: Callable[[], bool]) -> bool:
    """What `check` answers in a child without root's rights."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_folder_of_roots_serves_other_users_to_read(common: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a cache that was warmed for all; a home that cannot be written is one, too."""
    cache = Cache(common / "cache")
    stored(cache)
    for path in (cache.dir, *cache.dir.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)

    def check() -> bool:
        mine = Cache(cache.dir)
        found = mine.lookup(KEY)
        made = mine.store("ab" * 32, "s", fresh(b"new"), {})
        with mine.claim("cd"):
            pass
        said = [r for r in caplog.records if r.levelno >= logging.WARNING]
        again = mine.lookup("ab" * 32)
        ok = found is not None and made.path is None and again is not None and again.image == b"new"
        return ok and len(said) == 1 and "cannot be written" in said[0].getMessage()

    assert as_stranger(check)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_kernel_planted_in_the_shared_temporary_folder_is_not_loaded(
    common: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The attack itself: another user makes our folder in a sticky one before us, with an entry of the right form."""
    common.chmod(0o1777)
    planted = common / "cache"
    if os.getuid() == 0:
        assert as_stranger(lambda: stored(Cache(planted)).path is not None)
        assert planted.stat().st_uid == STRANGER
    else:
        stored(Cache(planted))
        planted.chmod(0o777)
    cache = Cache(planted)
    assert cache.lookup(KEY) is None and "another user could put kernels there" in caplog.text


def test_a_disk_that_takes_no_more(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        made = cache.store(KEY, "short", fresh(b"x" * 1000), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert made.path is None and "cannot be written" in caplog.text
    found = cache.lookup(KEY)
    assert found is not None and found.image == b"x" * 1000
    assert Cache(cache.dir).lookup(KEY) is None and not list(cache.dir.rglob("*.tmp"))


@pytest.mark.parametrize("where", ["/dev/full", "/dev/null/cache", "/proc/cache"])
def test_what_is_no_place_for_folders(where: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(Path(where))
    assert cache.lookup(KEY) is None and stored(cache).path is None
    with cache.claim(KEY):
        assert cache.lookup(KEY) is not None
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_folder_deleted_while_it_is_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    stored(cache)
    real, deleted = os.replace, [0]

    def replace(a: str, b: Path) -> None:
        if b.suffix == ".cubin" and not deleted[0]:
            deleted[0] = 1
            shutil.rmtree(cache.dir)
        real(a, b)

    monkeypatch.setattr(os, "replace", replace)
    assert stored(cache).path is not None and deleted[0]
    assert cache.lookup(KEY) is not None
    shutil.rmtree(cache.dir)
    assert cache.lookup(KEY) is None and stored(cache).path is not None


def test_the_report_says_why_a_folder_is_not_used(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    from baracuda_py.cli.report import environment

    assert "not used" not in environment()["cache"]
    cache.dir.mkdir()
    cache.dir.chmod(0o777)
    assert f"not used: others may write in {cache.dir} (mode 0777)" in environment()["cache"]
    assert cache_module.stats().entries == 0
