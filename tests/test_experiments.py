"""The studies under experiments/: commands that are accepted, analyses of real runs, a rule that chooses as written."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import run_commands
from experiments.graph import analyse as graph
from experiments.graph import first_frames, pace
from experiments.graph import variants as graph_variants
from experiments.premise import analyse as premise
from experiments.premise import recurrence
from experiments.premise import variants as premise_variants
from experiments.readings import analyse as readings
from experiments.readings import variants

from comper.errors import UsageError
from comper.report import statistics
from comper.report.facts import floor_at, load_floors
from comper.training.options import resolve_settings
from comper.training.train import find_environments, train
from tests.report.conftest import MakeRun, make_run

__all__ = ["make_run"]

ROOT = Path(__file__).parents[1]


def settings_of(command: str) -> dict[str, Any]:
    """The settings that a command changes, as `comper train` resolves them."""
    words = shlex.split(command)
    names = words[2 : words.index("--agent")]
    flags = dict(zip(words[words.index("--agent") :: 2], words[words.index("--agent") + 1 :: 2], strict=True))
    agent = flags.pop("--agent")
    for option in ("--trials", "--seed", "--out", "--workers", "--processes"):
        flags.pop(option, None)
    values: dict[str, Any] = {key[2:].replace("-", "_"): _number(value) for key, value in flags.items()}
    return resolve_settings(agent, find_environments(names), values, where="test").changed()


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


# Plans.


def test_every_command_of_the_readings_is_accepted_and_changes_one_thing_of_the_base() -> None:
    populations = variants.stage_1()
    base = populations[0].settings
    for population in populations:
        settings_of(population.command)
        changed = {key for key, value in population.settings.items() if base.get(key) != value}
        assert len(changed) == (population is not populations[0]), population.out
    assert len({population.out for population in populations}) == len(populations)
    plan = (ROOT / "docs" / "research" / "readings.md").read_text(encoding="utf-8")
    assert f"| δ (A9) | **0**, {', '.join(f'{delta:g}' for delta in variants.DELTAS)} |" in plan


def test_chosen_values_are_combined_on_new_seeds_and_run_once_more_on_the_paper_games() -> None:
    chosen = ["alignment-fresh", "inputs-minmax"]
    base, both, present = variants.combined(chosen)
    assert both.settings == variants.BASE | {"alignment": "successor-fresh", "input_scale": "minmax"}
    assert present.settings == variants.EARLIER
    assert not {*base.seeds} & {*variants.stage_1()[0].seeds}
    final = {population.out.rpartition("/")[2]: settings_of(population.command) for population in variants.final(chosen)}
    assert final["chosen-stacked"].keys() == settings_of(both.command).keys()
    assert final["dqn"] == final["ddqn"] == {}
    assert variants.cost(variants.final(chosen)) == "6 populations, 240 trials, 24,000,000 frames"


def test_every_agent_of_the_premise_has_the_same_budget_exploration_and_updates() -> None:
    pytest.importorskip("minatar")
    pytest.importorskip("minigrid")
    found = premise_variants.populations(premise_variants.MINATAR + premise_variants.MINIGRID, {}, 5, 100_000)
    assert variants.cost(found) == "40 populations, 200 trials, 20,000,000 frames"
    for population in found:
        words = shlex.split(population.command)
        (environment,) = find_environments([words[2]])
        agent = words[words.index("--agent") + 1]
        config: Any = resolve_settings(agent, [environment], population.settings, where="test").config
        equal = (config.history_length, config.observations_per_step, config.frames, config.replay_start_steps)
        assert equal == (1, 1, 100_000, 1_000)
        assert (config.batch_size, config.train_period_steps, config.discount) == (32, 4, 0.99)
        assert [config_epsilon(config, at) for at in (0, 10_000, 20_000)] == pytest.approx([1.0, 0.525, 0.05])


def test_comper_is_studied_in_the_same_tasks_with_the_same_budget_and_every_part_is_changed_once() -> None:
    pytest.importorskip("minatar")
    pytest.importorskip("minigrid")
    theirs = premise_variants.populations(premise_variants.MINATAR + premise_variants.MINIGRID, {}, 5, 100_000)
    study = graph_variants.populations("study", small=False)
    assert {p.environments for p in study} == {p.environments for p in theirs}
    assert all((p.seeds, p.frames) == (theirs[0].seeds, theirs[0].frames) for p in study)
    assert all(premise_variants.EQUAL.items() <= p.settings.items() for p in study)
    before, *changed = (
        resolve_settings(
            "comper", find_environments(["minatar:breakout"]), premise_variants.EQUAL | change, where="test"
        ).config
        for change in (graph_variants.ANY, *(change for _, change in graph_variants.ABLATIONS.values()))
    )
    for name, config in zip(graph_variants.ABLATIONS, changed, strict=True):
        parts = [key for key, value in vars(config).items() if value != getattr(before, key)]
        assert len(parts) == 1, f"{name} changes {parts}"
    for stage in (*graph_variants.STAGES, graph_variants.ATARI_STAGE):
        for population in graph_variants.populations(stage, small=False):
            settings_of(population.command)


def config_epsilon(config: Any, frames: int) -> float:
    start = getattr(config, "epsilon_start", 1.0)
    share = min(1.0, frames / config.epsilon_decay_frames)
    return float(start + share * (config.epsilon_end - start))


@pytest.mark.parametrize("study", ["readings", "premise", "graph"])
def test_a_plan_is_printed_as_commands_and_as_a_cost(study: str) -> None:
    script = str(ROOT / "experiments" / study / "variants.py")
    printed = subprocess.run([sys.executable, script, "--small"], capture_output=True, text=True, check=True).stdout
    assert all(line.startswith("comper train ") for line in printed.splitlines())
    cost = subprocess.run([sys.executable, script, "--small", "--cost"], capture_output=True, text=True, check=True).stdout
    assert cost.startswith(f"{len(printed.splitlines())} populations, ")


@pytest.mark.parametrize(("study", "name"), [("readings", "stage1"), ("premise", "premise"), ("graph", "study")])
def test_a_plan_for_comper_study_says_the_same_as_the_commands(study: str, name: str) -> None:
    script, kept = ROOT / "experiments" / study / "variants.py", ROOT / "experiments" / study / f"{name}.toml"
    printed = subprocess.run([sys.executable, script, "--plan"], capture_output=True, text=True, check=True).stdout
    assert kept.read_text(encoding="utf-8") == printed, "renew it: variants.py --plan"
    plan = tomllib.loads(printed)
    cost = subprocess.run([sys.executable, script, "--cost"], capture_output=True, text=True, check=True).stdout
    num_trials = len(plan["environments"]) * len(plan["seeds"]) * len({variant["name"] for variant in plan["variants"]})
    assert f" {num_trials} trials, {num_trials * plan['settings']['frames']:,} frames" in cost


def test_commands_are_run_once_and_failures_are_named(tmp_path: Path) -> None:
    script, python = str(ROOT / "experiments" / "run_commands.py"), shlex.quote(sys.executable)
    code = shlex.quote(f"open({str(tmp_path / 'count')!r}, 'a').write('x')")
    lines = f"{python} -c {code} --out runs/good\n# a remark\n{python} -c 'raise SystemExit(3)' --out runs/bad\n"
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, script, "--at-once", "2", "--logs", str(tmp_path / "logs")],
            input=lines, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (tmp_path / "count").read_text() == "x"
    assert "1 of 2: runs-good" in result.stdout
    assert "done before" in result.stdout
    assert "exit code 3" in result.stdout
    assert result.returncode == 1
    assert run_commands.words("comper train asterix") == [sys.executable, "-m", "comper", "train", "asterix"]
    assert run_commands.name("comper train minatar:asterix --out runs/a") == "runs-a-minatar-asterix"


# The rule.


def compared(wins: float, multiple: float) -> readings.Comparison:
    return readings.Comparison(["asterix"], multiple, 1.0, statistics.Interval(wins, 0.0, 1.0))


@pytest.mark.parametrize(
    ("wins", "multiple", "verdict"),
    [(0.8, 1.1, "better"), (0.8, 0.9, "tie"), (0.79, 1.5, "tie"), (0.2, 0.9, "worse"), (0.2, 1.1, "tie")],
)
def test_better_needs_pairs_and_mean(wins: float, multiple: float, verdict: str) -> None:
    assert compared(wins, multiple).verdict == verdict


def test_the_rule_takes_the_best_of_the_better_and_settles_ties_as_written() -> None:
    better, best, tie, worse = compared(0.9, 1.2), compared(0.85, 1.3), compared(0.6, 1.1), compared(0.1, 0.5)
    epochs, start = readings.FACTORS["QLSTM epochs"], readings.FACTORS["mean-square start"]
    assert readings.chosen(epochs, {"epochs-5": better, "epochs-15": best}) == "epochs-15"
    assert readings.chosen(epochs, {"epochs-5": tie, "epochs-15": worse}) == "base"
    assert readings.chosen(start, {"mean-square-1": tie}) == "mean-square-1"
    assert readings.chosen(start, {"mean-square-1": worse}) == "base"
    assert readings.chosen(start, {}) == "base"
    # What the paper or its logs settle is never chosen by score.
    for name, variant in (
        ("alignment", "alignment-max"),
        ("δ", "delta-1"),
        ("RTM", "rtm-replace"),
        ("reward clip", "clip-on"),
    ):
        assert readings.chosen(readings.FACTORS[name], {variant: best}) == "base"


def test_the_readings_are_analysed_from_their_folders(make_run: MakeRun, tmp_path: Path) -> None:
    low, high = [10.0, 20.0, 30.0], [300.0, 400.0, 500.0]
    for name, scores in {"base": low, "inputs-minmax": high, "delta-1": low, "alignment-max": high}.items():
        for game in ("asterix", "space_invaders"):
            for seed in (0, 1):
                make_run("comper-single", game, seed, [s + seed for s in scores], out=tmp_path / "stage1" / name)
    text = readings.analyse(tmp_path / "stage1", tmp_path / "out")
    assert "--chosen inputs-minmax" in text
    assert "| alignment | base |" in text
    rows = {row["variant"]: row for row in table(tmp_path / "out" / "variants.csv")}
    assert (rows["inputs-minmax"]["verdict"], rows["delta-1"]["verdict"]) == ("better", "tie")
    assert float(rows["alignment-max"]["wins_against_base"]) == 1.0
    trials = table(tmp_path / "out" / "trials.csv")
    assert len(trials) == 16
    first = next(row for row in trials if (row["variant"], row["environment"], row["seed"]) == ("base", "asterix", "1"))
    assert float(first["multiple_of_floor"]) == pytest.approx(21.0 / float(first["floor"]), rel=1e-4)
    # The last of the six lines of the fixture's log has 15 hits; three episodes have 60 steps.
    assert float(first["similar_share"]) == pytest.approx(3 * 5 / 60)
    assert (tmp_path / "out" / "delta.svg").exists()


def test_combined_values_become_the_preset_unless_they_are_worse(make_run: MakeRun, tmp_path: Path) -> None:
    for outcome, scores in {"They become the preset.": [20.0] * 3, "The base stays.": [1.0] * 3}.items():
        root = tmp_path / outcome[:4]
        for seed in (2, 3):
            make_run(seed=seed, scores=[20.0] * 3, out=root / "base")
            make_run(seed=seed, scores=scores, out=root / "chosen")
        assert outcome in readings.analyse(root, tmp_path / "out")


def test_an_analysis_says_what_is_missing(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        readings.analyse(tmp_path / "nowhere", tmp_path)
    make_run(out=tmp_path / "a" / "max", finished=False)
    with pytest.raises(UsageError, match="no folder in it holds finished runs"):
        readings.analyse(tmp_path / "a", tmp_path)
    make_run(out=tmp_path / "b" / "max")
    with pytest.raises(UsageError, match="no variant called base"):
        readings.analyse(tmp_path / "b", tmp_path)
    with pytest.raises(UsageError, match="no folder comper-single and no dqn"):
        premise.analyse(tmp_path / "b", tmp_path, recurrence=tmp_path / "r.json")


# The premise.


@pytest.mark.slow
def test_the_premise_is_analysed_from_real_runs(tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    short = {"frames": 400, "replay_start_steps": 50, "log_period_steps": 50}
    for name, (agent, settings) in premise_variants.AGENTS.items():
        given = premise_variants.EQUAL | settings | short
        train("minatar:breakout", agent, trials=2, out=tmp_path / "runs" / name, workers=0, show_progress=False, **given)
    for policy in (["minatar:breakout"], ["--runs", str(tmp_path / "runs" / "comper-single")]):
        script = [sys.executable, str(ROOT / "experiments" / "premise" / "recurrence.py"), *policy, "--steps", "300"]
        subprocess.run([*script, "--out", str(tmp_path / "r.json")], check=True, capture_output=True)
    rows = json.loads((tmp_path / "r.json").read_text())
    assert [row["policy"] for row in rows] == ["comper-single, seed 0", "comper-single, seed 1", "random"]
    lines = premise.analyse(tmp_path / "runs", tmp_path / "out", recurrence=tmp_path / "r.json")
    assert [line.partition(":")[0] for line in lines] == ["COMPER against DQN", "COMPER against COMPER without sets"]
    gains = table(tmp_path / "out" / "gains.csv")
    assert [row["other"] for row in gains] == ["dqn", "comper-single-without-sets"]
    for row, over_all in zip(gains, table(tmp_path / "out" / "together.csv"), strict=True):
        assert 0 < float(row["recurring"]) < 1
        assert 0 <= float(row["wins"]) <= 1
        assert row["wins"] == over_all["wins"]  # one task
    summary = {row["agent"]: row for row in table(tmp_path / "out" / "summary.csv")}
    assert list(summary) == ["comper-single", "comper-single-without-sets", "ddqn", "dqn"]
    assert (
        float(summary["comper-single"]["similar_share"]) > 0 == float(summary["comper-single-without-sets"]["similar_share"])
    )
    assert float(summary["comper-single"]["known_sets"]) < float(summary["comper-single-without-sets"]["known_sets"])
    assert summary["dqn"]["wins against dqn"] == ""
    curves = table(tmp_path / "out" / "curves.csv")
    assert len(curves) == 4 * 20
    for name in ("learning_curves", "gain_over_dqn"):
        assert (tmp_path / "out" / f"{name}.svg").stat().st_size > 1_000


# The agent `comper`.


def test_the_graph_study_is_analysed_by_hand(make_run: MakeRun, tmp_path: Path) -> None:
    floors = load_floors()
    low = {game: floor_at(floors, game, 5).value for game in ("asterix", "freeway")}  # type: ignore[union-attr]
    for seed in (0, 1):
        make_run("dqn", "asterix", seed, [low["asterix"] + 10.0 * i for i in range(20)], out=tmp_path / "runs" / "dqn")
        own = [low["asterix"] + 200.0 + 100 * seed] * 20
        make_run("comper", "asterix", seed, own, out=tmp_path / "runs" / "comper")
        for agent in ("dqn", "comper"):  # nobody is above the score without learning: the task says nothing
            make_run(agent, "freeway", seed, [0.0] * 20, out=tmp_path / "runs" / agent)
    summary = {row["agent"]: row for row in graph.analyse(tmp_path / "runs", tmp_path / "out")}
    # Mean of DQN's last ten episodes: 145 above the floor; COMPER's trials 200 and 300, the best mean 250.
    assert summary["dqn"]["score, interquartile mean"] == pytest.approx(145 / 250)
    assert summary["comper"]["score, interquartile mean"] == pytest.approx(1.0)
    assert summary["comper"]["score, interquartile mean, low"] == pytest.approx(200 / 250)
    assert summary["comper"]["score, tasks"] == 1
    assert summary["comper"]["area larger than that of dqn"] == pytest.approx((1 + 0.5) / 2)
    tasks = {(row["environment"], row["agent"]): row for row in table(tmp_path / "out" / "tasks.csv")}
    assert float(tasks["asterix", "comper"]["frames to the end of dqn"]) == 50  # the middle of the first stretch
    assert float(tasks["asterix", "dqn"]["frames to the end of dqn"]) == 1_950
    shares = {row["variant"]: row for row in table(tmp_path / "out" / "shares.csv")}
    assert float(shares["comper"]["share"]) == 1.0 > float(shares["dqn"]["share"])
    together = {(row["agent"], float(row["frames"])): row for row in table(tmp_path / "out" / "together.csv")}
    assert float(together["dqn", 1_950]["mean"]) == pytest.approx(185 / 250)  # between its last two episodes
    assert float(together["comper", 50]["mean"]) == 1.0
    assert together["comper", 50]["tasks"] == "1"
    for name in ("learning_curves", "together"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 1_000


def test_candidates_are_compared_over_their_first_frames_also_those_that_were_stopped(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = floor_at(load_floors(), "asterix", 5).random.mean  # type: ignore[union-attr]
    whole, stopped = [random + 10.0] * 15 + [9_999.0] * 5, [random + 40.0] * 20
    make_run("comper", "asterix", 0, whole, out=tmp_path / "runs" / "whole")
    folder = make_run("comper", "asterix", 0, stopped, out=tmp_path / "runs" / "stopped")
    log = folder / "episodes.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join(lines[:16]) + "\n", encoding="utf-8")
    frames = json.loads(lines[14])["total_frames"]  # the first that scores 9,999 ends later
    arguments = ["first_frames.py", str(tmp_path / "runs"), "--frames", str(frames), "--out", str(tmp_path / "out.csv")]
    monkeypatch.setattr(sys, "argv", arguments)
    list(first_frames.main())
    shares = {row["variant"]: float(row["asterix"]) for row in table(tmp_path / "out.csv")}
    assert shares == pytest.approx({"stopped": 1.0, "whole": 0.25})
    monkeypatch.setattr(sys, "argv", [*arguments, "--scores"])
    list(first_frames.main())
    scores = {row["variant"]: float(row["score"]) for row in table(tmp_path / "out.csv")}
    assert scores == pytest.approx({"stopped": random + 40, "whole": random + 10}, rel=1e-5)
    for wrong, said in (
        ([arguments[0], str(tmp_path / "gone"), "--frames", "100"], "gone: no such folder"),
        ([*arguments[:2], "--frames", "1"], "no episode ended within 1 frames"),
        ([*arguments[:2], "--frames", "99999"], "its last episode ended after"),
    ):
        monkeypatch.setattr(sys, "argv", wrong)
        with pytest.raises(UsageError, match=said):
            list(first_frames.main())
    make_run("comper", "freeway", 0, whole, out=tmp_path / "runs" / "whole")
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(UsageError, match="different games"):
        list(first_frames.main())


def test_the_pace_is_measured_on_the_scale_of_the_study(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = floor_at(load_floors(), "asterix", 5).value  # type: ignore[union-attr]
    for seed in (0, 1):
        make_run("dqn", "asterix", seed, [low] * 10 + [low + 50.0] * 10, out=tmp_path / "study" / "dqn")
        make_run("comper", "asterix", seed, [low + 100.0] * 20, out=tmp_path / "study" / "comper")
        make_run("comper", "asterix", seed, [low] * 5 + [low + 60.0] * 15, out=tmp_path / "early" / "own")
    monkeypatch.setattr(pace, "STEPS", 2_000)  # a run of `make_run` has 2,000 frames
    monkeypatch.setattr(pace, "NUM_WINDOWS", 4)
    monkeypatch.setattr(sys, "argv", ["pace.py", str(tmp_path / "early"), str(tmp_path / "study"), "--out", str(tmp_path)])
    said = list(pace.main())
    assert said[0] == "dqn ends at 0.500"
    assert "own: reaches it in the window up to 1,000" in said
    assert "dqn: reaches it in the window up to 1,500" in said
    rows = {(row["agent"], row["steps, up to"]): float(row["value"]) for row in table(tmp_path / "pace.csv")}
    assert rows["own", "500"] == 0.0
    assert rows["own", "1000"] == pytest.approx(0.6)
    assert rows["comper", "500"] == 1.0
    tasks = {(row["agent"], row["steps, up to"]): float(row["asterix"]) for row in table(tmp_path / "pace.csv")}
    assert tasks["own", "1000"] == pytest.approx(low + 60)
    (tmp_path / "study" / "dqn").rename(tmp_path / "dqn")
    with pytest.raises(UsageError, match="no runs of dqn"):
        list(pace.main())


def test_shares_and_distances_of_transitions_by_hand() -> None:
    from comper.memory.frames import FrameStore
    from comper.memory.transitions import Transition

    store = FrameStore((2,))
    black, grey, white = (store.intern(np.full(2, value, np.uint8)) for value in (0, 51, 255))
    found = [
        Transition((black,), 0, 0.0, (white,), False),
        Transition((black,), 0, 0.0, (white,), True),  # the same: whether the game ended is not part of a transition
        Transition((black,), 3, 4.0, (white,), False),
        Transition((grey,), 0, 0.0, (white,), False),
    ]
    assert recurrence.shares(found) == {"different_transitions": 0.75, "different_states": 0.5}
    # Distances to the nearest before: 0; √(3² + 4²) = 5; two pixels of 51/255 = 0.2 each: √0.08.
    quantiles = recurrence.nearest_distances(found, store)
    assert quantiles["0.5"] == pytest.approx(0.08**0.5, abs=1e-3)
    assert quantiles["0.01"] < quantiles["0.5"] < quantiles["0.9"] < 5
