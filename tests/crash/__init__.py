"""Kills the embedded server again and again under load, and holds it to every answer it gave."""
