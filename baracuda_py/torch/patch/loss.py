"""Language models' heads: in training with labels, the logits are never whole in memory."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece, plain


class _InForward(torch.autograd.Function):  # type: ignore[misc]
    """Cross entropy of a linear layer whose gradients are made with the loss: three products in place of four.

    x [rows, hidden], weight [classes, hidden], targets [rows]; the loss is 0-d.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, targets: Any, facts: dict[str, Any]) -> Any:
        """The loss; the gradients of what needs one are kept for `backward`."""
        wanted = {"dx": x, "dweight": weight, "dbias": bias}
        wanted = {name: one for name, one in wanted.items() if one is not None and one.requires_grad}
        asked: dict[str, Any] = {f"return_{name}": True for name in wanted}
        made = bct.linear_cross_entropy(
            x.detach(), weight.detach(), targets, None if bias is None else bias.detach(), **asked, **facts
        )
        loss, *gradients = made if wanted else (made,)
        ctx.names = tuple(wanted)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Any) -> Any:
        """The kept gradients by that of the loss."""
        found = {n: g * upstream.to(g.dtype) for n, g in zip(ctx.names, ctx.saved_tensors, strict=True)}
        return found.get("dx"), found.get("dweight"), found.get("dbias"), None, None


def head_loss(
    hidden: Any, head: Any, labels: Any, num_items: Any = None, ignore_index: int = -100, shifted: Any = None,
    softcap: float = 0.0,
) -> Any:  # fmt: skip
    """transformers' ForCausalLMLoss of head(hidden): token t is predicted from those before it.

    hidden [batch, tokens, features], labels [batch, tokens]; shifted: labels that are moved already. The mean over
    labels that are not ignore_index, or the sum divided by num_items.
    """
    if shifted is None:
        shifted = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    facts = {
        "ignore_index": ignore_index, "softcap": softcap, "reduction": "mean" if num_items is None else "sum",
    }  # fmt: skip
    targets = shifted.reshape(-1).to(hidden.device)
    x, weight, bias = hidden.reshape(-1, hidden.shape[-1]), head.weight, head.bias
    if torch.is_autocast_enabled(x.device.type):
        element = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(element), weight.to(element), None if bias is None else bias.to(element)
    loss = _InForward.apply(x, weight, bias, targets, facts)
    if num_items is None:
        return loss
    return loss / (num_items.to(loss.device) if torch.is_tensor(num_items) else num_items)


class _Uncapped:
    """A config whose logits are not capped: the loss does that."""

    final_logit_softcapping = None

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


class _Headless:
    """The model as its own forward sees it where head and loss are one op.

    The head hands on the hidden states, which the model scales as it would its logits, and the loss takes them.
    """

    def __init__(self, model: Any, head: str) -> None:
        self._model = model
        self._head = getattr(model, head)
        self._cap = getattr(model.config, "final_logit_softcapping", None)
        setattr(self, head, _handed_on)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def config(self) -> Any:
        return self._model.config if self._cap is None else _Uncapped(self._model.config)

    def loss_function(self, logits: Any, labels: Any, vocab_size: Any = None, **more: Any) -> Any:
        return head_loss(
            logits, self._head, labels, more.get("num_items_in_batch"), more.get("ignore_index", -100),
            more.get("shift_labels"), self._cap or 0.0,
        )  # fmt: skip


def _handed_on(hidden: Any) -> Any:
    return hidden


def fused_head(head: str = "lm_head") -> Piece:
    """A causal language model's forward whose loss is `linear_cross_entropy` of the hidden states.

    In training with labels `logits` of the result is None; skip_logits=False keeps them, True leaves them out in
    evaluation, too. A head that is more than its weight, or a loss that is not the default one, is called as it is.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, *args: Any, labels: Any = None, skip_logits: bool | None = None, **given: Any) -> Any:
            skips = self.training if skip_logits is None else skip_logits
            if labels is None or not skips or not _served(self, head):
                return original(self, *args, labels=labels, **given)
            found = original(_Headless(self, head), *args, labels=labels, **given)
            if isinstance(found, tuple):
                return (found[0], *found[2:])
            return type(found)(**{**found, "logits": None})

        return forward

    return Piece(f"linear_cross_entropy({head})", make)


def _served(model: Any, head: str) -> bool:
    from transformers.loss.loss_utils import ForCausalLMLoss

    return plain(getattr(model, head)) and model.loss_function is ForCausalLMLoss
