"""The QLSTM that predicts target values R(τ; Ω). Section 4.4, Appendix B, Table 10.

A transition enters as one vector [s_t, a_t, r_t, s_t+1]. With the paper's single time step and a zero initial state the forget
gate and the recurrent weights have nothing to act on: they are there, by the paper's parameter count, but take no part in the
computation and get no gradient (A3). What remains of an LSTM cell is h = σ(o)·tanh(σ(i)·tanh(g)).
"""

from __future__ import annotations

import torch
from torch import Tensor

from comper.networks.parameters import LayerSpec, Parameters, ParameterSpec, dense
from comper.networks.stacking import linear

LSTM_UNITS = (("Lstm1", 64), ("Lstm2", 32), ("Lstm3", 32))
HIDDEN_UNITS = 18


def transition_size(history_length: int, frame_size: int) -> int:
    """Length of [s_t, a_t, r_t, s_t+1]: 14,114 or 56,450 in the paper."""
    return 2 * history_length * frame_size + 2


def qlstm_layers(num_inputs: int, *, sequence_length: int = 1) -> tuple[LayerSpec, ...]:
    """The layers of Table 10. A3: a longer sequence adds one input, the set's Q-value at that time."""
    layers, size = [], num_inputs + (sequence_length > 1)
    for name, units in LSTM_UNITS:
        layers.append(_lstm(name, size, units))
        size = units
    return (*layers, dense("Dense1", size, HIDDEN_UNITS), dense("Dense2", HIDDEN_UNITS, 1))


def transition_vectors(s: Tensor, a: Tensor, r: Tensor, s_next: Tensor) -> Tensor:
    """[s_t, a_t, r_t, s_t+1] with every part in a like range: pixels / 255, a as given (0 to 1), r / (1 + |r|) (A4a)."""
    lead = a.shape
    scale = 1 / 255 if s.dtype == torch.uint8 else 1.0
    s, s_next = s.flatten(len(lead)), s_next.flatten(len(lead))
    size = s.shape[-1]
    x = torch.empty(*lead, 2 * size + 2, device=s.device)
    x[..., :size] = s
    x[..., size + 2 :] = s_next
    x *= scale
    x[..., size] = a
    x[..., size + 1] = r / (1 + r.abs())
    return x


def predict(p: Parameters, s: Tensor, a: Tensor, r: Tensor, s_next: Tensor, q_history: Tensor) -> Tensor:
    """R(τ; Ω) of transitions (..., B) and their sets' last Q-values (..., B, sequence length), oldest first."""
    return predict_vectors(p, transition_vectors(s, a, r, s_next), q_history)


def predict_vectors(p: Parameters, x: Tensor, q_history: Tensor) -> Tensor:
    """R(τ; Ω) of transition vectors (..., B, N)."""
    num_inputs = p["Lstm1.kernel"].shape[-2]
    sequence = [x] if num_inputs == x.shape[-1] else [torch.cat([x, q[..., None]], -1) for q in q_history.unbind(-1)]
    for name, _ in LSTM_UNITS:
        sequence = _run_lstm(p, name, sequence)
    hidden = linear(sequence[-1], p["Dense1.weight"], p["Dense1.bias"]).relu()
    return linear(hidden, p["Dense2.weight"], p["Dense2.bias"]).squeeze(-1)


def _run_lstm(p: Parameters, name: str, sequence: list[Tensor]) -> list[Tensor]:
    """The hidden states of one layer, from a zero initial state."""
    outputs: list[Tensor] = []
    cell: Tensor | None = None
    for x in sequence:
        gates = linear(x, p[f"{name}.kernel"], p[f"{name}.bias"])
        if cell is not None:
            gates = gates + outputs[-1] @ p[f"{name}.recurrent"]
        i, g, o = gates.chunk(3, -1)
        update = i.sigmoid() * g.tanh()
        if cell is not None:
            forget = linear(x, p[f"{name}.forget_kernel"], p[f"{name}.forget_bias"])
            forget = forget + outputs[-1] @ p[f"{name}.forget_recurrent"]
            update = update + forget.sigmoid() * cell
        cell = update
        outputs.append(o.sigmoid() * cell.tanh())
    return outputs


def _lstm(name: str, num_inputs: int, units: int) -> LayerSpec:
    """One bias vector per gate, as the paper's counts have it. The gates i, g and o come first: one step needs no other."""
    fan = 4 * units  # of the four gates together, as Keras draws them
    return LayerSpec(
        name,
        (
            ParameterSpec(f"{name}.kernel", (num_inputs, 3 * units), num_inputs, fan),
            ParameterSpec(f"{name}.bias", (3 * units,), constant=0.0),
            ParameterSpec(f"{name}.forget_kernel", (num_inputs, units), num_inputs, fan),
            ParameterSpec(f"{name}.forget_bias", (units,), constant=1.0),
            ParameterSpec(f"{name}.recurrent", (units, 3 * units), units, fan),
            ParameterSpec(f"{name}.forget_recurrent", (units, units), units, fan),
        ),
    )
