"""The type stub and the running package say the same of every function: names, kinds, defaults, types, first line."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import baracuda_py
from baracuda_py._exports import EXPORTS
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.signatures import NAMES, accepted

STUB = ast.parse((Path(baracuda_py.__file__).parent / "__init__.pyi").read_text())
WRITTEN = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
ENTRIES = [name for name in WRITTEN if hasattr(getattr(baracuda_py, name), "plan")]


def parameters(node: ast.FunctionDef) -> list[tuple[str, str, bool]]:
    """(name, annotation, whether it has a default) of each parameter in the stub, a star where keywords begin."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = len(plain) - len(arguments.defaults)
    found = [(a.arg, ast.unparse(a.annotation), i >= missing) for i, a in enumerate(plain) if a.annotation]
    if arguments.vararg:
        found.append((f"*{arguments.vararg.arg}", "Any", False))
    elif arguments.kwonlyargs:
        found.append(("*", "", False))
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((one.arg, ast.unparse(one.annotation) if one.annotation else "", default is not None))
    if arguments.kwarg:
        found.append((f"**{arguments.kwarg.arg}", "Any", False))
    return found


def running(value: Any) -> list[tuple[str, str, bool]]:
    """The same of the function itself."""
    found, starred = [], False
    for p in inspect.signature(value).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            found.append((f"{'*' if p.kind is p.VAR_POSITIONAL else '**'}{p.name}", "Any", False))
            starred = True
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            found.append(("*", "", False))
            starred = True
        found.append((p.name, str(p.annotation), p.default is not p.empty))
    return found


def same(a: str, b: str) -> bool:
    """The stub says `builtins.complex` where the package has a function of that name, and A of the operand's kind."""
    said = re.sub(r"\bA\b", "Array", a.replace("builtins.", ""))
    return not a or ast.dump(ast.parse(said)) == ast.dump(ast.parse(b))


def test_every_function_is_in_the_stub() -> None:
    written = {*WRITTEN} | {
        n.target.id for n in STUB.body if isinstance(n, ast.AnnAssign) and type(n.target) is ast.Name
    }
    functions = {name for name in EXPORTS if not inspect.isclass(getattr(baracuda_py, name))}
    assert functions <= written


def stub_differs(name: str) -> str | None:
    """In what the stub of a function is another signature than the function's, or None."""
    value, node = getattr(baracuda_py, name), WRITTEN[name]
    written, shown = parameters(node), running(value)
    for ours, theirs in zip_longest(written, shown):
        if not ours or not theirs or ours[0] != theirs[0] or ours[2] != theirs[2] or not same(ours[1], theirs[1]):
            return f"{name}: {ours} in the stub, {theirs} runs"
    returned = str(inspect.signature(value).return_annotation)
    if not node.returns or not same(ast.unparse(node.returns), returned):
        return f"{name}: the stub returns {node.returns and ast.unparse(node.returns)}, not {returned}"
    first = " ".join((value.__doc__ or "").strip().partition("\n\n")[0].split())
    if ast.get_docstring(node, clean=False) != first.replace('"', "'"):
        return f"{name}: the stub says {ast.get_docstring(node, clean=False)!r}, not {first!r}"
    return None


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("x: Array", "y: Array"), ("eps: float", "eps: int"), ("eps: float=1e-06", "eps: float"),
        ("-> Arrays", "-> int"), ("mean(h", "sum(h"),
    ],
)  # fmt: skip
def test_a_difference_is_seen(was: str, now: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ast.unparse(WRITTEN["rms_norm"])
    assert was in text and stub_differs("rms_norm") is None
    (changed,) = ast.parse(text.replace(was, now, 1)).body
    monkeypatch.setitem(WRITTEN, "rms_norm", changed)
    assert stub_differs("rms_norm")


def test_the_stub_is_the_signature() -> None:
    assert len(ENTRIES) > 1000 and not list(filter(None, map(stub_differs, ENTRIES)))


def test_operands_are_typed() -> None:
    """Every operand of the plan by its name is an array, and the keywords of every function have their types."""
    assert not [why for name in ENTRIES for why in untyped(name)]


def untyped(name: str) -> Iterator[str]:
    """What a signature leaves untyped, or gives a type that it must not have."""
    value = getattr(baracuda_py, name)
    shown = inspect.signature(value).parameters
    for n, p in shown.items():
        if p.annotation is p.empty and p.kind is not p.VAR_KEYWORD:
            yield f"{name}: {n} has no type"
        number = n == "q" and name.endswith(("_lowrank", "_walk"))  # how many, node2vec's weight
        if n in ("x", "a", "q", "dy", "logits") and not number and "Array" not in p.annotation:
            yield f"{name}: {n} is {p.annotation}"
    common = shown["stream"].annotation, shown["preference"].annotation
    if common != ("Stream", "PlanPreference | None"):
        yield f"{name}: stream and preference are {common}"
    hints = {k: v for k, v in inspect.get_annotations(value).items() if set(_names(v)) <= {*NAMES}}
    names = dict(NAMES)
    yield from (f"{name}: {k} is {text}" for k, text in hints.items() if text != "None" and eval(text, names) is None)


def _names(text: str) -> list[str]:
    return [n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)]


def test_types_of_some() -> None:
    """What an editor shows of a norm, a reduction and a loss."""
    shown = inspect.signature(baracuda_py.rms_norm).parameters
    assert [shown[n].annotation for n in ("x", "weight", "eps", "return_rstd")] == [
        "Array", "Array | None", "float", "bool",
    ]  # fmt: skip
    assert inspect.signature(baracuda_py.sum).parameters["axis"].annotation == "int | Sequence[int] | None"
    assert (
        "Literal['none', 'mean', 'sum']"
        in inspect.signature(baracuda_py.cross_entropy).parameters["reduction"].annotation
    )
    assert typing.get_type_hints(baracuda_py.sum)["keepdims"] is bool


def test_a_formula_shows_its_operands() -> None:
    made = baracuda_py.elementwise("x * alpha + beta", alpha=2.0)
    assert str(inspect.signature(made)).startswith("(x: 'Array | Scalar', beta: 'Array | Scalar', alpha: ")


TYPED = """
import numpy as np
import numpy.typing as npt

import baracuda_py as bc

x: npt.NDArray[np.float32] = np.zeros((3, 4), np.float32)
y: npt.NDArray[np.float32] = bc.silu(x)
z: npt.NDArray[np.float32] = bc.rms_norm(bc.softmax(x), eps=1e-5)
bad: int = bc.silu(x)  # wrong
worse: str = bc.rms_norm(x)  # wrong
bc.silu([1.0, 2.0])  # wrong
pair = bc.rms_norm(x, return_rstd=True)
bc.cast(x, np.float16)
bc.cast(x, 16)  # wrong
"""

DESCRIBED = """
import ml_dtypes
import numpy as np

import baracuda_py as bc

desc = bc.RMSNormDescriptor(batch_shape=[8, 512], normalized_shape=64, element="bfloat16")
bc.RMSNormDescriptor(batch_shape=np.zeros(3).shape, normalized_shape=(np.int64(64),), element=np.float32)
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=64, eps=np.float32(1e-5), element=np.dtype("float32"))
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=64, weight_element=None, element=ml_dtypes.bfloat16)
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=64, element=np.zeros(3))
bc.UnaryDescriptor(kind="silu", shape=4, element="f4")
bc.UnaryDescriptor(kind=bc.UnaryKind.SILU, shape=4, element=bc.ElementKind.F32)
bc.MseLossDescriptor(shape=[3, 4], reduction="mean", element="float32")
bc.KthvalueDescriptor(shape=[3, 4], k=2, element="float32")
plan = bc.RMSNormPlan.select(desc, bc.PlanPreference(max_arch="sm80", prefer_backend="numpy"), device="cpu")
if isinstance(plan.desc, bc.RMSNormDescriptor):
    shape: tuple[int, ...] = plan.desc.normalized_shape
element: bc.ElementKind = desc.element
bc.silu(np.zeros(3), preference=plan.preference)
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=64, element=3)  # wrong
bc.RMSNormDescriptor(batch_shape=(), normalized_shap=64, element="float32")  # wrong
bc.RMSNormDescriptor(batch_shape=(), normalized_shape="64", element="float32")  # wrong
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=6.4, element="float32")  # wrong
bc.RMSNormDescriptor(batch_shape=(), normalized_shape=64)  # wrong
bc.RMSNormDescriptor((), 64, element="float32")  # wrong
bc.UnaryDescriptor(kind=4, shape=4, element="float32")  # wrong
bc.MseLossDescriptor(shape=[3, 4], reduction="men", element="float32")  # wrong
bc.KthvalueDescriptor(shape=[3, 4], k="2", element="float32")  # wrong
bc.PlanPreference(max_arch=8.0)  # wrong
held: int = desc.element  # wrong
"""


@pytest.mark.parametrize("text", [TYPED, DESCRIBED], ids=["functions", "descriptors"])
def test_a_type_checker_sees_what_is_wrong(text: str, tmp_path: Path) -> None:
    """Under mypy a result is an array of the operand's kind; a descriptor is made with what its fields take."""
    pytest.importorskip("mypy")
    file = tmp_path / "typed.py"
    file.write_text(text)
    command = [sys.executable, "-m", "mypy", str(file)]
    root = Path(baracuda_py.__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    found = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    wrong = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")]
    assert sorted({*found}) == wrong, done.stdout + done.stderr


def test_what_is_right_for_a_type_checker_runs() -> None:
    """And what it finds wrong is refused, but for the type of a name."""
    for line in DESCRIBED.splitlines():
        if not line.endswith("# wrong"):
            continue
        if line.startswith("bc."):
            with pytest.raises((TypeError, baracuda_py.BaracudaError)):
                exec(line, {"bc": baracuda_py})
    exec("\n".join(line for line in DESCRIBED.splitlines() if not line.endswith("# wrong")), {})


def test_a_preference_is_made_with_what_its_fields_take() -> None:
    tree = ast.parse(inspect.getsource(PlanPreference))
    (made,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    said = {name: text.replace("SupportsIndex", "int") for name, text, _ in parameters(made)[1:]}
    assert said == {field.name: accepted(field) for field in dataclasses.fields(PlanPreference)}
