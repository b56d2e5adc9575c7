"""A trace explained: where the time of a step goes, why, and what would win it back."""
