"""What a run will do and need, from its recipe alone: stages, learning rates, memory, disk."""
