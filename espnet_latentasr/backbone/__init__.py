"""Frozen recognisers behind one contract; the only package that knows a model library."""
