"""A kernel folder and a cache of the test's own, and the skip that says what was not checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from baracuda_py.core.errors import CompileError
from baracuda_py.jit import Cache, Unit, nvrtc, source
from baracuda_py.jit import cache as cache_module

HEADER = "#pragma once\n__device__ inline float scaled(float x) { return x * 2.0f; }\n"
BODY = "#pragma once\n#include <baracuda/scale.cuh>\n__device__ void body(float* x) { x[0] = scaled(x[1]); }\n"
ENTRY = '#include <demo/body.cu>\nextern "C" __global__ void bc_demo(float* x) { body(x); }\n'


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "kernels"
    for name, text in {"include/baracuda/scale.cuh": HEADER, "demo/body.cu": BODY}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(source, "kernel_root", lambda: root)
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("BARACUDA_JIT", raising=False)
    return cache_module.default_cache()


@pytest.fixture
def compiler(request: pytest.FixtureRequest, cache: Cache) -> nvrtc.Nvrtc:
    try:
        return nvrtc.load()
    except CompileError as error:
        pytest.skip(f"{request.node.name} not checked: {error} Then: pytest tests/jit")


@pytest.fixture
def demo(kernels: Path) -> Unit:
    return Unit("demo.scale", ENTRY, symbols=("bc_demo",))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs really compiled while the test runs."""
    names: list[str] = []
    real: Callable[..., nvrtc.Output] = nvrtc.Nvrtc.compile

    def counting(self: nvrtc.Nvrtc, text: str, name: str, *args: object) -> nvrtc.Output:
        names.append(name)
        return real(self, text, name, *args)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", counting)
    return names
