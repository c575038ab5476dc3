"""ZeRO, stage 1, around any optimizer: every rank keeps the states, and makes the updates, of some parameters."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable
from typing import Any

import baracuda_py as bc

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...distributed.buckets import BUCKET_BYTES, buckets, packed, unpack
from ...distributed.collectives import all_reduce, broadcast, reduce
from ...distributed.shares import rank_of, size_of
from ..untyped import torch
from .by_rule import loss_of


class ZeroOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer whose states are spread over ranks (Rajbhandari et al. 2020; torch's ZeroRedundancyOptimizer).

        optimizer = ZeroOptimizer(lambda params: AdamW(params, lr=1e-3), model.parameters(), comm)

    optimizer_factory: a class of torch.optim or of this package, or any callable, that makes an optimizer of params,
    which may be groups; it leaves alone parameters without a gradient and makes states when they take their first
    step, as all of them do. A parameter belongs to one rank as a whole, so that rules of matrices and of norms take
    the step that one rank alone would, with the same bits.

    `step` sums gradients over the ranks (reduce="mean", "sum", or None where they are summed already, as DDP does it),
    each to the rank that it belongs to, lets that rank make its updates, and sends the new parameters to all. Every
    rank has gradients of the same parameters. Sums have the order of `all_reduce`. param_groups is the optimizer's own:
    schedulers work as ever. state_dict and load_state_dict are calls of all ranks: the first gives on every rank the
    dictionary that the optimizer alone would give, and the second takes it, whatever the number of ranks.
    """

    def __init__(
        self, optimizer_factory: Callable[[Any], Any], params: Iterable[Any], comm: Any = None, *,
        reduce: str | None = "mean", bucket_bytes: int = BUCKET_BYTES,
    ) -> None:  # fmt: skip
        if reduce not in ("mean", "sum", None):
            raise InvalidProblemError(f"reduce must be 'mean', 'sum' or None, got {shown(reduce)}")
        inner = optimizer_factory(list(params))
        if not isinstance(inner, torch.optim.Optimizer):
            raise InvalidProblemError(
                f"optimizer_factory must make a torch.optim.Optimizer, got a {type(inner).__name__}"
            )
        self.optimizer = inner
        super().__init__(inner.param_groups, inner.defaults)
        self.param_groups, self.state = inner.param_groups, inner.state
        self.comm, self.reduce, self.bucket_bytes = comm, reduce, bucket_bytes
        self.owners = _owners(self._all(), size_of(comm))

    def _all(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; the group's parameters get owners too."""
        if not hasattr(self, "comm"):
            super().add_param_group(param_group)
            return
        self.optimizer.add_param_group(param_group)
        self.owners = _owners(self._all(), size_of(self.comm), self.owners)

    def owner(self, parameter: Any) -> int:
        """The rank that keeps a parameter's states."""
        return self.owners[parameter]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, *, max_norm: float | None = None) -> Any:
        """One step, a call of all ranks. max_norm: gradients are scaled down to that global norm first."""
        loss = loss_of(closure)
        with_slope = [p for p in self._all() if p.grad is not None]
        self._reduce(with_slope)
        rank, kept = rank_of(self.comm), {}
        own = [p for p in with_slope if self.owners[p] == rank]
        if max_norm is not None:
            self._clip(own, with_slope, max_norm)
        for p in with_slope:
            if self.owners[p] != rank:
                kept[p], p.grad = p.grad, None
        try:
            self.optimizer.step()
        finally:
            for p, slope in kept.items():
                p.grad = slope
        self._share(with_slope)
        return loss

    def _buckets(self, params: list[Any], tensors: list[Any]) -> Iterable[tuple[int, list[Any]]]:
        """Lists of tensors that belong to one rank, and the rank."""
        for rank in range(size_of(self.comm)):
            held = [t for p, t in zip(params, tensors, strict=True) if self.owners[p] == rank]
            for bucket in buckets(held, self.bucket_bytes):
                yield rank, bucket

    def _reduce(self, params: list[Any]) -> None:
        if self.reduce is None or size_of(self.comm) == 1:
            return
        for rank, bucket in self._buckets(params, [p.grad for p in params]):
            line = packed(bucket, None)
            made = reduce(line, self.comm, self.reduce, rank)
            if made is not None:
                unpack(made, bucket, None)

    def _share(self, params: list[Any]) -> None:
        if size_of(self.comm) == 1:
            return
        for rank, bucket in self._buckets(params, [p.detach() for p in params]):
            line = broadcast(packed(bucket, None), self.comm, rank)
            if rank != rank_of(self.comm):
                unpack(line, bucket, None)

    def _clip(self, own: list[Any], params: list[Any], max_norm: float) -> None:
        """Norms of single tensors are summed in the order of the parameters, whoever has them."""
        if not params:
            return
        norms = torch.zeros(len(params), dtype=torch.float32, device=params[0].device)
        place = {p: i for i, p in enumerate(params)}
        for p in own:
            norms[place[p]] = bc.global_norm([p.grad])
        if size_of(self.comm) > 1:
            norms = all_reduce(norms, self.comm)
        _, factor = bc.global_norm([norms], max_norm=max_norm, return_clip_factor=True)
        for p in own:
            p.grad.mul_(factor.to(p.device))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's own with the states of all ranks, on every rank; a call of all ranks."""
        held = self.optimizer.state_dict()
        states: dict[Any, Any] = {}
        for rank in range(size_of(self.comm)):
            states |= _shared(held["state"], self.comm, rank, self._all())
        return {**held, "state": {index: states[index] for index in sorted(states)}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """A whole dictionary, of which this rank takes its part."""
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        rank, params = rank_of(self.comm), self._all()
        if len(indices) != len(params):
            raise InvalidProblemError(f"state_dict has {len(indices)} parameters, this optimizer {len(params)}")
        own = {i for i, p in zip(indices, params, strict=True) if self.owners[p] == rank}
        state = {index: copy.deepcopy(held) for index, held in state_dict["state"].items() if index in own}
        self.optimizer.load_state_dict({**state_dict, "state": state})
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state


def _owners(params: list[Any], size: int, given: dict[Any, int] | None = None) -> dict[Any, int]:
    """Parameters → ranks: the largest first, each to the rank that has the least."""
    owners, load = dict(given or {}), [0] * size
    for p, rank in owners.items():
        load[rank] += p.numel()
    for _, p in sorted(((i, p) for i, p in enumerate(params) if p not in owners), key=lambda one: -one[1].numel()):
        rank = load.index(min(load))
        owners[p], load[rank] = rank, load[rank] + p.numel()
    return owners


def _shared(value: Any, comm: Any, root: int, params: list[Any]) -> Any:
    """What rank `root` has, on every rank: its tensors by way of the host."""
    if size_of(comm) == 1:
        return value
    device, mine = params[0].device, rank_of(comm) == root
    written = io.BytesIO()
    if mine:
        torch.save(value, written)
    size = torch.tensor([written.tell()], dtype=torch.int64, device=device)
    size = int(broadcast(size, comm, root))
    line = torch.zeros(size, dtype=torch.uint8, device=device)
    if mine:
        line.copy_(torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8))
    line = broadcast(line, comm, root).cpu()
    return value if mine else torch.load(io.BytesIO(line.numpy().tobytes()), map_location="cpu", weights_only=True)
