"""The oracle gap: candidate lists, their scores, and choosing from them; runs no recogniser."""
