"""Where state rests: frames, tiers, and the way between them."""
