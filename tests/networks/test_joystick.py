"""Outputs for the parts of an action against a plain loop."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.networks.cnn import CNN, ObservationSpec, make_q_network
from comper.networks.histogram import HistogramNetwork, with_histograms
from comper.networks.joystick import Joystick, buttons_of, joystick_shares, mirrored_actions
from comper.networks.residual import make_residual_network
from comper.networks.stacking import NetworkFactory, Population, started_module

CPU = torch.device("cpu")
FOUR = ("NOOP", "FIRE", "RIGHT", "LEFTFIRE")
ATARI = [
    (along + across + fire) or "NOOP"
    for along in ("", "UP", "DOWN")
    for across in ("", "RIGHT", "LEFT")
    for fire in ("", "FIRE")
]
MAKERS = {
    "CNN": lambda output: make_q_network(ObservationSpec((10, 10, 4)), 18, output=output),
    "MLP": lambda output: make_q_network(ObservationSpec((10, 10, 4), kind="vector"), 18, output=output),
    "residual": lambda output: make_residual_network(1, ObservationSpec((10, 10, 4)), 18, output=output),
}


def made(name: str, own: bool) -> NetworkFactory:
    return MAKERS[name](partial(Joystick, shares=joystick_shares(ATARI, own=own)))


def states(*lead: int) -> Tensor:
    return torch.rand(*lead, 1, 10, 10, 4, generator=torch.Generator().manual_seed(1))


def q_by_hand(outputs: list[float], *, own: bool) -> list[float]:
    """Q-values of 18 actions from the outputs of one state: V, three rows, three columns, fire, and each action's own."""
    value, *rest = outputs
    along = dict(zip(("", "UP", "DOWN"), rest, strict=False))
    across = dict(zip(("", "RIGHT", "LEFT"), rest[3:], strict=False))
    fire = dict(zip((False, True), rest[6:], strict=False))
    advantages = []
    for number, name in enumerate(ATARI):
        up_or_down = next((part for part in ("UP", "DOWN") if part in name), "")
        side = next((part for part in ("LEFT", "RIGHT") if part in name), "")
        advantages.append(along[up_or_down] + across[side] + fire["FIRE" in name] + (rest[8 + number] if own else 0.0))
    return [value + a - sum(advantages) / 18 for a in advantages]


def test_parts_of_actions_have_rows_and_what_all_have_in_common_has_none() -> None:
    across_and_fire = ((1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1))
    assert joystick_shares(FOUR, own=False) == across_and_fire
    assert joystick_shares(FOUR, own=True) == (
        *across_and_fire,
        (1, 0, 0, 0),
        (0, 1, 0, 0),
        (0, 0, 1, 0),
        (0, 0, 0, 1),
    )
    assert len(joystick_shares(ATARI, own=False)) == 3 + 3 + 2


@pytest.mark.parametrize("names", [("0", "1"), ("left", "right"), ("LEFTUP", "NOOP"), ("UPX", "NOOP"), ("NOOP",)])
def test_other_actions_have_no_parts(names: tuple[str, ...]) -> None:
    assert joystick_shares(names, own=False) == ()
    assert joystick_shares(("0", "1"), own=True) == ()


def test_the_same_position_of_the_stick_with_the_button_pressed_and_let_go_of() -> None:
    assert buttons_of(("NOOP", "FIRE", "LEFT", "LEFTFIRE")) == ([1, 1, 3, 3], [0, 0, 2, 2])
    pressed, released = buttons_of(ATARI)
    assert [ATARI[i] for i in released] == [name.removesuffix("FIRE") or "NOOP" for name in ATARI]
    assert [ATARI[i] for i in pressed] == [(name.removesuffix("FIRE") + "FIRE").removeprefix("NOOP") for name in ATARI]


@pytest.mark.parametrize(
    "names", [("NOOP", "LEFT"), ("FIRE", "LEFTFIRE"), FOUR, ("NOOP", "FIRE", "LEFT"), ("0", "1"), ("left", "right")]
)
def test_a_button_that_cannot_be_pressed_and_let_go_of_everywhere_is_none(names: tuple[str, ...]) -> None:
    assert buttons_of(names) == ([], [])


def test_mirror_images_of_actions() -> None:
    assert mirrored_actions(("NOOP", "LEFT", "FIRE", "RIGHT")) == [0, 3, 2, 1]
    images = mirrored_actions(ATARI)
    assert [ATARI[i] for i in images] == [
        name.replace("LEFT", "?").replace("RIGHT", "LEFT").replace("?", "RIGHT") for name in ATARI
    ]
    assert mirrored_actions(("NOOP", "LEFT")) == mirrored_actions(("0", "1")) == []


@pytest.mark.parametrize("own", [False, True])
def test_q_values_are_the_states_value_and_the_sums_of_parts_whose_mean_is_nothing(own: bool) -> None:
    layer = Joystick(5, 18, joystick_shares(ATARI, own=own))
    layer.draw_weights(np.random.default_rng(0))
    layer.bias.data = torch.linspace(-1, 1, len(layer.bias))
    x = torch.rand(7, 5, generator=torch.Generator().manual_seed(2))
    outputs = (x @ layer.weight + layer.bias).tolist()
    expected = [q_by_hand(row, own=own) for row in outputs]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_stacked_trials_compute_what_each_computes_alone(name: str, own: bool) -> None:
    make = made(name, own)
    together, alone = (
        Population(make, [np.random.default_rng(seed) for seed in (3, 4)], CPU, stacked=s) for s in (True, False)
    )
    x = states(2, 6)
    torch.testing.assert_close(together(x, trials=[0, 1]), alone(x, trials=[0, 1]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("own", [False, True])
def test_gradients_without_autograd_are_autograds(own: bool) -> None:
    network = started_module(made("CNN", own), np.random.default_rng(0))
    assert isinstance(network, CNN)
    x, wanted = states(6), torch.rand(6, 18, generator=torch.Generator().manual_seed(3))
    q, found = network.gradients(x, lambda q: q - wanted)
    loss = (network(x) - wanted).square().sum() / 2
    loss.backward()
    torch.testing.assert_close(q, network(x))
    for name, parameter in network.named_parameters():
        gradient = found[name]
        assert isinstance(gradient, Tensor)
        assert parameter.grad is not None
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
def test_histograms_have_parts_too(own: bool) -> None:
    """The logits of each class are put together like Q-values."""
    classes = 21
    network = started_module(with_histograms(made("MLP", own), classes, 5.0), np.random.default_rng(0))
    x = states(2)
    assert isinstance(network, HistogramNetwork)
    outputs = network.network(x).detach().reshape(2, -1, classes)
    logits = torch.tensor([[q_by_hand(column, own=own) for column in rows.T.tolist()] for rows in outputs])  # (2, K, 18)
    expected = (logits.softmax(1) * torch.linspace(-5, 5, classes)[:, None]).sum(1)
    torch.testing.assert_close(network(x).detach(), expected, rtol=1e-4, atol=1e-5)
