"""What the recognise passes share: patterns for the shapes in which exporters write one and the same function."""
