"""What an environment says about itself."""

from __future__ import annotations

import numpy as np
import pytest

from comper.environments.environment import EnvironmentInfo, Step, observation_kind


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((84, 84), "pixels"),
        ((10, 10, 4), "pixels"),
        ((3, 40, 60), "pixels"),
        ((5, 5, 21), "pixels"),
        ((4,), "vector"),
        ((), "vector"),
        ((4, 84), "vector"),
        ((84, 4), "vector"),
        ((3, 3, 2), "vector"),
        ((4, 84, 3), "vector"),
        ((4, 84, 84, 3), "vector"),
    ],
)
def test_images_in_either_channel_order_are_told_from_vectors(shape: tuple[int, ...], kind: str) -> None:
    assert observation_kind(shape) == kind


def test_number_of_actions_is_that_of_their_names() -> None:
    info = EnvironmentInfo(
        name="toy",
        observation_shape=(1,),
        observation_dtype=np.dtype(np.uint8),
        observation_kind="vector",
        action_names=("left", "right"),
    )
    assert info.num_actions == 2
    assert (info.resume, info.floor, info.num_scored_episodes) == ("", None, 10)


@pytest.mark.parametrize("ends", [(True, False), (False, True)])
def test_step_is_the_last_at_a_game_over_and_at_the_cap(ends: tuple[bool, bool]) -> None:
    assert Step(np.zeros((1, 1)), 0.0, *ends, num_frames=1).is_last
