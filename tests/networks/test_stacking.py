"""Populations: our layers and a user's modules, stacked or one per trial; start weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comper.networks.cnn import Conv2d
from comper.networks.stacking import Linear, NetworkFactory, Population, Product, stacked, started_module
from tests.networks.users_network import UsersNetwork

CPU = torch.device("cpu")


class OurLayers(nn.Module):
    """A user's network made of our layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Conv2d(2, 5, 4, 2)
        self.second = Linear(5 * 2 * 2, 3)

    def forward(self, frames: Tensor) -> Tensor:
        q_values: Tensor = self.second(self.first(frames).relu().flatten(1))
        return q_values


def rngs(num_trials: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(num_trials)]


def both(make: NetworkFactory, num_trials: int = 3) -> tuple[Population, Population]:
    """The same population, stacked and one module per trial."""
    return Population(make, rngs(num_trials), CPU, stacked=True), Population(make, rngs(num_trials), CPU, stacked=False)


FRAMES = torch.randint(0, 256, (3, 5, 2, 7, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", [UsersNetwork, OurLayers])
def test_a_users_network_gives_stacked_what_each_trial_gives_alone(make: NetworkFactory) -> None:
    together, alone = both(make)
    assert (len(together.groups), len(alone.groups)) == (1, 3)
    for _ in range(2):  # twice: the buffers of a batch normalisation change with every call
        torch.testing.assert_close(together(FRAMES, trials=[0, 1, 2]), alone(FRAMES, trials=[0, 1, 2]), rtol=1e-4, atol=1e-5)
    for trial in range(3):
        mine, theirs = together.weights(trial), alone.weights(trial)
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [UsersNetwork, OurLayers])
def test_a_users_network_has_stacked_the_gradients_that_each_trial_has_alone(make: NetworkFactory) -> None:
    together, alone = both(make)
    trained = [name for name, p in alone.groups[0].items() if p.requires_grad]
    loss = together.forward(0, FRAMES).square().sum()
    stacked = torch.autograd.grad(loss, [together.groups[0][name] for name in trained])
    for trial in range(3):
        loss = alone.forward(trial, FRAMES[trial]).square().sum()
        single = torch.autograd.grad(loss, [alone.groups[trial][name] for name in trained])
        for a, b in zip(stacked, single, strict=True):
            torch.testing.assert_close(a[trial], b, rtol=1e-3, atol=1e-4)


def test_a_users_network_gets_pixels_between_0_and_1_and_other_numbers_as_they_are() -> None:
    seen: list[Tensor] = []

    class Recorder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x

    population = Population(Recorder, rngs(1), CPU)
    for x in (torch.tensor([[0, 51, 255]], dtype=torch.uint8), torch.tensor([[True, False]]), torch.tensor([[-3.5]]).double()):
        population(x, trials=[0])
    assert [x.dtype for x in seen] == [torch.float32] * 3
    assert [x.tolist() for x in seen] == [[0.0, pytest.approx(0.2), 1.0], [1.0, 0.0], [-3.5]]


def test_some_trials_of_a_stacked_population_answer_as_if_they_were_alone() -> None:
    together, alone = both(UsersNetwork)
    answer = together(FRAMES[[2, 0]], trials=[2, 0])
    torch.testing.assert_close(answer, alone(FRAMES[[2, 0]], trials=[2, 0]), rtol=1e-4, atol=1e-5)


def test_a_users_network_starts_from_torch_seeded_by_the_trial_and_no_global_generator_moves() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (started_module(UsersNetwork, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    assert not torch.equal(first.state_dict()["head.weight"], other.state_dict()["head.weight"])
    rng = np.random.default_rng(1)
    one, two = started_module(UsersNetwork, rng), started_module(UsersNetwork, rng)
    assert not torch.equal(one.state_dict()["head.weight"], two.state_dict()["head.weight"])


def test_our_layers_draw_from_the_trials_own_stream_in_their_order() -> None:
    module = started_module(OurLayers, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    # Glorot: ± sqrt(6 / (fan in + fan out)). A convolution's fans count its kernel's area: 4·4·2 in, 4·4·5 out.
    for layer, limit in ((module.first, math.sqrt(6 / (32 + 80))), (module.second, math.sqrt(6 / (20 + 3)))):
        assert isinstance(layer, Conv2d | Linear)
        expected = rng.uniform(-limit, limit, tuple(layer.weight.shape)).astype(np.float32)
        assert layer.weight.detach().numpy() == pytest.approx(expected, rel=1e-6)
        assert layer.bias is not None
        assert not layer.bias.any()


@pytest.mark.parametrize("stacked", [True, False])
def test_a_copy_has_the_same_weights_and_goes_its_own_way(stacked: bool) -> None:
    population = Population(UsersNetwork, rngs(2), CPU, stacked=stacked)
    before = population.weights(1)
    target = population.copy()
    with torch.no_grad():
        population.groups[0]["head.weight"].add_(1.0)
    population(FRAMES[:2], trials=[0, 1])  # moves the buffers
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.weights(1).items())
    target.copy_from(population)
    for trial in (0, 1):
        assert all(torch.equal(x, population.weights(trial)[name]) for name, x in target.weights(trial).items())


def test_a_trials_weights_are_read_back_by_themselves() -> None:
    together, alone = both(UsersNetwork)
    other = Population(UsersNetwork, [np.random.default_rng(seed) for seed in (7, 8, 9)], CPU, stacked=True)
    untouched = other.weights(0)
    other.load_weights(1, together.weights(1))
    assert all(torch.equal(tensor, alone.weights(1)[name]) for name, tensor in other.weights(1).items())
    assert all(torch.equal(tensor, untouched[name]) for name, tensor in other.weights(0).items())


@pytest.mark.parametrize("stacked", [True, False])
def test_weights_of_another_network_are_refused(stacked: bool) -> None:
    population = Population(OurLayers, rngs(2), CPU, stacked=stacked)
    before = population.weights(0)
    smaller = {**before, "second.bias": torch.zeros(1)}  # torch would stretch it
    fewer = {name: tensor for name, tensor in before.items() if name != "second.bias"}
    for other in (smaller, fewer, {**before, "third.bias": torch.zeros(3)}):
        with pytest.raises(ValueError, match="of another network"):
            population.load_weights(0, other)
    assert all(torch.equal(tensor, before[name]) for name, tensor in population.weights(0).items())


def test_a_factory_that_gives_one_module_to_all_trials_is_refused() -> None:
    shared = UsersNetwork()
    with pytest.raises(ValueError, match="a new one at every call"):
        Population(lambda: shared, rngs(2), CPU)


class TwoLayers(nn.Module):
    """Two layers of ours, the first a large one, used as often as it is told."""

    takes_trial_axis = True

    def __init__(self, times: int) -> None:
        super().__init__()
        self.first, self.second, self.unused = Linear(700, 700), Linear(700, 2), Linear(700, 700)
        self._times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self._times):
            x = self.first.forward(x).tanh()
        return self.second.forward(x)


@pytest.mark.parametrize(("times", "num_calls"), [(1, 1), (2, 1), (1, 2)])
def test_gradients_are_autograds_to_the_last_bit(times: int, num_calls: int) -> None:
    networks = Population(lambda: TwoLayers(times), [np.random.default_rng(0)], CPU)
    batches = torch.randn(num_calls, 5, 700, generator=torch.Generator().manual_seed(0))
    loss = sum((networks.forward(0, x).square().sum() for x in batches), torch.zeros(()))
    parameters = networks.groups[0]
    expected = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, retain_graph=True)
    found = networks.gradients(0, loss)
    assert isinstance(found["first.weight"], Product) == (times == num_calls == 1)
    assert found.keys() == {name for name in parameters if not name.startswith("unused")}
    for name, gradient in zip(parameters, expected, strict=True):
        if gradient is not None:
            mine = found[name]
            assert torch.equal(mine.tensor() if isinstance(mine, Product) else mine, gradient)
    networks.copy()  # nothing of autograd's is left in it


def test_a_users_module_gets_autograds_gradients() -> None:
    networks = Population(lambda: nn.Sequential(Linear(700, 700), nn.Tanh()), [np.random.default_rng(0)], CPU)
    gradients = networks.gradients(0, networks.forward(0, torch.ones(2, 700)).sum())
    assert all(isinstance(gradient, Tensor) for gradient in gradients.values())


def test_a_single_trials_rows_are_not_copied_and_those_of_several_are_put_together() -> None:
    rows = list(torch.arange(6.0).view(2, 3))
    assert stacked(rows[1:]).data_ptr() == rows[1].data_ptr()
    assert stacked(rows[1:]).tolist() == [[3, 4, 5]]
    assert stacked(rows).tolist() == [[0, 1, 2], [3, 4, 5]]
