"""A study on a real Ray cluster of two nodes, one of which is killed: nothing is lost, and the bits are the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from comper.cli import main
from comper.errors import DamagedFileError, UsageError
from comper.studies import ray_cluster
from comper.studies.plan import Plan, read_plan
from comper.studies.ray_cluster import RayRunner, check_answers, read_run_files, write_run_files
from comper.studies.study import carry_out, open_study
from comper.training.display import TrialStatus
from comper.training.options import RunOptions
from comper.training.signals import StopRequest
from tests.studies.conftest import outcomes

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.timeout(900)]

OPTIONS = RunOptions(device="cpu", workers=0, checkpoint_period_steps=25, show_progress=False)
TEXT = """
environments = ["gym:CartPole-v1"]
seeds = 3
agents = ["comper-single"]
settings = { frames = 800, replay_start_steps = 8, target_period_steps = 12, log_period_steps = 10 }
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.parametrize("is_shared", [None, False], ids=["shared folder", "checkpoints through Ray"])
def test_a_node_killed_in_the_middle_costs_nothing(
    is_shared: bool | None, plan: Plan, alone: list[Any], cluster: Any, tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1)
    steps: dict[int, int] = {}
    killed_at: dict[int, int] = {}

    def follow(job: int, statuses: Sequence[TrialStatus]) -> None:
        steps[job] = statuses[0].steps
        if not killed_at and sum(count > 60 for count in steps.values()) == 2:
            cluster.remove_node(node, allow_graceful=False)
            killed_at.update(steps)

    study = open_study(plan, tmp_path)
    jobs = study.jobs(OPTIONS, OPTIONS.torch_device())
    run = RayRunner(cluster.address, is_shared)
    errors = run(carry_out, jobs, num_processes=2, request=StopRequest(), follow=follow)
    assert errors == {}
    assert len(killed_at) == 2, "both nodes, with one core each, were at work"
    assert outcomes(study) == alone
    assert len(open_study(plan, tmp_path).finished) == 3, "and would not be run again"
    assert not list(tmp_path.rglob(".ray-token"))


def test_a_request_to_stop_saves_all_and_no_worker_imports_from_the_working_folder(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = StopRequest()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "safetensors.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "long.toml").write_text(TEXT.replace("frames = 800", "frames = 1_000_000"))  # none ends before it is asked to
    plan = read_plan(str(tmp_path / "long.toml"))

    def follow(job: int, statuses: Sequence[TrialStatus]) -> None:
        request.name = "SIGTERM"

    study = open_study(plan, tmp_path)
    jobs = study.jobs(OPTIONS, OPTIONS.torch_device())
    errors = RayRunner(cluster.address)(carry_out, jobs, num_processes=2, request=request, follow=follow)
    assert sorted(errors) == [0, 1, 2]
    assert all("stopped by SIGTERM" in str(error) for error in errors.values())
    assert any((path / "checkpoints").is_dir() for job in jobs for path in job.paths)
    assert not (tmp_path / "ran").exists()


def test_an_address_where_nobody_listens_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound, but not listening
        with pytest.raises(UsageError, match=f"--ray {address}: nobody answers there"):
            check_answers(address)
        (tmp_path / "tiny.toml").write_text(TEXT)
        words = ["study", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out"), "--device", "cpu", "--ray", address]
        assert main(words) == 2
        assert "nobody answers there" in capsys.readouterr().err
    assert main(["study", str(tmp_path / "tiny.toml"), "--ray", ""]) == 2
    assert "an address is HOST:PORT" in capsys.readouterr().err
    for name in ("a" * 300, "\udcff"):
        with pytest.raises(UsageError, match="nobody answers there"):
            check_answers(f"{name}:80")
    for wrong in ("here", "host:", "host:99999", "host:x"):
        with pytest.raises(UsageError, match="an address is HOST:PORT"):
            check_answers(wrong)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_service_at_the_address_is_not_taken_for_ray(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "CONNECT_SECONDS", 0.5)  # the first one never answers
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=lambda: server.accept()[0].sendall(answer)).start()
        with pytest.raises(UsageError, match=f"--ray {address}: what listens there is not Ray"):
            check_answers(address)


def test_a_run_travels_whole_and_old_checkpoints_do_not_stay(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    for step in ("step-00000025", "step-00000050"):
        (run / "checkpoints" / step).mkdir(parents=True)
        (run / "checkpoints" / step / "state.json").write_text(step)
    assert read_run_files(run) == {}, "without a manifest it is no run"
    (run / "manifest.json").write_text("{}")
    (run / ".lock").touch()
    write_run_files(copy, read_run_files(run))
    assert read_run_files(copy) == read_run_files(run)
    assert not (copy / ".lock").exists()
    (run / "checkpoints" / "step-00000025" / "state.json").unlink()
    (run / "checkpoints" / "step-00000025").rmdir()
    write_run_files(copy, read_run_files(run))
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["step-00000050"]
    write_run_files(tmp_path / "none", {})
    assert not (tmp_path / "none").exists()


def small_run(folder: Path) -> Path:
    (folder / "checkpoints" / "step-00000025").mkdir(parents=True)
    (folder / "checkpoints" / "step-00000025" / "state.json").write_bytes(b"x" * 600)
    (folder / "episodes.jsonl").write_bytes(b"y" * 600)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_run_larger_than_any_is_neither_read_nor_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path / "run")
    assert len(read_run_files(run, max_bytes=1_202)) == 3
    with pytest.raises(DamagedFileError, match=r"run: cannot travel through Ray\. .*: 2 bytes, expected at most 1\."):
        read_run_files(run, max_bytes=1_201)
    with open(run / "weights.safetensors", "wb") as file:
        file.truncate(1 << 40)  # a sparse file: to read it would take all memory
    with pytest.raises(DamagedFileError, match="nodes that see the study's folder need none of them sent"):
        read_run_files(run)
    monkeypatch.setattr(ray_cluster, "MAX_RUN_BYTES", 100)
    with pytest.raises(DamagedFileError, match="101 bytes were sent through Ray; nothing was kept"):
        write_run_files(tmp_path / "copy", {"manifest.json": b"{}", "episodes.jsonl": b"z" * 99})
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "/outside",
        "checkpoints/../../outside",
        ".lock",
        "",
        "a/b",
        "a\0b",
        "\ud800",
        "x" * 300,
        "checkpoints",
        "checkpoints/x",
        "checkpoints//step-00000001/x",
        "checkpoints/step-00000001/a/b",
        "checkpoints/step-00000001/",
    ],
)
def test_names_that_are_sent_never_lead_out_of_the_run(name: str, tmp_path: Path) -> None:
    for files in ({"manifest.json": b"{}", name: b"x"}, {"episodes.jsonl": b""}):
        with pytest.raises(DamagedFileError, match="not the files of a run"):
            write_run_files(tmp_path / "runs" / "run", files)
    assert list(tmp_path.iterdir()) == []


def test_what_a_user_keeps_in_a_run_folder_stays_there(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    whole = read_run_files(run)
    (run / "notes" / "of mine").mkdir(parents=True)
    (run / "notes" / "of mine" / "a.txt").write_text("mine")
    (run / "checkpoints" / "why.txt").write_text("mine")
    assert read_run_files(run) == whole
    write_run_files(run, whole)
    assert (run / "notes" / "of mine" / "a.txt").read_text() == (run / "checkpoints" / "why.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["run", "run/checkpoints"])
def test_what_is_sent_is_not_written_through_a_link_nor_anything_removed_behind_it(place: str, tmp_path: Path) -> None:
    files = read_run_files(small_run(tmp_path / "sent"))
    (tmp_path / "outside" / "step-00000007").mkdir(parents=True)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="a link, which would be written through"):
        write_run_files(tmp_path / "run", files)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["step-00000007"]


def test_what_the_system_objects_to_while_a_run_is_kept_is_a_sentence(tmp_path: Path) -> None:
    files = read_run_files(small_run(tmp_path / "sent"))
    (tmp_path / "run" / "episodes.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"run: cannot be written \(Is a directory\)"):
        write_run_files(tmp_path / "run", files)


@pytest.mark.parametrize("plant", [lambda path: path.write_bytes(b"\xff" * 5), lambda path: path.symlink_to("/dev/zero")])
def test_a_planted_token_is_not_the_studys(plant: Callable[[Path], None], tmp_path: Path) -> None:
    plant(tmp_path / "token")
    assert not ray_cluster._reads(tmp_path / "token", "token")


def test_a_run_that_cannot_travel_is_the_error_of_its_job_alone(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.toml").write_text(TEXT.replace("seeds = 3", "seeds = 2").replace("frames = 800", "frames = 200"))
    study = open_study(read_plan(str(tmp_path / "two.toml")), tmp_path / "out")
    jobs = study.jobs(OPTIONS, OPTIONS.torch_device())
    with open(small_run(jobs[0].paths[0]) / "weights.safetensors", "wb") as file:
        file.truncate(1 << 40)
    run = RayRunner(cluster.address, is_shared=False)
    errors = run(carry_out, jobs, num_processes=1, request=StopRequest(), follow=lambda *_: None)
    assert {number: "cannot travel through Ray" in str(error) for number, error in errors.items()} == {0: True}
    assert "finished" in (jobs[1].paths[0] / "manifest.json").read_text()

    before = read_run_files(jobs[1].paths[0])
    monkeypatch.setattr(ray_cluster, "MAX_RUN_BYTES", 1_000)  # here alone: the node sends what is too much
    errors = run(carry_out, jobs[1:], num_processes=1, request=StopRequest(), follow=lambda *_: None)
    assert "bytes were sent through Ray; nothing was kept" in str(errors[0])
    assert read_run_files(jobs[1].paths[0]) == before
