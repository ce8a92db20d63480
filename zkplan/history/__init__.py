"""The history of a plan for those who read it: events, what they add up to, and pictures of it."""
