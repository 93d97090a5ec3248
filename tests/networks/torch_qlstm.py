"""An independent QLSTM: torch's own LSTM layers, in double precision, with our weights, to which gradients flow back."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from comper.networks.qlstm import LSTM, QLSTM


def torch_lstm(ours: LSTM, x: Tensor) -> Tensor:
    """The outputs of torch's own layer with our weights: its gates stand in the order i, f, g, o."""
    units = ours.forget_bias.shape[0]

    def gates(igo: Tensor, f: Tensor) -> Tensor:
        i, g, o = igo.double().chunk(3, -1)
        return torch.cat([i, f.double(), g, o], -1)

    weights = {
        "weight_ih_l0": gates(ours.kernel, ours.forget_kernel).T,
        "weight_hh_l0": gates(ours.recurrent, ours.forget_recurrent).T,
        "bias_ih_l0": gates(ours.bias, ours.forget_bias),
        "bias_hh_l0": torch.zeros(4 * units, dtype=torch.float64),
    }
    layer = torch.nn.LSTM(x.shape[-1], units, batch_first=True).double()
    outputs: Tensor = functional_call(layer, weights, x)[0]
    return outputs


def torch_prediction(ours: QLSTM, sequence: Tensor) -> Tensor:
    """R(τ; Ω) of sequences (B, length, inputs)."""
    x = sequence.double()
    for layer in (ours.Lstm1, ours.Lstm2, ours.Lstm3):
        x = torch_lstm(layer, x)
    x = (x[:, -1] @ ours.Dense1.weight.double() + ours.Dense1.bias.double()).relu()
    return (x @ ours.Dense2.weight.double() + ours.Dense2.bias.double()).squeeze(-1)
