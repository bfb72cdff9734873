"""Results as pages and plots for people: self-contained, without scripts."""
