"""When two answers are the same, as far as that can be decided without a computer algebra system."""
