"""The QLSTM that predicts target values R(τ; Ω). Section 4.4, Appendix B, Table 10.

A transition enters as one vector [s_t, a_t, r_t, s_t+1]. With the paper's single time step and a zero initial state the forget
gate and the recurrent weights have nothing to act on: they are there, as in the paper's parameter count, but take no part in
the computation and get no gradient (A3). What remains of an LSTM cell is h = σ(o)·tanh(σ(i)·tanh(g)). `nn.LSTM` would compute
the rest as well and is about four times slower in training.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor, nn

from comper import native
from comper.networks.stacking import Linear, glorot, linear

LSTM_UNITS = (64, 32, 32)
HIDDEN_UNITS = 18


class QLSTM(nn.Module):
    """Three LSTM layers and two dense ones, for transitions between states of `state_size` numbers."""

    input_low: Tensor
    input_range: Tensor
    takes_trial_axis = True

    def __init__(self, state_size: int, num_actions: int, *, sequence_length: int = 1, scales_inputs: bool = False):
        super().__init__()
        self._action_unit = 1 if scales_inputs else max(1, num_actions - 1)  # A4a: min-max takes any unit
        self._sequence_length = sequence_length
        first, second, third = LSTM_UNITS
        # A3: a longer sequence adds one input, the set's Q-value at that time.
        self.Lstm1 = LSTM(transition_size(state_size) + (sequence_length > 1), first)
        self.Lstm2 = LSTM(first, second)
        self.Lstm3 = LSTM(second, third)
        self.Dense1 = Linear(third, HIDDEN_UNITS)
        self.Dense2 = Linear(HIDDEN_UNITS, 1)
        # A4a: buffers are saved, stacked and read in place by recorded graphs as weights are, but no optimiser moves them.
        self._scales_inputs = scales_inputs
        if scales_inputs:
            self.register_buffer("input_low", torch.zeros(transition_size(state_size)))
            self.register_buffer("input_range", torch.ones(transition_size(state_size)))

    def forward(self, s: Tensor, a: Tensor, r: Tensor, s_next: Tensor, q_history: Tensor) -> Tensor:
        """R(τ; Ω) of transitions (..., B) and their sets' last Q-values (..., B, sequence length), oldest first."""
        x = transition_vectors(s, a / self._action_unit, r, s_next)
        if self._scales_inputs:
            x = ((x - self.input_low.unsqueeze(-2)) / self.input_range.unsqueeze(-2)).clamp(0, 1)
        sequence = [x]
        if self._sequence_length > 1:
            sequence = [torch.cat([x, q[..., None]], -1) for q in q_history.unbind(-1)]
        for layer in (self.Lstm1, self.Lstm2, self.Lstm3):
            sequence = layer.forward(sequence)
        hidden = self.Dense1.forward(sequence[-1]).relu()
        return self.Dense2.forward(hidden).squeeze(-1)


def transition_size(state_size: int) -> int:
    """Length of [s_t, a_t, r_t, s_t+1]: 14,114 or 56,450 in the paper."""
    return 2 * state_size + 2


def transition_vectors(s: Tensor, a: Tensor, r: Tensor, s_next: Tensor) -> Tensor:
    """[s_t, a_t, r_t, s_t+1] with all parts in a similar range: pixels / 255, a as given (0 to 1), r / (1 + |r|) (A4a)."""
    lead = a.shape
    s, s_next = s.flatten(len(lead)), s_next.flatten(len(lead))
    size = s.shape[-1]
    x = torch.empty(*lead, transition_size(size), device=s.device)
    if not (_scaled(s, x[..., :size]) and _scaled(s_next, x[..., size + 2 :])):
        x[..., :size] = s
        x[..., size + 2 :] = s_next
        if s.dtype == torch.uint8:
            x *= 1 / 255
    x[..., size] = a
    x[..., size + 1] = r / (1 + r.abs())
    return x


def _scaled(pixels: Tensor, out: Tensor) -> bool:
    """Write pixels / 255 (B, N) to rows of a larger tensor in one pass of compiled code; return whether that was possible."""
    is_plain = pixels.device.type == "cpu" and pixels.dtype == torch.uint8 and pixels.dim() == 2 and pixels.is_contiguous()
    library = native.compiled() if is_plain else None
    if library is None:
        return False
    scaled = library.comper_scaled
    scaled.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_float, ctypes.c_void_p, ctypes.c_int64]
    scaled.restype = None
    scaled(pixels.data_ptr(), *pixels.shape, 1 / 255, out.data_ptr(), out.stride(0))
    return True


class LSTM(nn.Module):
    """One layer that reads a sequence from a zero initial state. Its weights are zero until `draw_weights`.

    One bias vector per gate, as the paper's counts have it. The gates i, g and o stand together: one step needs no other.
    """

    def __init__(self, num_inputs: int, units: int):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(num_inputs, 3 * units))
        self.bias = nn.Parameter(torch.zeros(3 * units))
        self.forget_kernel = nn.Parameter(torch.zeros(num_inputs, units))
        self.forget_bias = nn.Parameter(torch.ones(units))
        self.recurrent = nn.Parameter(torch.zeros(units, 3 * units))
        self.forget_recurrent = nn.Parameter(torch.zeros(units, units))

    def draw_weights(self, rng: np.random.Generator) -> None:
        """Start anew: Glorot's weights, the forget gate open."""
        units = self.forget_bias.shape[0]
        for parameter in (self.kernel, self.forget_kernel, self.recurrent, self.forget_recurrent):
            # The fan-out is that of the four gates together, as Keras draws them.
            glorot(parameter, rng, fan_in=parameter.shape[0], fan_out=4 * units)

    def forward(self, sequence: list[Tensor]) -> list[Tensor]:
        """The hidden states of inputs (..., B, N), one for each time."""
        outputs: list[Tensor] = []
        cell: Tensor | None = None
        for x in sequence:
            gates = linear(x, self.kernel, self.bias)
            if cell is not None:
                gates = gates + outputs[-1] @ self.recurrent
            i, g, o = gates.chunk(3, -1)
            update = i.sigmoid() * g.tanh()
            if cell is not None:
                forget = linear(x, self.forget_kernel, self.forget_bias) + outputs[-1] @ self.forget_recurrent
                update = update + forget.sigmoid() * cell
            cell = update
            outputs.append(o.sigmoid() * cell.tanh())
        return outputs
