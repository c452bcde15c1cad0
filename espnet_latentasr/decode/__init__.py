"""From a state of the frozen recogniser to transcripts."""
