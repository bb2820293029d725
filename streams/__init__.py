"""Every door to the outside, and the only clock."""
