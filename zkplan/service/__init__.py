"""The HTTP service of a root: plans, tasks, results, workers for any language, and the page."""

from .app import create_app
from .link import Link
from .options import Options
from .tokens import Tokens, new_token

__all__ = ["create_app", "Link", "Options", "Tokens", "new_token"]
