"""Results for people: one document of sections, as a page, as Markdown, and as JSON."""
