"""Reports: tables, plots and pages from saved scores; computes no score and knows no model."""
