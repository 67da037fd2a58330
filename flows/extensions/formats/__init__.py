"""Rare forms of extracts: sheets of Excel workbooks, read as lines of text."""

FORMATS = ("xlsx",)
HOOKS = {"readers": "workbook"}
