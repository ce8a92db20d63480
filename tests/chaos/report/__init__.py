"""The report of a run: its last line, a page of Markdown, and what long-lived processes use."""
