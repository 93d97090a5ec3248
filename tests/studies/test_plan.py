"""Plans: what they may say, and that everything wrong is refused with the file and the key before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from comper.errors import OutsideCodeError, UsageError
from comper.studies.plan import read_plan

PLANS = sorted((Path(__file__).parents[2] / "examples" / "plans").glob("*.toml"))
EXAMPLES = [path for path in PLANS if "[search]" not in path.read_text()]  # those are in test_settings_search.py
GOOD = """
environments = ["gym:CartPole-v1"]
seeds = 2
settings = { frames = 500 }
"""


def plan_of(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_plan(path: Path) -> None:
    assert read_plan(str(path)).trials


def test_the_papers_plan_is_its_120_trials() -> None:
    plan = read_plan("paper")
    assert (plan.name, len(plan.variants), len(plan.trials)) == ("paper", 3, 120)
    assert {trial.frames for trial in plan.trials} == {100_000}


def test_agents_and_a_grid_make_every_combination(tmp_path: Path) -> None:
    text = GOOD + 'agents = ["dqn", "ddqn"]\n[grid]\ndiscount = [0.9, 0.99]\nbatch_size = [16]\n'
    plan = read_plan(plan_of(tmp_path, text))
    assert [variant.name for variant in plan.variants] == [
        f"{agent}+discount={value}+batch_size=16" for agent in ("dqn", "ddqn") for value in (0.9, 0.99)
    ]
    assert {trial.settings.config.frames for trial in plan.trials} == {500}
    assert [trial.seed for trial in plan.trials] == [0] * 4 + [1] * 4, "the first seeds of all come first"


def test_a_variant_takes_from_the_top_what_it_does_not_say(tmp_path: Path) -> None:
    text = GOOD + 'agent = "dqn"\n[[variants]]\nname = "as-above"\n'
    text += (
        '[[variants]]\nname = "own"\nagent = "ddqn"\nseeds = [7]\nenvironments = "asterix"\nsettings = { discount = 0.5 }\n'
    )
    above, own = read_plan(plan_of(tmp_path, text)).variants
    assert (above.agent, above.seeds, above.environments[0][0].name) == ("dqn", (0, 1), "gym:CartPole-v1")
    (spec, settings), seeds = own.environments[0], own.seeds
    assert (own.agent, seeds, spec.name) == ("ddqn", (7,), "asterix")
    assert (settings.config.frames, settings.config.discount) == (500, 0.5)  # type: ignore[attr-defined]


def test_a_trial_is_kept_in_the_folder_of_its_variant(tmp_path: Path) -> None:
    plan = read_plan(plan_of(tmp_path, GOOD + 'agents = ["dqn"]'))
    assert plan.trials[1].path(tmp_path) == tmp_path / "dqn" / "dqn" / "gym-CartPole-v1" / "seed-1"


WRONG = {
    "unknown key 'enviroments'. Did you mean environments?": 'enviroments = ["pong"]\nagents = ["dqn"]\nseeds = 1',
    "unknown key 'frames'. Keys: ": GOOD + 'frames = 3\nagents = ["dqn"]',
    "variant 1: unknown key 'setings'": GOOD + '[[variants]]\nname = "x"\nagent = "dqn"\nsetings = {}',
    "variant 2: it needs a name": GOOD + 'agent = "dqn"\n[[variants]]\nname = "x"\n[[variants]]\nseeds = 1',
    "two variants are called 'x'": GOOD + 'agent = "dqn"\n[[variants]]\nname = "x"\n[[variants]]\nname = "x"',
    "variant '../x': a name is made of": GOOD + 'agent = "dqn"\n[[variants]]\nname = "../x"',
    "Unknown agent 'dqm'": GOOD + 'agents = ["dqm"]',
    "variant 'x': unknown setting 'discont'": GOOD + '[[variants]]\nname = "x"\nagent = "dqn"\nsettings = { discont = 1 }',
    "discount = 'high' must be of type float": GOOD + 'agents = ["dqn"]\n[grid]\ndiscount = ["high"]',
    "grid.discount = 0.9: must be a list": GOOD + 'agents = ["dqn"]\n[grid]\ndiscount = 0.9',
    "No environment is called 'pongg'": 'environments = ["pongg"]\nseeds = 1\nagents = ["dqn"]',
    "`seeds` is missing": 'environments = ["pong"]\nagents = ["dqn"]',
    "seeds = 0: must be how many": 'environments = ["pong"]\nagents = ["dqn"]\nseeds = 0',
    "seeds = [1, 1]: must be": 'environments = ["pong"]\nagents = ["dqn"]\nseeds = [1, 1]',
    "seeds = True: must be": 'environments = ["pong"]\nagents = ["dqn"]\nseeds = true',
    "environments = 3: must be a name": 'environments = 3\nagents = ["dqn"]\nseeds = 1',
    "settings = 3: must be a table": 'environments = ["pong"]\nsettings = 3\nagents = ["dqn"]\nseeds = 1',
    "name the `agents`": GOOD,
    "give `grid` or [[variants]]": GOOD + 'agent = "dqn"\n[[variants]]\nname = "x"\n[grid]\ndiscount = [1]',
    "variants = 3: must be": GOOD + "variants = 3",
    "there is no variant": GOOD + "variants = []",
    "not a TOML file": "seeds = ",
    "a whole number of more than 4,096 bits": 'environments = ["pong"]\nagents = ["dqn"]\nseeds = 0x' + "f" * 20_000,
    "variant 'report': plan.toml and report belong to": GOOD + 'agent = "dqn"\n[[variants]]\nname = "report"',
    "variant 'Plan.toml': plan.toml and report": GOOD + 'agent = "dqn"\n[[variants]]\nname = "Plan.toml"',
    "at most 100,000 trials, and there are more": GOOD.replace("seeds = 2", "seeds = 100_000")
    + 'agents = ["dqn"]\n[grid]\nframes = [1, 2, 3]',
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_named_with_the_file(sentence: str, tmp_path: Path) -> None:
    path = plan_of(tmp_path, WRONG[sentence])
    with pytest.raises(UsageError) as error:
        read_plan(path)
    assert str(error.value).startswith(path)
    assert sentence in str(error.value)


def test_a_plan_is_a_file_and_code_that_it_names_must_be_trusted(tmp_path: Path) -> None:
    for given in ("no_plan", str(tmp_path / "none.toml")):
        with pytest.raises(UsageError, match=r"a plan is a|cannot be read"):
            read_plan(given)
    with pytest.raises(OutsideCodeError, match="add --trust my_module"):
        read_plan(plan_of(tmp_path, 'environments = ["my_module:make"]\nagents = ["dqn"]\nseeds = 1'))


def test_a_grid_of_too_many_combinations_is_refused_before_it_is_made(tmp_path: Path) -> None:
    numbers = list(range(1, 200))
    text = GOOD + f'agents = ["dqn"]\n[grid]\nbatch_size = {numbers}\nreplay_capacity = {numbers}\nframes = {numbers}\n'
    with pytest.raises(UsageError, match="too many combinations"):
        read_plan(plan_of(tmp_path, text))


def test_what_is_quoted_is_never_as_long_as_the_file(tmp_path: Path) -> None:
    for text in ("seeds = [" + "1, " * 20_000 + "]", f"seeds = 1\n{'k' * 50_000} = 1", f'seeds = "{"x" * 50_000}"'):
        with pytest.raises(UsageError) as error:
            read_plan(plan_of(tmp_path, 'environments = ["pong"]\nagents = ["dqn"]\n' + text))
        assert len(str(error.value)) < 2_100


def test_what_is_kept_is_what_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan_of(tmp_path, GOOD + 'agents = ["dqn"]')
    read, found = Path.read_bytes, []

    def once(self: Path) -> bytes:
        found.append(self)
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", once)
    assert read_plan(path).text == read(Path(path))
    assert found.count(Path(path)) == 1
