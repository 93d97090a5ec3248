"""The importer of the logs published with the paper."""

from __future__ import annotations

import json
from pathlib import Path

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
