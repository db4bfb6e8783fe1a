"""The recipe: all tensor work of the product, as plain processes. No Django, no database, no MLflow.

`python -m training.recipe import-base|prefix|train|verify|evaluate|embed DIR` reads files, writes files and prints one
JSON event per line on stdout. Importing this package imports no torch; only the modules that need it do.
"""
