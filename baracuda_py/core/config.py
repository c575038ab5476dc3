"""Every environment variable, in one table. Each is read when used, so a change takes effect without a new process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from baracuda_py.core.errors import InvalidProblemError


@dataclass(frozen=True)
class Variable:
    """One row: `parse` turns the text into the value and raises ValueError on text it does not take."""

    name: str
    default: Callable[[], Any]
    parse: Callable[[str], Any]
    accepts: str
    doc: str
    default_text: str = ""


@dataclass(frozen=True)
class Setting:
    """A row as `table()` shows it: the variable and the value in force now."""

    name: str
    value: Any
    is_set: bool
    default: str
    accepts: str
    doc: str


def _default_cache_dir() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore relative paths
        home = os.path.expanduser("~") if os.environ.get("HOME") != "" else ""
        if not os.path.isabs(home) or not os.path.isdir(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base, "baracuda_py")


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # a relative path in a folder that was deleted; "~" of no user
        raise ValueError(text) from error


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(text)
        return text.lower()

    return parse


def _flag(text: str) -> bool:
    return _one_of("0", "1")(text) == "1"


class Secret:
    """Text that is not printed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "(not shown)"


_LEVELS = ("debug", "info", "warning", "error")


def _log(text: str) -> str | Path | None:
    """A level; "calls" for 1; or the file that calls are written to, told by a / or a . in its name."""
    if text == "0":
        return None
    if text == "1":
        return "calls"
    return _path(text) if "/" in text or "." in text else _one_of(*_LEVELS)(text)


_TABLE = {
    v.name: v
    for v in (
        Variable(
            "BARACUDA_CACHE_DIR", _default_cache_dir, _path,
            "a directory, made when used; the user of ~user must exist",
            "where compiled kernels are kept; not used where another user could write", "$XDG_CACHE_HOME/baracuda_py, "
            "~/.cache/baracuda_py, or without a home a temporary one of the process",
        ),
        Variable(
            "BARACUDA_CACHE_MAX_BYTES", lambda: 2 << 30, _count, "a number of bytes; 0 means no cap",
            "beyond it the kernels not used for longest are deleted", str(2 << 30),
        ),
        Variable(
            "BARACUDA_JIT", lambda: "on", _one_of("on", "cached", "off"), "on, cached or off",
            "cached and off never compile: a kernel missing from the cache is an error that names it", "on",
        ),
        Variable(
            "BARACUDA_JIT_JOBS", lambda: 0, _count, "a number of threads; 0 means one a CPU",
            "how many kernels are compiled at once", "0",
        ),
        Variable(
            "BARACUDA_NVRTC", lambda: None, _path, "the path of libnvrtc.so.N",
            "the NVRTC library to use in place of the one found", "found",
        ),
        Variable(
            "BARACUDA_CUDA_HOME", lambda: None, _path, "a toolkit root, holding include/cuda_fp16.h",
            "where CUDA headers are looked for first", "found",
        ),
        Variable(
            "BARACUDA_CHECK", lambda: False, _flag, "0 or 1",
            "1 runs checked kernels: a bad index on the device raises after the launch; outputs are poisoned "
            "before it, and NaN and infinities made of finite operands are warned of", "0",
        ),
        Variable(
            "BARACUDA_BACKEND", lambda: "", _one_of("numpy"), "numpy, or empty for the device's own",
            "the backend that select() takes when no device is named", "",
        ),
        Variable(
            "BARACUDA_LOG", lambda: None, _log,
            "1, a file (with a / or a . in its name), debug, info, warning or error",
            "1 writes a line a call to stderr, a name to that file; a word is this package's log level, on stderr. "
            "Read when a plan is made", "left alone",
        ),
        Variable(
            "BARACUDA_DUMP", lambda: None, _path, "a directory, made when used",
            "a call that fails is written there, for `python -m baracuda_py replay`; read when the package is imported",
            "none",
        ),
        Variable(
            "BARACUDA_DISTRIBUTED_KEY", lambda: None, Secret, "any text, the same for all ranks",
            "a secret that processes show each other before they are ranks of one communicator", "none: whoever "
            "reaches the port of rank 0 may be a rank",
        ),
    )
}  # fmt: skip


@overload
def get(
    name: Literal["BARACUDA_CACHE_DIR", "BARACUDA_NVRTC", "BARACUDA_CUDA_HOME", "BARACUDA_DUMP"],
) -> Path | None: ...
@overload
def get(name: Literal["BARACUDA_JIT", "BARACUDA_BACKEND"]) -> str: ...
@overload
def get(name: Literal["BARACUDA_JIT_JOBS", "BARACUDA_CACHE_MAX_BYTES"]) -> int: ...
@overload
def get(name: Literal["BARACUDA_CHECK"]) -> bool: ...
@overload
def get(name: Literal["BARACUDA_LOG"]) -> str | Path | None: ...
@overload
def get(name: str) -> Any: ...
def get(name: str) -> Any:
    """The value of a variable, parsed; its default where it is unset or empty."""
    variable = _TABLE[name]
    text = os.environ.get(name, "").strip()
    if not text:
        return variable.default()
    try:
        return variable.parse(text)
    except ValueError:
        raise InvalidProblemError(f"{name}: got {text!r}; it takes {variable.accepts}") from None


def raw(name: str) -> tuple[Callable[[Any], Any], Any]:
    """(f, key): `f(key)` is what the environment holds for a variable now, to compare with what it held before.

    For code that runs at every call: `os.environ.get` encodes and decodes, which takes 1 µs, the dict below it 0.03.
    """
    below = getattr(os.environ, "_data", None)
    if below is None:
        return os.environ.get, name
    return below.get, os.environ.encodekey(name)


def table() -> list[Setting]:
    """Every variable with its value or what is wrong with it, for `python -m baracuda_py env` and the documentation."""

    def value(name: str) -> Any:
        try:
            return get(name)
        except InvalidProblemError as error:
            return f"invalid: {error}"

    return [
        Setting(v.name, value(v.name), bool(os.environ.get(v.name, "").strip()), v.default_text, v.accepts, v.doc)
        for v in _TABLE.values()
    ]


def apply_log_level() -> None:
    """Let BARACUDA_LOG set this package's level; without it logging stays as the application configured it."""
    level = get("BARACUDA_LOG")
    if level not in _LEVELS:
        return
    logger = logging.getLogger("baracuda_py")
    logger.setLevel(str(level).upper())
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
