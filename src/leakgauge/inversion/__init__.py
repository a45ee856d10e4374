"""Can the records be rebuilt? Gradient inversion, from DLG to AGIC."""
