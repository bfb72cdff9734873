"""Evaluation: truths are degraded and sharpened by each system; scores, uncertainty and pictures."""
