"""Training: scenes and their patches, recipes, the loop with its checkpoints, and the curves."""
