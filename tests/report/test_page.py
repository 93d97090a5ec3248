"""The page: what a single run gets, what other environments get, and what the head says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comper.report import page as page_module
from comper.report.report import report

from .conftest import MakeRun, write_manifest


def test_a_single_run_gets_a_short_page_that_says_what_next(make_run: MakeRun, tmp_path: Path) -> None:
    write_manifest(make_run(seed=3, scores=[700.0] * 10, length=10_000), changed={"discount": [0.5, 0.99]})
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    html = result.page.read_text()
    assert result.figures == ["every_episode", "log_comper-single"]
    assert "comper train asterix --agent comper-single --discount 0.5 --seed 4 --trials 4" in html
    assert "discount = 0.5 instead of 0.99" in html
    assert "fewer than 5" not in html
    assert "<b>700.00</b><span>score</span>" in html


def test_two_agents_get_a_page_that_compares_them(make_run: MakeRun, tmp_path: Path) -> None:
    for agent, score in (("ours", 20.0), ("theirs", 10.0)):
        for seed in range(3):
            make_run(agent, "freeway", seed, [score + seed] * 3)
    page = report([tmp_path / "runs"], tmp_path / "out", progress=False).page.read_text()
    assert "<h1>ours against theirs</h1>" in page
    order = [
        page.index(f'id="{name}"') for name in ("learning", "compare", "figure-differences", "table-differences", "glance")
    ]
    assert order == sorted(order)


def test_other_environments_stand_under_their_own_heading(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        make_run("ours", "gym:CartPole-v1", seed)
        make_run("ours", "my_module:make_env", seed)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    html = result.page.read_text()
    assert "<h2>Gymnasium environments</h2>" in html
    assert "<h2>Other environments</h2>" in html
    assert {"learning_curves_gym", "learning_curves_other", "details_gym-CartPole-v1"} <= set(result.figures)
    assert "printed_counts" not in html
    assert "last_episodes" not in html


@pytest.mark.usefixtures("no_figures")
def test_no_label_of_the_papers_source_is_on_the_page(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        make_run(game="freeway", seed=seed)
    html = report([tmp_path / "runs"], tmp_path / "out", progress=False).page.read_text()
    assert "arXiv 2111.06907, Tables 1 and 2" in html
    assert "results_sumary" not in html


@pytest.mark.usefixtures("no_figures")
def test_one_score_has_the_same_digits_in_every_table(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        make_run("ours", "freeway", seed, [20.0, 21.0, 21.999])  # mean 20.99966...
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    tables = {table.name: table.to_csv() for table in result.tables}
    for name in ("last_episodes", "per_game", "trials"):
        assert "20.99" in tables[name]
        assert "21.00" not in tables[name]


def test_every_section_a_table_or_figure_names_exists(make_run: MakeRun, tmp_path: Path) -> None:
    for game in ("freeway", "gym:CartPole-v1", "minigrid:Empty-v0"):
        for seed in range(2):
            make_run(game=game, seed=seed)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert {table.section for table in result.tables} <= set(page_module.SECTIONS)
    html = result.page.read_text()
    for name in result.figures:
        assert f'id="figure-{name}"' in html


def test_digits_are_grouped_by_space_alone() -> None:
    grouped = page_module.group_digits("1234567.89")
    assert re.sub(r"<[^>]+>", "", grouped) == "1234567.89"
    assert grouped.count('class="k"') == 2
    assert page_module.group_digits("1234.5") == "1234.5"
    assert page_module.group_digits("Table 12345") == "Table 12345"


def test_backticks_become_code_and_nothing_else_does() -> None:
    assert page_module.with_code("run `comper agents`, &lt;b&gt;") == "run <code>comper agents</code>, &lt;b&gt;"
