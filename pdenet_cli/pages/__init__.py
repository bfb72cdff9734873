"""Results as pages and plots for people: one file each, nothing to load."""
