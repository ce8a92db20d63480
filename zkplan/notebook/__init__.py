"""How a plan, its status and a task look in a notebook, and what keeps them as they are now."""
