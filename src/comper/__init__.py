"""COMPER: Compact Experience Replay (arXiv 2111.06907).

    from comper import train
    folders = train("freeway", "comper-single", frames=20_000)

Names are imported when they are first used, so that the memory is usable without torch and without an emulator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comper.agents.agent import Agent as Agent
    from comper.agents.agent import AgentSpec as AgentSpec
    from comper.agents.agent import Task as Task
    from comper.agents.agent import TrialSetup as TrialSetup
    from comper.memory.compact import CompactMemory as CompactMemory
    from comper.protocol import AgentConfig as AgentConfig
    from comper.protocol import LearnerConfig as LearnerConfig
    from comper.settings import setting as setting
    from comper.training.evaluation import Evaluation as Evaluation
    from comper.training.evaluation import Policy as Policy
    from comper.training.evaluation import evaluate as evaluate
    from comper.training.evaluation import load as load
    from comper.training.hooks import Hook as Hook
    from comper.training.resume import resume as resume
    from comper.training.trackers import TensorBoard as TensorBoard
    from comper.training.trackers import WeightsAndBiases as WeightsAndBiases
    from comper.training.train import train as train
    from comper.viewing.memory_picture import draw_memory as draw_memory
    from comper.viewing.watching import watch as watch

__version__ = "0.2.0"

_HOMES = {
    "train": "comper.training.train",
    "resume": "comper.training.resume",
    "evaluate": "comper.training.evaluation",
    "load": "comper.training.evaluation",
    "Evaluation": "comper.training.evaluation",
    "Policy": "comper.training.evaluation",
    "watch": "comper.viewing.watching",
    "draw_memory": "comper.viewing.memory_picture",
    "Hook": "comper.training.hooks",
    "TensorBoard": "comper.training.trackers",
    "WeightsAndBiases": "comper.training.trackers",
    "CompactMemory": "comper.memory.compact",
    "Agent": "comper.agents.agent",
    "AgentSpec": "comper.agents.agent",
    "AgentConfig": "comper.protocol",
    "LearnerConfig": "comper.protocol",
    "Task": "comper.agents.agent",
    "TrialSetup": "comper.agents.agent",
    "setting": "comper.settings",
}
__all__ = sorted([*_HOMES, "__version__"])


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a checker that saw this would let any name pass

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'comper' has no attribute {name!r}")
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "safetensors"):
                raise
            raise ImportError(f'comper.{name} needs {error.name}: pip install "comper[train]"', name=error.name) from error
