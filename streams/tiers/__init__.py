"""Jobs that move sessions between tiers, look after packs, and say what they did."""
