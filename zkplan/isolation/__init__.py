"""Run tasks in processes of their own, which may die: a guard for each slot, and its child.

A guard is a small process without threads that forks the child of its slot, watches the memory and
the number of the processes below it, and ends all of them. Linux only.
"""
