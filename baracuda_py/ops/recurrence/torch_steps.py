"""Linear attention in torch, step by step: what tests compare with, and what derivatives of gradients are made of."""

from __future__ import annotations

from typing import Any

from ...schedules.recurrence import NORM_EPS


def bounds_of(torch: Any, desc: Any, cu_seqlens: Any) -> list[tuple[int, int, int, int]]:
    """(state, batch, first row, end) of every sequence."""
    if cu_seqlens is None:
        return [(n, n, 0, desc.seq_len) for n in range(desc.batch_size)]
    ends = torch.cummax(cu_seqlens.long().clamp(0, desc.seq_len), 0)[0].tolist()
    return [(n, 0, ends[n], ends[n + 1]) for n in range(desc.num_states)]


def in_torch(
    torch: Any, desc: Any, *, q: Any, k: Any, v: Any, g: Any = None, g_channel: Any = None, beta: Any = None,
    a: Any = None, b: Any = None, bonus: Any = None, initial_state: Any = None, cu_seqlens: Any = None,
    wanted: Any = (),
) -> Any:  # fmt: skip
    """Step by step; states and outputs are put together without writing in place."""
    dtype = torch.promote_types(q.dtype, torch.float32)

    def heads(x: Any) -> Any:
        return x.to(dtype).repeat_interleave(desc.num_heads // max(1, x.shape[2]), 2)

    def keyed(x: Any) -> Any:
        x = heads(x)
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) + NORM_EPS) if desc.use_qk_l2norm else x

    q_, k_, v_ = keyed(q), keyed(k), heads(v)
    like = {"dtype": dtype, "device": q.device}
    zeros = torch.zeros((desc.num_heads, desc.d_k, desc.d_v), **like)
    rows: dict[tuple[int, int], Any] = {}
    last = []
    for n, batch, first, end in bounds_of(torch, desc, cu_seqlens):
        state = zeros if initial_state is None else initial_state[n]
        for t in range(first, end):
            kt, vt, before = k_[batch, t], v_[batch, t], state
            if g is not None:
                state = torch.exp(g[batch, t])[:, None, None] * state
            if g_channel is not None:
                state = torch.exp(g_channel[batch, t])[:, :, None] * state
            if beta is not None:
                vt = beta[batch, t][:, None] * (vt - torch.einsum("hd,hdv->hv", kt, state))
            if a is not None:
                read = torch.einsum("hd,hdv->hv", a[batch, t].to(dtype), before)
                state = state + b[batch, t].to(dtype)[:, :, None] * read[:, None]
            state = state + kt[:, :, None] * vt[:, None]
            seen = state if bonus is None else before + (bonus * kt)[:, :, None] * vt[:, None]
            rows[batch, t] = desc.scale * torch.einsum("hd,hdv->hv", q_[batch, t], seen)
        last.append(state)
    none = torch.zeros((desc.num_heads, desc.d_v), **like)
    made = [torch.stack([rows.get((n, t), none) for t in range(desc.seq_len)]) if desc.seq_len else
            torch.zeros((0, desc.num_heads, desc.d_v), **like) for n in range(desc.batch_size)]  # fmt: skip
    y = torch.stack(made) if made else torch.zeros((0, desc.seq_len, desc.num_heads, desc.d_v), **like)
    final = torch.stack(last) if last else torch.zeros((0, desc.num_heads, desc.d_k, desc.d_v), **like)
    return {"y": y.to(q.dtype), "final_state": final}
