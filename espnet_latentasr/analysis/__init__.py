"""Questions asked of finished decodings and their lists; decodes and trains nothing."""
