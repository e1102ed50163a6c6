"""Measuring a model on problems with known answers: the command, and what the loop calls after each round."""

from trl_prism.evaluate.benchmarks import BENCHMARKS, ProblemSet, load_benchmark
from trl_prism.evaluate.results import Results, summarise
from trl_prism.evaluate.run import ProblemResult, evaluate, model_fingerprint


__all__ = [
    "BENCHMARKS",
    "ProblemResult",
    "ProblemSet",
    "Results",
    "evaluate",
    "load_benchmark",
    "model_fingerprint",
    "summarise",
]
