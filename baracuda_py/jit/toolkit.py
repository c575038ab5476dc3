"""Where NVRTC and the CUDA headers live, found without loading anything.

A kernel already in the cache needs the *path* of the library (its hash is in the key), not the library, and
must come back within 20 ms. So the places where wheels and toolkits put the file are looked at first;
cuda-pathfinder, which knows more places, costs 130 ms to import and ask and answers for the rest.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from baracuda_py.core import config
from baracuda_py.core.errors import CompileError

_MAJORS = (13, 12)  # the CUDA majors we know wheels of, newest first
_PROBE = "cuda_fp16.h"


@functools.cache
def cupy_major() -> int | None:
    """The CUDA major CuPy was built for, read from the wheel's name; None without CuPy or for a build from source."""
    for major in _MAJORS:
        try:
            importlib.metadata.version(f"cupy-cuda{major}x")
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    return None


def nvrtc_library() -> Path:
    """The NVRTC library of CuPy's CUDA major."""
    named = config.get("BARACUDA_NVRTC")
    if named is not None:
        if not named.is_file():
            raise CompileError(f"BARACUDA_NVRTC: {named} is no file; name the full path of libnvrtc.so.N")
        return named
    return _find_library(os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"))


def include_dirs() -> tuple[Path, ...]:
    """The toolkit's header directories that go with the library; empty where there is no toolkit."""
    return _find_includes(
        nvrtc_library(), config.get("BARACUDA_CUDA_HOME"), os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME")
    )


def header_closure(names: tuple[str, ...], read_includes: Callable[[Path], tuple[str, ...]]) -> list[Path]:
    """The toolkit headers behind `names`, and those they include in turn; standard headers are NVRTC's own."""
    found: dict[Path, None] = {}
    dirs = include_dirs() if names else ()
    todo: list[tuple[str, Path | None]] = [(name, None) for name in reversed(names)]
    while todo:
        name, folder = todo.pop()
        places = dirs if folder is None else (folder, *dirs)
        path = next((p for d in places if (p := d / name) in found or p.is_file()), None)
        if path is not None and path not in found:
            found[path] = None
            todo += [(inner, path.parent) for inner in reversed(read_includes(path))]
    return list(found)


def missing_nvrtc(detail: str = "") -> CompileError:
    """The error for a machine without NVRTC, with what to type."""
    major = cupy_major() or _MAJORS[0]
    why = f" ({detail})" if detail else ""
    return CompileError(
        f"NVRTC for CUDA {major} was not found{why}: kernels cannot be compiled. "
        f'Install it with: pip install "baracuda_py[cu{major}]", or name the library in BARACUDA_NVRTC'
    )


@functools.lru_cache(maxsize=8)
def _find_library(*homes: str | None) -> Path:
    required = cupy_major()
    for major in (required,) if required else _MAJORS:
        soname = f"libnvrtc.so.{major}"
        for site in _nvidia_wheels():
            for folder in (f"cu{major}", "cuda_nvrtc"):
                if (path := site / folder / "lib" / soname).is_file():
                    return path
        for home in _toolkit_homes(*homes):
            for lib in ("lib64", "lib"):
                if (path := home / lib / soname).is_file():
                    return path
    return _ask_pathfinder(required)


def _ask_pathfinder(required: int | None) -> Path:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError) as error:
        raise missing_nvrtc(str(error).splitlines()[0] if str(error) else "") from None
    if not found:
        raise missing_nvrtc()
    path = Path(found)
    major = re.search(r"\.so\.(\d+)", path.resolve().name)
    if required and major and int(major[1]) != required:
        raise missing_nvrtc(f"CuPy is built for CUDA {required}, but {path} is of CUDA {major[1]}")
    return path


@functools.lru_cache(maxsize=8)
def _find_includes(library: Path, preferred: Path | None, *homes: str | None) -> tuple[Path, ...]:
    if preferred is not None:
        if not (preferred / "include" / _PROBE).is_file():
            raise CompileError(f"BARACUDA_CUDA_HOME: {preferred / 'include' / _PROBE} is no file")
        return _with_cccl(preferred / "include")
    match = re.search(r"\.so\.(\d+)", library.name)
    major = int(match[1]) if match else None
    for include in _include_candidates(library, major, *homes):
        if (include / _PROBE).is_file() and major in (None, _header_major(include)):
            return _with_cccl(include)
    return ()


def _include_candidates(library: Path, major: int | None, *homes: str | None) -> Iterator[Path]:
    yield library.parent.parent / "include"
    for site in _nvidia_wheels():
        yield site / f"cu{major}" / "include"
        yield site / "cuda_runtime" / "include"
    for home in _toolkit_homes(*homes):
        yield home / "include"
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return
    found = find_nvidia_header_directory("cudart")
    if found:
        yield Path(found)


def _with_cccl(include: Path) -> tuple[Path, ...]:
    cccl = include / "cccl"  # from CUDA 13 on, <cuda/std/...>, <cub/...> and <nv/target> stand one folder down
    return (include, cccl) if cccl.is_dir() else (include,)


def _header_major(include: Path) -> int | None:
    try:
        text = (include / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return int(match[1]) // 1000 if match else None


def _nvidia_wheels() -> list[Path]:
    """The folders that NVIDIA's wheels share: `nvidia` in each site directory, a namespace package."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


def _toolkit_homes(*homes: str | None) -> list[Path]:
    return [Path(home) for home in (*homes, "/usr/local/cuda") if home]
