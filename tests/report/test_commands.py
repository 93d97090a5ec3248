"""`comper report` and `comper import-release`: what they print, and their exit codes."""

from __future__ import annotations

import csv
import webbrowser
from argparse import ArgumentParser
from pathlib import Path

import pytest

from comper.cli import main
from comper.errors import ComperError
from comper.report.commands import COMMANDS, open_in_browser
from comper.report.report import report

from .conftest import MakeLog, MakeRun


def _run(name: str, *arguments: object) -> int:
    parser = ArgumentParser()
    command = COMMANDS[name]
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(argument) for argument in arguments]))


def test_the_commands_answer_with_exit_codes(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(seed=0)
    make_run(seed=1, finished=False)
    assert _run("report", tmp_path / "runs", "--out", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "1 trial, 1 unfinished ones named but not averaged in" in captured.out
    assert "Figures drawn" in captured.err
    (make_run(seed=2) / "episodes.jsonl").write_text("no\n")
    assert _run("report", tmp_path / "runs", "--out", tmp_path / "out", "--no-progress") == 3
    assert "error: Left out" in capsys.readouterr().err
    for bad in ("-1", "x"):
        with pytest.raises(SystemExit):
            _run("report", tmp_path, "--out", tmp_path / "out", "--seed", bad)
    with pytest.raises(ComperError):
        _run("import-release", tmp_path, "--agent", "a", "--out", tmp_path / "runs")


@pytest.mark.parametrize(
    ("is_there", "says"), [(True, "Shown in a browser: file:///"), (False, "No browser was found here. Open")]
)
def test_the_page_is_opened_where_there_is_a_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_there: bool, says: str
) -> None:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return is_there

    monkeypatch.setattr(webbrowser, "open", open_page)
    assert open_in_browser(tmp_path / "index.html").startswith(says)
    assert opened == [(tmp_path / "index.html").as_uri()]


@pytest.mark.usefixtures("no_figures")
def test_published_logs_are_compared_with_print(make_log: MakeLog, tmp_path: Path) -> None:
    make_log("asterix", 1, (239,) * 12)
    _run("import-release", tmp_path / "released", "--agent", "printed", "--out", tmp_path / "runs", "--frames", 2400)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    rows = list(csv.reader((tmp_path / "out" / "tables" / "printed_counts.csv").read_text().splitlines()))
    assert [row[:2] for row in rows[1:]] == [["Table 1", "2"], ["Table 2", "6"]]
    assert "printed_differences" in {table.name for table in result.tables}


def test_escape_codes_in_names_do_not_reach_the_terminal(
    make_run: MakeRun, tmp_path: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(out=tmp_path / "\x1b[31mruns", scores=[1.0])
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "\x1b[2Jreport"), "--no-progress"]) == 0
    captured = capsys.readouterr()
    assert "\\x1b[2Jreport" in captured.out
    assert "\\x1b[31mruns" in captured.err
    assert "\x1b" not in captured.out + captured.err
