"""One module per noun: decorators, load, form, one domain call, respond. No queries, no HTML."""
