"""Sequence-level training: losses over whole hypotheses and experiments about them."""
