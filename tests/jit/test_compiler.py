"""The compiler through the cache. NVRTC needs no GPU; without NVRTC each test says what was not checked."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from baracuda_py.core.errors import CompileError, InvalidProblemError
from baracuda_py.jit import Cache, Cubin, Unit, compile_many, compile_unit, flatten, toolkit
from baracuda_py.jit import compiler as module
from baracuda_py.jit.compiler import options
from baracuda_py.jit.cubin import parse_ptxas
from baracuda_py.jit.nvrtc import Nvrtc

TARGET = "sm_80"


def test_compiles_once_then_reads(compiler: Nvrtc, cache: Cache, demo: Unit, compiles: list[str]) -> None:
    first, second = compile_unit(demo, TARGET), compile_unit(demo, TARGET)
    assert compiles == ["demo.scale.cu"]
    assert first.image.startswith(b"\x7fELF") and (first.cached, second.cached) == (False, True)
    assert first.path == second.path and first.path is not None and first.path.read_bytes().startswith(first.image)
    assert cache.stats().entries == 1


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_every_target_we_name(compiler: Nvrtc, demo: Unit, target: str) -> None:
    assert compile_unit(demo, target).kernels["bc_demo"].registers > 0


def test_toolkit_headers_are_found(compiler: Nvrtc, demo: Unit) -> None:
    if not toolkit.include_dirs():
        pytest.skip('cuda_fp16/bf16/fp8.h not checked: no CUDA headers; pip install "baracuda_py[cu13]"')
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n" + demo.text
    assert compile_unit(Unit("demo.headers", text), TARGET).kernels


def test_an_edited_header_or_option_compiles_again(
    compiler: Nvrtc, kernels: Path, demo: Unit, compiles: list[str]
) -> None:
    before = compile_unit(demo, TARGET)
    compile_unit(Unit(demo.name, demo.text, ("--fmad=true",)), TARGET)
    (kernels / "include/baracuda/scale.cuh").write_text(
        "__device__ inline float scaled(float x) { return x + 7.0f; }\n"
    )
    after = compile_unit(demo, TARGET)
    assert len(compiles) == 3 and after.image != before.image


def test_an_edited_toolkit_header_changes_the_key(
    compiler: Nvrtc, tmp_path: Path, demo: Unit, compiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    include = tmp_path / "toolkit" / "include"
    include.mkdir(parents=True)
    (include / "cuda_fp16.h").write_text('#include "cuda_fp16.hpp"\n')
    (include / "cuda_fp16.hpp").write_text("constexpr int answer = 1;\n")
    monkeypatch.setenv("BARACUDA_CUDA_HOME", str(tmp_path / "toolkit"))
    unit = Unit("demo.toolkit", "#include <cuda_fp16.h>\nstatic_assert(answer > 0);\n" + demo.text)
    compile_unit(unit, TARGET)
    compile_unit(unit, TARGET)
    (include / "cuda_fp16.hpp").write_text("constexpr int answer = 22;\n")
    compile_unit(unit, TARGET)
    assert len(compiles) == 2


def test_a_damaged_entry_is_built_again(
    compiler: Nvrtc, demo: Unit, compiles: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = compile_unit(demo, TARGET).path
    assert path is not None
    path.write_bytes(b"\x7fELF and nothing more")
    again = compile_unit(demo, TARGET)
    assert len(compiles) == 2 and not again.cached
    assert [r.levelname for r in caplog.records if "damaged" in r.message] == ["WARNING"]
    assert compile_unit(demo, TARGET).cached


def test_sixteen_threads_compile_once(compiler: Nvrtc, demo: Unit, compiles: list[str]) -> None:
    barrier, results = threading.Barrier(16), []

    def ask() -> None:
        barrier.wait()
        results.append(compile_unit(demo, TARGET))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiles) == 1 and len(results) == 16
    assert len({result.image for result in results}) == 1


def test_two_processes_at_once(compiler: Nvrtc, cache: Cache, kernels: Path, demo: Unit) -> None:
    script = (
        "import sys, pathlib; from baracuda_py.jit import *; from baracuda_py.jit import source\n"
        f"source.kernel_root = lambda: pathlib.Path({str(kernels)!r})\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        f"print(compile_unit({demo!r}, {TARGET!r}).path)"
    )
    root = Path(toolkit.__file__).parents[2]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for run in runs:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    paths = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert paths[0] == paths[1] and Path(paths[0]).is_file()
    assert compile_unit(demo, TARGET).cached and cache.stats().entries == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forked children not checked: this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_waits_for_no_lock_or_compile_of_its_parent(
    compiler: Nvrtc, cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_unit(demo, TARGET)
    key = module.cache_key(demo, "sm_90", flatten(demo.text, "demo.scale.cu"), cache)
    monkeypatch.setitem(module._in_flight, (cache.dir, key), Future())
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with module._lock():
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            cached = compile_unit(demo, TARGET).cached
            made = compile_unit(demo, "sm_90").cached
            os._exit(0 if cached and not made else 1)
        finally:
            os._exit(2)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", ["off", "cached"])
def test_jit_off_names_what_is_missing(compiler: Nvrtc, demo: Unit, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_JIT", mode)
    with pytest.raises(CompileError, match=rf"demo\.scale for sm_80 .*BARACUDA_JIT={mode}"):
        compile_unit(demo, TARGET)
    monkeypatch.setenv("BARACUDA_JIT", "on")
    compile_unit(demo, TARGET)
    monkeypatch.setenv("BARACUDA_JIT", mode)
    assert compile_unit(demo, TARGET).cached


def test_an_error_names_file_and_line(compiler: Nvrtc, kernels: Path, demo: Unit) -> None:
    body = kernels / "demo/body.cu"
    body.write_text(body.read_text() + "\n__device__ int f() { return undefined_name; }\n")
    with pytest.raises(CompileError, match=r"demo/body\.cu\(5\): error: .*undefined_name") as caught:
        compile_unit(demo, TARGET)
    error = caught.value
    assert "undefined_name" in error.log and "demo.scale for sm_80" in str(error)
    assert error.source_path is not None and "undefined_name" in error.source_path.read_text()
    assert str(error.source_path) in str(error)


def test_a_promised_symbol_must_come_out(compiler: Nvrtc, demo: Unit) -> None:
    with pytest.raises(CompileError, match=r"no kernel named bc_other came out, only bc_demo"):
        compile_unit(Unit("demo.symbols", demo.text, symbols=("bc_demo", "bc_other")), TARGET)


def test_bad_targets(compiler: Nvrtc, demo: Unit) -> None:
    with pytest.raises(InvalidProblemError, match="compute_80"):
        compile_unit(demo, "compute_80")
    with pytest.raises(CompileError, match=r"cannot compile for sm_999; it knows .*sm_80"):
        compile_unit(demo, "sm_999")


def test_many_keeps_order_and_failures(compiler: Nvrtc, demo: Unit) -> None:
    bad = Unit("demo.bad", "this is no C++")
    seen: list[tuple[int, int, str]] = []
    results = compile_many(
        [(demo, "sm_80"), (bad, "sm_80"), (demo, "sm_89")],
        workers=2,
        progress=lambda done, total, unit, target, result: seen.append((done, total, unit.name)),
    )
    assert [type(result) for result in results] == [Cubin, CompileError, Cubin]
    assert [row[:2] for row in seen] == [(1, 3), (2, 3), (3, 3)]
    assert compile_many([]) == []


def test_numerics_are_not_relaxed(compiler: Nvrtc) -> None:
    text = 'extern "C" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3] / sqrtf(x[4]); }'

    def ptx(unit: Unit) -> str:
        output = compiler.compile(unit.text, "k.cu", options(unit, "sm_80"), "PTX")
        return re.sub(r"//.*", "", output.image.decode())

    strict = ptx(Unit("k", text))
    assert ".ftz" not in strict and ".approx" not in strict and "fma" not in strict
    assert "div.rn.f32" in strict and "sqrt.rn.f32" in strict
    assert "fma.rn.f32" in ptx(Unit("k", text, ("-fmad=true",)))
    assert ".ftz" in ptx(Unit("k", text, ("--ftz=true",))), "the check above could not fail"


def test_registers_spills_and_shared_memory_are_read(compiler: Nvrtc) -> None:
    text = """
    extern "C" __global__ void tidy(float* x) {
      __shared__ float s[64]; s[threadIdx.x] = x[0]; __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }
    extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x, int n) {
      float a[80]; for (int i = 0; i < 80; i++) a[i] = x[i * n];
      for (int j = 0; j < n; j++) for (int i = 0; i < 80; i++) a[i] += a[(i * 7 + 3) % 80] * x[i + j];
      for (int i = 0; i < 80; i++) x[i] = a[i]; }
    """
    kernels = compile_unit(Unit("demo.registers", text, symbols=("tidy", "spilling")), TARGET).kernels
    assert kernels["tidy"].static_smem == 256 and kernels["tidy"].spill_stores == 0
    assert 0 < kernels["tidy"].registers < kernels["spilling"].registers <= 32
    assert min(kernels["spilling"].spill_stores, kernels["spilling"].spill_loads, kernels["spilling"].stack) > 0


def test_spills_of_called_functions_count() -> None:
    info = parse_ptxas(
        "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
        "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 160 bytes cumulative stack size, 32 bytes smem\n"
        "ptxas info    : Function properties for _Z1fPfi\n"
        "ptxas         .     0 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
    )["k"]
    assert (info.registers, info.spill_stores, info.spill_loads, info.stack, info.static_smem) == (40, 16, 24, 160, 32)


def test_products_that_the_assembler_serialises_are_told() -> None:
    said = "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    found = parse_ptxas(
        f"{said}insufficient register resources for the function 'slow'\n"
        "ptxas info    : Compiling entry function 'slow' for 'sm_90a'\n"
        "ptxas info    : Used 168 registers\n"
        "ptxas info    : Compiling entry function 'slow_not' for 'sm_90a'\n"
        "ptxas info    : Used 168 registers\n"
    )
    assert {name: info.serialised for name, info in found.items()} == {"slow": True, "slow_not": False}


def test_a_missing_library_says_what_to_install(
    cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BARACUDA_NVRTC", str(tmp_path / "libnvrtc.so.13"))
    with pytest.raises(CompileError, match=r"BARACUDA_NVRTC: .*is no file"):
        compile_unit(demo, TARGET)
    (tmp_path / "libnvrtc.so.13").write_text("not a library")
    with pytest.raises(CompileError, match=r"pip install \"baracuda_py\[cu1\d\]\""):
        compile_unit(demo, TARGET)


def test_the_library_is_of_cupys_cuda(compiler: Nvrtc) -> None:
    names = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    major = next((m for m in (12, 13) if f"cupy-cuda{m}x" in names), None)
    if major is None:
        pytest.skip("match of NVRTC and CuPy not checked: no CuPy wheel; pip install cupy-cuda13x")
    assert toolkit.cupy_major() == compiler.version[0] == major
