"""What the averages would hide is said."""

from __future__ import annotations

from pathlib import Path

from comper.environments.floors import load_floors
from comper.report.checks import check
from comper.report.findings import Finding
from comper.report.reading import read_runs
from comper.report.summary import Summary

from .conftest import MakeRun, write_manifest

RISING = [float(score) for score in range(0, 1200, 100)]


def _found(folder: Path, kind: str) -> list[Finding]:
    findings = check(Summary(read_runs([folder]), load_floors(), seed=0))
    return [finding for finding in findings if finding.kind == kind]


PAPERS = {"frames": 100_000, "length": 10_000}
"""Ten episodes that spend the paper's budget exactly."""


def test_trials_with_the_same_scores_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (1, 2, 4):
        make_run(seed=seed, scores=RISING)
    make_run(seed=3, scores=RISING[::-1])
    (finding,) = _found(tmp_path, "coinciding")
    assert "3 of 4 trials coincide: seeds 1, 2, 4 (the same score in every episode)" in finding.text


def test_trials_that_differ_in_one_episode_are_named_too(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=1, scores=RISING)
    make_run(seed=2, scores=[*RISING[:-1], 7.0])
    make_run(seed=3, scores=[*RISING[:-2], 8.0, 9.0])
    (finding,) = _found(tmp_path, "coinciding")
    assert "seeds 1, 2 (the same score in all episodes but one)" in finding.text


def test_scores_at_the_floor_are_named_by_agent(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("good", scores=[651.0] * 12)
    make_run("even", scores=[650.0] * 12)
    (finding,) = _found(tmp_path, "floor")
    assert finding.text == "even: at or below the score without learning in 1 of 1 games: Asterix (650.00, floor 650.00)."


def test_missing_trials_and_games_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(5):
        make_run("full", "asterix", seed)
        make_run("full", "freeway", seed)
    make_run("short", "asterix", 0)
    texts = [finding.text for finding in _found(tmp_path, "missing")]
    assert texts[0] == "short: fewer than 5 finished trials in Asterix (1)."
    assert texts[1].startswith("short: no finished trial in Freeway*")
    assert len(texts) == 2


def test_too_few_episodes_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(5):
        make_run(seed=seed, scores=RISING[: 4 if seed == 2 else 12])
    (finding,) = _found(tmp_path, "missing")
    assert "only 4 episodes; Table 1 averages the last 10" in finding.text


def test_another_budget_than_the_papers_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(scores=RISING)
    (finding,) = _found(tmp_path, "settings")
    assert "trained for 1,200 frames, not the paper's 100,000" in finding.text


def test_a_floor_need_not_exceed_the_floor(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("random", scores=[0.0] * 12, metrics={"steps_per_second": 900.0})
    assert _found(tmp_path, "floor") == []
    write_manifest(make_run("fixed", scores=[0.0] * 12), learns=False)
    assert _found(tmp_path, "floor") == []
    write_manifest(make_run("mine", scores=[0.0] * 12, metrics={}), learns=True)
    assert len(_found(tmp_path, "floor")) == 1


def test_unequal_settings_within_a_column_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=RISING[:10], discount=0.99, **PAPERS)
    make_run(seed=1, scores=RISING[:10], discount=0.9, **PAPERS)
    (finding,) = _found(tmp_path, "settings")
    assert "discount (0.99 in 1, 0.9 in 1)" in finding.text


def test_a_constant_agent_may_play_another_action_in_another_game(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("constant", "asterix", 0, RISING[:10], action="UP", **PAPERS)
    make_run("constant", "freeway", 0, RISING[:10], action="DOWN", **PAPERS)
    assert _found(tmp_path, "settings") == []
    make_run("constant", "freeway", 1, RISING[:10], action="UP", **PAPERS)
    (finding,) = _found(tmp_path, "settings")
    assert "action in Freeway* ('DOWN' in 1, 'UP' in 1)" in finding.text


def test_different_versions_are_a_note(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=RISING[:10], **PAPERS)
    write_manifest(make_run(seed=1, scores=RISING[:10], **PAPERS), versions={"python": "3.12"}, commit="1" * 40)
    (finding,) = _found(tmp_path, "settings")
    assert finding.severity == "note"
    assert "made with different commit (000000000000 in 1, 111111111111 in 1); python (3.11 in 1, 3.12 in 1)" in finding.text


def test_overshoot_is_a_note_and_a_run_that_goes_on_a_warning(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=RISING, frames=1150)
    make_run(seed=1, scores=RISING, frames=1000)
    warning, note = _found(tmp_path, "overshoot")
    assert (warning.severity, note.severity) == ("warning", "note")
    assert "seed 1: went on for 1 episode after its budget of 1,000 frames was spent" in warning.text
    assert "at most 20.0%" in note.text


def test_a_clean_report_finds_nothing(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(5):
        make_run(seed=seed, scores=[700.0 + seed + i for i in range(10)], length=10_000)
    assert check(Summary(read_runs([tmp_path]), load_floors(), seed=0)) == []


def test_changed_settings_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(scores=RISING[:10], **PAPERS)
    write_manifest(folder, changed={"screen_size": [36, 84], "discount": [0.5, 0.99], "frames": [100_000, 100_000]})
    (finding,) = _found(tmp_path, "settings")
    assert finding.severity == "warning"
    assert "settings other than its preset's: screen_size = 36 instead of 84; discount = 0.5 instead of 0.99" in finding.text


def test_a_floor_of_another_decision_period_is_no_floor(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("seldom", scores=[0.0] * 12, frame_skip=3, observation="stacked")
    (finding,) = _found(tmp_path, "floor")
    assert finding.severity == "note"
    assert "seldom decides every 12 frames. The score without learning was not measured at that period" in finding.text


def test_other_environments_are_not_measured_by_the_papers_budget(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "gym:CartPole-v1", 0, RISING)
    make_run("ours", "asterix", 0, RISING[:10], **PAPERS)
    assert _found(tmp_path, "settings") == []


def test_a_single_run_is_not_scolded_for_being_alone(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(scores=RISING[:10], **PAPERS)
    assert _found(tmp_path, "missing") == []
