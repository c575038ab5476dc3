"""adam_step: a step of Adam (Kingma, Ba 2015) or AdamW (Loshchilov, Hutter 2019) over a list of tensors, in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Plan,
    Problem,
    Relative,
    Scalar,
    Step,
    Variant,
    choice,
    derived,
    element,
    inout,
    number,
    operand,
    scalar,
    shapes,
)
from ...calls.functional import functional
from ...core.element import cast
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.map import lay_out
from ...schedules.multi_tensor import chunk_counts, groups
from ...core.benchmark import Benchmark

F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
CHUNK = 8192  # elements a block updates
CAPACITY = 68  # tensors a launch; 56 bytes each in the parameter struct
THREADS = 256
GRADS = {F16: (F16, F32), BF16: (BF16, F32), F32: (F32, F16, BF16), F64: (F64,)}


@dataclass(frozen=True, kw_only=True)
class AdamStepDescriptor(Descriptor):
    """Tensors of the given shapes; moments are float32 (float64 for float64).

    grad_element: None means that of the parameters; float32 masters may take 16-bit gradients, 16-bit parameters
    float32 gradients. copy_element: that of `params_copy`, float16 or bfloat16 (the default).
    weight_decay: None means torch's default, 0.01 for "adamw" and 0 for "adam".
    """

    shapes: tuple[tuple[int, ...], ...] = shapes()
    mode: str = choice(("adamw", "adam"), "adamw")
    beta1: float = number(0.9, minimum=0.0)
    beta2: float = number(0.999, minimum=0.0)
    eps: float = number(1e-8, minimum=0.0)
    weight_decay: float = number(derived(lambda desc: 0.01 if desc.mode == "adamw" else 0.0), minimum=0.0)
    grad_element: ElementKind = element(default=derived(lambda desc: desc.element))
    copy_element: ElementKind = element((F16, BF16), derived(lambda desc: BF16))
    element: ElementKind = element()

    def validate(self) -> None:
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise InvalidProblemError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if self.grad_element not in GRADS[self.element]:
            allowed = " or ".join(map(str, GRADS[self.element]))
            raise UnsupportedError(f"gradients of {self.element} parameters may be {allowed}, got {self.grad_element}")


def _square(rng: Any, desc: AdamStepDescriptor, shape: tuple[int, ...]) -> Any:
    """A second moment: not negative."""
    return np.square(rng.standard_normal(shape))


@dataclass(slots=True, kw_only=True)
class AdamStepArgs(Args):
    """`lr`, `step` (1 for the first) and `grad_scale` are numbers or 0-d device arrays: a captured graph can vary them.

    `params_copy` receives the new parameters in 16 bits, written in the same pass: the working copy of float32 masters.
    """

    params: list[Array] = inout(many="shapes")
    grads: list[Array] = operand(many="shapes", element="grad_element")
    exp_avg: list[Array] = inout(many="shapes", element="acc")
    exp_avg_sq: list[Array] = inout(many="shapes", element="acc", values=_square)
    params_copy: list[Array] | None = inout(many="shapes", element="copy_element", optional=True)
    lr: Scalar = scalar(1e-3)
    step: Scalar = scalar(integer=True)
    grad_scale: Scalar = scalar(1.0)


def reference(desc: AdamStepDescriptor, *, params: Any, grads: Any, exp_avg: Any, exp_avg_sq: Any, params_copy: Any,
              lr: Any, step: Any, grad_scale: Any) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the parameters come in; the coefficients of the step in float64 at least.

    Gradients, moments and eps are rounded to the moments' element, as they are kept: what vanishes there vanishes here.
    """
    if not params:
        return {}

    def kept(x: Any) -> Any:
        return np.asarray(cast(x, desc.acc)).astype(x.dtype)

    dtype = params[0].dtype.type
    wide = np.promote_types(params[0].dtype, np.float64).type
    t, rate = max(int(step), 1), wide(float(lr))
    step_size = dtype(rate / (1 - wide(desc.beta1) ** t))
    root = dtype(np.sqrt(1 - wide(desc.beta2) ** t))
    beta1, beta2, decay = dtype(desc.beta1), dtype(desc.beta2), dtype(desc.weight_decay)
    eps = dtype(desc.acc.dtype.type(desc.eps))
    rest1, rest2 = dtype(1 - wide(desc.beta1)), dtype(1 - wide(desc.beta2))
    scale, keep = dtype(float(grad_scale)), dtype(1 - rate * wide(desc.weight_decay))
    with np.errstate(all="ignore"):
        for p, g, m, v in zip(params, grads, exp_avg, exp_avg_sq, strict=True):
            g = kept(g * scale)
            if desc.mode == "adamw":
                p *= keep
            elif decay:
                g = kept(g + decay * p)
            m[...] = kept(beta1 * m + rest1 * g)
            v[...] = kept(beta2 * v + rest2 * g * g)
            p -= step_size * (m / (np.sqrt(v) / root + eps))
    return {"params": params, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "params_copy": params}


_LISTS = ("params", "grads", "exp_avg", "exp_avg_sq", "params_copy")
_COMMON = {
    "status": "status", "lr": "scalar", "step": "iscalar", "grad_scale": "scalar", "log_beta1": "f64",
    "log_beta2": "f64", "beta1": "f64", "beta2": "f64", "eps": "f64", "weight_decay": "f64",
    "decoupled": "i32", "copy_kind": "i32",
}  # fmt: skip
PARAMS = Params(
    "AdamStepParams", **dict.fromkeys(_LISTS, f"ptr[{CAPACITY}]"), **_COMMON,
    sizes=f"i64[{CAPACITY}]", first=f"i32[{CAPACITY}]", count="i32",
)  # fmt: skip
STRIDED = Params(
    "AdamStepStridedParams", **dict.fromkeys(_LISTS, "ptr[1]"), **_COMMON,
    size="i64", shape="i64[8]", strides="i64[5][8]", rank="i32",
)  # fmt: skip


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"G": GRADS[kind]}


def _common(p: Problem) -> dict[str, Any]:
    desc = p.desc
    return {
        "log_beta1": math.log(desc.beta1) if desc.beta1 else -math.inf,
        "log_beta2": math.log(desc.beta2) if desc.beta2 else -math.inf,
        "beta1": desc.beta1, "beta2": desc.beta2, "eps": desc.eps, "weight_decay": desc.weight_decay,
        "decoupled": desc.mode == "adamw",
        "copy_kind": 0 if p.params_copy is None else 1 if desc.copy_element is F16 else 2,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    counts = chunk_counts([view.size for view in p.params], CHUNK)
    common, axes = _common(p), {"G": p.desc.grad_element}
    names = _LISTS if p.params_copy is not None else _LISTS[:-1]

    def pointers(start: int, stop: int) -> dict[str, Any]:
        return {n: (n, start, stop) if n in names else (n, 0, 0) for n in _LISTS}

    steps, strided = [], []
    for i, view in enumerate(p.params):
        merged = lay_out([getattr(p, n)[i] for n in names])
        if isinstance(merged, str):
            return f"params[{i}]: {merged}"
        if view.size and not merged.run:
            fields = merged.groups[0].params()
            if p.params_copy is None:
                fields["strides"] = [*fields["strides"], [0] * 8]
            params = {**pointers(i, i + 1), **common, **fields, "size": view.size}
            strided.append(Step("adam_step_strided", (-(-view.size // THREADS), 1, 1), params, axes, THREADS))
            counts[i] = 0
    for group in groups(counts, CAPACITY):
        sizes = [view.size for view in p.params[group.start : group.stop]]
        params = {
            **pointers(group.start, group.stop),
            **common,
            "sizes": sizes,
            "first": group.first,
            "count": len(sizes),
        }
        steps.append(Step("adam_step", (group.blocks, 1, 1), params, axes, THREADS))
    return Geometry((*steps, *strided), layout="strided" if strided else "contiguous")


def squares_in_torch(torch: Any, desc: AdamStepDescriptor) -> dict[str, Any]:
    """Second moments, and the step."""
    squares = [torch.randn(shape, dtype=getattr(torch, str(desc.acc))).square_() for shape in desc.shapes]
    return {"exp_avg_sq": squares, "step": 10}


def in_torch(
    torch: Any, desc: Any, *, params: Any, grads: Any, exp_avg: Any, exp_avg_sq: Any, params_copy: Any,
    lr: Any, step: Any, grad_scale: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """torch's own step of Adam or AdamW, functional, in place; `step` holds the steps before this one."""
    from torch.optim import adam, adamw

    steps = [torch.tensor(float(step - 1)) for _ in params]
    scaled = [g.to(p.dtype) * grad_scale for g, p in zip(grads, params, strict=True)]
    function = adamw.adamw if desc.mode == "adamw" else adam.adam
    function(
        params, scaled, exp_avg, exp_avg_sq, [], steps, foreach=False, amsgrad=False, beta1=desc.beta1,
        beta2=desc.beta2, lr=lr, weight_decay=desc.weight_decay, eps=desc.eps, maximize=False,
    )  # fmt: skip
    made = {"params": params, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    if params_copy is not None:
        made["params_copy"] = params
    return made


class AdamStepPlan(Plan):
    """One step t of Adam over lists of tensors, in place (torch.optim.AdamW, torch.optim.Adam).

    g = grad · grad_scale; "adamw": p ← p · (1 − lr · weight_decay); "adam": g ← g + weight_decay · p;
    m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²; p ← p − lr / (1 − β1ᵗ) · m / (sqrt(v) / sqrt(1 − β2ᵗ) + eps).

    params: float32, float64, float16 or bfloat16; grads: see the descriptor; exp_avg, exp_avg_sq: float32 (float64 for
    float64). All strides are honoured; tensors that lie alike in memory (dense, or transposed alike) take the fast
    path.
    The moments are used as they are kept: where g² is below their range v is 0, and with eps = 0 the quotient is m / 0,
    an infinity, or NaN where m is 0 too; where it is beyond their range v is inf and p stays. torch's rule.
    `grad_scale` is the clip factor of `global_norm`, the inverse of a loss scale, or their product; -1 maximises.
    Weight decay is one number a plan: call twice for matrices and vectors. amsgrad is not offered;
    `baracuda_py.torch.optim.AdamW` has it.
    """

    op = "optimizer.adam_step"
    descriptor = AdamStepDescriptor
    args = AdamStepArgs
    reference = staticmethod(reference)
    value_policy = "a step below 1 counts as 1"
    variants = (
        Variant(
            "multi_tensor", _geometry, source="optimizer/adam_step.cu",
            kernels=(
                Kernel("adam_step", f"adam_step<{{T}}, {{G}}, {THREADS}, {CHUNK}>", PARAMS, _axes, THREADS, 2),
                Kernel("adam_step_strided", f"adam_step_strided<{{T}}, {{G}}, {THREADS}>", STRIDED, _axes, THREADS),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("AdamW, 64 x 4M f32", shapes=((1 << 22,),) * 64, element="float32", make=squares_in_torch, peers=()),
    )

    @staticmethod
    def case(draw: Any) -> AdamStepDescriptor:
        return AdamStepDescriptor(
            shapes=tuple(draw.shape(0, 3, 0, 33) for _ in range(draw.integer(1, 5))),
            mode=draw.choice(("adamw", "adam")), beta1=draw.choice((0.9, 0.0, 0.95)),
            beta2=draw.choice((0.999, 0.95)), eps=draw.choice((1e-8, 1e-5)),
            weight_decay=draw.choice((0.0, 0.1)), element=draw.element,
            grad_element=draw.choice(GRADS[draw.element]), copy_element=draw.choice((F16, BF16)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: AdamStepDescriptor, arrays: dict[str, Any]) -> None:
        if not isinstance(arrays.get("step"), int) or arrays["step"] < 1:
            arrays["step"] = 7

    @classmethod
    def check_values(cls, desc: AdamStepDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return f"step is {int(arrays['step'])}" if int(arrays["step"]) < 1 else None

    @classmethod
    def flops(cls, desc: AdamStepDescriptor) -> int:
        return 14 * sum(math.prod(shape) for shape in desc.shapes)


adam_step = functional(AdamStepPlan)
