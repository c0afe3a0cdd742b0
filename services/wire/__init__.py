"""The messages between the three services, and the tree of errors. Imports nothing else of ours."""
