"""In place of the test tool, which pandera imports where it finds it: where nights run it is not
installed.
"""

raise ImportError("not installed where nights run")
