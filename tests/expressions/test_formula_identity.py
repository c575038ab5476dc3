"""What a formula is known by: at least 128 bits, and its tree wherever something is found by it."""

from __future__ import annotations

import gc
import types

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.memo import PLANS_KEPT
from baracuda_py.expressions.formula import Formula
from baracuda_py.expressions.nodes import Node
from baracuda_py.expressions.parse import parse

X = np.linspace(0.5, 2, 4, dtype=np.float32)
BITS = 128


def bits(op: str) -> int:
    return 4 * len(op.rpartition("_")[2])


def test_plans_have_names_of_128_bits() -> None:
    plans = [
        bc.elementwise("x * 2").plan(), bc.elementwise("x * 2").plan().vjp.plan, bc.reduce("sum(x * 2)").plan(),
        bc.scan("cumsum(x * 2)").plan(), bc.product("x * 2").plan(), bc.attention("s * 2").plan(),
    ]  # fmt: skip
    assert all(bits(plan.op) >= BITS for plan in plans)


def test_formulas_of_one_digest_are_told_apart_by_their_trees() -> None:
    first, second = parse("x * 2"), parse("x * 3")
    (root,), (other,) = first.roots, second.roots
    forged = Node(other.form, other.value, other.args)
    forged.digest = root.digest  # as if the hash of both were one
    clash = Formula(("x",), (("result", forged),))
    assert clash.roots == first.roots and hash(clash) == hash(first) and clash != first
    same = Formula(("x",), (("result", Node(root.form, root.value, root.args)),))
    assert same == first and hash(same) == hash(first)
    assert len({first, same, clash}) == 2


def test_torch_ops_of_one_name_are_told_apart_by_their_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from baracuda_py.torch import operation

    class Short:
        def __init__(self, data: bytes, digest_size: int = 0) -> None:
            pass

        def hexdigest(self) -> str:
            return "0"

    monkeypatch.setattr(operation, "hashlib", types.SimpleNamespace(blake2b=Short))
    x = torch.from_numpy(X).requires_grad_()
    for name in ("x", "y", "self"):  # of one digest, as names do not make a kernel; the operands' names differ
        f = bc.elementwise(f"{name} * 7.25")
        x.grad = None
        f(x).sum().backward()
        assert (x.grad == 7.25).all()
    names = [operation.operation(bc.elementwise(f"{n} * 7.25").plan()).name for n in ("x", "y", "self")]
    assert len(set(names)) == 3 and len({name.rstrip("_") for name in names}) == 1


def test_a_torch_op_is_made_again_where_it_was_forgotten() -> None:
    torch = pytest.importorskip("torch")
    from baracuda_py.expressions import forward
    from baracuda_py.torch import operation

    f = bc.elementwise("x * 11.5 + 1")
    plan = f.plan()
    op = operation.operation(plan)
    held = op.op
    operation._made.cache_clear()  # type: ignore[attr-defined]
    forward._plans.clear()
    del op, plan
    gc.collect()
    np.testing.assert_allclose(held(torch.from_numpy(X), shape=[4], element="float32").numpy(), X * 11.5 + 1, rtol=1e-6)
    again = operation.operation(bc.elementwise("x * 11.5 + 1").plan())
    assert again.op is held


def test_what_is_remembered_of_made_classes_is_bounded() -> None:
    from baracuda_py.backends.cuda import direct, hotpath
    from baracuda_py.core import args, checked, spec
    from baracuda_py.expressions import plan

    kept = (
        args.operands_of, args.arrays_of, args.scalars_of, checked.checks, spec.numpy_row, hotpath.generated,
        direct._generated, plan._table,
    )  # fmt: skip
    assert all(one.cache_parameters()["maxsize"] <= PLANS_KEPT for one in kept)  # type: ignore[attr-defined]
