"""The QLSTM: parameter counts of Table 10, and its gates against torch.nn.LSTM."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from comper import native
from comper.networks.inspection import layer_sizes
from comper.networks.qlstm import LSTM, QLSTM, transition_size, transition_vectors
from comper.networks.stacking import Population, started_module
from tests.networks.torch_qlstm import torch_prediction


def qlstm(state_size: int, num_actions: int = 4, sequence_length: int = 1) -> QLSTM:
    made = started_module(lambda: QLSTM(state_size, num_actions, sequence_length=sequence_length), np.random.default_rng(0))
    assert isinstance(made, QLSTM)
    return made


def transitions(size: int, count: int, length: int = 1, lead: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    """Random s, a, r, s' and Q-values, states of one observation."""
    generator = torch.Generator().manual_seed(0)
    s, s_next = (torch.rand(*lead, count, 1, size, generator=generator) for _ in range(2))
    a = torch.randint(0, 4, (*lead, count), generator=generator)
    r, q = torch.randn(*lead, count, generator=generator), torch.randn(*lead, count, length, generator=generator)
    return s, a, r, s_next, q


def vectors(s: Tensor, a: Tensor, r: Tensor, s_next: Tensor) -> Tensor:
    """The same inputs written out: a as a share of the largest action, r squeezed."""
    return torch.cat([s[:, 0], a[:, None] / 3, (r / (1 + r.abs()))[:, None], s_next[:, 0]], dim=1)


@pytest.mark.parametrize(("history", "size", "first"), [(1, 14_114, 3_629_824), (4, 56_450, 14_467_840)])
def test_parameter_counts_equal_table_10(history: int, size: int, first: int) -> None:
    assert transition_size(history * 84 * 84) == size
    counts = [("Lstm1", first), ("Lstm2", 12_416), ("Lstm3", 8_320), ("Dense1", 594), ("Dense2", 19)]
    assert layer_sizes(QLSTM(history * 84 * 84, 18)) == counts


def test_one_step_by_the_gates_that_matter_equals_torch_lstm() -> None:
    network, inputs = qlstm(100), transitions(100, 16)
    expected = torch_prediction(network, vectors(*inputs[:4])[:, None])
    assert expected.std() > 0
    torch.testing.assert_close(network(*inputs).double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("length", [2, 5])
def test_longer_sequences_equal_torch_lstm_on_transition_and_q_value(length: int) -> None:
    network, inputs = qlstm(15, sequence_length=length), transitions(15, 8, length)
    repeated = vectors(*inputs[:4])[:, None].expand(-1, length, -1)
    expected = torch_prediction(network, torch.cat([repeated, inputs[4][..., None]], -1))
    torch.testing.assert_close(network(*inputs).double(), expected, rtol=1e-4, atol=1e-6)


def test_forget_gate_and_recurrent_weights_get_no_gradient_in_one_step() -> None:
    network = qlstm(25)
    parameters = dict(network.named_parameters())
    loss = network(*transitions(25, 4)).square().sum()
    gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values()), allow_unused=True), strict=True))
    unused = {name for name, gradient in gradients.items() if gradient is None}
    assert unused == {name for name in parameters if "forget" in name or "recurrent" in name}


def test_scaled_inputs_run_from_0_to_1_over_the_range_and_stay_there_beyond_it() -> None:
    network = QLSTM(2, 4, scales_inputs=True)
    started = qlstm(2).state_dict()
    network.load_state_dict({**started, "input_low": torch.tensor([0.2, 0.0, 1.0, 0.0, 0.0, 0.5]),
                             "input_range": torch.tensor([0.4, 1.0, 2.0, 0.5, 1.0, 0.1])})  # fmt: skip
    s, s_next = torch.tensor([[[0.3, 0.7]], [[0.9, 0.0]]]), torch.tensor([[[0.5, 0.55]], [[0.0, 0.0]]])
    found = network(s, torch.tensor([2, 0]), torch.tensor([1.0, 0.0]), s_next, torch.zeros(2, 1))
    # (0.3 - 0.2) / 0.4 = 0.25; action (2 - 1) / 2; reward 1 is 0.5 squeezed. The second transition is beyond every range.
    inputs = torch.tensor([[0.25, 0.7, 0.5, 1.0, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(found.double(), torch_prediction(network, inputs[:, None]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("length", [1, 3])
def test_stacked_parameters_compute_what_each_trial_computes_alone(length: int) -> None:
    inputs = transitions(15, 8, length, lead=(3,))
    together, alone = (
        Population(
            lambda: QLSTM(15, 4, sequence_length=length),
            [np.random.default_rng(seed) for seed in range(3)],
            torch.device("cpu"),
            stacked=stacked,
        )
        for stacked in (True, False)
    )
    torch.testing.assert_close(together(*inputs, trials=[0, 1, 2]), alone(*inputs, trials=[0, 1, 2]), rtol=1e-4, atol=1e-6)


def test_an_lstm_layer_starts_with_glorots_weights_and_an_open_forget_gate() -> None:
    layer = qlstm(100).Lstm1
    assert isinstance(layer, LSTM)
    # Fan out: four gates of 64 units. The inputs are 100 + 1 + 1 + 100.
    for parameters, fan_in in (((layer.kernel, layer.forget_kernel), 202), ((layer.recurrent, layer.forget_recurrent), 64)):
        for parameter in parameters:
            limit = math.sqrt(6 / (fan_in + 256))
            assert 0.99 * limit < parameter.abs().max().item() <= limit
    assert layer.forget_bias.tolist() == [1.0] * 64
    assert layer.bias.tolist() == [0.0] * 192


def test_transition_vector_holds_s_a_r_and_next_s_in_a_similar_range() -> None:
    s = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)  # one trial, one transition, one frame of two pixels
    vector = transition_vectors(s, torch.tensor([[1.0]]), torch.tensor([[-1.0]]), 255 - s)
    assert vector.tolist() == [[[0.0, 1.0, 1.0, -0.5, 1.0, 0.0]]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_transition_vector_leaves_truth_values_and_floats_unscaled(dtype: torch.dtype) -> None:
    s = torch.tensor([[[0, 1]]]).to(dtype)
    assert transition_vectors(s, torch.tensor([0.5]), torch.tensor([3.0]), s).tolist() == [[0.0, 1.0, 0.5, 0.75, 0.0, 1.0]]


def test_the_largest_action_enters_as_1() -> None:
    """A4a: the action's number as a share of the largest, so that it has the range of the pixels."""
    network = qlstm(2, num_actions=5)
    s, r, q = torch.zeros(1, 1, 2), torch.zeros(1), torch.zeros(1, 1)
    sequence = torch.zeros(1, 1, 6)
    sequence[0, 0, 2] = 1.0
    torch.testing.assert_close(network(s, torch.tensor([4]), r, s, q).double(), torch_prediction(network, sequence))


def test_vectors_of_pixels_have_the_same_bits_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    s, s_next = torch.randint(0, 256, (2, 3, 2, 7, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    s[0, 0, 0] = torch.tensor([0, 1, 128, 254, 255])
    a, r = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([-3.0, 0.0, 9.0])
    with_compiled_code = transition_vectors(s, a, r, s_next)
    monkeypatch.setattr(native, "compiled", lambda: None)
    assert torch.equal(transition_vectors(s, a, r, s_next), with_compiled_code)
