"""The seam to ESPnet; the only package that imports it, and nothing but ``bin`` imports this."""
