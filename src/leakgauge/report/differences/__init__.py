"""Two audits side by side: their figures in pairs, the differences, and a page of them."""
