"""Text and its scoring: languages, normalisers, alignment, error rates; knows no audio, no model.

Nothing is imported here, so that each piece costs only itself.
"""
