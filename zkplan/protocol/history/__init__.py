"""The history of a plan: the events of each transaction, and the segments that hold them."""
