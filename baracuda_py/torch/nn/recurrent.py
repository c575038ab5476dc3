"""Recurrent networks and their cells, with torch.nn's parameters; other orders of gates by `gate_order`."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch

_Packed = torch.nn.utils.rnn.PackedSequence


class _Network:
    """The forward of torch.nn.RNNBase; the rest is torch.nn's, and so are parameters and state_dict."""

    function = ""
    gate_order: str | None = None

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        """(output, states): those of torch.nn's, of a tensor or a PackedSequence."""
        packed = isinstance(input, _Packed)
        data, *rest = input if packed else (input,)
        sizes: Any
        sizes, by_length, back = rest if packed else (None, None, None)
        alone = not packed and data.dim() == 2
        if alone:
            data = data.unsqueeze(0 if self.batch_first else 1)
        batch = int(sizes[0]) if packed else data.size(0 if self.batch_first else 1)
        several = self.mode == "LSTM"
        states = self._begin(data, batch) if hx is None else hx if several else (hx,)
        if hx is not None and alone:
            states = tuple(s.unsqueeze(1) for s in states)
        elif hx is not None and by_length is not None:
            states = tuple(s.index_select(1, by_length) for s in states)
        options = {} if self.gate_order is None else {"order": self.gate_order}
        weights = [getattr(self, name) for names in self._all_weights for name in names]
        output, *states = getattr(bct, self.function)(
            data, tuple(states) if several else states[0], weights, batch_sizes=sizes, has_biases=self.bias,
            num_layers=self.num_layers, dropout=self.dropout, train=self.training, bidirectional=self.bidirectional,
            batch_first=self.batch_first and not packed, **options,
        )  # fmt: skip
        if alone:
            output, states = output.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in states]
        elif back is not None:
            states = [s.index_select(1, back) for s in states]
        output = _Packed(output, sizes, by_length, back) if packed else output
        return output, tuple(states) if several else states[0]

    def _begin(self: Any, data: Any, batch: int) -> tuple[Any, ...]:
        """States of 0."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = (self.proj_size or self.hidden_size, self.hidden_size) if self.mode == "LSTM" else (self.hidden_size,)
        return tuple(torch.zeros(count, batch, n, dtype=data.dtype, device=data.device) for n in sizes)


class RNN(_Network, torch.nn.RNN):  # type: ignore[misc]
    """torch.nn.RNN, of tanh or relu."""

    @property
    def function(self: Any) -> str:  # type: ignore[override]
        """The function of its nonlinearity."""
        return "rnn_relu" if self.mode == "RNN_RELU" else "rnn_tanh"


class LSTM(_Network, torch.nn.LSTM):  # type: ignore[misc]
    """torch.nn.LSTM, with projections; gate_order: "ifgo", of torch and Keras, or "iofg" of ONNX."""

    function = "lstm"

    def __init__(self, *args: Any, gate_order: str = "ifgo", **options: Any) -> None:
        super().__init__(*args, **options)
        self.gate_order = gate_order


class GRU(_Network, torch.nn.GRU):  # type: ignore[misc]
    """torch.nn.GRU; gate_order: "rzn" of torch, or "zrn" of Keras (reset_after=True) and ONNX."""

    function = "gru"

    def __init__(self, *args: Any, gate_order: str = "rzn", **options: Any) -> None:
        super().__init__(*args, **options)
        self.gate_order = gate_order


class _Cell:
    """The forward of torch.nn's cells."""

    function = ""
    states = 1
    gate_order: str | None = None

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        """The next state, of a batch or of one item."""
        alone = input.dim() == 1
        x = input.unsqueeze(0) if alone else input
        if hx is None:
            given = (torch.zeros(x.size(0), self.hidden_size, dtype=x.dtype, device=x.device),) * self.states
        else:
            given = tuple(s.unsqueeze(0) if alone else s for s in (hx if self.states > 1 else (hx,)))
        options = {} if self.gate_order is None else {"order": self.gate_order}
        made = getattr(bct, self.function)(
            x, given if self.states > 1 else given[0], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh,
            **options,
        )  # fmt: skip
        if not alone:
            return made
        return tuple(s.squeeze(0) for s in made) if self.states > 1 else made.squeeze(0)


class RNNCell(_Cell, torch.nn.RNNCell):  # type: ignore[misc]
    """torch.nn.RNNCell, of tanh or relu."""

    @property
    def function(self: Any) -> str:  # type: ignore[override]
        """The function of its nonlinearity."""
        return f"rnn_{self.nonlinearity}_cell"


class LSTMCell(_Cell, torch.nn.LSTMCell):  # type: ignore[misc]
    """torch.nn.LSTMCell; gate_order as of `LSTM`."""

    function, states = "lstm_cell", 2

    def __init__(self, *args: Any, gate_order: str = "ifgo", **options: Any) -> None:
        super().__init__(*args, **options)
        self.gate_order = gate_order


class GRUCell(_Cell, torch.nn.GRUCell):  # type: ignore[misc]
    """torch.nn.GRUCell; gate_order as of `GRU`."""

    function = "gru_cell"

    def __init__(self, *args: Any, gate_order: str = "rzn", **options: Any) -> None:
        super().__init__(*args, **options)
        self.gate_order = gate_order
