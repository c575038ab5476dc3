"""Language models' heads: in training with labels, the logits are never whole in memory."""

from __future__ import annotations

import inspect
from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .attention import NAME, causality_alone
from .piece import Forward, Piece, plain


class _InForward(torch.autograd.Function):  # type: ignore[misc]
    """Cross entropy of a linear layer whose gradients are made with the loss: three products in place of four.

    x [rows, hidden], weight [classes, hidden], targets [rows]; the loss is 0-d.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, targets: Any, facts: dict[str, Any]) -> Any:
        """The loss; the gradients of what needs one are kept for `backward`."""
        wanted = [name for name, one in zip(("dx", "dweight", "dbias"), ctx.needs_input_grad, strict=False) if one]
        facts = {**facts, **{f"return_{name}": True for name in wanted}}
        bias = None if bias is None else bias.detach()
        made = bct.linear_cross_entropy(x.detach(), weight.detach(), targets, bias, **facts)
        loss, *gradients = made
        ctx.names = tuple(wanted)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Any) -> Any:
        """The kept gradients by that of the loss."""
        found = {n: g * upstream.to(g.dtype) for n, g in zip(ctx.names, ctx.saved_tensors, strict=True)}
        return found.get("dx"), found.get("dweight"), found.get("dbias"), None, None


class _Logits:
    """Logits that are not made: the hidden states, the head, and what the model does to its logits.

    What models do on the way to their loss is noted, and their cross entropy is one op of the hidden states. Anything
    else that is done to them makes them after all.
    """

    def __init__(self, hidden: Any, head: Any, steps: tuple[tuple[str, Any], ...] = ()) -> None:
        self.hidden, self.head, self.steps = hidden, head, steps

    def whole(self) -> Any:
        """The logits."""
        y = self.head(self.hidden)
        for step, given in self.steps:
            y = torch.tanh(y) if step == "tanh" else getattr(y, step)(*given)
        return y

    def _then(self, step: str, *given: Any) -> _Logits:
        return _Logits(self.hidden, self.head, (*self.steps, (step, given)))

    def float(self) -> _Logits:
        return self._then("float")

    def tanh(self) -> _Logits:
        return self._then("tanh")

    def view(self, *shape: Any) -> Any:
        return self._then("view", *shape) if shape == (-1, self._classes) else self.whole().view(*shape)

    def __mul__(self, factor: Any) -> Any:
        return self._then("__mul__", factor) if _number(factor) else self.whole() * factor

    def __truediv__(self, divisor: Any) -> Any:
        return self._then("__truediv__", divisor) if _number(divisor) else self.whole() / divisor

    def size(self, *axis: Any) -> Any:
        return self._classes if axis == (-1,) else self.whole().size(*axis)

    @property
    def device(self) -> Any:
        return self.hidden.device

    @property
    def _classes(self) -> int:
        return int(self.head.weight.shape[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole(), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if function is torch.tanh and len(args) == 1 and not given:
            return args[0]._then("tanh")
        if function is torch.nn.functional.cross_entropy:
            loss = _loss(*args, **given)
            if loss is not None:
                return loss
        made = {name: one.whole() if isinstance(one, cls) else one for name, one in given.items()}
        return function(*(one.whole() if isinstance(one, cls) else one for one in args), **made)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """torch.nn.functional.cross_entropy of logits that are not made; None where it takes them."""
    if not isinstance(input, _Logits) or not torch.is_tensor(target):
        return None
    if input.hidden.dim() != 2 and "view" not in [step for step, _ in input.steps]:
        return None
    steps = [(step, given) for step, given in input.steps if step not in ("float", "view")]
    softcap = _softcap(steps)
    if softcap:
        del steps[-3:]
    if not all(step in ("__mul__", "__truediv__") for step, _ in steps) or (steps and input.head.bias is not None):
        return None
    if any(one is not None for one in (weight, size_average, reduce)) or reduction not in ("mean", "sum"):
        return None
    if target.dim() != 1 or target.is_floating_point():
        return None
    x, weight, bias = input.hidden, input.head.weight, input.head.bias
    for step, (factor,) in steps:
        x = x * factor if step == "__mul__" else x / factor
    if torch.is_autocast_enabled(x.device.type):
        element = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(element), weight.to(element), None if bias is None else bias.to(element)
    facts: dict[str, Any] = {
        "ignore_index": ignore_index, "softcap": softcap, "reduction": reduction, "label_smoothing": label_smoothing,
    }  # fmt: skip
    x = x.reshape(-1, x.shape[-1])
    graded = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias))
    if not graded or x.dtype == torch.float16:  # whose gradients are 0 where the loss is not scaled before
        return bct.linear_cross_entropy(x, weight, target, bias, **facts)
    return _InForward.apply(x, weight, bias, target, facts)


def _softcap(steps: list[tuple[str, Any]]) -> float:
    """c of c · tanh(logits / c) where that is what the model does last, else 0."""
    if len(steps) < 3 or [step for step, _ in steps[-3:]] != ["__truediv__", "tanh", "__mul__"]:
        return 0.0
    (_, (divisor,)), _, (_, (factor,)) = steps[-3:]
    return float(factor) if divisor == factor > 0 else 0.0


class _Handing:
    """A head that hands on what it is given, its attributes as they are."""

    def __init__(self, head: Any, call: Any) -> None:
        self._head, self._call = head, call

    def __call__(self, hidden: Any) -> Any:
        return self._call(hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)


class _Headless:
    """The model as its own forward sees it where head and loss are one op: its head makes no logits."""

    def __init__(self, model: Any, head: str, before: str | None) -> None:
        self._model = model
        self._head, self._before = model.get_submodule(head), before
        first = head.split(".")[0]
        setattr(self, first, _Handing(getattr(model, first), self._handed_on))

    def _handed_on(self, hidden: Any) -> _Logits:
        before = self._before
        return _Logits(hidden if before is None else self._model.get_submodule(before)(hidden), self._head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def fused_head(head: str = "lm_head", *, before: str | None = None, named: bool = True) -> Piece:
    """A language model's forward whose loss is `linear_cross_entropy` of the hidden states.

    In training with labels `logits` of the result is None; skip_logits=False keeps them, True leaves them out in
    evaluation, too. head: the layer; before: what stands before it in the head's module. A head that is more than its
    weight, or a loss that is not the default one, is called as it is. named: the loss is the model's `loss_function`;
    one that the model writes out stays its own under torch.compile.
    """

    def make(original: Forward) -> Forward:
        place = list(inspect.signature(original).parameters).index("labels") - 1

        def forward(self: Any, *args: Any, skip_logits: bool | None = None, **given: Any) -> Any:
            if skip_logits is not None and not isinstance(skip_logits, bool):
                raise InvalidProblemError(f"skip_logits must be None, True or False, got {shown(skip_logits)}")
            if self.config._attn_implementation == NAME and causality_alone(self, args, given):
                given["causal_alone"] = True
            labels = args[place] if len(args) > place else given.get("labels")
            skips = self.training if skip_logits is None else skip_logits
            if labels is None or not skips or not _served(self, head, named):
                return original(self, *args, **given)
            found = original(_Headless(self, head, before), *args, **given)
            if isinstance(found, tuple):
                return tuple(one for one in found if not isinstance(one, _Logits))
            return type(found)(**{name: None if isinstance(one, _Logits) else one for name, one in found.items()})

        return forward

    said = [head, *([] if before is None else [f"after {before}"]), *([] if named else ["written out"])]
    return Piece(f"linear_cross_entropy({', '.join(said)})", make, leaves_logits=True)


def _served(model: Any, head: str, named: bool) -> bool:
    from transformers.loss.loss_utils import ForCausalLMLoss

    if not plain(model.get_submodule(head)):
        return False
    return model.loss_function is ForCausalLMLoss if named else not torch.compiler.is_compiling()
