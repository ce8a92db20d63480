"""How a plan, its status and a task look in a notebook, and what keeps them as they are now."""

from .live import show_live
from .small_graph import graph_svg
from .views import Picture, plan_picture, readable, status_html, task_picture

__all__ = [
    "Picture",
    "graph_svg",
    "plan_picture",
    "readable",
    "show_live",
    "status_html",
    "task_picture",
]
