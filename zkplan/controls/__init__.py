"""What an operator decides: about single tasks, about workers, about queues and limits."""
