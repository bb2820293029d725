"""Moving whole sessions between tiers, each step journalled and repeatable."""
