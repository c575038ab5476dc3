"""Compile units to cubins, through the cache: one compile a (unit, target), whoever and however many ask."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from baracuda_py._forking import Mutex, in_child
from baracuda_py.core import config
from baracuda_py.core.errors import CompileError, InvalidProblemError
from baracuda_py.core.unit import Cubin, KernelInfo, Unit
from baracuda_py.jit import nvrtc, source, toolkit
from baracuda_py.jit.cache import Cache, default_cache, log, make_key
from baracuda_py.jit.cubin import parse_ptxas

__all__ = [
    "Cubin",
    "KernelInfo",
    "Progress",
    "Unit",
    "cache_key",
    "compile_all",
    "compile_many",
    "compile_unit",
    "options",
]

Progress = Callable[[int, int, Unit, str, "Cubin | CompileError"], None]

# Results must not depend on what the compiler fuses or flushes: subnormals stay, division and square root are
# IEEE, and a fused multiply-add happens where a kernel writes one. `-v` makes the log carry registers and spills.
_OPTIONS = (
    "--std=c++17",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--device-as-default-execution-space",
    "--no-source-include",  # else a cuda_fp16.h in the working directory would be taken
    "--ptxas-options=-v",
)
_TARGET = re.compile(r"sm_(\d+)[af]?")
_HEAD_LINES = 6

_lock = Mutex()
_in_flight: dict[tuple[Path, str], Future[Cubin]] = {}  # by cache directory and key


def options(unit: Unit, target: str) -> tuple[str, ...]:
    """What NVRTC is told for a unit, header directories aside."""
    fmad = () if any(o.lstrip("-").startswith("fmad") for o in unit.options) else ("--fmad=false",)
    return (f"--gpu-architecture={target}", *_OPTIONS, *fmad, *unit.options)


def compile_unit(unit: Unit, target: str, cache: Cache | None = None) -> Cubin:
    """The cubin of a unit for a target such as "sm_80" or "sm_90a", from the cache or compiled now.

    Threads, and processes that share the cache, compile a unit once that they ask for at the same time. Raises
    CompileError, with the log and the path of the saved source.
    """
    if not _TARGET.fullmatch(target):
        raise InvalidProblemError(f"target: got {target!r}; it takes sm_80, sm_89, sm_90a and the like")
    cache = cache or default_cache()
    text = source.flatten(unit.text, f"{unit.name}.cu")
    key = cache_key(unit, target, text, cache)
    place, mine = (cache.dir, key), Future[Cubin]()
    while True:
        try:
            with _lock():
                future = _in_flight.setdefault(place, mine)
            if future is mine:
                cubin = _found_or_made(unit, target, text, key, cache)
                _end(place, mine)
                mine.set_result(cubin)
                return cubin
        except BaseException as error:
            _end(place, mine)
            # What does not compile does so for all. Whatever else ended it (Ctrl-C, memory) is this thread's own:
            # those that wait are let go, and one of them compiles.
            if isinstance(error, CompileError):
                mine.set_exception(error)
            else:
                mine.cancel()
            raise
        with contextlib.suppress(CancelledError):
            return future.result()


def _end(place: tuple[Path, str], mine: Future[Cubin]) -> None:
    with _lock():
        if _in_flight.get(place) is mine:
            del _in_flight[place]


def _found_or_made(unit: Unit, target: str, text: str, key: str, cache: Cache) -> Cubin:
    found = cache.lookup(key)
    if found is not None:
        return found
    _check_allowed(unit, target, cache)
    with cache.claim(key):  # another process may have made it while this one waited
        return cache.lookup(key, quiet=True) or _compile(unit, target, text, key, cache)


def compile_many(
    jobs: Iterable[tuple[Unit, str]],
    workers: int | None = None,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> list[Cubin | CompileError]:
    """Compile in threads; results in the order of `jobs`, failures as values so that one does not hide the others.

    `progress(done, total, unit, target, result)` is called in the calling thread as each job ends.
    """
    todo = list(jobs)
    results: list[Cubin | CompileError | None] = [None] * len(todo)
    pool = ThreadPoolExecutor(workers or config.get("BARACUDA_JIT_JOBS") or _cpus(), "baracuda-jit")
    try:
        futures = {pool.submit(_attempt, unit, target, cache): i for i, (unit, target) in enumerate(todo)}
        for done, future in enumerate(as_completed(futures), 1):
            index = futures[future]
            results[index] = result = future.result()
            if progress is not None:
                progress(done, len(todo), *todo[index], result)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C ends the wait; what compiles still reaches the cache
    return [result for result in results if result is not None]


def compile_all(units: Sequence[Unit], target: str) -> list[Cubin]:
    """The cubins of units, those that are missing compiled at the same time; raises the first failure in their order.

    What a first call waits for is then the slowest of its kernels, not their sum.
    """
    if len(units) == 1:
        return [compile_unit(units[0], target)]
    cubins = []
    for result in compile_many((unit, target) for unit in units):
        if isinstance(result, CompileError):
            raise result
        cubins.append(result)
    return cubins


def cache_key(unit: Unit, target: str, text: str, cache: Cache) -> str:
    """Everything the cubin depends on: flattened text, options, the compiler's own bytes, the toolkit's headers."""
    headers = toolkit.header_closure(source.system_includes(text), lambda path: cache.fingerprint(path).includes)
    files = (toolkit.nvrtc_library(), *headers)
    return make_key((text, *options(unit, target), *(cache.fingerprint(path).digest for path in files)))


def _check_allowed(unit: Unit, target: str, cache: Cache) -> None:
    mode = config.get("BARACUDA_JIT")
    if mode != "on":
        raise CompileError(
            f"{unit.name} for {target} is not in the kernel cache {cache.dir}, and BARACUDA_JIT={mode} forbids "
            "compiling; warm the cache with BARACUDA_JIT=on, or point BARACUDA_CACHE_DIR at one that holds it"
        )


def _compile(unit: Unit, target: str, text: str, key: str, cache: Cache) -> Cubin:
    compiler = nvrtc.load()
    _check_target(unit, target, compiler)
    includes = tuple(f"--include-path={folder}" for folder in toolkit.include_dirs())
    # NVRTC keeps a cache of its own where a driver is present; a hit there could come without the assembler's log.
    extra = ("--no-cache",) if compiler.version >= (12, 9) else ()
    start = time.perf_counter()
    output = compiler.compile(text, f"{unit.name}.cu", (*options(unit, target), *includes, *extra))
    seconds = time.perf_counter() - start
    if output.error:
        raise _failure(unit, target, text, key, cache, output.error, output.log)
    kernels = parse_ptxas(output.log)
    missing = [symbol for symbol in unit.symbols if symbol not in kernels]
    if missing:
        reason = f"no kernel named {', '.join(missing)} came out, only {', '.join(kernels) or 'none'}"
        raise _failure(unit, target, text, key, cache, reason, output.log)
    log.info("compiled %s for %s: %d kernels in %.2f s", unit.name, target, len(kernels), seconds)
    facts = {
        "unit": unit.name,
        "target": target,
        "options": options(unit, target),
        "nvrtc": "{}.{}".format(*compiler.version),
    }
    return cache.store(key, text, Cubin(None, output.image, kernels, seconds, cached=False), facts)


def _check_target(unit: Unit, target: str, compiler: nvrtc.Nvrtc) -> None:
    match = _TARGET.fullmatch(target)
    if match and int(match[1]) not in compiler.supported_archs:
        known = ", ".join(f"sm_{arch}" for arch in compiler.supported_archs)
        raise CompileError(
            f"{unit.name}: NVRTC {'.'.join(map(str, compiler.version))} ({compiler.path}) cannot compile for {target}; "
            f"it knows {known}"
        )


def _failure(unit: Unit, target: str, text: str, key: str, cache: Cache, reason: str, output: str) -> CompileError:
    path = cache.save_failure(key, text, output)
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line), 0)
    head = "\n".join(lines[first : first + _HEAD_LINES])
    where = f"\nfile names are relative to {source.kernel_root()}; the flattened source is {path}"
    return CompileError(f"{unit.name} for {target}: {reason}\n{head}{where}", output, path)


def _attempt(unit: Unit, target: str, cache: Cache | None) -> Cubin | CompileError:
    try:
        return compile_unit(unit, target, cache)
    except CompileError as error:
        return error


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


in_child(_in_flight.clear)  # the parent's threads are gone, and their compiles would never end
