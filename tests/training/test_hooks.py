"""What a hook may be."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from comper.errors import UsageError
from comper.training.hooks import METHODS, Hook, checked_hooks
from comper.training.options import RunOptions
from comper.training.trackers import TensorBoard, WeightsAndBiases


def test_every_event_has_a_method_that_does_nothing() -> None:
    for name in METHODS.values():
        getattr(Hook(), name)(None)
    assert len(METHODS) == 6


@pytest.mark.parametrize("wrong", [Hook, print, "tensorboard", 3])
def test_what_is_no_hook_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"is not a hook: give objects whose class is derived from comper\.Hook"):
        checked_hooks([wrong])


def test_makers_can_be_sent_to_other_processes_and_hooks_cannot(tmp_path: Any) -> None:
    makers = checked_hooks([TensorBoard(str(tmp_path)), WeightsAndBiases("project")])
    options = RunOptions(hooks=makers)
    assert not options.needs_this_process
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 -- as processes hand it over
    assert RunOptions(hooks=(*makers, Hook())).needs_this_process
    assert not RunOptions().needs_this_process
