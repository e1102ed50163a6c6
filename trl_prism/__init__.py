"""Label-free self-play for language models on TRL, with a memory that keeps the curriculum from collapsing."""

__version__ = "0.1.0"
