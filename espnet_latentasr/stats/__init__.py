"""Statistics of paired error counts; pure functions of arrays."""
