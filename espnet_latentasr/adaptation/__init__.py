"""What is trained beside the frozen recogniser; one file per method."""
