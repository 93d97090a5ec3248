"""What is asked of a network before it is trained: whether it fits, and its layers."""

from __future__ import annotations

import pytest
from torch import nn

from comper.networks.cnn import ObservationSpec, make_q_network
from comper.networks.inspection import check_q_network, layer_sizes
from tests.networks.users_network import UsersNetwork


def test_a_network_that_does_not_fit_is_refused_with_a_sentence() -> None:
    observation = ObservationSpec((4,), 2)
    check_q_network(make_q_network(observation, 3), (2, 4), 3)
    with pytest.raises(ValueError, match=r"gives \(2, 5\) for 2 states: expected Q-values of shape \(2, 3\)"):
        check_q_network(lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 5)), (2, 4), 3)
    with pytest.raises(ValueError, match=r"cannot read 2 states of shape \(2, 4\)"):
        check_q_network(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (2, 4), 3)


def test_layers_of_any_module_are_listed_with_their_number_of_parameters() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    assert layer_sizes(network) == [("1", 40), ("3", 16)]
    assert layer_sizes(nn.Linear(4, 8)) == [("Linear", 40)]
    assert layer_sizes(UsersNetwork()) == [("UsersNetwork", 3), ("convolution", 76), ("normalisation", 8), ("head", 111)]
