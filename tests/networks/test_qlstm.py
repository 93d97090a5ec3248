"""The QLSTM: parameter counts of Table 10, and its gates against torch.nn.LSTM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.networks.parameters import Parameters, Population
from comper.networks.qlstm import LSTM_UNITS, predict_vectors, qlstm_layers, transition_size, transition_vectors


def population(num_inputs: int, sequence_length: int = 1) -> Population:
    layers = qlstm_layers(num_inputs, sequence_length=sequence_length)
    return Population(layers, [np.random.default_rng(0)], torch.device("cpu"))


def torch_lstm(p: Parameters, name: str, units: int) -> torch.nn.LSTM:
    """torch's own layer with our weights: its gates stand in the order i, f, g, o."""
    layer = torch.nn.LSTM(p[f"{name}.kernel"].shape[0], units, batch_first=True).double()

    def gates(igo: Tensor, f: Tensor) -> Tensor:
        i, g, o = igo.double().chunk(3, -1)
        return torch.cat([i, f.double(), g, o], -1)

    weights = dict(layer.named_parameters())
    with torch.no_grad():
        weights["weight_ih_l0"].copy_(gates(p[f"{name}.kernel"], p[f"{name}.forget_kernel"]).T)
        weights["weight_hh_l0"].copy_(gates(p[f"{name}.recurrent"], p[f"{name}.forget_recurrent"]).T)
        weights["bias_ih_l0"].copy_(gates(p[f"{name}.bias"], p[f"{name}.forget_bias"]))
        weights["bias_hh_l0"].zero_()
    return layer


def torch_prediction(p: Parameters, sequence: Tensor) -> Tensor:
    x = sequence
    for name, units in LSTM_UNITS:
        x, _ = torch_lstm(p, name, units)(x)
    x = (x[:, -1] @ p["Dense1.weight"].double() + p["Dense1.bias"].double()).relu()
    return (x @ p["Dense2.weight"].double() + p["Dense2.bias"].double()).squeeze(-1)


@pytest.mark.parametrize(("history", "size", "first"), [(1, 14_114, 3_629_824), (4, 56_450, 14_467_840)])
def test_parameter_counts_equal_table_10(history: int, size: int, first: int) -> None:
    assert transition_size(history, 84 * 84) == size
    counts = {layer.name: layer.num_parameters for layer in qlstm_layers(size)}
    assert counts == {"Lstm1": first, "Lstm2": 12_416, "Lstm3": 8_320, "Dense1": 594, "Dense2": 19}


def test_one_step_by_the_gates_that_matter_equals_torch_lstm() -> None:
    p = population(200).groups[0]
    x = torch.rand(16, 200, generator=torch.Generator().manual_seed(0))
    expected = torch_prediction(p, x[:, None].double())
    assert expected.std() > 0
    torch.testing.assert_close(predict_vectors(p, x, torch.zeros(16, 1)).double(), expected, rtol=1e-4, atol=1e-6)


def test_forget_gate_and_recurrent_weights_get_no_gradient_in_one_step() -> None:
    p = population(50).groups[0]
    loss = predict_vectors(p, torch.rand(4, 50), torch.zeros(4, 1)).square().sum()
    gradients = dict(zip(p, torch.autograd.grad(loss, list(p.values()), allow_unused=True), strict=True))
    unused = {name for name, gradient in gradients.items() if gradient is None}
    assert unused == {name for name in p if "forget" in name or "recurrent" in name}


@pytest.mark.parametrize("length", [2, 5])
def test_longer_sequences_equal_torch_lstm_on_transition_and_q_value(length: int) -> None:
    p = population(30, sequence_length=length).groups[0]
    generator = torch.Generator().manual_seed(0)
    x, q = torch.rand(8, 30, generator=generator), torch.randn(8, length, generator=generator)
    sequence = torch.cat([x[:, None].expand(-1, length, -1), q[..., None]], -1).double()
    torch.testing.assert_close(predict_vectors(p, x, q).double(), torch_prediction(p, sequence), rtol=1e-4, atol=1e-6)


def test_transition_vector_holds_s_a_r_and_next_s_in_a_like_range() -> None:
    s = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)  # one trial, one transition, one frame of two pixels
    vector = transition_vectors(s, torch.tensor([[1.0]]), torch.tensor([[-1.0]]), 255 - s)
    assert vector.tolist() == [[[0.0, 1.0, 1.0, -0.5, 1.0, 0.0]]]
