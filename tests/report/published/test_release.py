"""The importer of the logs published with the paper."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comper.errors import UsageError
from comper.report.published.release import import_release
from comper.report.reading import read_runs

from ..conftest import MakeLog


def test_a_log_becomes_a_run_folder(make_log: MakeLog, tmp_path: Path) -> None:
    make_log("asterix", 3, (100, 250, 0, 50))
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert result.exit_code == 0
    assert result.folders == [tmp_path / "runs" / "printed" / "asterix" / "seed-3"]
    (trial,) = read_runs([tmp_path / "runs"]).trials
    assert trial.scores.tolist() == [100, 250, 0, 50]
    assert trial.episode_frames.tolist() == [200, 400, 600, 800]
    assert trial.config["observation"] == "single"
    assert trial.manifest.source == "released logs"
    assert trial.manifest.remarks == []
    assert trial.wall_seconds == 7 * 60
    rtm_sets = trial.metric("rtm_sets")
    assert rtm_sets is not None
    assert rtm_sets.tolist() == [0, 14, 28, 42]
    assert trial.metric("td_error") is None


def test_twenty_frames_an_iteration_are_stacked_frames(make_log: MakeLog, tmp_path: Path) -> None:
    make_log(per_step=20)
    import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=100)
    (trial,) = read_runs([tmp_path / "runs"]).trials
    assert trial.config["observation"] == "stacked"


def test_several_games_and_a_second_import_of_the_same_logs(make_log: MakeLog, tmp_path: Path) -> None:
    for game, trial in (("asterix", 1), ("asterix", 2), ("freeway", 1)):
        make_log(game, trial)
    first = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    again = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert first.folders == again.folders
    assert len(read_runs([tmp_path / "runs"]).trials) == 3


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_last_line_without_its_newline(make_log: MakeLog, tmp_path: Path, is_whole: bool) -> None:
    path = make_log()
    path.write_bytes(path.read_bytes()[: -1 if is_whole else -30])
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=600)
    (trial,) = read_runs([tmp_path / "runs"]).trials
    assert trial.scores.size == (4 if is_whole else 3)
    assert [finding.severity for finding in result.findings] == ([] if is_whole else ["note", "note"])


def test_a_log_below_the_budget_stays_unfinished(make_log: MakeLog, tmp_path: Path) -> None:
    make_log()
    import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs")
    runs = read_runs([tmp_path / "runs"])
    assert (len(runs.trials), len(runs.running)) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Count": 9}, "Count is 9, expected 2"),
        ({"Rom": "freeway"}, "Rom is 'freeway', expected 'asterix'"),
        ({"Episodes": 7}, "Episodes is 7"),
        ({"EndEp": "no"}, "EndEp is 'no'"),
        ({"Itr": 3}, "Itr is 3 after 40"),
        ({"TotalFramesNumber": 4}, "TotalFramesNumber is 4 after 200"),
        ({"CurrEpRewardSum": 126}, "EpRewardsSum is 225, the scores so far make 226"),
        ({"CurrEpRewardSum": float("nan")}, "CurrEpRewardSum is nan"),
        ({"CurrEpRewardSum": "5"}, "CurrEpRewardSum is 5, expected a number"),
        ({"Time": "yesterday"}, "Time is 'yesterday'"),
        ({"EpFramesNumber": -1}, "EpFramesNumber is -1"),
    ],
)
def test_a_changed_line_is_refused_with_its_number(
    make_log: MakeLog, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = make_log()
    make_log(trial=2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2] |= changes
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert result.exit_code == 3
    assert f"{path}, line 3: {message}" in result.findings[0].text
    assert len(result.folders) == 1, "the intact log is imported all the same"
    assert sorted(p.name for p in (tmp_path / "runs" / "printed" / "asterix").iterdir()) == ["seed-2"]


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("change", ["delete", "repeat"])
def test_a_missing_or_repeated_line_is_refused(make_log: MakeLog, tmp_path: Path, index: int, change: str) -> None:
    path = make_log()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:index] + lines[index + 1 :] if change == "delete" else lines[: index + 1] + lines[index:]))
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    if (change, index) == ("delete", 7):  # without its last line a log is merely shorter: it stays below its budget
        assert read_runs([tmp_path / "runs"]).trials == []
    else:
        assert result.exit_code == 3


def test_an_average_that_breaks_the_rule_is_remarked_upon(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["AvgEpReturn"] = 1.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert [finding.text[:33] for finding in result.findings] == ["Line 8: AvgEpReturn is 1.0, by th"]


def test_what_the_user_gets_wrong_is_said(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    runs = tmp_path / "runs"
    with pytest.raises(UsageError, match="no such folder"):
        import_release(tmp_path / "nowhere", agent="a", out=runs)
    with pytest.raises(UsageError, match="--agent"):
        import_release(tmp_path / "released", agent="../a", out=runs)
    import_release(tmp_path / "released", agent="a", out=runs)
    path.write_text(path.read_text().replace("0.9", "0.8"))
    with pytest.raises(UsageError, match="already holds another run"):
        import_release(tmp_path / "released", agent="a", out=runs)
    with pytest.raises(UsageError, match=r"no progress.json"):
        import_release(runs, agent="a", out=runs)


def test_two_logs_of_one_trial_are_refused(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    other = tmp_path / "released" / "stacked" / path.parent.name / path.name
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match="both claim asterix, trial 1"):
        import_release(tmp_path / "released", agent="a", out=tmp_path / "runs")


# What the published logs are like, and others of their family


def rewritten(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def test_a_log_begun_twice_counts_from_its_second_beginning(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    earlier = [
        line | {"Time": "04-09-2021 10:00:00", "CurrEpRewardSum": 0, "EpRewardsSum": 0.0} for line in _first_lines(path)
    ]
    rewritten(path, lambda lines: earlier + lines)
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert [finding.text for finding in result.findings] == [
        "Line 2: the log begins a second time; the 1 lines before are left out."
    ]
    (trial,) = read_runs([tmp_path / "runs"]).trials
    assert trial.scores.tolist() == [100, 250, 0, 50]
    assert len(trial.metrics["steps"]) == 4


def _first_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text().splitlines()[0])]


def test_a_sum_that_begins_again_within_an_episode_is_remarked_upon(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()

    def forget(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The second episode's sum goes on from the first one's, and begins again at its end."""
        lines[2]["CurrEpRewardSum"], lines[3]["CurrEpRewardSum"] = 225, 125
        return lines

    rewritten(path, forget)
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert result.exit_code == 0
    remarks = [finding.text for finding in result.findings]
    assert "the first of them line 3, the sum of an episode's rewards did not begin with the episode." in remarks[0]
    (trial,) = read_runs([tmp_path / "runs"]).trials
    assert trial.scores.tolist() == [100, 125, 0, 50], "the score of the line that ends the episode"


def test_a_log_that_ends_within_an_episode_after_its_budget_is_finished(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    rewritten(path, lambda lines: lines[:-1])
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=650)
    left = "the episode is left out, and the scores end at 600 frames."
    assert [finding.text for finding in result.findings] == [f"The log ends within an episode, after 700 frames; {left}"]
    runs = read_runs([tmp_path / "runs"])
    assert [trial.scores.tolist() for trial in runs.trials] == [[100, 250, 0]]
    assert runs.findings == []


def test_an_empty_line_is_remarked_upon(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    path.write_text(path.read_text() + "\n")
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert [finding.text for finding in result.findings] == ["Line 9 is empty."]


@pytest.mark.parametrize(
    ("name", "seed"), [("asterix_7", 7), ("7", 7), ("run7/logs", 7), ("Asterix (first)", 1), ("v5-asterix-007", 7)]
)
def test_other_names_of_folders_are_understood(name: str, seed: int, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    (tmp_path / "other" / name).mkdir(parents=True)
    path.rename(tmp_path / "other" / name / path.name)
    result = import_release(tmp_path / "other", agent="printed", out=tmp_path / "runs", frames=800)
    assert [folder.name for folder in result.folders] == [f"seed-{seed}"]
    assert [finding.text for finding in result.findings] == (
        ["Its folder's name does not end with a trial number; it is taken as trial 1 of asterix."] if seed == 1 else []
    )


def test_a_log_that_is_odd_throughout_does_not_fill_its_manifest(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(scores=tuple(range(29)))
    rewritten(path, lambda lines: [line | {"AvgEpReturn": "\x1b[31m" + "x" * 1000} for line in lines])
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert len(result.findings) == 21
    assert result.findings[-1].text == "And 9 more."
    assert all(finding.text.isprintable() for finding in result.findings)
    assert len(read_runs([tmp_path / "runs"]).trials) == 1


def test_a_line_without_end_and_a_pipe_are_refused(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    with open(path, "ab") as file:
        file.truncate(10**10)  # holes: no byte of it is on disk
    pipe = tmp_path / "released" / "v5-asterix-2" / "progress.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    result = import_release(tmp_path / "released", agent="printed", out=tmp_path / "runs", frames=800)
    assert result.exit_code == 3
    assert (len(result.folders), len(result.findings)) == (0, 2)
