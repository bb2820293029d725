"""When state moves between tiers: access, life cycle, policy."""
