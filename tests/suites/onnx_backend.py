"""ONNX's backend node tests through the functional layer: what passes, what is not implemented, what disagrees.

    python -m tests.suites.onnx_backend             # the scoreboard, and what differs from expected.toml
    python -m tests.suites.onnx_backend --update    # rewrite expected.toml; new disagreements need a reason by hand

A table maps an ONNX operator to calls of ours. `NotCovered` marks a case that the mapped op does not claim.
"""

from __future__ import annotations

import argparse
import functools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import baracuda_py as bc
from baracuda_py.core.element import encode

from . import scoreboard
from .onnx_attention import attention
from .onnx_binary import BINARY
from .onnx_cast import cast
from .onnx_conv import CONV
from .onnx_families import FAMILIES, UNMAPPED
from .onnx_images import IMAGES
from .onnx_indexing import INDEXING
from .onnx_layout import LAYOUT
from .onnx_node import Node, NotCovered, element, need
from .onnx_quantize import QUANTIZE
from .onnx_reductions import REDUCTIONS
from .onnx_rows import ROWS
from .onnx_sort import SORTS
from .onnx_unary import UNARY
from .scoreboard import Outcome

EXPECTED = Path(__file__).with_name("expected.toml")
EXPANDED = re.compile(r"_expanded(_ver\d+)?$")  # the same cases again, written out in primitive operators
SUITE = "ONNX backend node tests"


Handler = Callable[[Node], Any]
OPS: dict[str, Handler] = {}


def onnx_op(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for ONNX operators."""

    def add(handler: Handler) -> Handler:
        OPS.update(dict.fromkeys(names, handler))
        return handler

    return add


# -- elementwise ----------------------------------------------------------------------------------------------------

OPS |= {
    **UNARY,
    **BINARY,
    **REDUCTIONS,
    **ROWS,
    **LAYOUT,
    **INDEXING,
    **IMAGES,
    **SORTS,
    **QUANTIZE,
    **CONV,
    "Cast": cast,
    "CastLike": cast,
}
CARRIED = {cast, *QUANTIZE.values()}  # handlers of elements that travel in bytes


@onnx_op("ConstantOfShape")
def _constant(n: Node) -> Any:
    value = n.get("value")
    value = np.float32(0) if value is None else numpy_helper.to_array(value)[0]
    return bc.fill(n.xp.empty(tuple(n[0].tolist()), value.dtype), value.item())


OPS["Attention"] = attention

# -- matrices and tables --------------------------------------------------------------------------------------------


@onnx_op("MatMul")
def _matmul(n: Node) -> Any:
    return bc.matmul(*n.inputs)


@onnx_op("Gemm")
def _gemm(n: Node) -> Any:
    a = n[0].T if n.get("transA", 0) else n[0]
    b = n[1].T if n.get("transB", 0) else n[1]
    return bc.matmul(a, b, n[2], alpha=n.get("alpha", 1.0), beta=n.get("beta", 1.0))


@onnx_op("Einsum")
def _einsum(n: Node) -> Any:
    return bc.einsum(n.get("equation"), *n.inputs)


@onnx_op("MatMulInteger")
def _matmul_integer(n: Node) -> Any:
    return bc.matmul_integer(*n.inputs)


@onnx_op("QLinearMatMul")
def _qlinear_matmul(n: Node) -> Any:
    return bc.qlinear_matmul(*n.inputs)


@onnx_op("TensorScatter")
def _tensor_scatter(n: Node) -> Any:
    need(n.get("mode", "linear") == "linear", "kv_cache_append does not wrap round")
    need(n.get("axis", -2) % n[0].ndim == n[0].ndim - 2, "kv_cache_append appends along the second to last axis")
    shape = (n[0].shape[0], -1, *n[0].shape[-2:])
    caches = [n[0].reshape(shape).copy() for _ in range(2)]  # it takes keys and values: the same for both
    new = n[1].reshape(n[1].shape[0], -1, *n[1].shape[-2:])
    bc.kv_cache_append(new, new, n[2], *caches)
    return caches[0].reshape(n[0].shape)


@onnx_op("RotaryEmbedding")
def _rotary_embedding(n: Node) -> Any:
    x, cos, sin, positions = (n[i] for i in range(4))
    if x.ndim == 3:  # heads side by side
        x = x.reshape(*x.shape[:2], n.get("num_heads"), -1).transpose(0, 2, 1, 3)
    if positions is not None:
        cos, sin = (bc.embedding(positions, table) for table in (cos, sin))
    pairing = "interleaved" if n.get("interleaved", 0) else "half"
    y = bc.rope(x, cos=cos, sin=sin, pairing=pairing, rotary_dim=n.get("rotary_embedding_dim", 0) or None)
    return y if n[0].ndim == 4 else y.transpose(0, 2, 1, 3).reshape(n[0].shape)


@onnx_op("Adam")
def _adam(n: Node) -> Any:
    need(n.get("norm_coefficient_post", 0.0) == 0.0, "adam_step decays before the step, not after it")
    rate, count, tensors = float(n.number(0)), int(n.number(1)), [x.copy() for x in n.inputs[2:]]
    beta1, beta2, eps = n.get("alpha", 0.9), n.get("beta", 0.999), n.get("epsilon", 0.0)
    root = (1 - beta2 ** max(count, 1)) ** 0.5
    if count == 0:  # ONNX's first update has no bias correction: undo that of step 1
        rate *= (1 - beta1) / root
    size = len(tensors) // 4
    params, grads, first, second = (tensors[i * size : (i + 1) * size] for i in range(4))
    bc.adam_step(
        params, grads, first, second, mode="adam", beta1=beta1, beta2=beta2, eps=eps / root, lr=rate,
        weight_decay=n.get("norm_coefficient", 0.0), step=max(count, 1),
    )  # fmt: skip
    return [*params, *first, *second]


# -- the backend ----------------------------------------------------------------------------------------------------


class Graph(BackendRep):
    """A one-node graph, ready to run on NumPy or CuPy arrays."""

    def __init__(self, node: onnx.NodeProto, inputs: Sequence[str], xp: Any) -> None:
        self.node, self.names, self.xp = node, list(inputs), xp
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[np.ndarray, ...]:
        """The outputs as NumPy arrays."""
        op = self.node.op_type
        given = {name: self._operand(value) for name, value in zip(self.names, inputs, strict=True)}
        operands, kinds, sizes = zip(*(given.get(name, (None, None, 0)) for name in self.node.input), strict=True)
        for kind in kinds:
            carried = kind is not None and kind.carrier != kind.dtype
            need(not carried or OPS[op] in CARRIED, f"{kind} travels in bytes and has ops of its own")
        node = Node(op, list(operands), list(kinds), list(sizes), self.attributes, len(self.node.output), self.xp)
        made = OPS[op](node)
        made = made if isinstance(made, (list, tuple)) else [made]
        made = [x for x, name in zip(made, self.node.output, strict=True) if name]  # "" is an output nobody wants
        return tuple(x if isinstance(x, np.ndarray) else np.asarray(x.get()) for x in made)

    def _operand(self, value: Any) -> tuple[Any, bc.ElementKind | None, int]:
        """An input as our ops take it, what it holds, and its elements along the last axis."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return value, None, 0
        value = np.asarray(value)
        kind = element(value.dtype)
        stored = value if kind.carrier == kind.dtype else encode(value, kind)
        return self.xp.asarray(stored), kind, value.shape[-1] if value.ndim else 1


class BaracudaBackend(Backend):
    """ONNX's backend interface over the functional layer; device "CPU" is NumPy, "CUDA" CuPy arrays."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Graph:
        """Check that the model is one node that the table maps."""
        nodes = list(model.graph.node)
        need(len(nodes) == 1, "several nodes")
        need(nodes[0].op_type in OPS, "no such op")
        if device == "CPU":
            xp: Any = np
        else:
            import cupy as xp
        return Graph(nodes[0], [i.name for i in model.graph.input], xp)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """NumPy everywhere, CUDA where the driver has a device."""
        from baracuda_py.core.device import driver_device_count

        return device == "CPU" or (device.startswith("CUDA") and driver_device_count() > 0)


@functools.lru_cache(maxsize=1)
def node_cases() -> tuple[Any, ...]:
    """Every node case but the expanded ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes its expectations with overflows and divisions by zero
        found = load_model_tests(kind="node")
    return tuple(case for case in found if not EXPANDED.search(case.name))


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def run_case(case: Any, device: str = "CPU") -> Outcome:
    """Run one case and judge it by ONNX's own comparison."""
    op = "+".join(sorted({node.op_type for node in case.model.graph.node}))
    if any(node.op_type not in OPS for node in case.model.graph.node):
        return Outcome(op, "not_implemented", UNMAPPED.get(op, ""))
    try:
        graph = BaracudaBackend.prepare(case.model, device)
        for inputs, wanted in case.data_sets:
            outputs = graph.run([_array(value) for value in inputs])
            Runner.assert_similar_outputs([_array(value) for value in wanted], outputs, case.rtol, case.atol)
    except (NotCovered, bc.UnsupportedError) as error:
        return Outcome(op, "not_implemented", str(error).splitlines()[0])
    except Exception as error:  # whatever else goes wrong is a disagreement to explain
        return Outcome(op, "disagrees", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Outcome(op, "passed")


def outcomes(device: str = "CPU") -> dict[str, Outcome]:
    """Case name → outcome."""
    return {case.name: run_case(case, device) for case in node_cases()}


def main() -> int:
    """Print the scoreboard and the differences; `--update` rewrites the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="rewrite expected.toml")
    parser.add_argument("--device", default="CPU", help="CPU or CUDA")
    asked = parser.parse_args()
    found = outcomes(asked.device)
    print(scoreboard.table(found, FAMILIES, OPS))
    known = scoreboard.load(EXPECTED) if EXPECTED.exists() else None
    if asked.update:
        EXPECTED.write_text(scoreboard.render(SUITE, onnx.__version__, found, known.reasons if known else {}))
        known = scoreboard.load(EXPECTED)
    wrong = ["expected.toml is not there: --update"]
    if known:
        wrong = scoreboard.differences(known, found, onnx.__version__)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
