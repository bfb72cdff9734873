"""Results as HTML pages and plots; each page is one file that loads nothing else."""
