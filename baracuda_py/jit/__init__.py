"""From kernel source to cubin: flatten, compile with NVRTC, keep on disk. No GPU is needed, nothing runs at import."""

from __future__ import annotations

from baracuda_py.core.unit import Cubin, KernelInfo, Unit
from baracuda_py.jit.cache import Cache, CacheStats, clear, default_cache, stats
from baracuda_py.jit.compiler import compile_many, compile_unit
from baracuda_py.jit.source import flatten, kernel_root

__all__ = [
    "Cache",
    "CacheStats",
    "Cubin",
    "KernelInfo",
    "Unit",
    "clear",
    "compile_many",
    "compile_unit",
    "default_cache",
    "flatten",
    "kernel_root",
    "stats",
]
