"""The verbs on paths: paths in, a report out. No arithmetic, nothing printed."""
