"""What `--json` prints: the facts of each command's outcome, and the JSON Schema made of them.

Put here the shape of facts. Keep out what makes or shows them. Nothing that runs imports this.
"""
