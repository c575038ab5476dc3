"""Kernel sources: find them, and flatten a compile unit into one text that can be hashed and compiled.

NVRTC could follow `-I` itself, but then the cache would have to know which headers a kernel read. The
flattened text *is* what is compiled, so its hash can never miss an edited header.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from baracuda_py.core.errors import CompileError
from baracuda_py.core.outside import kernel_folder
from baracuda_py.core.unit import Unit as Unit  # here, too: keys of emulation.lock have this place of it

_PACKAGE = Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(r'#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]')
_DIRECTIVE = re.compile(r'[ \t]*#[ \t]*(if|endif|include|pragma)\w*[ \t]*(?:([<"])([^>"]+)[>"]|(.*))')


@dataclass(frozen=True)
class _Include:
    quoted: bool
    target: str
    text: str
    line: int
    conditional: bool


@dataclass(frozen=True)
class _Parsed:
    """A file cut at its includes: text, include, text, include, text …"""

    stamp: tuple[int, int]
    parts: tuple[str | _Include, ...]


@dataclass
class _Flattening:
    """One call of `flatten`: what is out already and what has been read."""

    root: Path
    out: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


_files: dict[str, _Parsed] = {}  # path → parsed text, valid while (mtime_ns, size) stands


def kernel_root() -> Path:
    """`_kernels` inside an installed package, the sibling `kernels` folder of a checkout."""
    installed = _PACKAGE / "_kernels"
    return installed if installed.is_dir() else _PACKAGE.parent / "kernels"


def flatten(text: str, name: str = "unit.cu") -> str:
    """Replace our own includes by their files, each once; system includes stay. `#line` keeps error positions."""
    run = _Flattening(kernel_root())
    _emit(run, _parse(text), name, "")
    return "".join(run.out)


def system_includes(text: str) -> tuple[str, ...]:
    """The names that `text` still includes, whatever stands round the `#include` (too many is harmless in a key)."""
    return tuple(dict.fromkeys(_INCLUDE.findall(text)))


def _parse(text: str) -> tuple[str | _Include, ...]:
    parts: list[str | _Include] = []
    chunk: list[str] = []
    depth = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _DIRECTIVE.match(line) if "#" in line else None
        word = match[1] if match else ""
        depth += (word == "if") - (word == "endif")
        if match and word == "include" and match[3]:
            parts += ["".join(chunk), _Include(match[2] == '"', match[3], line, number, depth > 0)]
            chunk = []
        elif match and word == "pragma" and match[4].strip() == "once":
            chunk.append("\n")  # every file comes once anyway, and line numbers must hold
        else:
            chunk.append(line)
    if chunk and not chunk[-1].endswith("\n"):
        chunk.append("\n")
    return (*parts, "".join(chunk))


def _read(path: str) -> tuple[str | _Include, ...]:
    stat = os.stat(path)
    stamp = (stat.st_mtime_ns, stat.st_size)
    known = _files.get(path)
    if known is None or known.stamp != stamp:
        known = _files[path] = _Parsed(stamp, _parse(Path(path).read_text(encoding="utf-8")))
    return known.parts


def _emit(run: _Flattening, parts: tuple[str | _Include, ...], name: str, folder: str) -> None:
    shown = name.replace("\\", "\\\\").replace('"', '\\"')
    run.out.append(f'#line 1 "{shown}"\n')
    for part in parts:
        if isinstance(part, str):
            run.out.append(part)
            continue
        path = _resolve(run.root, part, name, folder)
        if path is None:
            run.out.append(part.text if part.text.endswith("\n") else part.text + "\n")
            continue
        if part.conditional:
            raise CompileError(
                f"{name}({part.line}): {part.text.strip()} stands inside #if; each of our files is included once, "
                "so the condition would hide it from later includes: move it out"
            )
        if path not in run.seen:
            run.seen.add(path)
            _emit(run, _read(path), _shown(run.root, path, part.target), os.path.dirname(path))
        run.out.append(f'#line {part.line + 1} "{shown}"\n')


def _shown(root: Path, path: str, target: str) -> str:
    """A file's name in error positions, and so in the key of what is compiled: without a place on this machine."""
    return os.path.relpath(path, root) if Path(path).is_relative_to(root) else target


def _resolve(root: Path, include: _Include, name: str, folder: str) -> str | None:
    """The file of ours that an include means; None for a system header."""
    places = [str(root), str(root / "include")] if include.quoted else [str(root / "include"), str(root)]
    if include.quoted and folder:
        places.insert(0, folder)
    for place in places:
        path = os.path.normpath(os.path.join(place, include.target))
        if os.path.isfile(path):
            return path
    first, _, rest = include.target.partition("/")
    if include.quoted and (outside := kernel_folder(first)) is not None and (outside / rest).is_file():
        return str(outside / rest)
    ours = include.quoted or first == "baracuda" or ("/" in include.target and (root / first).is_dir())
    if ours:
        hint = "; a header of the CUDA toolkit is written <...>" if include.quoted else ""
        raise CompileError(f"{name}({include.line}): {include.text.strip()} names no file under {root}{hint}")
    return None
