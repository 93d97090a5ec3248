"""A report end to end: its files, its determinism, its exit codes, and the page in a real browser."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import comper.report.report
from comper.errors import DamagedFileError, UsageError
from comper.report.report import ReportResult, report

from . import chromium
from .conftest import MakeRun


def _runs(make_run: MakeRun, *, seeds: int = 3) -> None:
    for seed in range(seeds):
        make_run("comper-single", "freeway", seed)
        make_run("comper-single", "video_pinball", seed, [15_000.0 + 900 * seed + 10 * i for i in range(12)])
        make_run("dqn", "freeway", seed, [float(i) for i in range(20 + seed)], memory=False)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_report_writes_page_tables_and_figures(make_run: MakeRun, tmp_path: Path) -> None:
    _runs(make_run)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert (result.trials, result.exit_code) == (9, 0)
    names = set(_contents(tmp_path / "out"))
    for table in ("last_episodes", "thirds", "per_game", "aggregates", "improvement", "floors", "trials"):
        assert {f"tables/{table}.csv", f"tables/{table}.tex"} <= names
    for figure in (
        "score_against_floor", "iterations_per_trial", "set_sizes", "set_sizes_over_episodes", "occurrences", "memory_sizes",
        "details_freeway", "learning_curves", "wall_time", "performance_profiles", "aggregates", "improvement",
        "log_comper-single", "log_dqn",
    ):  # fmt: skip
        assert {f"figures/{figure}.svg", f"figures/{figure}.png"} <= names


def test_the_same_runs_give_the_same_bytes(make_run: MakeRun, tmp_path: Path) -> None:
    _runs(make_run, seeds=2)
    for out in ("first", "second"):
        report([tmp_path / "runs"], tmp_path / out, progress=False)
    assert _contents(tmp_path / "first") == _contents(tmp_path / "second")
    report([tmp_path / "runs"], tmp_path / "third", seed=1, progress=False)
    assert _contents(tmp_path / "first")["index.html"] != _contents(tmp_path / "third")["index.html"]


def test_a_later_report_removes_what_it_no_longer_writes_and_nothing_else(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        make_run(game="freeway", seed=seed)
        make_run(game="asterix", seed=seed, out=tmp_path / "others")
    report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert "figures/details_freeway.svg" in _contents(tmp_path / "out")
    (tmp_path / "out" / "figures" / "mine.svg").write_text("kept")
    report([tmp_path / "others"], tmp_path / "out", progress=False)
    names = set(_contents(tmp_path / "out"))
    assert "figures/details_freeway.svg" not in names
    assert {"figures/details_asterix.svg", "figures/mine.svg"} <= names


@pytest.mark.usefixtures("no_figures")
def test_damage_is_reported_and_the_rest_is_whole(make_run: MakeRun, tmp_path: Path) -> None:
    _runs(make_run)
    expected = report([tmp_path / "runs"], tmp_path / "before", progress=False)
    broken = make_run("comper-single", "freeway", 9)
    log = broken / "episodes.jsonl"
    log.write_text(log.read_text().replace('"score": ', '"score": 1', 1))
    result = report([tmp_path / "runs"], tmp_path / "after", progress=False)
    assert (expected.exit_code, result.exit_code) == (0, 3)
    assert _cells(expected) == _cells(result), "a damaged run changes no number"
    html = result.page.read_text()
    assert "Left out" in html
    assert "seed-9/episodes.jsonl" in html


def _cells(result: ReportResult) -> dict[str, Any]:
    return {table.name: table.csv_rows() for table in result.tables}


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("change", ["edit", "delete", "repeat"])
def test_one_changed_line_never_changes_a_mean_silently(make_run: MakeRun, tmp_path: Path, change: str) -> None:
    make_run(seed=0)
    path = make_run(seed=1) / "episodes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for index in range(len(lines)):
        edited = json.dumps(json.loads(lines[index]) | {"score": 999.0}) + "\n"
        middle = {"edit": [edited], "delete": [], "repeat": [lines[index]] * 2}[change]
        path.write_text("".join(lines[:index] + middle + lines[index + 1 :]))
        result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
        assert (result.exit_code, result.trials) == (3, 1)


def test_nothing_to_report_is_said(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No run folders"):
        report([tmp_path], tmp_path / "out", progress=False)
    folder = make_run(finished=False)
    with pytest.raises(UsageError, match=r"No run is finished yet: 1 runs or was interrupted"):
        report([tmp_path], tmp_path / "out", progress=False)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DamagedFileError, match="No run can be reported"):
        report([tmp_path], tmp_path / "out", progress=False)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_an_earlier_index_is_not_waited_for(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "report.json")
    report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert (tmp_path / "out" / "report.json").is_file()


@pytest.mark.parametrize("place", ["file", "file/x", "a" * 300, "loop", "half"])
def test_an_unwritable_place_is_a_mistake_of_the_caller_and_refused_before_the_work(
    place: str, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "figures").write_text("")
    monkeypatch.setattr(comper.report.report, "read_runs", pytest.fail)
    with pytest.raises(UsageError, match="cannot be written"):
        report([tmp_path / "runs"], tmp_path / place, progress=False)


def test_one_trial_of_an_unknown_game_makes_a_page(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("mine", "gopher", 0, [1.0], memory=False)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert result.exit_code == 0
    assert "No floor has been measured" in result.page.read_text()


def test_the_report_imports_no_agent_no_torch_and_no_drawing_until_needed() -> None:
    code = (
        "import sys, comper.report.commands, comper.report.report, comper.report.published.release; "
        "heavy = {'torch', 'ale_py', 'matplotlib', 'jinja2', 'rich', 'scipy', 'comper.agents', 'comper.training'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_named(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    make_run()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=rf'{missing}: pip install "comper\[report\]"'):
        report([tmp_path], tmp_path / "out", progress=False)


@pytest.mark.usefixtures("no_figures")
def test_the_page_escapes_what_the_folders_say(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    manifest = json.loads((folder / "manifest.json").read_text()) | {
        "device": "<script>alert(1)</script>",
        "remarks": ["<b>x</b>"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    html = report([tmp_path / "runs"], tmp_path / "out", progress=False).page.read_text()
    assert "<script" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html


@pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium on PATH")
def test_the_page_in_a_real_browser(make_run: MakeRun, tmp_path: Path) -> None:
    _runs(make_run)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    with chromium.Browser(tmp_path / "profile") as browser:
        for width, dark in ((1280, False), (380, False), (1280, True)):
            browser.open(result.page, width=width, dark=dark)
            assert browser.complaints() == []
            assert browser.requests() == [result.page.as_uri()]
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, "only boxes scroll sideways"
            _check_figures(browser, result.figures)
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 21)"
        for table in result.tables:
            _check_table(browser, tmp_path / "out" / "tables" / f"{table.name}.csv", table.name, has_best=table.has_best)
        assert browser.pdf().startswith(b"%PDF")


def _check_figures(browser: chromium.Browser, names: list[str]) -> None:
    script = "[...document.querySelectorAll('figure')].map(f => {const r = f.querySelector('svg').getBoundingClientRect();"
    script += "return [f.id, r.width > 100, r.height > 50, f.querySelector('figcaption').innerText.length > 20]})"
    assert sorted(browser.evaluate(script)) == sorted([f"figure-{name}", True, True, True] for name in names)
    ids = browser.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def _check_table(browser: chromium.Browser, path: Path, name: str, *, has_best: bool) -> None:
    script = f"[...document.querySelectorAll('table[data-table={name}] tbody tr')].map(tr => "
    script += "[...tr.querySelectorAll('[data-v]')].map(v => v.hasAttribute('data-none') ? '' : v.textContent))"
    with open(path, newline="") as file:
        _, *rows = csv.reader(file)
    assert browser.evaluate(script) == [row[:-1] if has_best else row for row in rows]


@pytest.mark.parametrize("number", [1e308, -1e308])
def test_numbers_too_large_to_draw_are_left_out(number: float, make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0, metrics={"mine": number, "other": 1.0})
    make_run(seed=1, metrics={"mine": 1.0})
    make_run(seed=2, scores=[number] * 3)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert (result.trials, result.exit_code) == (2, 3)
    assert "a score beyond 1e+100 cannot be averaged" in result.page.read_text()


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("name", ["tables", "figures"])
def test_nothing_is_written_through_a_link_inside_the_report(name: str, make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    for folder in ("elsewhere", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="a link"):
        report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert list((tmp_path / "elsewhere").iterdir()) == []
