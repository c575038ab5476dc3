"""Products of at most 64 rows on sm_90a, emulated: layouts, tails, clusters, epilogues, and the bits of more rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gemm_wgmma import plan_for, problem, step_of, turned

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.tensor import View
from baracuda_py.core.variant import Problem
from baracuda_py.schedules import gemm_skinny, gemm_wgmma
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands

EVERY = ("c", "bias", "row_bias", "scale_a", "scale_b", "residual", "pre")


def skinny(desc: bc.GemmDescriptor, ready: Operands) -> Any:
    """Emulates the problem, and says how it was launched."""
    step = step_of(desc, ready)
    assert step.kernel == "gemm_skinny"
    emulate(plan_for(desc), ready)
    return step


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("out", ["float16", "float32"])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("y", [False, True])
@pytest.mark.parametrize(("m", "columns", "cluster"), [(1, 32, 1), (16, 32, 1), (17, 32, 2), (45, 64, 2), (64, 64, 2)])
def test_layouts(m: int, columns: int, cluster: int, y: bool, across: bool, out: str) -> None:
    desc = bc.GemmDescriptor(m=m, n=328, k=136, element="float16", out_element=out)
    step = skinny(desc, problem(desc, **({} if across else {"b": turned()}), **({"y": turned()} if y else {})))
    assert step.axes["COLUMNS"] == columns and step.axes["ACROSS"] is across and step.cluster == cluster
    assert step.params["share"] == 64 or not across


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("n", [1, 8, 77, 200])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 64), (33, 65), (64, 1300)])
def test_tails(m: int, n: int, k: int) -> None:
    """The last one goes around the ring more than once."""
    desc = bc.GemmDescriptor(m=m, n=n, k=k, element="bfloat16")
    pad = -k % 8
    skinny(desc, problem(desc, a=Placement("padded", order=(0, 1), pads=(0, pad)), b=turned(pad=pad)))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize("m", [5, 32, 61])
@pytest.mark.parametrize("across", [False, True])
def test_epilogues_and_gates(across: bool, m: int, out: str, activation: str) -> None:
    desc = bc.GemmDescriptor(m=m, n=141, k=72, activation=activation, element="bfloat16", out_element=out)
    places = {name: Placement("padded", pads=(0, 3)) if across else turned(pad=8) for name in ("b", "up")}
    skinny(desc, problem(desc, *EVERY, **places))
    step = skinny(desc, problem(desc, *EVERY, "up", "up_bias", "up_pre", **places))
    assert step.axes["GATED"] and step.axes["ACROSS"] is across


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("m", [4, 30])
@pytest.mark.parametrize("shared", ["", "a", "b", "both"])
def test_batches(shared: str, m: int) -> None:
    desc = bc.GemmDescriptor(batch_shape=(2, 3), m=m, n=144, k=80, element="bfloat16")
    ready = problem(desc)
    for name in ("a", "b"):
        if shared in (name, "both"):
            array = ready.case.arrays[name]
            array[...] = array[:1, :1]
            ready.laid[name] = lay_out(array, Placement("broadcast", broadcast=(0, 1)))
    skinny(desc, ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_rows_have_the_bits_that_they_have_among_many(across: bool, gated: bool) -> None:
    n, k = 264, 328
    act = {"activation": "silu"} if gated else {}
    desc = bc.GemmDescriptor(m=130, n=n, k=k, element="bfloat16", out_element="float32", **act)
    names = ("b", "up") if gated else ("b",)
    places = {} if across else {name: turned() for name in names}
    whole = problem(desc, *names[1:], **places)
    assert step_of(desc, whole).kernel != "gemm_skinny"
    emulate(plan_for(desc), whole)
    for first, m in ((129, 1), (3, 16), (60, 17), (66, 64)):
        some = bc.GemmDescriptor(m=m, n=n, k=k, element="bfloat16", out_element="float32", **act)
        ready = problem(some, *names[1:], **places)
        for name in names:
            ready.case.arrays[name], ready.laid[name] = whole.case.arrays[name], whole.laid[name]
        ready.case.arrays |= {name: whole.case.arrays[name] for name in ("alpha", "beta")}
        ready.case.arrays["a"] = np.array(whole.case.arrays["a"][first : first + m])
        ready.laid["a"] = lay_out(ready.case.arrays["a"], Placement())
        skinny(some, ready)
        assert ready.laid["y"].view.tobytes() == whole.laid["y"].view[first : first + m].tobytes()


@pytest.mark.usefixtures("emulation")
def test_rows_that_are_not_dense_go_the_other_way() -> None:
    desc = bc.GemmDescriptor(m=40, n=72, k=64, element="float16")
    ready = problem(desc, a=turned())
    assert step_of(desc, ready).kernel == "gemm_wgmma_narrow"
    emulate(plan_for(desc), ready)


@pytest.mark.parametrize(("m", "n", "share", "blocks"), [(1, 4096, 32, 128), (1, 6144, 48, 128), (16, 28672, 56, 132),
                                                          (64, 4096, 32, 128), (64, 6144, 48, 128)])  # fmt: skip
def test_every_multiprocessor_has_its_share(m: int, n: int, share: int, blocks: int) -> None:
    k, desc = 4096, bc.GemmDescriptor(m=m, n=n, k=4096, element="bfloat16")
    views = dict.fromkeys(("up", "c", "residual", "pre", "up_pre", "bias", "up_bias", "row_bias", "scale_a", "scale_b"))
    shapes = {"a": ((m, k), (k, 1)), "b": ((k, n), (1, k)), "y": ((m, n), (n, 1))}
    views |= {name: View(0, *laid, desc.element) for name, laid in shapes.items()}
    found = gemm_wgmma.geometry(Problem(desc, fake_device(9.0), views))
    assert not isinstance(found, str)
    (step,) = found.steps
    assert step.kernel == gemm_skinny.KERNEL.name and step.params["share"] == share and step.grid[0] == blocks
    assert step.smem <= 232_448
