"""What the loop needs from outside: models that answer and score, embedders, other ranks."""
