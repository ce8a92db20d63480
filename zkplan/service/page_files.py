"""The files of the page, as they lie in the package."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from .problems import Problem


def add_page(app: FastAPI, folder: Path) -> None:
    """Serve index.html at `/`, and what is in the folder `assets` below `/assets/`."""

    async def index() -> Response:
        file = folder / "index.html"
        if not file.is_file():
            raise Problem(404, "no-page", "this service has no page", "Ask for /v1/plans.")
        return FileResponse(file)

    app.add_api_route("/", index, include_in_schema=False, response_class=Response)
    if (folder / "assets").is_dir():
        app.mount("/assets", StaticFiles(directory=folder / "assets"), name="assets")
