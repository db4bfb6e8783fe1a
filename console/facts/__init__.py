"""What a page says about its noun: read-only queries and plain values for templates. Nothing here changes a row."""
