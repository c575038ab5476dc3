"""The emulated problems tell kernels with planted errors: each mutant is one that a person might write, and of the
functors of a few kinds an instruction is changed (`tools/plant_errors.py` does so with all)."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import scripts

from baracuda_py.core import registry
from baracuda_py.jit import source
from baracuda_py.testing import emulate, emulator
from baracuda_py.testing.coverage import Problem, Target, search, targets
from baracuda_py.testing.emulator import EmulationError

pytestmark = pytest.mark.usefixtures("emulation")

KERNELS = source.kernel_root()
PROBLEMS = 3  # of those that the search finds for the kernels
FUNCTORS = 2  # kinds that are drawn anew in every run


@dataclass(frozen=True)
class Mutant:
    """A change of one place in a file under kernels/; the plan and the kernel templates whose problems should tell."""

    error: str
    file: str
    old: str
    new: str
    plan: str
    kernels: str

    def plant(self, root: Path) -> None:
        """In a copy of kernels/."""
        (path,) = root.rglob(self.file)
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.file} has {self.old!r} {text.count(self.old)} times; name it anew"
        path.write_text(text.replace(self.old, self.new))


MUTANTS = (
    Mutant("a missing tail predicate", "norm/forward.cuh", "lane == 0 && mine + r * GROUPS < p.rows && kept(r)",
           "lane == 0 && kept(r)", "RMSNormPlan", "row_(8|16|8_add)"),
    Mutant("a wrong stride between chunks", "norm/forward.cuh", "col = ((i % CHUNKS) * LANES + lane) * VEC;",
           "col = ((i % CHUNKS) * (LANES - 1) + lane) * VEC;", "RMSNormPlan", "row_512"),
    Mutant("one board for two sums", "norm/forward.cuh", "turn ^= 1;", "turn = 0;", "LayerNormPlan", "row_512"),
    Mutant("a divisor of the padded row", "norm/forward.cuh", "count = static_cast<A>(static_cast<int>(p.cols)),",
           "count = static_cast<A>(LANES * CHUNKS * vec_elems<T>),", "LayerNormPlan", "row_128"),
    Mutant("a lost barrier", "softmax/softmax.cu", "__syncthreads();\n    for (int first = 0;", "for (int first = 0;",
           "SoftmaxPlan", "tile_.*"),
    Mutant("a swapped index", "softmax/softmax.cu", "copy_chunk(held[(first + j) * G + lane], v[j]);",
           "copy_chunk(held[lane * stage + first + j], v[j]);", "SoftmaxPlan", "long.*"),
    Mutant("a row too many", "softmax/row_groups.cuh", "min<i64>(p.tile, p.axis_rows - start)",
           "min<i64>(p.tile, p.axis_rows - start + 1)", "SoftmaxPlan", "tile_.*"),
    Mutant("a dropped tail", "baracuda/map.cuh", "blockIdx.x == gridDim.x - 1 && e < p.count) {",
           "blockIdx.x == gridDim.x - 1 && e < p.count - 1) {", "UnaryPlan", "flat.*|map.*"),
    Mutant("strides of another operand", "baracuda/map.cuh", "static_cast<I>(p.strides[n][axis])",
           "static_cast<I>(p.strides[0][axis])", "BinaryPlan", ".*"),
    Mutant("the target's logit without its step", "loss/cross_entropy.cu", "to_acc(x[r][target[r] * p.step[0]])",
           "to_acc(x[r][target[r]])", "CrossEntropyLossPlan", "rows_.*"),
    Mutant("a dropped last row", "loss/cross_entropy.cu", "min<i64>(groups * R * p.sets, p.rows - start)",
           "min<i64>(groups * R * p.sets, p.rows - start - (blockIdx.x + 1 == gridDim.x))",
           "CrossEntropyLossPlan", "rows_8.*"),
    Mutant("keys overwritten while they are read", "attention/dense/flash_sdpa.cu",
           "__syncthreads();  // all have read the keys", "", "FlashSdpaVarlenPlan", "simt"),
    Mutant("a lane beside the right one", "flash_decoding_merge.cuh", "__shfl_sync(all_lanes, stat.y, split)}",
           "__shfl_sync(all_lanes, stat.y, split ^ 1)}", "FlashDecodingPlan", "merge"),
    Mutant("shared memory that most warps leave unset", "baracuda/reduce.cuh",
           "if (lane_id() == 0) scratch[threadIdx.x / warp_size] = x;",
           "if (threadIdx.x == 0) scratch[threadIdx.x / warp_size] = x;", "SoftmaxPlan", "long.*"),
    Mutant("a wrong lane mask", "baracuda/reduce.cuh", "for (int mask = 1; mask < WIDTH; mask *= 2) {",
           "for (int mask = 2; mask < WIDTH; mask *= 2) {", "SoftmaxPlan", "rows_32x1"),
)  # fmt: skip


@pytest.fixture
def mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of kernels/ that is compiled instead."""
    root = tmp_path / "kernels"
    shutil.copytree(KERNELS, root)
    with monkeypatch.context() as patch:
        patch.setattr(source, "kernel_root", lambda: root)
        _forget()
        yield root
    _forget()


def _forget() -> None:
    emulator.translated.cache_clear()
    emulator.ptx.cache_clear()


def problems_for(mutant: Mutant) -> tuple[Problem, ...]:
    plan = registry.plans()[mutant.plan]
    kernels = [target for target in targets(plan) if isinstance(target, Target)]
    wanted = [target for target in kernels if re.fullmatch(mutant.kernels, target.kernel)]
    assert wanted, f"{mutant.plan} has no kernel {mutant.kernels}: {sorted({t.kernel for t in kernels})}"
    return search(plan, wanted[:PROBLEMS]).problems


def told(problem: Problem) -> str | None:
    launch = problem.build()
    try:
        emulate(launch.plan, launch.ready)
    except (AssertionError, EmulationError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.error.replace(" ", "_"))
def test_planted_errors_are_found(mutant: Mutant, mutated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_for(mutant)
    mutant.plant(mutated)
    telling = next((problem for problem in problems if told(problem)), None)
    assert telling, f"{mutant} passes {[str(problem) for problem in problems]}"
    with monkeypatch.context() as patch:  # undone before the fixture's own change is
        patch.setattr(source, "kernel_root", lambda: KERNELS)
        _forget()
        assert told(telling) is None, "the kernel as it is fails, too"


def test_an_error_in_a_functor_is_told_by_the_problem_of_its_kind() -> None:
    tool = scripts.tool("plant_errors")
    lines = random.sample(sorted(line for line in tool.lock.held() if line.split()[2] != "-"), 20 * FUNCTORS)
    planted = 0
    for line in tool.for_kinds(lines):
        places, missed = tool.plant(line)
        assert not missed, f"{line} passes with {missed[0]}"
        planted += len(places)
        if planted == FUNCTORS:
            return
    raise AssertionError(f"{planted} errors in the functors of {lines}")
