"""Systems on trial: a truth made coarse, what each system makes of it, their scores and how they look."""
