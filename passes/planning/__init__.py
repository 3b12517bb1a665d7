"""From a graph to a plan: concrete sizes, a place for every value, captured and eager segments."""
