"""Learning curves: what is averaged where."""

from __future__ import annotations

from pathlib import Path

from comper.report.figures.learning import learning_curve, score_against_floor

from ..conftest import MakeRun, summary_of


def test_a_curve_averages_the_episodes_of_each_stretch(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=[1.0, 2.0, 3.0, 4.0])
    make_run(seed=1, scores=[3.0, 4.0, 5.0, 6.0])
    trials = summary_of(tmp_path).runs.trials
    frames, mean, low, high = learning_curve(trials, points=2)  # 400 frames: episodes end at 100, 200 | 300, 400
    assert frames.tolist() == [100, 300]
    assert (mean.tolist(), low.tolist(), high.tolist()) == ([2.5, 4.5], [1.5, 3.5], [3.5, 5.5])


def test_episodes_after_the_budget_count_in_the_last_stretch(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(scores=[1.0, 1.0, 1.0, 9.0], frames=350)  # the last ends at 400, alone past the budget
    frames, mean, *_ = learning_curve(summary_of(tmp_path).runs.trials, points=2)
    assert frames.tolist() == [87.5, 262.5]
    assert mean.tolist() == [1, (1 + 1 + 9) / 3]


def test_where_episodes_are_few_a_point_is_the_mean_of_several(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        make_run(seed=seed, scores=[1.0, 2.0, 3.0, 4.0])
    frames, mean, *_ = learning_curve(summary_of(tmp_path).runs.trials)  # 8 episodes of 2 trials: 2 points, not 20
    assert (frames.tolist(), mean.tolist()) == ([100, 300], [1.5, 3.5])


def test_a_trial_with_many_short_episodes_counts_once(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=[0.0, 0.0, 0.0, 0.0], length=200)
    make_run(seed=1, scores=[1.0] * 80, length=10)
    frames, mean, low, high = learning_curve(summary_of(tmp_path).runs.trials)
    assert frames.tolist() == [200, 600]
    assert (mean.tolist(), low.tolist(), high.tolist()) == ([0.5, 0.5], [0, 0], [1, 1])


def test_a_trial_without_an_episode_in_a_stretch_still_counts(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, scores=[4.0, 4.0, 4.0, 4.0], length=10)  # of 400 frames
    make_run(seed=1, scores=[2.0, 2.0, 2.0, 2.0])
    assert learning_curve(summary_of(tmp_path).runs.trials, points=2)[1].tolist() == [3, 3]


def test_bbf_is_named_only_where_its_score_is_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(game="minigrid:Empty-8x8-v0", scores=[0.5, 0.6], frame_skip=1, out=tmp_path / "grid")
    make_run(game="freeway", scores=[20.0, 21.0], out=tmp_path / "atari")
    for folder, is_named in ((tmp_path / "grid", False), (tmp_path / "atari", True), (tmp_path, True)):
        (plot,) = score_against_floor(summary_of(folder))
        labels = [text.get_text() for drawn in plot.figure.legends for text in drawn.get_texts()]
        assert (any("BBF" in label for label in labels), "BBF" in plot.sentence) == (is_named, is_named)
