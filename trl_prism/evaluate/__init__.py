"""Measuring a model on problems with known answers: the command, and what the loop calls after each round."""

from trl_prism.evaluate.benchmarks import BENCHMARKS, load_benchmark
from trl_prism.evaluate.results import Results, summarise
from trl_prism.evaluate.run import ProblemResult, evaluate


__all__ = ["BENCHMARKS", "ProblemResult", "Results", "evaluate", "load_benchmark", "summarise"]
