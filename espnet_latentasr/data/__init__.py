"""Data on disk: Kaldi directories and audio files; knows no model, no tokenizer and no torch."""
