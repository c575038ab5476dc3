"""`jax.export`: a function of ours, serialised, and called in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flatbuffers")  # which JAX serialises with
from jax import export  # noqa: E402
from jax import numpy as jnp  # noqa: E402

import baracuda_py as bc  # noqa: E402
from baracuda_py import jax as bj  # noqa: E402

STABLE = [export.DisabledSafetyCheck.custom_call(name) for name in ("baracuda_py", "baracuda_py_uncaptured")]
X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), jnp.float32)
SQUARE = bc.elementwise("x * x + 0.25")
CALL = """
import sys, numpy as np, jax, baracuda_py.jax
from jax import export
held = np.load(sys.argv[1])
made = export.deserialize(bytes(held["program"])).call(held["x"])
try:
    export.deserialize(bytes(held["formula"])).call(held["x"])
except jax.errors.JaxRuntimeError as error:
    assert "which only that process knew; compile again" in str(error), error
else:
    raise AssertionError("a formula of another process was called")
assert np.allclose(made, held["y"], rtol=1e-6), (made, held["y"])
slope = jax.grad(lambda x: export.deserialize(bytes(held["program"])).call(x).sum())(held["x"])
assert np.allclose(slope, held["slope"], rtol=1e-5, atol=1e-6), slope
print("right")
"""


def block(x: Any) -> Any:
    return bj.matmul(bj.silu(bj.rms_norm(x)), x.T)


def test_in_another_process(tmp_path: Path) -> None:
    """Values and gradients; a formula is refused there, which its own process alone knows."""
    program = export.export(jax.jit(block), disabled_checks=STABLE)(X).serialize(vjp_order=1)
    formula = export.export(jax.jit(lambda x: SQUARE(x)), disabled_checks=STABLE)(X).serialize()
    held = {name: np.frombuffer(one, np.uint8) for name, one in (("program", program), ("formula", formula))}
    np.savez(tmp_path / "held.npz", x=X, y=block(X), slope=jax.grad(lambda x: block(x).sum())(X), **held)
    made = subprocess.run([sys.executable, "-c", CALL, tmp_path / "held.npz"], capture_output=True, text=True)
    assert made.stdout.strip() == "right", made.stderr[-2000:]


def test_keys_and_formulas_in_this_one_and_programs_for_a_gpu() -> None:
    key, formula = jax.random.key(0), bc.elementwise("x * tanh(x)")
    draw = jax.jit(lambda x, key: formula(bj.dropout(x, 0.5, key=key)))
    back = export.deserialize(export.export(draw, disabled_checks=STABLE)(X, key).serialize())
    assert np.array_equal(back.call(X, key), draw(X, key))
    assert export.export(jax.jit(bj.silu), platforms=["cuda"], disabled_checks=STABLE)(X).platforms == ("cuda",)


def test_what_is_refused() -> None:
    """A target of which JAX does not know that it stays; sizes that are symbols; a second derivative."""
    with pytest.raises(ValueError, match="baracuda_py"):
        export.export(jax.jit(bj.silu))(X)
    symbolic = jax.ShapeDtypeStruct(export.symbolic_shape("b, 8"), jnp.float32)
    with pytest.raises(bc.UnsupportedError, match="symbolic; every extent must be known"):
        export.export(jax.jit(bj.silu), disabled_checks=STABLE)(symbolic)
    with pytest.raises(bc.UnsupportedError, match=r"unary_backward.*no gradient"):
        export.export(jax.jit(bj.silu), disabled_checks=STABLE)(X).serialize(vjp_order=2)
