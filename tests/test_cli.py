"""The command line: what it prints, what it refuses, and how quickly it helps."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import comper.__main__
from comper.agents.registry import AGENTS
from comper.cli import COMMANDS, main
from comper.protocol import PAPER_GAMES


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "comper", *words], capture_output=True, text=True, timeout=120, check=False)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one or two sentences on stderr that a wrong command gets, with exit code 2."""
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert 1 <= len(captured.err.strip().splitlines()) <= 2
    return captured.err


@pytest.mark.parametrize(
    "words",
    [
        ["resume", ""], ["resume", ".", "--weights-only", "--out", ""], ["verify", ""], ["evaluate", ""], ["report", ""],
        ["report", ".", "--out", ""], ["floors", "freeway", "--out", ""], ["train", "freeway", "--config", ""],
        ["watch", ""], ["memory", ""], ["import-release", "", "--agent", "a", "--out", "b"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_name_is_not_the_working_folder(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs a name" in refusal(capsys, *words)


def test_a_flag_without_its_value_gets_a_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--agent: expected one argument" in refusal(capsys, "train", "freeway", "--agent")


def test_help_is_quick_and_imports_no_torch() -> None:
    script = "import sys; from comper.cli import main; main([]); print('torch' in sys.modules, 'numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("False False\n")
    # The best of three: a busy machine may be slow, a quick command is quick at least once. Measured: 0.06 s.
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert run("--help").returncode == 0
        times.append(time.perf_counter() - began)
    assert min(times) < 1.0


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert f"comper {command}" in text


def test_help_of_train_lists_the_hyper_parameters_of_the_chosen_agent(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--agent", "dqn", "--help"])
    text = capsys.readouterr().out
    assert "--replay-capacity" in text
    assert "--qlstm-epochs" not in text


def test_agents_and_games_are_listed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(AGENTS)
    assert main(["games"]) == 0
    games = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(games) > 100
    assert set(PAPER_GAMES) <= set(games)


def test_output_into_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m comper games | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trian"], "Did you mean train"),
        (["study", "paper", "--frames", "9"], "The plan has the settings: write `settings = { frames = ... }` there."),
        (["study", "paper", "--lr", "0.1"], "write `settings = { step_size = ... }` there."),
        (["study", "paper", "--episode-cap-frames", "9"], "write `settings = { episode_cap_frames = ... }` there."),
        (["search", "my.toml", "--seed", "9"], "The plan says that: `seeds`."),
        (["study", "paper", "--agents", "dqn"], "The plan says that: `agents`."),
        (["train"], "ENV"),
        (["train", "freewai"], "freeway"),
        (["train", "freeway", "--agent", "commper"], "Agents: comper, comper-single"),
        (["train", "freeway", "--device", "tpu"], "auto, cpu, cuda"),
        (["train", "freeway", "--frames", "0"], "greater than 0"),
        (["train", "freeway", "--frames", "-5"], "greater than 0"),
        (["train", "freeway", "--frames", "many"], "not a number like 20000"),
        (["train", "freeway", "--trials", "0"], "at least 1 trial"),
        (["train", "freeway", "--seed", "-1"], "a seed is 0 or more"),
        (["train", "freeway", "--workers", "-1"], "0 or more"),
        (["train", "freeway", "--discount", "1.5"], "at most 1"),
        (["train", "freeway", "--agent", "comper-single", "--alignment", "sideways"], "successor, successor-fresh, set, max"),
        (
            ["train", "freeway", "--agent", "comper-single", "--similarity-threshold", "2", "--index", "exact"],
            "use l2 or faiss",
        ),
        (["train", "freeway", "--btach-size", "3"], "Did you mean --batch-size"),
        (
            ["train", "freeway", "--agent", "dqn", "--qlstm-epochs", "3"],
            "a setting of comper-single, comper-stacked, not of dqn",
        ),
        (
            ["train", "freeway", "--agent", "dqn", "--alignment", "max"],
            "a setting of comper-single, comper-stacked, not of dqn",
        ),
        (["describe", "comper", "--value-classes", "51"], "a setting of comper, which `comper train` takes"),
        (["train", "gym:ALE/Pong-v5"], "Did you mean pong?"),
        (["train", "gym:breakout"], "Did you mean breakout or minatar:breakout?"),
        (["train", "freeway", "--floors", "no-such-file.json"], "no-such-file.json: there is no such file"),
        (["report", "runs", "--floors", "no-such-file.json"], "no-such-file.json: there is no such file"),
        (["train", "freeway", "--out", "/proc/none"], "/proc/none: cannot be written"),
        (["completion", "tcsh"], "choose from 'bash', 'zsh', 'fish'"),
        (["train", "freeway", "--agent", "constant", "--action", "JUMP"], "NOOP"),
        (["train", "freeway", "--config", "no-such-file.toml"], "cannot be read"),
        (["describe", "nobody"], "Agents: comper, comper-single"),
        (["floors", "nogame"], "No environment is called"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_use_gets_a_sentence_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refusal(capsys, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("batch_sise = 3", "Did you mean batch_size"),
        ('batch_size = "three"', "must be of type int"),
        ("batch_size = true", "must be of type int"),
        ("batch_size = 1.5", "must be of type int"),
        ("batch_size = 0", "greater than 0"),
        ("discount = 1" + "0" * 400, "too large"),
        ("frames = 1" + "0" * 400, "at most 1,000,000,000,000"),
        ("batch_size = ", "not a TOML file"),
        ("[train]\nbatch_size = 3", "unknown setting 'train'"),
        ("a = " + "[" * 5000, "not a TOML file"),
        ("a = " + "9" * 5000, "not a TOML file"),
        ("#" * 70_000, "larger than"),
    ],
    ids=["typo", "text", "bool", "float", "zero", "large float", "large int", "torn", "table", "nested", "digits", "huge"],
)
def test_wrong_config_file_gets_a_sentence(
    content: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "my.toml"
    path.write_text(content)
    assert says in refusal(capsys, "train", "freeway", "--config", str(path), "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_config_that_is_no_text_gets_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_bytes(b"\xff\xfe\x00")
    assert "not a TOML file" in refusal(capsys, "train", "freeway", "--config", str(tmp_path / "my.toml"))
    assert "cannot be read" in refusal(capsys, "train", "freeway", "--config", str(tmp_path))


@pytest.mark.parametrize(
    ("plan", "command"),
    [
        ('environments = ["freeway"]\nagents = ["dqn"]\nseeds = 2\n', "study"),
        ('environments = ["freeway"]\nagent = "dqn"\n[search]\ndiscount = [0.9, 0.99]\n', "search"),
    ],
)
def test_a_plan_is_not_taken_for_settings(plan: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my plan.toml"
    path.write_text(plan)
    said = refusal(capsys, "train", "freeway", "--config", str(path), "--out", str(tmp_path / "runs"))
    assert "environments, " in said
    assert f"a plan, not the settings of one run. `comper {command} '{path}'` runs it." in said
    path.write_text('frame = 20\nagent = "dqn"\n')
    assert "Did you mean frames or" in refusal(capsys, "train", "freeway", "--config", str(path))


def test_folder_that_cannot_be_made_gets_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refusal(capsys, "train", "pong", "--agent", "random", "--out", str(tmp_path / "file"))


def test_flags_go_before_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('frames = 300\naction = "FIRE"\nepisode_cap_frames = 400\n')
    words = ["train", "pong", "--agent", "constant", "--config", str(tmp_path / "my.toml"), "--action", "UP"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    config = (tmp_path / "constant" / "pong" / "seed-0" / "config.toml").read_text()
    assert 'action = "UP"' in config
    assert "frames = 300" in config


def test_an_interrupt_while_the_command_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "comper.cli", Interrupted("comper.cli"))
    assert comper.__main__.main() == 130
    assert capsys.readouterr().err == "comper: interrupted.\n"


def test_the_command_is_the_one_that_hears_interrupts_early() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["comper"] == "comper.__main__:main"
