"""Pure maths: numpy and scikit-learn at most, no torch, nothing that knows of models, files or ranks."""
