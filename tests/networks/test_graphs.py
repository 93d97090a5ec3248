"""CUDA graphs compute what the functions they record compute, and what they returned stays as it is."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comper.networks import graphs
from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.foresight import with_foresight
from comper.networks.graphs import WARM_UP_CALLS, GraphedFunction
from comper.networks.histogram import with_histograms
from comper.networks.joystick import Joystick
from comper.networks.stacking import NetworkFactory, Population
from tests.networks.static_recording import record_on_the_cpu

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_what_a_replay_returned_survives_the_next_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    record_on_the_cpu(monkeypatch)
    double = GraphedFunction(lambda x: (2 * x,))
    (first,), (second,) = double(torch.tensor([1.0])), double(torch.tensor([5.0]))
    assert (first.item(), second.item()) == (2.0, 10.0)


def test_a_copied_population_replays_its_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    record_on_the_cpu(monkeypatch)
    rngs = [np.random.default_rng(seed) for seed in range(2)]
    population = Population(make_q_network(ObservationSpec((3,)), 2), rngs, torch.device("cpu"), stacked=True)
    states = torch.rand(2, 4, 1, 3)
    before = population(states, trials=[0, 1])
    target = population.copy()
    with torch.no_grad():
        population.groups[0]["Dense3.bias"].add_(1.0)
    assert torch.equal(target(states, trials=[0, 1]), before)
    torch.testing.assert_close(population(states, trials=[0, 1]), before + 1)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_is_not_collected_while_recording_and_is_again_afterwards(
    was_enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Tensor) -> tuple[Tensor]:
        raise ValueError(f"collecting: {gc.isenabled()}")

    monkeypatch.setattr(graphs, "RECORDING_DEVICE", "cpu")
    monkeypatch.setattr(graphs, "WARM_UP_CALLS", 0)
    for name in ("synchronize", "CUDAGraph", "graph"):  # all that recording asks of a GPU
        monkeypatch.setattr(torch.cuda, name, nullcontext)
    if not was_enabled:
        gc.disable()
    try:
        with pytest.raises(ValueError, match="collecting: False"):
            GraphedFunction(fail)(torch.ones(1))
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()


@needs_cuda
@pytest.mark.gpu
def test_a_recording_is_not_spoiled_by_the_graphs_of_a_learner_that_is_gone() -> None:
    def doubled(x: Tensor) -> tuple[Tensor]:
        if torch.cuda.is_current_stream_capturing() and gc.isenabled():
            gc.collect()  # as Python may at any line
        return (2 * x,)

    def record() -> None:
        graphed = GraphedFunction(doubled)
        for _ in range(WARM_UP_CALLS + 1):
            assert torch.equal(graphed(x)[0], 2 * x)
        learner: list[object] = [graphed]
        learner.append(learner)  # a circle, as a learner is: only the collector frees it

    x = torch.ones(3, device="cuda")
    record()
    record()


def users_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 4, 4, 2), nn.Flatten(), nn.Linear(4 * 81, 18))


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize(
    "make",
    [
        make_q_network(ObservationSpec((84, 84)), 18),
        with_histograms(make_q_network(ObservationSpec((84, 84)), 18, output=Duelling), 51, 10.0),
        make_q_network(ObservationSpec((84, 84)), 18, output=partial(Joystick, shares=((1,) * 6 + (0,) * 12,))),
        with_foresight(make_q_network(ObservationSpec((84, 84)), 18), 18),
        users_network,
    ],
    ids=["ours", "with classes", "with parts", "with foresight", "a user's"],
)
def test_replays_on_a_gpu_equal_what_a_cpu_computes(make: NetworkFactory) -> None:
    seeds = range(3)
    on_gpu, on_cpu = (
        Population(make, [np.random.default_rng(seed) for seed in seeds], torch.device(device)) for device in ("cuda", "cpu")
    )
    generator = torch.Generator().manual_seed(0)
    kept: list[tuple[Tensor, Tensor]] = []
    for _ in range(WARM_UP_CALLS + 4):
        frames = torch.randint(0, 256, (3, 5, 1, 84, 84), dtype=torch.uint8, generator=generator)
        kept.append((on_gpu(frames.cuda(), trials=[0, 1, 2]), on_cpu(frames, trials=[0, 1, 2])))
    for found, expected in kept:
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-3)
