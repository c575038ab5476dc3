"""Layers whose weights are spread over ranks, with the bits of one rank: `baracuda_py.distributed` as modules."""

from __future__ import annotations

from typing import Any

from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...distributed.linear import column_parallel_linear, row_parallel_linear
from ...distributed.linear_loss import vocab_parallel_linear_cross_entropy
from ...distributed.shares import SLICES, rank_of, size_of, slice_bounds
from ...distributed.vocabulary import vocab_parallel_cross_entropy, vocab_parallel_embedding
from ..untyped import torch


def _part(extent: int, comm: Any, name: str, slices: int = SLICES) -> int:
    """A rank's share of an extent."""
    size = size_of(comm)
    if whole(name, extent, 1) % size:
        raise InvalidProblemError(f"{name} must be a multiple of the {size} ranks, got {extent}")
    slice_bounds(extent // size, comm, slices)
    return extent // size


class _Spread(torch.nn.Module):  # type: ignore[misc]
    """A module some of whose parameters are a rank's share. axes: parameter → the axis that is spread."""

    axes: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, comm: Any, slices: int) -> None:
        super().__init__()
        self.comm, self.slices = comm, slices

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def load_whole(self, whole_weights: Any) -> None:
        """Takes this rank's shares of the parameters of a layer on one rank: a module, or a state_dict."""
        given = whole_weights.state_dict() if isinstance(whole_weights, torch.nn.Module) else whole_weights
        held = dict(self.named_parameters(recurse=False))
        if given.keys() != held.keys():
            raise InvalidProblemError(f"the weights must be {sorted(held)}, got {sorted(given)}")
        for name, parameter in held.items():
            x, axis = given[name], self.axes.get(name)
            if axis is not None and x.shape[axis] == parameter.shape[axis] * size_of(self.comm):
                x = x.chunk(size_of(self.comm), axis)[rank_of(self.comm)]
            if x.shape != parameter.shape:
                raise InvalidProblemError(
                    f"{name} must be one whose share is {tuple(parameter.shape)}, got {tuple(given[name].shape)}"
                )
            parameter.copy_(x)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        shapes = ", ".join(f"{name}={tuple(p.shape)}" for name, p in self.named_parameters(recurse=False))
        return f"{shapes}, rank {rank_of(self.comm)} of {size_of(self.comm)}"


class _Linear(_Spread):
    """What both linear layers are made of."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool, comm: Any, slices: int, given: dict[str, Any]
    ) -> None:  # fmt: skip
        super().__init__(comm, slices)
        self.in_features, self.out_features = in_features, out_features
        for axis, name in ((0, "out_features"), (1, "in_features")):
            if self.axes["weight"] == axis:
                _part(getattr(self, name), comm, name, slices)
        drawn = torch.nn.Linear(in_features, out_features, bias, **given)  # whole, so that the shares of ranks differ
        for name in ("weight", "bias"):
            x = getattr(drawn, name)
            if x is not None and name in self.axes:
                x = x.chunk(size_of(comm), self.axes[name])[rank_of(comm)].clone()
            self.register_parameter(name, None if x is None else torch.nn.Parameter(x.detach()))


class ColumnParallelLinear(_Linear):
    """torch.nn.Linear of which every rank has rows of the weight, and so columns of y (Megatron's).

    weight: [out_features / ranks, in_features], bias: [out_features / ranks]; drawn whole as torch.nn.Linear draws
    them, so that ranks with one seed have the shares of one layer. Options: `column_parallel_linear`.
    """

    axes = {"weight": 0, "bias": 0}  # noqa: RUF012

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, comm: Any = None, gather_output: bool = False,
        sequence_parallel: bool = False, slices: int = SLICES, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, comm, slices, given)
        self.gather_output, self.sequence_parallel = gather_output, sequence_parallel

    def forward(self, input: Any) -> Any:
        """[*, in_features] to [*, out_features / ranks]."""
        return column_parallel_linear(
            input, self.weight, self.bias, self.comm, gather_output=self.gather_output,
            sequence_parallel=self.sequence_parallel, slices=self.slices,
        )  # fmt: skip


class RowParallelLinear(_Linear):
    """torch.nn.Linear of which every rank has columns of the weight, and takes columns of x (Megatron's).

    weight: [out_features, in_features / ranks], bias: [out_features], whole on every rank. Options:
    `row_parallel_linear`.
    """

    axes = {"weight": 1}  # noqa: RUF012

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, comm: Any = None, split_input: bool = False,
        sequence_parallel: bool = False, slices: int = SLICES, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, comm, slices, given)
        self.split_input, self.sequence_parallel = split_input, sequence_parallel

    def forward(self, input: Any) -> Any:
        """[*, in_features / ranks] to [*, out_features]."""
        return row_parallel_linear(
            input, self.weight, self.bias, self.comm, split_input=self.split_input,
            sequence_parallel=self.sequence_parallel, slices=self.slices,
        )  # fmt: skip


class VocabParallelEmbedding(_Spread):
    """torch.nn.Embedding of which every rank has rows (Megatron's): weight [num_embeddings / ranks, embedding_dim].

    Drawn whole, as those of `ColumnParallelLinear`. Options: `baracuda_py.distributed.vocab_parallel_embedding`.
    """

    axes = {"weight": 0}  # noqa: RUF012

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, comm: Any = None, sequence_parallel: bool = False,
        **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(comm, size_of(comm))
        _part(num_embeddings, comm, "num_embeddings", size_of(comm))
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        drawn = torch.nn.Embedding(num_embeddings, embedding_dim, **given).weight.detach()
        self.weight = torch.nn.Parameter(drawn.chunk(size_of(comm))[rank_of(comm)].clone())
        self.sequence_parallel = sequence_parallel

    def forward(self, input: Any) -> Any:
        """[*] to [*, embedding_dim]."""
        return vocab_parallel_embedding(input, self.weight, self.comm, sequence_parallel=self.sequence_parallel)


class VocabParallelCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """torch.nn.CrossEntropyLoss of logits of which every rank has some classes: `vocab_parallel_cross_entropy`."""

    def __init__(
        self, *, comm: Any = None, ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
        reduction: str = "mean", slices: int = SLICES,
    ) -> None:  # fmt: skip
        super().__init__()
        self.comm = comm
        self.options: dict[str, Any] = {
            "ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss, "reduction": reduction,
            "slices": slices,
        }  # fmt: skip

    def forward(self, input: Any, target: Any) -> Any:
        """[*, classes / ranks] and [*] to the loss."""
        return vocab_parallel_cross_entropy(input, target, self.comm, **self.options)


class VocabParallelLinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """`FusedLinearCrossEntropyLoss` of a layer whose classes are spread over ranks.

    weight [classes / ranks, features] and bias are a rank's share: `vocab_parallel_linear_cross_entropy`.
    """

    def __init__(
        self, *, comm: Any = None, ignore_index: int = -100, z_loss: float = 0.0, softcap: float = 0.0,
        reduction: str = "mean", slices: int = SLICES,
    ) -> None:  # fmt: skip
        super().__init__()
        self.comm = comm
        self.options: dict[str, Any] = {
            "ignore_index": ignore_index, "z_loss": z_loss, "softcap": softcap, "reduction": reduction,
            "slices": slices,
        }  # fmt: skip

    def forward(self, x: Any, weight: Any, targets: Any, bias: Any = None) -> Any:
        """x […, features], targets […]; the loss is 0-d, or […]. Copied where rows are no even steps apart."""
        rows = x.reshape(-1, x.shape[-1])
        loss = vocab_parallel_linear_cross_entropy(rows, weight, targets.reshape(-1), bias, self.comm, **self.options)
        return loss.reshape(x.shape[:-1]) if loss.ndim else loss
