"""Linear attention written out with whole matrices, [d_k, d_k] of every step, in torch: gradients are autograd's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.plan import Plan
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.testing import emulated_device, operands
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

torch = pytest.importorskip("torch")

KINDS = list(RecurrenceKind)


def whole(desc: Any, given: dict[str, Any], bounds: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """y and the last states, of float64 tensors."""
    q, k, v = given["q"], given["k"], given["v"]
    if desc.use_qk_l2norm:
        q, k = (x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    eye = torch.eye(desc.d_k, dtype=torch.float64)
    bounds = [(n, 0, desc.seq_len) for n in range(desc.batch_size)] if bounds is None else bounds
    y, last = torch.zeros((desc.batch_size, desc.seq_len, desc.num_heads, desc.d_v), dtype=torch.float64), {}
    y = [[[None] * desc.num_heads for _ in range(desc.seq_len)] for _ in range(desc.batch_size)]
    for n, (b, first, end) in enumerate(bounds):
        for h in range(desc.num_heads):
            hq, hk, hv = (h * x.shape[2] // desc.num_heads for x in (q, k, v))
            start = given.get("initial_state")
            state = torch.zeros((desc.d_k, desc.d_v), dtype=torch.float64) if start is None else start[n, h]
            for t in range(first, end):
                map_, key, value = eye, k[b, t, hk], v[b, t, hv]
                if given.get("g") is not None:
                    map_ = torch.exp(given["g"][b, t, h]) * eye
                if given.get("g_channel") is not None:
                    map_ = torch.diag(torch.exp(given["g_channel"][b, t, h]))
                if given.get("beta") is not None:
                    beta = given["beta"][b, t, h]
                    map_, value = (eye - beta * torch.outer(key, key)) @ map_, beta * value
                if given.get("a") is not None:
                    map_ = map_ + torch.outer(given["b"][b, t, h], given["a"][b, t, h])
                before, state = state, map_ @ state + torch.outer(key, value)
                seen = state
                if given.get("bonus") is not None:
                    seen = before + torch.outer(given["bonus"][h] * key, value)
                y[b][t][h] = desc.scale * (q[b, t, hq] @ seen)
            last[n, h] = state
    none = torch.zeros(desc.d_v, dtype=torch.float64)
    rows = [torch.stack([torch.stack([none if x is None else x for x in row]) for row in one]) for one in y]
    states = [torch.stack([last[n, h] for h in range(desc.num_heads)]) for n in range(len(bounds))]
    return torch.stack(rows), torch.stack(states)


def tensors(case: Case) -> dict[str, Any]:
    """Floats of a case as float64 tensors that want gradients."""
    return {
        name: torch.tensor(x.astype(np.float64), requires_grad=True)
        for name, x in case.arrays.items()
        if isinstance(x, np.ndarray) and name != "cu_seqlens"
    }


def drawn(plan: type[Plan], desc: Any, seed: int = 0, **present: bool) -> Case:
    """A case with all operands of its kind."""
    return fill(plan, desc, np.random.default_rng(seed), present)


def emulated(case: Case, cc: float = 8.0) -> dict[str, np.ndarray]:
    """What the plan's row gives on the emulator."""
    ready = operands(case)
    with emulating() as emulator:
        case.plan.select(case.desc, device=emulated_device(cc)).run(ready.args(pointer_view))
        assert not (emulator.overrun() or ready.damage())
    return {spec.name: np.array(one.view) for spec, _, one in ready.items() if spec.writes}


def truth(case: Case) -> dict[str, np.ndarray]:
    """The reference of a case in float64."""
    wide = {
        name: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind not in "iub" else x
        for name, x in case.arrays.items()
    }
    return dict(case.plan.reference(case.desc, **wide, wanted=set(case.wanted)))


def near(got: dict[str, np.ndarray], want: dict[str, np.ndarray], limit: float) -> None:
    for name, x in got.items():
        size = max(np.abs(want[name]).max(initial=0), 1e-3)
        np.testing.assert_allclose(x.astype(np.float64), want[name], rtol=0, atol=limit * size, err_msg=name)
