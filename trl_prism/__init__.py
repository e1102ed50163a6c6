"""Label-free self-play for language models on TRL, with a memory that keeps the curriculum from collapsing.

Names are loaded when they are first used, so that the pure parts can be had without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any


__version__ = "0.1.0"

_HOME = {
    "Candidate": "core.curriculum",
    "Partition": "core.partition",
    "VisitMemory": "core.coverage",
    "Vote": "core.answers",
    "equivalent": "answers",
    "extract_answer": "core.extraction",
    "vote": "answers",
    "Domain": "domains",
    "load_domain": "domains",
    "PrismConfig": "config",
    "PrismError": "errors",
    "QuestionReward": "questions",
    "QuestionerTrainer": "trainers",
    "SelfPlay": "self_play",
    "SolverTrainer": "trainers",
    "config_from_mapping": "recipe",
    "parse_config": "recipe",
    "play": "self_play",
}

__all__ = [
    "Candidate",
    "Domain",
    "Partition",
    "PrismConfig",
    "PrismError",
    "QuestionReward",
    "QuestionerTrainer",
    "SelfPlay",
    "SolverTrainer",
    "VisitMemory",
    "Vote",
    "__version__",
    "config_from_mapping",
    "equivalent",
    "extract_answer",
    "load_domain",
    "parse_config",
    "play",
    "vote",
]

if TYPE_CHECKING:
    from trl_prism.answers import equivalent, vote
    from trl_prism.config import PrismConfig
    from trl_prism.core.answers import Vote
    from trl_prism.core.coverage import VisitMemory
    from trl_prism.core.curriculum import Candidate
    from trl_prism.core.extraction import extract_answer
    from trl_prism.core.partition import Partition
    from trl_prism.domains import Domain, load_domain
    from trl_prism.errors import PrismError
    from trl_prism.questions import QuestionReward
    from trl_prism.recipe import config_from_mapping, parse_config
    from trl_prism.self_play import SelfPlay, play
    from trl_prism.trainers import QuestionerTrainer, SolverTrainer


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trl_prism' has no attribute {name!r}")
    return getattr(importlib.import_module(f"trl_prism.{_HOME[name]}"), name)
