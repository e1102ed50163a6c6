"""Thin subclasses of TRL's `GRPOTrainer`, one per role."""

from trl_prism.trainers.questioner import QuestionerTrainer
from trl_prism.trainers.solver import SolverTrainer


__all__ = ["QuestionerTrainer", "SolverTrainer"]
