"""The mini task: a small English corpus that a recipe can build by itself, without network or licence."""
