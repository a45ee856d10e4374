"""What do the kept updates of a real federation give away? Inversion, membership, property."""
