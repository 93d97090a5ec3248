"""The simulated scheduler of experiments/scale.py, and the page that quotes it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from experiments.scale import NUM_TRIALS, Cluster, Simulation, main, simulate

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


def test_without_failures_time_is_rounds_of_jobs() -> None:
    outcome = Simulation(Cluster(3, 2, start_seconds=1.0), [10.0] * 20, seed=0).run()
    assert outcome.seconds == math.ceil(20 / 6) * 11.0
    assert (outcome.failures, outcome.busy_seconds, outcome.lost_seconds) == (0, 200.0, 20.0)


def test_nothing_is_lost_but_what_came_after_a_checkpoint() -> None:
    cluster = Cluster(5, 4, mean_seconds_to_failure=500.0, repair_seconds=50.0, checkpoint_seconds=30.0, start_seconds=2.0)
    outcome = Simulation(cluster, [300.0] * 100, seed=1).run()
    assert outcome.busy_seconds == pytest.approx(100 * 300.0)
    assert outcome.interrupted > 20
    assert outcome.lost_seconds <= (100 + outcome.interrupted) * 2.0 + outcome.interrupted * 30.0
    assert outcome.seconds > Simulation(Cluster(5, 4, start_seconds=2.0), [300.0] * 100, seed=1).run().seconds


def test_a_failure_cuts_off_the_trials_of_its_node_alone() -> None:
    simulation = Simulation(
        Cluster(2, 1, start_seconds=0.0, checkpoint_seconds=30.0, repair_seconds=1e9), [100.0, 100.0], seed=0
    )
    simulation._at(70.0, "fail", 0)
    outcome = simulation.run()
    # The job of node 0 had saved 60 s of its 70; it waits for node 1, and then has 40 s to go.
    assert (outcome.seconds, outcome.failures, outcome.interrupted, outcome.lost_seconds) == (140.0, 1, 1, 10.0)


def test_the_same_seed_gives_the_same_study() -> None:
    cluster = Cluster(10, 4, mean_seconds_to_failure=2_000.0)
    assert simulate(cluster, num_jobs=200, seed=3) == simulate(cluster, num_jobs=200, seed=3)
    assert simulate(cluster, num_jobs=200, seed=3) != simulate(cluster, num_jobs=200, seed=4)


def test_the_page_quotes_what_the_script_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["scale.py"])
    main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert NUM_TRIALS == 2_080
    page = PAGE.read_text(encoding="utf-8")
    assert len(lines) == 9
    assert all(line in page for line in lines)
