"""Many runs as one page: a list with filters, figures over time, two runs side by side."""
