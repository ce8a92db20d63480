"""Values by reference: those too large for the tree lie in a store that all can reach."""
