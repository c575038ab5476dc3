"""What CUB's block algorithms cost to compile by NVRTC, against the same algorithms of ours. No GPU.

    python benchmarks/cub_compile.py --cccl FOLDER [--arch sm_90] [--repeat 3]

FOLDER holds CUB's headers (`cub/`, `cuda/std/`, `thrust/`): `include` of the wheel nvidia-cuda-cccl-cu12, or
`include/cccl` of nvidia-cuda-cccl. NVRTC and the toolkit's headers are those the package finds (BARACUDA_NVRTC,
BARACUDA_CUDA_HOME name others). Each figure is the best of `--repeat` processes that compile the unit once; "pch" is a
second compile in a process whose first left a precompiled header. Seconds are CPU time, which other work on the
machine does not stretch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401

from baracuda_py.core.unit import Unit
from baracuda_py.jit import nvrtc, toolkit
from baracuda_py.jit.compiler import options
from baracuda_py.jit.cubin import parse_ptxas
from baracuda_py.jit.source import kernel_root

_HEAD = "#include <baracuda/types.cuh>\n#include <baracuda/reduce.cuh>\nusing namespace baracuda;\n"
_LOCAL_SORT = """
// Least significant digit first, 4 bits a pass; ranks from packed 16-bit counters of digits, scanned over the block.
template <int THREADS, int ITEMS> struct Sort {
  static_assert(ITEMS == 8, "as many as there are counters a thread");
  u32 counts[8][THREADS], partial[THREADS / 32];  // the counters also hold keys, then values, on their way
  static __device__ void exchange(u32 (&x)[ITEMS], const u32 (&to)[ITEMS], u32* room) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) room[to[i]] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) x[i] = room[threadIdx.x * ITEMS + i];
  }
  __device__ void operator()(u32 (&key)[ITEMS], u32 (&value)[ITEMS]) {
    const int t = threadIdx.x;
    u32* const flat = &counts[0][0];
    for (int bit = 0; bit < 32; bit += 4) {
      u32 before[ITEMS];
      for (int row = 0; row < 8; ++row) counts[row][t] = 0;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const u32 digit = key[i] >> bit & 15, shift = digit >> 3 << 4;
        u32& count = counts[digit & 7][t];
        before[i] = count >> shift & 0xffff;
        count += 1u << shift;
      }
      __syncthreads();
      u32 run[8], sum = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        run[k] = sum;
        sum += flat[8 * t + k];
      }
      const u32 upto = block_scan<Sum, THREADS>(sum, partial);
      __syncthreads();
      if (t == THREADS - 1) partial[0] = upto;
      __syncthreads();
      const u32 base = upto - sum + (partial[0] << 16);
#pragma unroll
      for (int k = 0; k < 8; ++k) flat[8 * t + k] = run[k] + base;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const u32 digit = key[i] >> bit & 15;
        before[i] += counts[digit & 7][t] >> (digit >> 3 << 4) & 0xffff;
      }
      exchange(key, before, flat);
      exchange(value, before, flat);
      __syncthreads();
    }
  }
};
"""


def _entry(body: str, element: str = "float") -> str:
    """A kernel of blocks of 256 threads, which reads and writes p.x and p.y."""
    return f"""struct P {{ {element} *x, *y; }};
extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ P p) {{
  auto *const x = p.x, *const y = p.y;
{body}
}}
"""


def _sort(sort: str) -> str:
    return _entry(
        f"""  const int first = 8 * (blockIdx.x * 256 + threadIdx.x);
  unsigned key[8], value[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {{ key[i] = x[first + i]; value[i] = y[first + i]; }}
  {sort}
#pragma unroll
  for (int i = 0; i < 8; ++i) {{ x[first + i] = key[i]; y[first + i] = value[i]; }}""",
        "unsigned",
    )


def _cub(name: str, kind: str, call: str) -> tuple[str, str]:
    """The include and the line that calls a collective on the thread's x[i]."""
    body = f"""  typedef {kind} Collective;
  __shared__ typename Collective::TempStorage storage;
  const int i = blockIdx.x * 256 + threadIdx.x;
  {call}"""
    return f"#include <cub/{name}.cuh>\n", _entry(body)


def _ours(value: str) -> tuple[str, str]:
    body = f"""  __shared__ float scratch[8];
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = {value};"""
    return _HEAD, _entry(body)


_CUB_SORT = """typedef cub::BlockRadixSort<unsigned, 256, 8, unsigned> Collective;
  __shared__ typename Collective::TempStorage storage;
  Collective(storage).Sort(key, value);"""
UNITS: dict[str, tuple[str, str]] = {
    "no header": ("", _entry("  y[threadIdx.x] = x[threadIdx.x];")),
    "our headers alone": (_HEAD, _entry("  y[threadIdx.x] = x[threadIdx.x];")),
    "warp sum, CUB": _cub("warp/warp_reduce", "cub::WarpReduce<float>",
                          "__shared__ typename Collective::TempStorage each[8];\n"
                          "  y[i] = Collective(each[threadIdx.x / 32]).Sum(x[i]);"),
    "warp sum, ours": _ours("warp_reduce<Sum>(x[i])"),
    "block sum, CUB": _cub("block/block_reduce", "cub::BlockReduce<float, 256>",
                           "y[i] = Collective(storage).Sum(x[i]);"),
    "block sum, ours": _ours("block_reduce<Sum, 256>(x[i], scratch)"),
    "block scan, CUB": _cub("block/block_scan", "cub::BlockScan<float, 256>",
                            "float sum; Collective(storage).InclusiveSum(x[i], sum); y[i] = sum;"),
    "block scan, ours": _ours("block_scan<Sum, 256>(x[i], scratch)"),
    "block sort, CUB": ("#include <cub/block/block_radix_sort.cuh>\n", _sort(_CUB_SORT)),
    "block sort, ours": (_HEAD + _LOCAL_SORT, _sort("__shared__ Sort<256, 8> sort; sort(key, value);")),
    "all four of CUB": (
        "#include <cub/warp/warp_reduce.cuh>\n#include <cub/block/block_reduce.cuh>\n"
        "#include <cub/block/block_scan.cuh>\n#include <cub/block/block_radix_sort.cuh>\n", _sort(_CUB_SORT)),
}  # fmt: skip


def compile_once(name: str, cccl: Path, arch: str, pch: bool) -> dict[str, object]:
    """In this process: CPU seconds of one compile (with `pch`, of a second one), and what the assembler said."""
    head, body = UNITS[name]
    text = head + body  # not flattened: a #line directive before the headers would forbid a precompiled one
    folders = (cccl, kernel_root() / "include", *toolkit.include_dirs())
    includes = tuple(f"--include-path={folder}" for folder in folders)
    flags = (*options(Unit("unit", text, (), ("kernel",)), arch), *includes)
    compiler = nvrtc.load()
    with tempfile.TemporaryDirectory() as folder:
        if pch:
            flags = (*flags, "--pch", "--pch-messages=true", f"--pch-dir={folder}")
            compiler.compile(text, "unit.cu", flags)
        before = time.process_time()
        made = compiler.compile(text, "unit.cu", flags)
        seconds = time.process_time() - before
    error = made.error and f"{made.error}: {made.log[:600]}"
    found: dict[str, object] = {"seconds": seconds, "error": error, "pch": "using precompiled" in made.log}
    if info := parse_ptxas(made.log).get("kernel"):
        found |= {"registers": info.registers, "smem": info.static_smem, "spills": info.spill_stores + info.spill_loads}
    return found | {"bytes": len(made.image), "lines": made.log.count("\n"), "version": compiler.version}


def measure(name: str, args: argparse.Namespace, pch: bool) -> dict[str, object]:
    """The best of several processes."""
    runs = []
    for _ in range(args.repeat):
        command = [sys.executable, __file__, "--cccl", str(args.cccl), "--arch", args.arch, "--unit", name]
        ran = subprocess.run(command + ["--pch"] * pch, check=True, capture_output=True, text=True, env=os.environ)
        runs.append(json.loads(ran.stdout))
    return min(runs, key=lambda run: run["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cccl", type=Path, required=True, help="the folder that holds cub/ and cuda/std/")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--unit", choices=UNITS, help="compile this one here and print JSON")
    parser.add_argument("--pch", action="store_true")
    args = parser.parse_args()
    if args.unit:
        print(json.dumps(compile_once(args.unit, args.cccl, args.arch, args.pch)))
        return
    print("| unit | seconds | with pch | registers | shared memory | spills | cubin |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in UNITS:
        cold, warm = (measure(name, args, pch) for pch in (False, True))
        if cold["error"]:
            print(f"| {name} | {cold['error']} |")
            continue
        again = f"{warm['seconds']:.3f}" if warm["pch"] else "none made"
        print(f"| {name} | {cold['seconds']:.3f} | {again} | {cold['registers']} | {cold['smem']} | {cold['spills']} "
              f"| {cold['bytes']} |", flush=True)  # fmt: skip
    print(f"\nNVRTC {'.'.join(map(str, cold['version']))}, {args.arch}, best of {args.repeat}")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
