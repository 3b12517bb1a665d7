"""Whole-graph changes and the pipeline that runs them: valid graph in, valid graph out, same meaning."""
